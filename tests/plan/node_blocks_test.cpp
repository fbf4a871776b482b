// Promise: gathers and scatters in which the blocks of a node go together are right for every shape
// of nodes and every root; two copies of their slots suffice; the root has one partner in each
// other node.
#include "plan/blocks/node_blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "happens_before.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;
using tutti::test::NodeOf;
using Build = Plan (*)(Rank, std::span<const Node>, Rank);

std::vector<Plan> plans_of(Build build, const NodeOf& node_of, Rank root) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < node_of.size(); ++rank)
    plans.push_back(build(Rank{rank}, node_of, root));
  return plans;
}

void expect_right(const NodeOf& node_of) {
  for (std::uint32_t rank = 0; rank < node_of.size(); ++rank) {
    const Rank root{rank};
    const std::vector<Plan> gathers = plans_of(node_gather, node_of, root);
    const std::vector<Plan> scatters = plans_of(node_scatter, node_of, root);
    EXPECT_EQ(first_violation(gathers, Promise::gather, root), std::nullopt)
        << tutti::test::text_of(node_of) << ", root " << rank;
    EXPECT_EQ(first_violation(scatters, Promise::scatter, root), std::nullopt)
        << tutti::test::text_of(node_of) << ", root " << rank;
    if (node_of.size() > 6) continue;
    EXPECT_EQ(HappensBefore(gathers, 6, 2).race(), std::nullopt)
        << tutti::test::text_of(node_of) << ", root " << rank;
    EXPECT_EQ(HappensBefore(scatters, 6, 2).race(), std::nullopt)
        << tutti::test::text_of(node_of) << ", root " << rank;
  }
}

TEST(NodeBlocks, are_right_for_every_shape_and_root) {
  for (std::uint32_t ranks = 2; ranks <= 8; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks))
      if (sizes.size() > 1) expect_right(tutti::test::in_blocks(sizes));
  std::mt19937 random(5);
  for (int sample = 0; sample < test::samples(60); ++sample) {
    const std::uint32_t ranks = 3 + static_cast<std::uint32_t>(random()) % 30;
    const std::uint32_t nodes = 2 + static_cast<std::uint32_t>(random()) % std::min(ranks - 1, 9u);
    const NodeOf node_of = tutti::test::placed(ranks, nodes, sample % 2 == 0, random);
    if (node_count_of(node_of, ranks) == 1) continue;
    expect_right(node_of);
  }
}

TEST(NodeBlocks, of_an_allgather_by_leaders_are_right_for_every_shape) {
  std::vector<NodeOf> shapes;
  for (std::uint32_t ranks = 2; ranks <= 8; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks))
      if (sizes.size() > 1) shapes.push_back(tutti::test::in_blocks(sizes));
  std::mt19937 random(6);
  for (int sample = 0; sample < test::samples(60); ++sample)
    shapes.push_back(tutti::test::placed(3 + static_cast<std::uint32_t>(random()) % 30, 2,
                                         sample % 2 == 0, random));
  for (const NodeOf& node_of : shapes) {
    const auto ranks = static_cast<std::uint32_t>(node_of.size());
    if (node_count_of(node_of, ranks) == 1) continue;
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      plans.push_back(leader_allgather(Rank{rank}, node_of));
    EXPECT_EQ(first_violation(plans, Promise::gather), std::nullopt)
        << tutti::test::text_of(node_of);
    if (ranks <= 6) {
      EXPECT_EQ(HappensBefore(plans, 6, 2).race(), std::nullopt) << tutti::test::text_of(node_of);
    }
    // A node sends each other node one message.
    std::uint32_t messages = 0;
    for (const Plan& plan : plans)
      for (const Step& step : plan.steps)
        if (step.action == Action::put &&
            node_of[index_of(plan.self)] != node_of[index_of(step.peer)])
          ++messages;
    const std::uint32_t nodes = node_count_of(node_of, ranks);
    EXPECT_EQ(messages, nodes * (nodes - 1));
  }
}

TEST(NodeBlocks, without_credits_two_copies_would_not_do) {
  for (const Build build : {node_gather, node_scatter}) {
    std::vector<Plan> plans = plans_of(build, tutti::test::in_blocks({2, 3}), Rank{0});
    for (Plan& plan : plans)
      std::erase_if(plan.steps, [](const Step& step) {
        return step.action == Action::await_credit ||
               (step.action == Action::put && step.payloads == 0);
      });
    EXPECT_NE(HappensBefore(plans, 6, 2).race(), std::nullopt);
  }
}

TEST(NodeBlocks, a_block_in_anothers_place_is_seen) {
  std::vector<Plan> plans = plans_of(node_gather, tutti::test::in_blocks({2, 3}), Rank{0});
  for (Step& step : plans[2].steps)
    if (step.action == Action::copy && step.into.place == Place::partial)
      step.into.payload = static_cast<std::uint16_t>((step.into.payload + 1) % 3);
  EXPECT_NE(first_violation(plans, Promise::gather, Rank{0}), std::nullopt);
}

TEST(NodeBlocks, the_root_has_one_partner_in_each_other_node) {
  const NodeOf node_of = tutti::test::in_blocks({4, 4, 4, 4});
  for (const Build build : {node_gather, node_scatter}) {
    std::set<Rank> partners;
    for (const Step& step : build(Rank{5}, node_of, Rank{5}).steps)
      if (step.peer != no_rank && node_of[index_of(step.peer)] != Node{1})
        partners.insert(step.peer);
    EXPECT_EQ(partners, (std::set<Rank>{Rank{0}, Rank{8}, Rank{12}}));
  }
}

}  // namespace
}  // namespace tutti::plan
