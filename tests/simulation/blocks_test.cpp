// Promise: blocks of any sizes at any offsets get where they belong, and nothing else is written,
// whole or in chunks, copied or by reference, whatever the order of arrivals.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "plan/allreduce/canonical_halving.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/circulant.hpp"
#include "plan/allreduce/scan.hpp"
#include "plan/blocks/block_dissemination.hpp"
#include "plan/blocks/blocks.hpp"
#include "plan/blocks/bruck_alltoall.hpp"
#include "plan/blocks/node_alltoall.hpp"
#include "simulated_run.hpp"
#include "support/node_shapes.hpp"
#include "support/operators.hpp"

namespace tutti {
namespace {

using engine::Part, engine::Range;
using simulation::Bytes, simulation::SimulatedCall;

constexpr std::byte untouched{0xee};

std::byte value(std::uint32_t from, std::uint32_t to, std::size_t i) {
  return static_cast<std::byte>(test::input(from * 37 + to, 1, i) >> 8);
}

/// Blocks of the given sizes in a random order, with gaps.
std::vector<Range> scattered_over(const std::vector<std::size_t>& bytes, std::mt19937& random) {
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Range> ranges(bytes.size());
  std::size_t next = 0;
  for (const std::size_t rank : order) {
    next += random() % 3;
    ranges[rank] = {next, bytes[rank]};
    next += bytes[rank];
  }
  return ranges;
}

std::size_t end_of(const std::vector<Range>& ranges) {
  std::size_t end = 0;
  for (const Range& range : ranges) end = std::max(end, range.offset + range.bytes);
  return end + 2;
}

struct Case {
  std::uint32_t rank_count;
  std::size_t chunk_count;
  plan::Transport transport;
  std::uint32_t seed;
};

std::string text_of(const Case& one) {
  return std::to_string(one.rank_count) + " ranks, " + std::to_string(one.chunk_count) +
         " chunks, seed " + std::to_string(one.seed) +
         (one.transport == plan::Transport::copied ? ", copied" : ", by reference");
}

enum class Swap { direct, by_nodes, through_others };

/// Every rank has a block of size[from][to] for every rank.  They have one size, unless they go
/// directly.
void expect_swapped(const Case& one, Swap swap) {
  std::mt19937 random(one.seed);
  const std::uint32_t count = one.rank_count;
  const test::NodeOf node_of =
      test::placed(count, std::min(count, 2 + one.seed % 4), one.seed % 2 == 0, random);
  if (swap == Swap::by_nodes && !plan::is_node_alltoall(node_of)) return;
  std::vector<std::vector<std::size_t>> size(count, std::vector<std::size_t>(count));
  std::size_t longest = 1;
  for (auto& row : size)
    for (std::size_t& bytes : row) longest = std::max(longest, bytes = random() % 20);
  if (swap != Swap::direct)
    for (auto& row : size) std::fill(row.begin(), row.end(), longest);
  SimulatedCall call{.reduction = {.element_bytes = 1},
                     .chunk_count = std::min(one.chunk_count, longest),
                     .seed = one.seed,
                     .longest_block = longest};
  std::vector<Bytes> sources, expected;
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    plans.push_back(swap == Swap::by_nodes ? plan::node_alltoall(Rank{rank}, node_of)
                    : swap == Swap::through_others
                        ? plan::bruck_alltoall(Rank{rank}, count, 1 + one.seed % 3)
                        : plan::direct_alltoall(Rank{rank}, count, one.transport));
    std::vector<std::size_t> incoming;
    for (std::uint32_t peer = 0; peer < count; ++peer) incoming.push_back(size[peer][rank]);
    const std::vector<Range> source = scattered_over(size[rank], random);
    const std::vector<Range> target = scattered_over(incoming, random);
    sources.emplace_back(end_of(source));
    call.targets.emplace_back(end_of(target), untouched);
    expected.emplace_back(end_of(target), untouched);
    call.blocks.emplace_back();
    for (std::uint32_t peer = 0; peer < count; ++peer) {
      call.blocks[rank].push_back({.source = source[peer], .target = target[peer]});
      for (std::size_t i = 0; i < source[peer].bytes; ++i)
        sources[rank][source[peer].offset + i] = value(rank, peer, i);
      for (std::size_t i = 0; i < target[peer].bytes; ++i)
        expected[rank][target[peer].offset + i] = value(peer, rank, i);
    }
  }
  EXPECT_EQ(simulation::simulate(plans, call, sources), expected)
      << text_of(one) << (swap == Swap::by_nodes ? ", by " + test::text_of(node_of) : "");
}

/// Every rank has one block, which all get, or the root; or all have a block from the root.
enum class Kind { allgather, dissemination, node_allgather, gather, scatter };

/// Nodes are numbered without gaps.
std::uint32_t node_count_of(const test::NodeOf& node_of) {
  return 1 + index_of(*std::max_element(node_of.begin(), node_of.end()));
}

void expect_gathered(const Case& one, Kind kind, Rank root) {
  std::mt19937 random(one.seed);
  const std::uint32_t count = one.rank_count;
  std::vector<std::size_t> size(count);
  std::size_t longest = 1;
  for (std::size_t& bytes : size) longest = std::max(longest, bytes = random() % 20);
  SimulatedCall call{.reduction = {.element_bytes = 1},
                     .chunk_count = std::min(one.chunk_count, longest),
                     .seed = one.seed,
                     .longest_block = longest};
  std::vector<Bytes> sources, expected;
  std::vector<plan::Plan> plans;
  const test::NodeOf node_of =
      test::placed(count, 1 + one.seed % std::min(count, 4u), one.seed % 2 == 0, random);
  const std::uint32_t n = 1 + one.seed % 3;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    const bool has_all = root == no_rank || Rank{rank} == root;
    plans.push_back(
        kind == Kind::allgather ? plan::direct_allgather(Rank{rank}, count, one.transport)
        : kind == Kind::dissemination
            ? plan::dissemination_allgather(Rank{rank}, count, plan::uniform(count, n))
        : kind == Kind::node_allgather
            ? plan::dissemination_allgather(Rank{rank}, count,
                                            plan::uniform(node_count_of(node_of), n), node_of)
        : kind == Kind::gather ? plan::direct_gather(Rank{rank}, count, root, one.transport)
                               : plan::direct_scatter(Rank{rank}, count, root, one.transport));
    const std::vector<Range> all = scattered_over(size, random);
    const Range own{1, size[rank]};
    std::vector<Part> blocks(count);
    for (std::uint32_t peer = 0; peer < count; ++peer)
      if (has_all) (kind == Kind::scatter ? blocks[peer].source : blocks[peer].target) = all[peer];
    (kind == Kind::scatter ? blocks[rank].target : blocks[rank].source) = own;
    Bytes source(end_of(all)), target(end_of(all), untouched);
    call.targets.push_back(target);
    for (std::uint32_t peer = 0; peer < count; ++peer) {
      const std::uint32_t from = kind == Kind::scatter ? index_of(root) : peer;
      const std::uint32_t to = kind == Kind::scatter ? peer : 0;
      for (std::size_t i = 0; i < blocks[peer].source.bytes; ++i)
        source[blocks[peer].source.offset + i] =
            kind == Kind::scatter ? value(rank, peer, i) : value(rank, 0, i);
      for (std::size_t i = 0; i < blocks[peer].target.bytes; ++i)
        target[blocks[peer].target.offset + i] = value(from, to, i);
    }
    sources.push_back(source);
    expected.push_back(target);
    call.blocks.push_back(blocks);
  }
  EXPECT_EQ(simulation::simulate(plans, call, sources), expected)
      << text_of(one) << ", kind " << static_cast<int>(kind) << ", root " << index_of(root);
}

