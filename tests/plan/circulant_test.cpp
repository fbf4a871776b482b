// Promise: reduce-scatters along circulant skips, in which nodes add up first, are right for every
// shape of nodes and every longest run, and allreduces for every rank count; two copies of their
// slots suffice; they send no block more than they have to, to as few partners as they say.
#include "plan/circulant.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/nodes.hpp"
#include "plan/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;
using tutti::test::NodeOf;

std::vector<Plan> plans_of(const NodeOf& node_of, std::uint32_t run) {
  const auto ranks = static_cast<std::uint32_t>(node_of.size());
  const CirculantShape shape{.rank_count = ranks, .node_of = node_of, .run = run};
  EXPECT_TRUE(is_circulant_reduce_scatter(shape));
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(circulant_reduce_scatter(Rank{rank}, shape));
  return plans;
}

NodeOf all_apart(std::uint32_t ranks) {
  return tutti::test::in_blocks(std::vector<std::uint32_t>(ranks, 1));
}

bool is_across(const Step& step, Rank self, const NodeOf& node_of) {
  return step.action == Action::put && node_of[index_of(step.peer)] != node_of[index_of(self)];
}

void expect_right(const NodeOf& node_of, std::uint32_t run, std::size_t with_order_up_to = 7) {
  const std::vector<Plan> plans = plans_of(node_of, run);
  EXPECT_EQ(first_violation(plans, Promise::reduce_scatter_any_order), std::nullopt)
      << tutti::test::text_of(node_of) << ", run " << run;
  if (node_of.size() > with_order_up_to || node_of.size() == 1) return;
  EXPECT_EQ(HappensBefore(plans, 4, 2).race(), std::nullopt)
      << tutti::test::text_of(node_of) << ", run " << run;
}

TEST(Circulant, IsRightForEveryRankCountAndRun) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to / 2; ++ranks)
    for (const std::uint32_t run : {1u, 2u, 3u, 5u, 32u}) expect_right(all_apart(ranks), run, 9);
}

TEST(Circulant, IsRightForEveryShape) {
  for (std::uint32_t ranks = 2; ranks <= 9; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks))
      for (const std::uint32_t run : {1u, 8u}) expect_right(tutti::test::in_blocks(sizes), run);
  std::mt19937 random(7);
  for (int sample = 0; sample < test::samples(80); ++sample) {
    const std::uint32_t ranks = 3 + static_cast<std::uint32_t>(random()) % 40;
    const std::uint32_t nodes = 1 + static_cast<std::uint32_t>(random()) % std::min(ranks, 12u);
    expect_right(tutti::test::placed(ranks, nodes, sample % 2 == 0, random),
                 1 + static_cast<std::uint32_t>(random()) % 8);
  }
}

TEST(Circulant, EachNodeSendsABlockOnce) {
  for (const std::uint32_t run : {1u, 8u})
    for (const NodeOf& node_of :
         {tutti::test::in_blocks({4, 4, 4, 4, 4, 4, 4}), tutti::test::in_blocks({3, 1, 2, 5})}) {
      std::map<std::uint32_t, std::size_t> sent;  // by node
      for (const Plan& plan : plans_of(node_of, run))
        for (const Step& step : plan.steps)
          if (is_across(step, plan.self, node_of)) ++sent[index_of(node_of[index_of(plan.self)])];
      for (const auto& [node, messages] : sent) {
        const auto own = std::count(node_of.begin(), node_of.end(), Node{node});
        EXPECT_EQ(messages, node_of.size() - static_cast<std::size_t>(own));
      }
    }
}

TEST(Circulant, PartnersAreAsFewAsRunsAllow) {
  const auto partners = [](std::uint32_t nodes, std::uint32_t run) {
    std::map<Rank, std::size_t> messages;
    const NodeOf node_of = all_apart(nodes);
    const CirculantShape shape{.rank_count = nodes, .node_of = node_of, .run = run};
    for (const Step& step : circulant_reduce_scatter(Rank{3}, shape).steps)
      if (step.action == Action::put) ++messages[step.peer];
    for (const auto& [peer, count] : messages) EXPECT_LE(count, run);
    return messages.size();
  };
  for (std::uint32_t nodes = 4; nodes <= 64; ++nodes) {
    EXPECT_EQ(partners(nodes, 32), static_cast<std::size_t>(std::bit_width(nodes - 1)));
    EXPECT_EQ(partners(nodes, 1), nodes - 1u);
  }
  EXPECT_EQ(partners(1024, 32), 30u + 6u);  // down to 64 by 32, then halves
}

std::vector<Plan> allreduces(std::uint32_t rank_count, std::uint32_t run) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(circulant_allreduce(Rank{rank}, rank_count, run));
  return plans;
}

TEST(Circulant, AllreducesGiveOneResultForEveryRankCountAndRun) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to / 2; ++ranks)
    for (const std::uint32_t run : {1u, 2u, 3u, 16u}) {
      const std::vector<Plan> plans = allreduces(ranks, run);
      EXPECT_EQ(first_violation(plans, Promise::same_result), std::nullopt)
          << ranks << " ranks, run " << run;
      if (ranks < 2 || ranks > 9) continue;
      EXPECT_EQ(HappensBefore(plans, 4, 2).race(), std::nullopt) << ranks << " ranks, run " << run;
      EXPECT_NE(HappensBefore(plans, 4, 1).race(), std::nullopt) << "one copy does not do";
    }
}

TEST(Circulant, AllreducesSendEachByteTwice) {
  for (const std::uint32_t ranks : {5u, 33u, 64u, 100u})
    for (const Plan& plan : allreduces(ranks, 16)) {
      std::set<Rank> partners;
      std::size_t puts = 0;
      for (const Step& step : plan.steps) {
        if (step.peer != no_rank) partners.insert(step.peer);
        puts += step.action == Action::put ? 1 : 0;
      }
      EXPECT_EQ(puts, 2 * (ranks - 1));
      EXPECT_LE(partners.size(), 2 * (std::size_t(std::bit_width(ranks - 1)) + ranks / 16));
      EXPECT_LE(plan.partial_count, 2 * ranks);
    }
}

/// Each message that was not looked at needs a receive.
TEST(Circulant, RanksThatDoNotLookFindNoMoreThanIsPromised) {
  for (const std::uint32_t ranks : {2u, 3u, 8u, 33u, 64u}) {
    const std::vector<Plan> plans = allreduces(ranks, 16);
    EXPECT_LE(test::most_on_their_way(plans, 4), plans[0].incoming_max) << ranks << " ranks";
    EXPECT_LE(plans[0].incoming_max, 32u);
  }
}

TEST(Circulant, WhatIsNotAddedUpIsSeen) {
  std::vector<Plan> plans = plans_of(tutti::test::in_blocks({2, 2, 2}), 8);
  const auto combine =
      std::find_if(plans[1].steps.begin(), plans[1].steps.end(),
                   [](const Step& step) { return step.action == Action::combine; });
  plans[1].steps.erase(combine);
  EXPECT_NE(first_violation(plans, Promise::reduce_scatter_any_order), std::nullopt);
  EXPECT_NE(first_violation(plans_of(all_apart(5), 8), Promise::reduce_scatter), std::nullopt)
      << "it does not follow the canonical tree";
}

}  // namespace
}  // namespace tutti::plan
