// Promise: the ring gives all ranks one result for every rank count, number of sub-blocks and
// placement on nodes; two copies of everything suffice; each rank tells one other rank, and a node
// one other node.
#include "plan/allreduce/ring.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using tutti::test::NodeOf;

std::vector<Plan> rings(std::uint32_t rank_count, std::uint32_t sub_blocks,
                        const NodeOf& node_of = {}, Buffers buffers = Buffers::anywhere) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(ring_allreduce(Rank{rank}, rank_count, sub_blocks, node_of, buffers));
  return plans;
}

TEST(Ring, gives_all_ranks_one_result) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to / 4; ++ranks)
    for (std::uint32_t sub_blocks = 1; sub_blocks <= 3; ++sub_blocks)
      EXPECT_EQ(first_violation(rings(ranks, sub_blocks), Promise::same_result), std::nullopt)
          << ranks << " ranks, " << sub_blocks << " sub-blocks";
}

TEST(Ring, gives_it_whatever_the_nodes) {
  std::mt19937 random(1);
  for (int sample = 0; sample < 40; ++sample) {
    const auto ranks = static_cast<std::uint32_t>(2 + random() % 12);
    const NodeOf node_of = tutti::test::placed(ranks, 1 + ranks / 3, sample % 2 == 0, random);
    const std::vector<Plan> plans = rings(ranks, 2, node_of);
    EXPECT_EQ(first_violation(plans, Promise::same_result), std::nullopt)
        << tutti::test::text_of(node_of);
    std::set<std::pair<std::uint32_t, std::uint32_t>> crossings;
    for (const Plan& plan : plans) {
      std::set<std::uint32_t> told;
      for (const Step& step : plan.steps)
        if (step.action == Action::put) told.insert(index_of(step.peer));
      ASSERT_EQ(told.size(), 1u);
      const Node here = node_of[index_of(plan.self)], there = node_of[*told.begin()];
      if (here != there) crossings.insert({index_of(here), index_of(there)});
    }
    std::set<std::uint32_t> nodes;
    for (const Node node : node_of) nodes.insert(index_of(node));
    EXPECT_EQ(crossings.size(), nodes.size() > 1 ? nodes.size() : 0)
        << tutti::test::text_of(node_of);
  }
}

TEST(Ring, two_copies_of_everything_suffice) {
  for (std::uint32_t ranks = 2; ranks <= 7; ++ranks)
    for (std::uint32_t sub_blocks = 1; sub_blocks <= 2; ++sub_blocks)
      EXPECT_EQ(test::HappensBefore(rings(ranks, sub_blocks), 5, 2).race(), std::nullopt)
          << ranks << " ranks, " << sub_blocks << " sub-blocks";
  // If nobody waits for the end, the slots of the first round are written again before they are
  // read.
  std::vector<Plan> plans = rings(3, 1);
  for (Plan& plan : plans)
    std::erase_if(plan.steps, [](const Step& step) { return step.round > 1; });
  EXPECT_NE(test::HappensBefore(plans, 5, 1).race(), std::nullopt);
}

// ---- Zero copy ----------------------------------------------------------------------------------

TEST(Ring, zero_copy_it_is_the_same) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to / 4; ++ranks)
    for (std::uint32_t sub_blocks = 1; sub_blocks <= 3; ++sub_blocks)
      EXPECT_EQ(
          first_violation(rings(ranks, sub_blocks, {}, Buffers::registered), Promise::same_result),
          std::nullopt)
          << ranks << " ranks, " << sub_blocks << " sub-blocks";
}

TEST(Ring, zero_copy_nothing_is_written_while_it_is_in_use) {
  using test::HappensBefore;
  for (std::uint32_t ranks = 2; ranks <= 7; ++ranks)
    for (const auto buffers : {HappensBefore::Buffers::same, HappensBefore::Buffers::apart})
      EXPECT_EQ(HappensBefore(rings(ranks, 2, {}, Buffers::registered), 5, 2, buffers).race(),
                std::nullopt)
          << ranks << " ranks";
}

TEST(Ring, zero_copy_it_waits_for_what_it_sends) {
  for (std::uint32_t ranks = 2; ranks <= 4; ++ranks) {
    std::vector<Plan> plans = rings(ranks, 1, {}, Buffers::registered);
    for (Plan& plan : plans)
      std::erase_if(plan.steps, [](const Step& step) { return step.action == Action::await_sent; });
    EXPECT_EQ(first_violation(plans, Promise::same_result),
              "rank 0: ends while its target may be on its way");
    EXPECT_NE(test::HappensBefore(plans, 5, 2).race(), std::nullopt);
  }
}

TEST(Ring, no_more_messages_are_on_their_way_than_it_says) {
  for (std::uint32_t ranks = 2; ranks <= 20; ++ranks)
    for (std::uint32_t sub_blocks = 1; sub_blocks <= 3; ++sub_blocks) {
      const std::vector<Plan> plans = rings(ranks, sub_blocks);
      EXPECT_LE(test::most_on_their_way(plans, 4), plans[0].incoming_max)
          << ranks << " ranks, " << sub_blocks << " sub-blocks";
    }
}

TEST(Ring, sends_each_byte_once_in_each_half) {
  for (std::uint32_t ranks = 2; ranks <= 16; ++ranks) {
    const std::vector<Plan> plans = rings(ranks, 2);
    for (const Plan& plan : plans) {
      std::size_t sent = 0;
      for (const Step& step : plan.steps) sent += step.action == Action::put ? 1 : 0;
      EXPECT_EQ(sent, 2u * (ranks - 1) * 2);
    }
  }
}

TEST(IsRing, keeps_to_the_slots_there_are) {
  EXPECT_TRUE(is_ring(1, 1));
  EXPECT_FALSE(is_ring(0, 1));
  EXPECT_FALSE(is_ring(2, 0));
  EXPECT_TRUE(is_ring(8192, 2));
  EXPECT_FALSE(is_ring(8193, 2));
}

}  // namespace
}  // namespace tutti::plan
