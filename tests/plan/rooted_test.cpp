// Promise: broadcast and reduce are right for every rank count, root and node shape; a tree crosses
// between two nodes once and is as high as it says; with their credits, two copies of everything
// suffice however far a rank runs ahead.
#include "plan/rooted.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "happens_before.hpp"
#include "plan/per_round.hpp"
#include "plan/rooted_tree.hpp"
#include "plan/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using tutti::test::compositions, tutti::test::in_blocks, tutti::test::NodeOf, tutti::test::placed;
using Builder = Plan (*)(Rank, const RootedShape&);

Plan broadcast(Rank self, const RootedShape& shape) {
  return binomial_broadcast(self, shape);
}
Plan flat_broadcast(Rank self, const RootedShape& shape) {
  RootedShape flat = shape;
  flat.in_node = InNode::flat;
  return binomial_broadcast(self, flat);
}
Plan reduce(Rank self, const RootedShape& shape) {
  return binomial_reduce(self, shape, Order::commutative);
}
Plan ordered_reduce(Rank self, const RootedShape& shape) {
  return binomial_reduce(self, shape, Order::rank_order);
}

std::vector<Plan> plans_of(Builder build, const RootedShape& shape) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank)
    plans.push_back(build(Rank{rank}, shape));
  return plans;
}

std::string text_of(const RootedShape& shape) {
  return std::to_string(shape.rank_count) + " ranks, root " + std::to_string(index_of(shape.root)) +
         ", " + tutti::test::text_of({shape.node_of.begin(), shape.node_of.end()});
}

void expect_right(const RootedShape& shape) {
  EXPECT_EQ(first_violation(plans_of(broadcast, shape), Promise::broadcast, shape.root),
            std::nullopt)
      << text_of(shape);
  EXPECT_EQ(first_violation(plans_of(flat_broadcast, shape), Promise::broadcast, shape.root),
            std::nullopt)
      << text_of(shape);
  EXPECT_EQ(first_violation(plans_of(reduce, shape), Promise::each_once, shape.root), std::nullopt)
      << text_of(shape);
  EXPECT_EQ(first_violation(plans_of(ordered_reduce, shape), Promise::rank_order, shape.root),
            std::nullopt)
      << text_of(shape);
}

TEST(Rooted, IsRightForEveryRankCountAndRoot) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    for (std::uint32_t root = 0; root < ranks; root += ranks <= 32 ? 1 : 7) {
      const RootedShape shape{.root = Rank{root}, .rank_count = ranks};
      expect_right(shape);
      EXPECT_EQ(
          first_violation(plans_of(ordered_reduce, shape), Promise::canonical_tree, shape.root),
          std::nullopt)
          << text_of(shape);
    }
}

TEST(Rooted, IsRightForEveryNodeShapeOfUpToTwelveRanksAndEveryRoot) {
  for (std::uint32_t ranks = 1; ranks <= (test::samples_divisor == 1 ? 12U : 7U); ++ranks)
    for (const auto& sizes : compositions(ranks)) {
      const NodeOf node_of = in_blocks(sizes);
      for (std::uint32_t root = 0; root < ranks; ++root)
        expect_right({.root = Rank{root}, .rank_count = ranks, .node_of = node_of});
    }
}

TEST(Rooted, IsRightForSampledPlacements) {
  std::mt19937 random(5);
  for (int sample = 0; sample < test::samples(400); ++sample) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(random() % 60);
    const std::uint32_t nodes = 1 + static_cast<std::uint32_t>(random() % ranks);
    const NodeOf node_of = placed(ranks, nodes, sample % 2 == 0, random);
    expect_right({.root = Rank{static_cast<std::uint32_t>(random() % ranks)},
                  .rank_count = ranks,
                  .node_of = node_of});
  }
}

TEST(Rooted, TwoCopiesSufficeHoweverFarARankRunsAhead) {
  std::mt19937 random(11);
  for (std::uint32_t ranks = 2; ranks <= 24; ++ranks)
    for (const Builder build : {broadcast, flat_broadcast, reduce, ordered_reduce}) {
      const auto shapes = compositions(std::min(ranks, 10U));
      const NodeOf node_of = in_blocks(shapes[random() % shapes.size()]);
      for (const bool by_nodes : {false, true}) {
        if (by_nodes && node_of.size() != ranks) continue;
        const RootedShape shape{
            .root = Rank{static_cast<std::uint32_t>(random() % ranks)},
            .rank_count = ranks,
            .node_of = by_nodes ? std::span<const Node>(node_of) : std::span<const Node>()};
        const std::vector<Plan> plans = plans_of(build, shape);
        EXPECT_EQ(test::HappensBefore(plans, 6, 2).race(), std::nullopt) << text_of(shape);
      }
    }
}

TEST(Rooted, WithoutCreditsTheyDoNot) {
  std::vector<Plan> plans = plans_of(broadcast, {.root = Rank{0}, .rank_count = 2});
  for (Plan& plan : plans)
    std::erase_if(plan.steps, [](const Step& step) {
      return step.action == Action::await_credit ||
             (step.action == Action::put && step.segments == 0);
    });
  EXPECT_NE(test::HappensBefore(plans, 6, 2).race(), std::nullopt);
  EXPECT_NE(first_violation(plans, Promise::broadcast, Rank{0}), std::nullopt);
}

