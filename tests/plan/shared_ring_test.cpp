// Promise: every chunk of the ring of nodes comes to each node exactly once, but for those that the
// node begins with and those that it completes; each block holds every node's contribution once,
// and ends up everywhere; either half of the ring alone does its part of that; no node waits for a
// chunk that waits for it; messages are as many as the formula says; and ranks agree about who
// sends to whom.
#include "plan/allreduce/shared_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using Stage = RingChunk::Stage;
using test::NodeOf;

/// Runs the tasks of all nodes, each in its order, as far as chunks have come.
class Flow {
 public:
  Flow(std::uint32_t nodes, std::uint32_t sub_blocks, std::uint32_t first,
       RingPhases phases = RingPhases::both)
      : first_(first), phases_(phases) {
    for (std::uint32_t node = 0; node < nodes; ++node)
      rings_.push_back({nodes, node, sub_blocks, phases});
    come_.resize(nodes);
    held_.resize(nodes);
    complete_.resize(nodes);
    next_.resize(nodes);
    sent_.resize(nodes);
  }

  /// Empty: everything is as promised.
  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t node = 0; node < rings_.size(); ++node)
        while (next_[node] < rings_[node].task_count() && do_next(node)) moved = true;
      if (!wrong_.empty()) return wrong_;
    }
    for (std::uint32_t node = 0; node < rings_.size(); ++node) {
      const NodeRing& ring = rings_[node];
      if (next_[node] != ring.task_count()) return "stuck";
      const std::uint32_t halves = phases_ == RingPhases::both ? 2 : 1;
      if (sent_[node] != halves * (ring.nodes - 1) * ring.sub_blocks) return "number of messages";
      std::set<std::uint32_t> parts;
      for (std::uint32_t i = 0; i < ring.result_count(); ++i) {
        const RingChunk chunk = ring.result(i);
        if (phases_ == RingPhases::reduce_scatter && chunk.block != ring.own_block())
          return "whose result";
        parts.insert(ring.part_of(chunk));
        const std::multiset<std::uint32_t>& from = complete_[node][ring.part_of(chunk)];
        if (phases_ == RingPhases::allgather) {
          if (from != std::multiset<std::uint32_t>{ring.node_of(chunk.block)})
            return "contribution";
        } else if (from.size() != ring.nodes || *from.begin() != 0 ||
                   *from.rbegin() != ring.nodes - 1 ||
                   std::set<std::uint32_t>(from.begin(), from.end()).size() != ring.nodes)
          return "contributions";
      }
      if (parts.size() != ring.result_count()) return "parts of the result";
      std::set<std::uint32_t> expected;
      for (const Stage stage : {Stage::reduce_scatter, Stage::allgather})
        for (std::uint32_t part = 0; part < ring.parts(); ++part) {
          const RingChunk chunk{stage, part / ring.sub_blocks, part % ring.sub_blocks};
          if (!ring.comes(chunk)) continue;
          if (ring.id_of(chunk) >= ring.ids() || !expected.insert(ring.id_of(chunk)).second)
            return "numbers";
        }
      if (come_[node] != expected) return "what comes";
      if (expected.size() != halves * (ring.nodes - 1) * ring.sub_blocks) return "as many";
    }
    return {};
  }

 private:
  bool do_next(std::uint32_t node) {
    const NodeRing& ring = rings_[node];
    RingChunk chunk = ring.task(next_[node], first_);
    const bool begins = ring.begins_with(chunk);
    if (!begins && come_[node].count(ring.id_of(chunk)) == 0) return false;
    ++next_[node];
    std::multiset<std::uint32_t> value;
    if (!begins) value = held_[node][ring.id_of(chunk)];
    if (chunk.stage == Stage::reduce_scatter) value.insert(node);
    if (ring.completes(chunk)) {
      chunk.stage = Stage::allgather;
      complete_[node][ring.part_of(chunk)] = value;
    }
    if (ring.goes_on(chunk)) send(node, chunk, value);
    return true;
  }

  void send(std::uint32_t node, const RingChunk& chunk, const std::multiset<std::uint32_t>& value) {
    const std::uint32_t to = (node + 1) % static_cast<std::uint32_t>(rings_.size());
    const NodeRing& ring = rings_[to];
    ++sent_[node];
    if (!come_[to].insert(ring.id_of(chunk)).second) wrong_ = "comes twice";
    held_[to][ring.id_of(chunk)] = value;
    if (chunk.stage == Stage::allgather) complete_[to][ring.part_of(chunk)] = value;
  }

  std::uint32_t first_;
  RingPhases phases_;
  std::vector<NodeRing> rings_;
  std::vector<std::set<std::uint32_t>> come_;  // by node: ids
  std::vector<std::map<std::uint32_t, std::multiset<std::uint32_t>>> held_, complete_;
  std::vector<std::uint32_t> next_, sent_;
  std::string wrong_;
};

