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
  return tree_broadcast(self, shape);
}
/// Three messages in each round, but two in the first one; one round in nodes.
RootedShape wide(RootedShape shape) {
  shape.fans = {.in_node = {shape.rank_count}, .across = uniform(shape.rank_count, 3)};
  if (!shape.fans.across.empty()) shape.fans.across[0] = 2;
  if (!covers(shape.rank_count, shape.fans.across)) shape.fans.across.push_back(1);
  return shape;
}
Plan wide_broadcast(Rank self, const RootedShape& shape) {
  return tree_broadcast(self, wide(shape));
}
Plan wide_reduce(Rank self, const RootedShape& shape) {
  return tree_reduce(self, wide(shape), Order::commutative);
}
Plan wide_ordered_reduce(Rank self, const RootedShape& shape) {
  return tree_reduce(self, wide(shape), Order::rank_order);
}
Plan reduce(Rank self, const RootedShape& shape) {
  return tree_reduce(self, shape, Order::commutative);
}
Plan ordered_reduce(Rank self, const RootedShape& shape) {
  return tree_reduce(self, shape, Order::rank_order);
}

RootedShape chained(RootedShape shape) {
  shape.fans = {.in_node = {shape.rank_count}, .across = {}, .is_chain = true};
  return shape;
}
Plan chain_broadcast(Rank self, const RootedShape& shape) {
  return tree_broadcast(self, chained(shape));
}
Plan chain_reduce(Rank self, const RootedShape& shape) {
  return tree_reduce(self, chained(shape), Order::commutative);
}
Plan chain_ordered_reduce(Rank self, const RootedShape& shape) {
  return tree_reduce(self, chained(shape), Order::rank_order);
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

void expect_chains_right(const RootedShape& shape) {
  EXPECT_EQ(first_violation(plans_of(chain_broadcast, shape), Promise::broadcast, shape.root),
            std::nullopt)
      << text_of(shape);
  EXPECT_EQ(first_violation(plans_of(chain_reduce, shape), Promise::each_once, shape.root),
            std::nullopt)
      << text_of(shape);
  EXPECT_EQ(first_violation(plans_of(chain_ordered_reduce, shape), Promise::rank_order, shape.root),
            std::nullopt)
      << text_of(shape);
}

void expect_right(const RootedShape& shape) {
  EXPECT_EQ(first_violation(plans_of(broadcast, shape), Promise::broadcast, shape.root),
            std::nullopt)
      << text_of(shape);
  EXPECT_EQ(first_violation(plans_of(wide_broadcast, shape), Promise::broadcast, shape.root),
            std::nullopt)
      << text_of(shape);
  EXPECT_EQ(first_violation(plans_of(wide_reduce, shape), Promise::each_once, shape.root),
            std::nullopt)
      << text_of(shape);
  EXPECT_EQ(first_violation(plans_of(wide_ordered_reduce, shape), Promise::rank_order, shape.root),
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
      if (ranks <= 40) expect_chains_right(shape);
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
      for (std::uint32_t root = 0; root < ranks; ++root) {
        const RootedShape shape{.root = Rank{root}, .rank_count = ranks, .node_of = node_of};
        expect_right(shape);
        if (ranks <= 8) expect_chains_right(shape);
      }
    }
}

TEST(Rooted, IsRightForSampledPlacements) {
  std::mt19937 random(5);
  for (int sample = 0; sample < test::samples(400); ++sample) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(random() % 60);
    const std::uint32_t nodes = 1 + static_cast<std::uint32_t>(random() % ranks);
    const NodeOf node_of = placed(ranks, nodes, sample % 2 == 0, random);
    const RootedShape shape{.root = Rank{static_cast<std::uint32_t>(random() % ranks)},
                            .rank_count = ranks,
                            .node_of = node_of};
    expect_right(shape);
    expect_chains_right(shape);
  }
}