TEST(Rooted, ACreditThatIsNeverGivenIsSeen) {
  std::vector<Plan> plans = plans_of(reduce, {.root = Rank{0}, .rank_count = 3});
  std::erase_if(plans[0].steps, [](const Step& step) {
    return step.action == Action::put && step.peer == Rank{2};
  });
  const auto violation = first_violation(plans, Promise::each_once, Rank{0});
  ASSERT_TRUE(violation);
  EXPECT_NE(violation->find("never gives the credit"), std::string::npos) << *violation;
}

TEST(Rooted, AWrongRootIsSeen) {
  const std::vector<Plan> plans = plans_of(broadcast, {.root = Rank{1}, .rank_count = 3});
  EXPECT_NE(first_violation(plans, Promise::broadcast, Rank{0}), std::nullopt);
  const std::vector<Plan> others = plans_of(reduce, {.root = Rank{1}, .rank_count = 3});
  EXPECT_NE(first_violation(others, Promise::each_once, Rank{0}), std::nullopt);
}

TEST(RootedTree, FlatNodesTakeOneRound) {
  const NodeOf node_of = in_blocks({5, 3});
  const RootedShape shape{
      .root = Rank{6}, .rank_count = 8, .node_of = node_of, .in_node = InNode::flat};
  const Plan root = binomial_broadcast(Rank{6}, shape);
  EXPECT_EQ(root.algorithm, "flat/binomial_tree");
  EXPECT_EQ(root.per_round, (PerRound{1, 4}));
  // The other node first, then the two ranks of its own.
  std::vector<Rank> told;
  for (const Step& step : root.steps)
    if (step.action == Action::put) told.push_back(step.peer);
  EXPECT_EQ(told, (std::vector<Rank>{Rank{0}, Rank{5}, Rank{7}}));
  const NodeOf one(8, Node{0});
  EXPECT_EQ(binomial_broadcast(Rank{0}, {.rank_count = 8, .node_of = one, .in_node = InNode::flat})
                .per_round,
            PerRound{7});
}

TEST(RootedTree, CrossesBetweenTwoNodesOnceAndIsAsHighAsItSays) {
  for (std::uint32_t ranks = 1; ranks <= 10; ++ranks)
    for (const auto& sizes : compositions(ranks)) {
      const NodeOf node_of = in_blocks(sizes);
      const std::uint32_t largest = *std::max_element(sizes.begin(), sizes.end());
      const auto nodes = static_cast<std::uint32_t>(sizes.size());
      for (std::uint32_t root = 0; root < ranks; ++root) {
        std::uint32_t crossings = 0;
        std::size_t edges = 0;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          const TreePlace place = binomial_tree(Rank{rank}, Rank{root}, ranks, node_of);
          EXPECT_EQ(place.level_count, std::bit_width(largest - 1) + std::bit_width(nodes - 1));
          EXPECT_EQ(place.parent.has_value(), rank != root);
          edges += place.children.size();
          for (const TreeEdge& child : place.children) {
            crossings += node_of[rank] != node_of[index_of(child.peer)] ? 1 : 0;
            const TreePlace below = binomial_tree(child.peer, Rank{root}, ranks, node_of);
            ASSERT_TRUE(below.parent);
            EXPECT_EQ(below.parent->peer, Rank{rank});
            EXPECT_EQ(below.parent->level, child.level);
          }
        }
        EXPECT_EQ(edges, ranks - 1);
        EXPECT_EQ(crossings, nodes - 1);
      }
    }
}

TEST(RootedTree, IsThatOfThePicture) {
  const NodeOf node_of = in_blocks({2, 3, 2});
  const TreePlace place = binomial_tree(Rank{2}, Rank{2}, 7, node_of);
  std::vector<std::uint32_t> children;
  for (const TreeEdge& child : place.children) children.push_back(index_of(child.peer));
  EXPECT_EQ(children, (std::vector<std::uint32_t>{3, 4, 5, 0}));
}

TEST(RootedTree, OfManyRanksNeedsNoListOfThem) {
  const TreePlace place = binomial_tree(Rank{0}, Rank{7}, UINT32_MAX, {});
  EXPECT_EQ(place.level_count, 32);
  EXPECT_TRUE(place.parent);
}

/// That of some ranks alone: a tree over them, and nothing for the others.
TEST(Rooted, AReduceOfSomeRanksIsATreeOverThem) {
  for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
    for (std::uint32_t root = 0; root < ranks; ++root)
      for (std::uint32_t participants = 1; participants <= ranks; ++participants) {
        std::uint32_t sent = 0;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          const Plan plan =
              binomial_reduce_of(participants, Rank{rank},
                                 {.root = Rank{root}, .rank_count = ranks}, Order::commutative);
          const bool takes_part = (rank + ranks - root) % ranks < participants;
          EXPECT_EQ(plan.steps.empty(), !takes_part);
          for (const Step& step : plan.steps) {
            EXPECT_TRUE(step.peer == no_rank ||
                        (index_of(step.peer) + ranks - root) % ranks < participants);
            sent += step.action == Action::put && step.segments > 0 ? 1 : 0;
          }
        }
        EXPECT_EQ(sent, participants - 1);
      }
}

}  // namespace
}  // namespace tutti::plan