template <class F>
void for_cases(F&& f) {
  for (const plan::Transport transport : {plan::Transport::copied, plan::Transport::by_reference})
    for (std::uint32_t ranks = 1; ranks <= 8; ++ranks)
      for (const std::size_t chunks : {1u, 2u, 5u})
        for (std::uint32_t seed = 1; seed <= 10; ++seed) f(Case{ranks, chunks, transport, seed});
}

TEST(Blocks, are_swapped) {
  for_cases([](const Case& one) { expect_swapped(one, Swap::direct); });
  for_cases([](const Case& one) {
    if (one.transport != plan::Transport::copied) return;
    expect_swapped(one, Swap::by_nodes);
    expect_swapped(one, Swap::through_others);
  });
}

TEST(Blocks, are_gathered_by_all) {
  for_cases([](const Case& one) { expect_gathered(one, Kind::allgather, no_rank); });
  for_cases([](const Case& one) {
    if (one.transport != plan::Transport::copied) return;
    expect_gathered(one, Kind::dissemination, no_rank);
    expect_gathered(one, Kind::node_allgather, no_rank);
  });
}

TEST(Blocks, are_gathered_by_the_root_and_scattered_from_it) {
  for_cases([](const Case& one) {
    const Rank root{one.seed % one.rank_count};
    expect_gathered(one, Kind::gather, root);
    expect_gathered(one, Kind::scatter, root);
  });
}