TEST(SharedRing, brings_every_contribution_everywhere_once) {
  for (std::uint32_t nodes = 1; nodes <= 16; ++nodes)
    for (std::uint32_t sub_blocks = 1; sub_blocks <= 5; ++sub_blocks)
      for (std::uint32_t first = 0; first < sub_blocks; ++first)
        EXPECT_EQ(Flow(nodes, sub_blocks, first).run(), "")
            << nodes << " nodes, " << sub_blocks << " sub-blocks, from " << first << " on";
}

TEST(SharedRing, either_half_does_its_part) {
  for (const RingPhases phases : {RingPhases::reduce_scatter, RingPhases::allgather})
    for (std::uint32_t nodes = 1; nodes <= 16; ++nodes)
      for (std::uint32_t sub_blocks = 1; sub_blocks <= 5; ++sub_blocks)
        for (std::uint32_t first = 0; first < sub_blocks; ++first)
          EXPECT_EQ(Flow(nodes, sub_blocks, first, phases).run(), "")
              << nodes << " nodes, " << sub_blocks << " sub-blocks, from " << first << " on";
}

/// Block i + 1 is that of node i.
TEST(SharedRing, has_a_block_for_each_node) {
  const NodeOf node_of{Node{0}, Node{1}, Node{0}, Node{2}};
  const std::vector<std::size_t> of_rank{1, 20, 300, 4000};
  EXPECT_EQ(blocks_of_ring(4, node_of, of_rank), (std::vector<std::size_t>{4000, 301, 20}));
  EXPECT_EQ(blocks_of_ring(4, {}, of_rank), (std::vector<std::size_t>{4000, 1, 20, 300}));
  EXPECT_EQ(ring_elements_to_cut(std::vector<std::size_t>{4000, 301, 20}), 12'000u);
  EXPECT_EQ(ring_elements_to_cut(std::vector<std::size_t>{0, 0}), 0u);
  EXPECT_GE(ring_elements_to_cut(std::vector<std::size_t>{SIZE_MAX, 0}), SIZE_MAX / 32);
}

TEST(SharedRing, ranks_agree_about_who_sends_to_whom) {
  std::mt19937 random(1);
  for (int sample = 0; sample < 300; ++sample) {
    const auto ranks = static_cast<std::uint32_t>(1 + random() % 12);
    const auto at_most = static_cast<std::uint32_t>(1 + random() % std::min(ranks, 5u));
    const NodeOf node_of = test::placed(ranks, at_most, sample % 2 == 0, random);
    std::set<std::pair<std::uint32_t, std::uint32_t>> puts, awaits;
    std::uint32_t nodes = 0;
    for (const Node node : node_of) nodes = std::max(nodes, index_of(node) + 1);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Plan plan = shared_ring_plan(Rank{rank}, ranks, node_of, 12);
      std::size_t own_node = 0, sends = 0;
      for (const Step& step : plan.steps) {
        ASSERT_NE(step.peer, Rank{rank});
        const std::uint32_t here = index_of(node_of[rank]);
        const std::uint32_t there = index_of(node_of[index_of(step.peer)]);
        if (step.action == Action::put) {
          EXPECT_EQ(there, (here + 1) % nodes);
          puts.insert({rank, index_of(step.peer)});
          ++sends;
        } else if (here == there) {
          ++own_node;
        } else {
          EXPECT_EQ(there, (here + nodes - 1) % nodes);
          awaits.insert({index_of(step.peer), rank});
        }
      }
      EXPECT_EQ(own_node + 1, static_cast<std::size_t>(
                                  std::count(node_of.begin(), node_of.end(), node_of[rank])));
      EXPECT_EQ(sends, nodes > 1 ? 1u : 0u);
    }
    EXPECT_EQ(puts, awaits) << test::text_of(node_of);
  }
}

