// Promise: gathers and scatters along a tree over nodes are right for every shape of nodes and
// every root; two copies of their slots suffice, and few receives; the root has log2 N partners.
#include "plan/blocks/tree_blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;
using tutti::test::NodeOf;
using Build = Plan (*)(Rank, std::uint32_t, std::span<const Node>, Rank);

constexpr std::uint32_t receives_promised = 192;  // of a queue pair

std::vector<Plan> plans_of(Build build, std::uint32_t ranks, const NodeOf& node_of, Rank root) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(build(Rank{rank}, ranks, node_of, root));
  return plans;
}

/// `node_of` may be empty.
void expect_right(std::uint32_t ranks, const NodeOf& node_of, Rank root,
                  std::uint32_t ordered_up_to = 6) {
  const std::string text = std::to_string(ranks) + " ranks, " + tutti::test::text_of(node_of) +
                           ", root " + std::to_string(index_of(root));
  const std::vector<Plan> gathers = plans_of(tree_gather, ranks, node_of, root);
  const std::vector<Plan> scatters = plans_of(tree_scatter, ranks, node_of, root);
  EXPECT_EQ(first_violation(gathers, Promise::gather, root), std::nullopt) << text;
  EXPECT_EQ(first_violation(scatters, Promise::scatter, root), std::nullopt) << text;
  if (ranks > ordered_up_to) return;
  EXPECT_EQ(HappensBefore(gathers, 6, 2).race(), std::nullopt) << text;
  EXPECT_EQ(HappensBefore(scatters, 6, 2).race(), std::nullopt) << text;
}

TEST(TreeBlocks, are_right_for_every_shape_and_root) {
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks)
    for (std::uint32_t root = 0; root < ranks; ++root) {
      expect_right(ranks, {}, Rank{root});
      for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks))
        expect_right(ranks, tutti::test::in_blocks(sizes), Rank{root});
    }
}

TEST(TreeBlocks, are_right_for_many_ranks_and_any_shape) {
  std::mt19937 random(6);
  for (int sample = 0; sample < test::samples(100); ++sample) {
    const std::uint32_t ranks = 9 + static_cast<std::uint32_t>(random()) % 100;
    const std::uint32_t nodes = 1 + static_cast<std::uint32_t>(random()) % ranks;
    const NodeOf node_of = tutti::test::placed(ranks, nodes, sample % 2 == 0, random);
    expect_right(ranks, node_of, Rank{static_cast<std::uint32_t>(random()) % ranks});
  }
  for (const std::uint32_t ranks : {33u, 64u, test::up_to(200u)})
    for (const std::uint32_t root : {0u, 17u, ranks - 1}) expect_right(ranks, {}, Rank{root});
}

/// From 13 blocks between two nodes on, there are answers.
TEST(TreeBlocks, two_copies_do_with_answers) {
  for (const std::uint32_t ranks : {14u, 17u, 30u}) {
    expect_right(ranks, tutti::test::in_blocks({1, ranks - 1}), Rank{0}, ranks);
    expect_right(ranks, tutti::test::in_blocks({ranks - 2, 2}), Rank{ranks - 1}, ranks);
  }
  expect_right(33, {}, Rank{5}, 33);
}

std::vector<Plan> without(std::vector<Plan> plans, const std::function<bool(const Step&)>& what) {
  for (Plan& plan : plans) std::erase_if(plan.steps, what);
  return plans;
}

TEST(TreeBlocks, without_credits_two_copies_would_not_do) {
  for (const Build build : {tree_gather, tree_scatter})
    for (const NodeOf& node_of : {NodeOf(), tutti::test::in_blocks({2, 3})}) {
      const std::vector<Plan> plans =
          without(plans_of(build, 5, node_of, Rank{0}), [](const Step& step) {
            return step.action == Action::await_credit ||
                   (step.action == Action::put && step.payloads == 0);
          });
      EXPECT_NE(HappensBefore(plans, 6, 2).race(), std::nullopt);
    }
}

TEST(TreeBlocks, a_block_in_anothers_place_is_seen) {
  std::vector<Plan> plans = plans_of(tree_gather, 5, {}, Rank{0});
  for (Step& step : plans[0].steps)
    if (step.action == Action::copy && step.part == 4) step.from.index = 3;
  EXPECT_NE(first_violation(plans, Promise::gather, Rank{0}), std::nullopt);
}

std::set<Rank> partners_of(const Plan& plan) {
  std::set<Rank> partners;
  for (const Step& step : plan.steps)
    if (step.peer != no_rank) partners.insert(step.peer);
  return partners;
}

TEST(TreeBlocks, the_root_has_a_partner_for_each_halving_of_the_nodes) {
  for (const Build build : {tree_gather, tree_scatter}) {
    for (std::uint32_t nodes = 1; nodes <= 1000; nodes += nodes < 130 ? 1 : 97)
      EXPECT_EQ(partners_of(build(Rank{0}, nodes, {}, Rank{0})).size(),
                static_cast<std::size_t>(std::bit_width(nodes - 1)));
    // Heads of nodes 2, 3 and 0; the root's node is 1.
    const NodeOf node_of = tutti::test::in_blocks({4, 4, 4, 4});
    EXPECT_EQ(partners_of(build(Rank{5}, 16, node_of, Rank{5})),
              (std::set<Rank>{Rank{4}, Rank{6}, Rank{7}, Rank{8}, Rank{12}}));
    EXPECT_EQ(partners_of(build(Rank{12}, 16, node_of, Rank{5})),
              (std::set<Rank>{Rank{0}, Rank{5}, Rank{13}, Rank{14}, Rank{15}}));
  }
}

/// The most from one rank, of what the plan makes receives be posted for.
std::uint32_t receives_of(const Plan& plan) {
  std::map<Rank, std::uint32_t> messages;
  for (const Step& step : plan.steps)
    if (step.action == Action::await || step.action == Action::await_credit)
      messages[step.peer] += 2;
  std::uint32_t most = 0;
  for (const auto& [peer, count] : messages) most = std::max(most, count);
  return std::min(most, plan.incoming_max);
}

TEST(TreeBlocks, few_receives_will_do) {
  for (const Build build : {tree_gather, tree_scatter})
    for (const std::uint32_t size : {1u, 3u, 16u, 64u, 256u}) {
      const std::uint32_t ranks = test::up_to(512);
      NodeOf node_of;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) node_of.push_back(Node{rank / size});
      for (const std::uint32_t root : {0u, ranks / 2})
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
          EXPECT_LE(8 * receives_of(build(Rank{rank}, ranks, node_of, Rank{root})),
                    receives_promised);  // so that eight such operations can live
    }
}

/// Whatever else is late: seen from the root, from the far end, and from in between.
TEST(TreeBlocks, no_more_are_on_their_way_than_receives_are_posted) {
  for (const Build build : {tree_gather, tree_scatter})
    for (const std::uint32_t root : {0u, 1u, 16u, 36u, 39u}) {
      const std::vector<Plan> plans = plans_of(build, 40, {}, Rank{root});
      EXPECT_LE(test::most_on_their_way(plans, 6), plans[0].incoming_max) << root;
    }
  const std::vector<Plan> plans = plans_of(tree_gather, 40, {}, Rank{0});
  const std::vector<Plan> unanswered = without(plans, [](const Step& step) {
    return (step.action == Action::await || step.action == Action::put) && step.payloads == 0;
  });
  EXPECT_GT(test::most_on_their_way(unanswered, 6), plans[0].incoming_max);
}

}  // namespace
}  // namespace tutti::plan