Bytes bytes_of(const std::vector<std::uint64_t>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// Reduce-scatter of blocks of up to 6 elements; `build(rank)` is the plan.
template <class Build>
void expect_combined(std::uint32_t ranks, std::size_t chunks, std::uint32_t seed,
                     const test::Job& job, Build&& build) {
  std::mt19937 random(seed);
  std::vector<std::size_t> first{0};  // element of each block
  std::size_t longest = 1;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    first.push_back(first.back() + random() % 7);
    longest = std::max(longest, first[rank + 1] - first[rank]);
  }
  SimulatedCall call{.reduction = job.reduction,
                     .chunk_count = std::min(chunks, longest),
                     .seed = seed,
                     .longest_block = longest};
  std::vector<Bytes> sources, expected;
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    plans.push_back(build(Rank{rank}));
    std::vector<std::uint64_t> source, result;
    for (std::size_t i = 0; i < first.back(); ++i) source.push_back(test::input(rank, 1, i));
    for (std::size_t i = first[rank]; i < first[rank + 1]; ++i)
      result.push_back(job.expected(ranks, 1, i));
    sources.push_back(bytes_of(source));
    expected.push_back(bytes_of(result));
    call.targets.emplace_back(expected.back().size());
    call.blocks.emplace_back();
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      const std::size_t bytes = (first[peer + 1] - first[peer]) * 8;
      call.blocks[rank].push_back({.source = {first[peer] * 8, bytes}, .target = {0, bytes}});
    }
  }
  EXPECT_EQ(simulation::simulate(plans, call, sources), expected)
      << ranks << " ranks, " << chunks << " chunks, seed " << seed;
}

TEST(Blocks, are_combined_in_rank_order) {
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks)
    for (const std::size_t chunks : {1u, 2u, 5u})
      for (std::uint32_t seed = 1; seed <= 10; ++seed)
        expect_combined(ranks, chunks, seed, test::ordered_job(),
                        [&](Rank self) { return plan::chunked_fold_reduce_scatter(self, ranks); });
}

TEST(Blocks, are_combined_in_rank_order_by_halving) {
  for (const std::uint32_t ranks : {1u, 2u, 3u, 5u, 7u, 8u, 11u, 26u, 33u, 63u, 160u})
    for (const std::size_t chunks : {1u, 3u})
      for (std::uint32_t seed = 1; seed <= 3; ++seed)
        expect_combined(ranks, chunks, seed, test::ordered_job(), [&](Rank self) {
          return plan::canonical_halving_reduce_scatter(self, ranks);
        });
}