TEST(SharedRing, has_as_many_sub_blocks_as_the_largest_node_has_ranks) {
  const NodeOf node_of = test::in_blocks({2, 3, 1});
  EXPECT_EQ(shared_ring_sub_blocks(6, node_of, 8), 3u);
  EXPECT_EQ(shared_ring_sub_blocks(6, node_of, 1u << 20), 4u);
  EXPECT_EQ(shared_ring_sub_blocks(6, node_of, (1u << 20) - 1), 3u);
  EXPECT_EQ(shared_ring_sub_blocks(6, {}, 8), 1u);
}

TEST(SharedRing, has_chunks_of_8_kib_where_each_node_is_a_rank) {
  EXPECT_EQ(shared_ring_sub_blocks(2, {}, 256u << 10), 1u);
  EXPECT_EQ(shared_ring_sub_blocks(4, {}, 32u << 10), 1u);
  EXPECT_EQ(shared_ring_sub_blocks(4, {}, 64u << 10), 2u);
  EXPECT_EQ(shared_ring_sub_blocks(4, {}, 256u << 10), 4u);
  EXPECT_EQ(shared_ring_sub_blocks(32, {}, 256u << 10), 1u);
  EXPECT_EQ(shared_ring_sub_blocks(32, {}, 512u << 10), 2u);
  EXPECT_EQ(shared_ring_sub_blocks(32, {}, 1u << 20), 4u);
}

/// 8 MiB of 16 ranks on 4 nodes: laps of 1 MiB, two of which are in flight.
TEST(SharedRing, takes_as_much_of_an_arena_as_the_documentation_says) {
  constexpr std::uint64_t elements = 1u << 20, element_bytes = 8;
  const RingLaps laps = shared_ring_laps(16, elements, element_bytes,
                                         shared_ring_limits(4, 4, 4, elements * element_bytes));
  EXPECT_EQ(laps.in_flight, 2u);
  const std::uint64_t lines = 2 * 2 * 2 * 16 + 3 * 4;
  EXPECT_EQ(shared_ring_arena_bytes(laps, 4, 4, 4, elements, element_bytes),
            (7u << 20) + 64 * lines);
}

TEST(SharedRing, has_fewer_where_not_all_chunks_can_be_numbered) {
  for (const std::uint32_t nodes : {1u, 64u, 512u, 1024u}) {
    constexpr std::uint32_t ranks = 48;
    const NodeOf node_of = test::in_blocks(std::vector<std::uint32_t>(nodes, ranks));
    const std::uint32_t sub_blocks = shared_ring_sub_blocks(nodes * ranks, node_of, 8);
    EXPECT_TRUE(is_shared_ring(nodes, sub_blocks));
    EXPECT_LE(sub_blocks, ranks);
    if (sub_blocks < ranks) {
      EXPECT_FALSE(is_shared_ring(nodes, sub_blocks + 1));
    }
  }
}

