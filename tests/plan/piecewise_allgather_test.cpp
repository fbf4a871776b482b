// Promise: along rings of nodes, and down two trees, every rank gets every piece of every block,
// whatever the blocks' lengths; each piece comes into a node once; two copies of the slots suffice;
// no rank sends more than the others do; partners are few.
#include "plan/blocks/piecewise_allgather.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/core/steps.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;
using Pieces = std::vector<std::uint16_t>;

constexpr std::uint32_t calls = 5;

class PiecewiseAllgather : public testing::TestWithParam<PieceRoute> {
 protected:
  static std::vector<Plan> plans_of(const Pieces& pieces, std::span<const Node> node_of = {}) {
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < pieces.size(); ++rank)
      plans.push_back(piecewise_allgather(Rank{rank}, pieces, GetParam(), node_of));
    return plans;
  }
};
INSTANTIATE_TEST_SUITE_P(, PiecewiseAllgather,
                         testing::Values(PieceRoute::ring, PieceRoute::two_trees),
                         [](const auto& route) {
                           return route.param == PieceRoute::ring ? "Ring" : "TwoTrees";
                         });

/// Equal ones, one long one, decreasing ones, any.
std::vector<Pieces> distributions(std::uint32_t ranks, std::mt19937& random) {
  std::vector<Pieces> all{Pieces(ranks, 1), Pieces(ranks, 3), Pieces(ranks, 1), Pieces(ranks),
                          Pieces(ranks)};
  all[2][random() % ranks] = 17;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    all[3][rank] = static_cast<std::uint16_t>(ranks - rank);
    all[4][rank] = static_cast<std::uint16_t>(1 + random() % 5);
  }
  return all;
}

/// Ranks dealt out to nodes of one size, in order or not.
std::vector<tutti::test::NodeOf> even_shapes(std::uint32_t ranks, std::mt19937& random) {
  std::vector<tutti::test::NodeOf> shapes{{}};
  for (std::uint32_t size = 1; size <= ranks; ++size) {
    if (ranks % size != 0) continue;
    shapes.push_back(tutti::test::in_blocks(std::vector<std::uint32_t>(ranks / size, size)));
    tutti::test::NodeOf mixed = shapes.back();
    std::shuffle(mixed.begin(), mixed.end(), random);
    shapes.push_back(tutti::test::renamed(mixed));
  }
  return shapes;
}

TEST_P(PiecewiseAllgather, is_right_for_every_shape_of_even_nodes_and_any_pieces) {
  std::mt19937 random(1);
  for (std::uint32_t ranks = 1; ranks <= 12; ++ranks)
    for (const tutti::test::NodeOf& node_of : even_shapes(ranks, random))
      for (const Pieces& pieces : distributions(ranks, random)) {
        const std::vector<Plan> plans = plans_of(pieces, node_of);
        EXPECT_EQ(first_violation(plans, Promise::gather), std::nullopt)
            << tutti::test::text_of(node_of) << ", " << ranks << " ranks";
        if (ranks > 6) continue;
        EXPECT_EQ(HappensBefore(plans, calls, 2).race(), std::nullopt)
            << tutti::test::text_of(node_of) << ", " << ranks << " ranks";
      }
}

TEST_P(PiecewiseAllgather, is_right_for_many_ranks) {
  std::mt19937 random(2);
  for (const std::uint32_t ranks : {33u, test::up_to(64u)})
    for (const Pieces& pieces : distributions(ranks, random))
      EXPECT_EQ(first_violation(plans_of(pieces), Promise::gather), std::nullopt) << ranks;
  tutti::test::NodeOf node_of = tutti::test::in_blocks(std::vector<std::uint32_t>(8, 6));
  std::shuffle(node_of.begin(), node_of.end(), random);
  node_of = tutti::test::renamed(node_of);
  for (const Pieces& pieces : distributions(48, random))
    EXPECT_EQ(first_violation(plans_of(pieces, node_of), Promise::gather), std::nullopt);
}

/// Few receives do for many pieces, whoever it is that does not look.
TEST_P(PiecewiseAllgather, who_does_not_look_finds_no_more_than_the_plan_says) {
  std::size_t most = 0;
  for (Pieces pieces : {Pieces{50, 50, 50}, Pieces{90, 1, 1, 1}, Pieces{1, 90, 1, 40},
                        Pieces{1, 1, 1, 1, 130}, Pieces{150, 1, 1, 1, 1, 1, 1, 1, 1}})
    for (std::size_t turn = 0; turn < pieces.size(); ++turn) {
      std::rotate(pieces.begin(), pieces.begin() + 1, pieces.end());
      const std::vector<Plan> plans = plans_of(pieces);
      EXPECT_EQ(first_violation(plans, Promise::gather), std::nullopt);
      EXPECT_EQ(HappensBefore(plans, 3, 2).race(), std::nullopt);
      EXPECT_EQ(plans[0].incoming_max, 30u);
      most = std::max(most, test::most_on_their_way(plans, 3));
    }
  EXPECT_LE(most, 30u);
  EXPECT_GE(most, 12u);
}

TEST_P(PiecewiseAllgather, one_copy_of_the_slots_would_not_do) {
  EXPECT_NE(HappensBefore(plans_of({2, 1, 1}), calls, 1).race(), std::nullopt);
}