TEST(Blocks, are_combined_along_skips) {
  const auto expect = [](std::uint32_t ranks, std::uint32_t ranks_per_node, std::size_t chunks,
                         plan::Skips skips) {
    std::vector<Node> node_of;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      node_of.push_back(Node{rank / ranks_per_node});
    expect_combined(ranks, chunks, ranks, test::sum_job(), [&](Rank self) {
      return plan::circulant_reduce_scatter(
          self, {.rank_count = ranks, .node_of = node_of, .skips = skips});
    });
  };
  for (const std::uint32_t ranks : {1u, 2u, 3u, 5u, 8u, 11u, 26u})
    for (const std::uint32_t ranks_per_node : {1u, 2u, 3u, 30u})
      for (const std::size_t chunks : {1u, 3u})
        for (const plan::Skips skips : {plan::Skips::few, plan::Skips::ones})
          expect(ranks, ranks_per_node, chunks, skips);
  expect(160, 1, 2, plan::Skips::few);  // whose longest run is answered for
}

void expect_reduced(const test::Job& job, plan::Plan (*plan_of)(Rank, std::uint32_t)) {
  for (const std::uint32_t ranks : {1u, 2u, 3u, 7u, 12u, 25u, 34u, 160u})
    for (const bool in_place : {false, true}) {
      const std::size_t elements = 3 * ranks + 5;
      std::vector<plan::Plan> plans;
      std::vector<Bytes> sources;
      std::vector<std::uint64_t> result;
      for (std::size_t i = 0; i < elements; ++i) result.push_back(job.expected(ranks, 1, i));
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        plans.push_back(plan_of(Rank{rank}, ranks));
        std::vector<std::uint64_t> source;
        for (std::size_t i = 0; i < elements; ++i) source.push_back(test::input(rank, 1, i));
        sources.push_back(bytes_of(source));
      }
      EXPECT_EQ(simulation::simulate(plans,
                                     {.reduction = job.reduction,
                                      .element_count = elements,
                                      .chunk_count = 2,
                                      .in_place = in_place,
                                      .seed = ranks},
                                     sources),
                std::vector<Bytes>(ranks, bytes_of(result)))
          << ranks << " ranks" << (in_place ? ", in place" : "");
    }
}

TEST(Allreduces, are_right_along_skips) {
  expect_reduced(test::sum_job(), plan::circulant_allreduce);
}

TEST(Allreduces, are_right_by_halving) {
  expect_reduced(test::ordered_job(), plan::canonical_halving_allreduce);
}

TEST(Scans, are_right_whole_and_in_chunks_and_in_place) {
  const test::Job job = test::ordered_job();
  for (const plan::Prefix prefix : {plan::Prefix::inclusive, plan::Prefix::exclusive})
    for (const bool in_place : {false, true})
      for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
        for (const std::size_t chunks : {1u, 3u}) {
          constexpr std::size_t elements = 7;
          std::vector<plan::Plan> plans;
          std::vector<Bytes> sources;
          for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            plans.push_back(plan::doubling_scan(Rank{rank}, ranks, prefix));
            std::vector<std::uint64_t> source;
            for (std::size_t i = 0; i < elements; ++i) source.push_back(test::input(rank, 1, i));
            sources.push_back(bytes_of(source));
          }
          const std::vector<Bytes> targets = simulation::simulate(plans,
                                                                  {.reduction = job.reduction,
                                                                   .element_count = elements,
                                                                   .chunk_count = chunks,
                                                                   .in_place = in_place,
                                                                   .seed = ranks},
                                                                  sources);
          for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            const std::uint32_t operands = prefix == plan::Prefix::inclusive ? rank + 1 : rank;
            std::vector<std::uint64_t> expected;
            for (std::size_t i = 0; i < elements; ++i)
              expected.push_back(operands == 0 ? test::input(rank, 1, i)
                                               : job.expected(operands, 1, i));
            EXPECT_EQ(targets[rank], bytes_of(expected)) << "rank " << rank << " of " << ranks;
          }
        }
}

}  // namespace
}  // namespace tutti