TEST(SharedRing, cuts_payloads_finer_where_ranks_share_nodes) {
  EXPECT_EQ(shared_ring_limits(4, 4, 1, 1u << 20).chunk_bytes, 64u << 10);
  const RingLapLimits limits = shared_ring_limits(4, 4, 4, 1u << 20);
  EXPECT_EQ(limits.chunk_bytes, 8u << 10);  // a block is a thirty-second of the payload
  EXPECT_EQ(shared_ring_laps(16, 1u << 17, 8, limits).count, 8u);
  EXPECT_EQ(shared_ring_laps(16, 1u << 17, 8, limits).in_flight, 8u);
  EXPECT_EQ(shared_ring_limits(2, 4, 4, 1u << 20).chunk_bytes, 16u << 10);  // 8 laps
  EXPECT_EQ(shared_ring_limits(4, 4, 4, 8).chunk_bytes, 8u << 10);
  EXPECT_EQ(shared_ring_limits(4, 4, 4, 64u << 20).chunk_bytes, 64u << 10);
}

TEST(SharedRing, has_laps_that_fit_into_the_window) {
  const auto laps = [](std::uint32_t parts, std::uint64_t elements, RingLapLimits limits = {}) {
    return shared_ring_laps(parts, elements, 8, limits);
  };
  // 1 MiB in 16 chunks of 64 KiB is one lap, an element more is two, and two are in flight.
  EXPECT_EQ(laps(16, 0).count, 1u);
  EXPECT_EQ(laps(16, 1u << 17).count, 1u);
  EXPECT_EQ(laps(16, 1u << 17).in_flight, 1u);
  EXPECT_EQ(laps(16, (1u << 17) + 1).count, 2u);
  EXPECT_EQ(laps(16, (1u << 17) + 1).in_flight, 2u);
  EXPECT_EQ(laps(16, 1u << 20).count, 8u);
  EXPECT_EQ(laps(16, 1u << 20).in_flight, 2u);
  EXPECT_EQ(laps(16, 1u << 20, {.in_flight_max = 1}).in_flight, 1u);
  EXPECT_EQ(laps(2, 1u << 20).in_flight, 16u);
  EXPECT_EQ(laps(2, 1u << 20).count, 64u);                 // of two chunks
  EXPECT_EQ(laps(1024, 1u << 20).count, 8u);               // of chunks of 1 KiB
  EXPECT_EQ(laps(30000, 1u << 20).count, 8u);              // of chunks of 4 or 5 elements
  EXPECT_EQ(laps(4, 100, {.chunk_bytes = 1}).count, 25u);  // an element each
  // A payload as long as the window is in flight as a whole, whatever the number of chunks.
  for (std::uint32_t parts = 1; parts <= 300; ++parts)
    EXPECT_LE(laps(parts, (2u << 20) / 8).count, laps(parts, (2u << 20) / 8).in_flight) << parts;
  for (const std::uint32_t parts : {1u, 7u, 32768u})
    for (const std::uint64_t elements : {0ul, 1ul, 1ul << 20, (1ul << 50) + 3})
      for (const std::uint64_t chunk_bytes : {1ul, 4096ul, std::uint64_t{UINT32_MAX}}) {
        const RingLaps found = laps(parts, elements,
                                    {.chunk_bytes = chunk_bytes,
                                     .window_bytes = ring_laps_in_flight * parts * chunk_bytes});
        ASSERT_GE(found.count, 1u);
        ASSERT_LE(found.count, 1u << 24);
        EXPECT_LE(found.count, std::max<std::uint64_t>(elements, 1));
        EXPECT_LE(found.in_flight, found.count);
      }
}

TEST(SharedRing, counts_its_chunks) {
  EXPECT_TRUE(is_shared_ring(64, 256));
  EXPECT_FALSE(is_shared_ring(64, 257));
  EXPECT_FALSE(is_shared_ring(0, 1));
  EXPECT_TRUE(is_shared_ring(64, 256, RingPhases::allgather));
  EXPECT_FALSE(is_shared_ring(64, 256, RingPhases::reduce_scatter));
  EXPECT_TRUE(is_shared_ring(63, 256, RingPhases::reduce_scatter));
}

}  // namespace
}  // namespace tutti::plan
