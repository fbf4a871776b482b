// Promise: where the ranks of a node share one target, each finds the whole result of a call there,
// and finds it still when it begins the next one, however late it reads and whatever the order of
// arrivals; without entries it would not.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "plan/blocks/block_dissemination.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/rooted/rooted.hpp"
#include "simulated_run.hpp"
#include "support/node_shapes.hpp"

namespace tutti {
namespace {

using simulation::Bytes, simulation::SimulatedCall, simulation::SimulatedRank;

constexpr std::uint32_t calls = 6;

std::byte value(std::uint32_t from, std::uint32_t call, std::size_t i) {
  return static_cast<std::byte>(from * 37 + call * 101 + i * 7);
}

struct Case {
  test::NodeOf node_of;
  Rank root = no_rank;  // of a broadcast; none: an allgather
  std::size_t bytes = 1;
  std::size_t chunk_count = 1;
  std::uint64_t seed = 1;
};

std::string text_of(const Case& one) {
  return test::text_of(one.node_of) + ", root " + std::to_string(index_of(one.root)) + ", " +
         std::to_string(one.bytes) + " bytes in " + std::to_string(one.chunk_count) +
         " chunks, seed " + std::to_string(one.seed);
}

/// Runs several calls, each rank as fast as it likes; whether every rank has found every result
/// twice: when the call has ended, and before the next one.
class Calls {
 public:
  Calls(const Case& one, std::vector<plan::Plan> plans)
      : one_(one), plans_(std::move(plans)), ranks_(plans_.size()), random_(one.seed) {
    const std::size_t count = plans_.size();
    SimulatedCall call{.reduction = {.element_bytes = 1},
                       .element_count = one.bytes,
                       .chunk_count = std::min(one.chunk_count, one.bytes),
                       .seed = one.seed,
                       .longest_block = one.bytes};
    if (!is_broadcast())
      for (std::size_t rank = 0; rank < count; ++rank) {
        call.blocks.emplace_back(count);
        call.blocks[rank][rank].source = {0, one.bytes};
        for (std::size_t block = 0; block < count; ++block)
          call.blocks[rank][block].target = {block * one.bytes, one.bytes};
      }
    for (std::size_t rank = 0; rank < count; ++rank) {
      targets_.emplace_back(is_broadcast() ? one.bytes : one.bytes * count);
      sources_.emplace_back(one.bytes);
    }
    for (std::size_t rank = 0; rank < count; ++rank) {
      simulation::set_up(ranks_[rank], plans_[rank], call);
      auto& memory = ranks_[rank].execution.memory;
      memory.target = target_of(rank).data();
      memory.source = is_broadcast() ? memory.target : sources_[rank].data();
    }
    begun_.resize(count);
  }

  bool is_right() {
    simulation::SimulatedFabric fabric(ranks_, 2, one_.seed);
    for (std::size_t unfinished = ranks_.size(); unfinished > 0;) {
      if (!fabric.idle() && random_() % 2 == 0) {
        fabric.deliver_one();
        continue;
      }
      const auto rank = static_cast<std::uint32_t>(random_() % ranks_.size());
      engine::Execution& execution = ranks_[rank].execution;
      if (!execution.in_flight) {
        if (begun_[rank] > calls || !may_begin(rank)) continue;
        if (begun_[rank] > 0 && !holds_result(rank)) return false;
        if (++begun_[rank] > calls) {
          --unfinished;
          continue;
        }
        contribute(rank);
        execution.begin();
      }
      if (engine::advance(execution, fabric, rank) == Status::ok && !holds_result(rank))
        return false;
    }
    return true;
  }

 private:
  bool is_broadcast() const { return one_.root != no_rank; }

  Bytes& target_of(std::size_t rank) {
    const auto first = std::find(one_.node_of.begin(), one_.node_of.end(), one_.node_of[rank]);
    return targets_[static_cast<std::size_t>(first - one_.node_of.begin())];
  }