TEST(Rooted, TwoCopiesSufficeHoweverFarARankRunsAhead) {
  std::mt19937 random(11);
  for (std::uint32_t ranks = 2; ranks <= 24; ++ranks)
    for (const Builder build :
         {broadcast, wide_broadcast, chain_broadcast, reduce, ordered_reduce, wide_reduce,
          wide_ordered_reduce, chain_reduce, chain_ordered_reduce}) {
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

/// Nobody tells more than one node, and a broadcast connects a rank with two.
TEST(RootedTree, OfAChainHasOneNodeAfterTheOther) {
  const NodeOf node_of = in_blocks({2, 3, 1, 2});
  const std::uint32_t root = 3;
  std::vector<std::uint32_t> way;
  for (std::uint32_t rank = root;;) {
    const TreePlace place = nested_tree(Rank{rank}, Rank{root}, 8, node_of, {.is_chain = true});
    std::vector<std::uint32_t> next;
    for (const TreeEdge& child : place.children)
      if (node_of[index_of(child.peer)] != node_of[rank]) next.push_back(index_of(child.peer));
    way.push_back(rank);
    if (next.empty()) break;
    ASSERT_EQ(next.size(), 1u);
    rank = next[0];
  }
  EXPECT_EQ(way, (std::vector<std::uint32_t>{3, 5, 6, 0}));
}

/// A piece is on its way while the next one comes: the messages of a rank alternate.
TEST(RootedTree, OfAChainPassesEachPieceOnAtOnce) {
  const Plan plan = chain_broadcast(Rank{1}, {.rank_count = 4});
  std::string order;
  for (const Step& step : plan.steps) {
    if (step.action == Action::await) order += " <" + std::to_string(step.part);
    if (step.action == Action::put && step.segments > 0) order += " >" + std::to_string(step.part);
  }
  EXPECT_EQ(order, " <0 >0 <1 >1 <2 >2 <3 >3");
  EXPECT_EQ(plan.algorithm, "pipelined_chain");
  EXPECT_EQ(plan.per_round, (PerRound{1, 1, 1, 1}));
}

TEST(RootedTree, FansSayHowManyAreToldInARound) {
  const NodeOf node_of = in_blocks({5, 3});
  const Plan root = tree_broadcast(
      Rank{6}, {.root = Rank{6}, .rank_count = 8, .node_of = node_of, .fans = {.in_node = {4}}});
  EXPECT_EQ(root.per_round, (PerRound{1, 4}));
  EXPECT_EQ(root.algorithm, "knomial_tree");
  // The other node first, then the two ranks of its own.
  const auto told_by = [](const Plan& plan) {
    std::vector<Rank> told;
    for (const Step& step : plan.steps)
      if (step.action == Action::put && step.segments > 0) told.push_back(step.peer);
    return told;
  };
  EXPECT_EQ(told_by(root), (std::vector<Rank>{Rank{0}, Rank{5}, Rank{7}}));
  const Plan flat =
      tree_broadcast(Rank{0}, {.rank_count = 8, .fans = {.in_node = {}, .across = {7}}});
  EXPECT_EQ(flat.algorithm, "flat_tree");
  EXPECT_EQ(flat.per_round, PerRound{7});
  // Two children of one rank each, then two of three.
  const RootedShape shape{.rank_count = 9, .fans = {.in_node = {}, .across = {2, 2, 5}}};
  EXPECT_EQ(tree_broadcast(Rank{0}, shape).per_round, (PerRound{2, 2})) << "no more than it takes";
  EXPECT_EQ(told_by(tree_broadcast(Rank{0}, shape)),
            (std::vector<Rank>{Rank{6}, Rank{3}, Rank{2}, Rank{1}}));
  EXPECT_EQ(told_by(tree_broadcast(Rank{3}, shape)), (std::vector<Rank>{Rank{5}, Rank{4}}));
}

TEST(RootedTree, WhatIsSuperfluousIsNotThere) {
  const auto rounds = [](std::uint32_t ranks, const PerRound& across) {
    return tree_broadcast(Rank{0}, {.rank_count = ranks, .fans = {.in_node = {}, .across = across}})
        .per_round;
  };
  EXPECT_EQ(rounds(10, {7, 7}), (PerRound{1, 7}));
  EXPECT_EQ(rounds(4, {65536}), (PerRound{3}));
  EXPECT_EQ(rounds(4, {1, 40'000, 2}), (PerRound{1, 1}));
  EXPECT_EQ(rounds(5, {1, 1}), (PerRound{1, 1, 1})) << "too few: ones";
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
          const TreePlace place = nested_tree(Rank{rank}, Rank{root}, ranks, node_of);
          EXPECT_EQ(place.fans.size(), std::size_t(std::bit_width(largest - 1)) +
                                           std::size_t(std::bit_width(nodes - 1)));
          EXPECT_EQ(place.parent.has_value(), rank != root);
          edges += place.children.size();
          for (const TreeEdge& child : place.children) {
            crossings += node_of[rank] != node_of[index_of(child.peer)] ? 1 : 0;
            const TreePlace below = nested_tree(child.peer, Rank{root}, ranks, node_of);
            ASSERT_TRUE(below.parent);
            EXPECT_EQ(below.parent->peer, Rank{rank});
            EXPECT_EQ(below.parent->number, child.number);
          }
        }
        EXPECT_EQ(edges, ranks - 1);
        EXPECT_EQ(crossings, nodes - 1);
      }
    }
}

TEST(RootedTree, IsThatOfThePicture) {
  const NodeOf node_of = in_blocks({2, 3, 2});
  const TreePlace place = nested_tree(Rank{2}, Rank{2}, 7, node_of);
  std::vector<std::uint32_t> children;
  for (const TreeEdge& child : place.children) children.push_back(index_of(child.peer));
  EXPECT_EQ(children, (std::vector<std::uint32_t>{3, 4, 5, 0}));
}

TEST(RootedTree, OfManyRanksNeedsNoListOfThem) {
  const TreePlace place = nested_tree(Rank{0}, Rank{7}, UINT32_MAX, {});
  EXPECT_EQ(place.fans.size(), 32u);
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
              tree_reduce_of(participants, Rank{rank}, {.root = Rank{root}, .rank_count = ranks},
                             Order::commutative);
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