TEST_P(PiecewiseAllgather, missing_pieces_are_seen) {
  std::vector<Plan> plans = plans_of({2, 1, 1});
  // The second piece of rank 0's block comes to rank 2 in place of the first.
  for (Step& step : plans[2].steps)
    if (step.action == Action::copy && step.part == 0 && step.into.place == Place::target)
      step.from = slot_register(1);
  EXPECT_NE(first_violation(plans, Promise::gather), std::nullopt);
}

TEST_P(PiecewiseAllgather, pieces_come_once_into_a_node_and_are_dealt_out_to_its_ranks) {
  const tutti::test::NodeOf node_of = tutti::test::in_blocks({3, 3, 3, 3});
  Pieces pieces(12, 1);
  pieces[4] = 9;
  std::size_t into_nodes = 0, total = std::accumulate(pieces.begin(), pieces.end(), 0u);
  std::vector<std::size_t> of_lane(3);  // pieces of that block
  for (const Plan& plan : plans_of(pieces, node_of))
    for (const Step& step : plan.steps) {
      if (step.action != Action::put || step.payloads == 0 ||
          node_of[index_of(step.peer)] == node_of[index_of(plan.self)])
        continue;
      EXPECT_EQ(index_of(step.peer) % 3, index_of(plan.self) % 3);
      ++into_nodes;
      if (plan.owners[step.part] == Rank{4}) ++of_lane[index_of(plan.self) % 3];
    }
  EXPECT_EQ(into_nodes, total * 3) << "into each of the other nodes";
  EXPECT_EQ(of_lane, std::vector<std::size_t>(3, 9));
}

/// Pieces that a rank sends, of nodes that are ranks.
std::size_t sent_by(const Plan& plan) {
  return static_cast<std::size_t>(std::count_if(
      plan.steps.begin(), plan.steps.end(),
      [](const Step& step) { return step.action == Action::put && step.payloads > 0; }));
}

TEST_P(PiecewiseAllgather, nobody_sends_much_more_than_all_pieces) {
  std::mt19937 random(3);
  for (const std::uint32_t ranks : {2u, 3u, 8u, 13u, 32u, test::up_to(64u)})
    for (const Pieces& pieces : distributions(ranks, random))
      for (const Plan& plan : plans_of(pieces))
        EXPECT_LE(sent_by(plan), std::accumulate(pieces.begin(), pieces.end(), 0u) + ranks / 2)
            << ranks << " ranks: of odd blocks the odd piece may be sent twice";
}

TEST_P(PiecewiseAllgather, all_send_alike_where_blocks_are_alike) {
  for (const std::uint32_t ranks : {2u, 3u, 8u, 13u, 32u})
    for (const std::uint16_t count : Pieces{1, 2, 5})
      for (const Plan& plan : plans_of(Pieces(ranks, count)))
        EXPECT_EQ(sent_by(plan), (ranks - 1) * count) << ranks << " ranks";
}

std::set<Rank> partners_of(const Plan& plan) {
  std::set<Rank> partners;
  for (const Step& step : plan.steps)
    if (step.peer != no_rank) partners.insert(step.peer);
  return partners;
}

TEST(PieceRoutes, a_ring_has_two_partners) {
  for (std::uint32_t rank = 0; rank < 9; ++rank)
    EXPECT_EQ(partners_of(piecewise_allgather(Rank{rank}, Pieces{1, 9, 1, 1, 3, 1, 1, 1, 1},
                                              PieceRoute::ring))
                  .size(),
              2u);
}

TEST(PieceRoutes, two_trees_have_about_two_partners_for_each_power_of_two) {
  for (std::uint32_t ranks = 2; ranks <= test::up_to(257u); ranks += ranks < 70 ? 1 : 17)
    EXPECT_LE(
        partners_of(piecewise_allgather(Rank{0}, Pieces(ranks, 2), PieceRoute::two_trees)).size(),
        2 * static_cast<std::size_t>(std::bit_width(ranks)) + 6)
        << ranks;
}

TEST(PieceRoutes, two_trees_reach_all_and_nobody_has_children_in_both) {
  for (std::uint32_t nodes = 1; nodes <= 300; ++nodes) {
    std::vector<std::uint32_t> trees_with_children(nodes);
    for (const std::uint32_t tree : {0u, 1u}) {
      std::vector<std::uint32_t> reached{0};
      std::vector<std::uint32_t> depth(nodes);
      for (std::size_t next = 0; next < reached.size() && reached.size() <= nodes; ++next) {
        const std::vector<std::uint32_t> told =
            told_in_tree(PieceRoute::two_trees, tree, reached[next], nodes);
        ASSERT_LE(told.size(), next == 0 ? 1u : 2u);
        trees_with_children[reached[next]] += told.empty() || next == 0 ? 0 : 1;
        for (const std::uint32_t other : told) {
          depth[other] = depth[reached[next]] + 1;
          ASSERT_LE(depth[other], static_cast<std::uint32_t>(std::bit_width(nodes - 1)));
          reached.push_back(other);
        }
      }
      std::sort(reached.begin(), reached.end());
      ASSERT_EQ(reached.size(), nodes) << "tree " << tree;
      ASSERT_EQ(std::unique(reached.begin(), reached.end()), reached.end());
    }
    ASSERT_LE(*std::max_element(trees_with_children.begin(), trees_with_children.end()), 1u)
        << nodes << " nodes";
  }
}

}  // namespace
}  // namespace tutti::plan