  /// The root writes into the memory of its node, so its user waits until all of it have read.
  bool may_begin(std::size_t rank) const {
    if (!is_broadcast() || rank != index_of(one_.root)) return true;
    for (std::size_t other = 0; other < ranks_.size(); ++other)
      if (other != rank && one_.node_of[other] == one_.node_of[rank] &&
          begun_[other] <= begun_[rank])
        return false;
    return true;
  }

  void contribute(std::size_t rank) {
    const auto self = static_cast<std::uint32_t>(rank);
    if (is_broadcast() && self != index_of(one_.root)) return;
    Bytes& into = is_broadcast() ? target_of(rank) : sources_[rank];
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = value(self, begun_[rank], i);
  }

  bool holds_result(std::size_t rank) {
    const Bytes& target = target_of(rank);
    for (std::size_t i = 0; i < target.size(); ++i) {
      const auto from =
          is_broadcast() ? index_of(one_.root) : static_cast<std::uint32_t>(i / one_.bytes);
      if (target[i] != value(from, begun_[rank], i % one_.bytes)) return false;
    }
    return true;
  }

  const Case& one_;
  std::vector<plan::Plan> plans_;
  std::vector<SimulatedRank> ranks_;
  std::vector<Bytes> targets_, sources_;
  std::vector<std::uint32_t> begun_;  // calls
  std::mt19937_64 random_;
};

std::vector<plan::Plan> plans_of(const Case& one) {
  const auto count = static_cast<std::uint32_t>(one.node_of.size());
  const std::uint32_t nodes = plan::node_count_of(one.node_of, count);
  const auto n = static_cast<std::uint32_t>(1 + one.seed % 3);
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    plans.push_back(
        one.root == no_rank
            ? plan::dissemination_allgather(Rank{rank}, count, plan::uniform(nodes, n), one.node_of,
                                            plan::Target::of_node)
            : plan::tree_broadcast(
                  Rank{rank},
                  {.root = one.root,
                   .rank_count = count,
                   .node_of = one.node_of,
                   .fans = {.in_node = one.seed % 2 == 0 ? plan::PerRound{count} : plan::PerRound{},
                            .is_chain = one.seed % 3 == 0},
                   .target = plan::Target::of_node}));
  return plans;
}

template <class F>
void for_cases(bool is_broadcast, F&& f) {
  std::mt19937 random(7);
  for (std::uint32_t ranks = 2; ranks <= 6; ++ranks)
    for (const auto& sizes : test::compositions(ranks)) {
      if (sizes.size() == ranks) continue;
      for (std::uint64_t seed = 1; seed <= 6; ++seed)
        f(Case{.node_of = test::in_blocks(sizes),
               .root = is_broadcast ? Rank{static_cast<std::uint32_t>(random() % ranks)} : no_rank,
               .bytes = 1 + random() % 40,
               .chunk_count = 1 + random() % 3,
               .seed = seed});
    }
}

TEST(SharedTarget, of_a_broadcast_keeps_the_result_until_the_next_call) {
  for_cases(true, [](const Case& one) {
    // Every piece of a chain has a byte.
    Case with = one;
    with.bytes += 12;
    EXPECT_TRUE(Calls(with, plans_of(with)).is_right()) << text_of(with);
  });
}

TEST(SharedTarget, of_an_allgather_keeps_the_result_until_the_next_call) {
  for_cases(false, [](const Case& one) {
    EXPECT_TRUE(Calls(one, plans_of(one)).is_right()) << text_of(one);
  });
}

TEST(SharedTarget, without_entries_would_be_written_too_early) {
  for (const Rank root : {Rank{0}, no_rank}) {
    std::uint32_t wrong = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      const Case one{.node_of = test::in_blocks({1, 2}), .root = root, .bytes = 20, .seed = seed};
      std::vector<plan::Plan> plans = plans_of(one);
      for (plan::Plan& plan : plans)
        std::erase_if(plan.steps, [](const plan::Step& step) {
          return step.into_target && step.payloads == 0;
        });
      wrong += Calls(one, std::move(plans)).is_right() ? 0 : 1;
    }
    EXPECT_GT(wrong, 0u) << index_of(root);
  }
}

}  // namespace
}  // namespace tutti
