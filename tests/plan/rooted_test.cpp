// Promise: broadcast and reduce are right for every rank count, root and node shape; a tree crosses
// between two nodes once and is as high as it says; with their credits, two copies of everything
// suffice however far a rank runs ahead.
#include "plan/rooted/rooted.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "happens_before.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/verify.hpp"
#include "plan/rooted/rooted_tree.hpp"
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
/// Fibonacci trees of two latencies.
RootedShape fibonacci(RootedShape shape) {
  shape.fans = {.in_node_by = {Branching::Rule::fibonacci, 3},
                .across_by = {Branching::Rule::fibonacci, 2 + index_of(shape.root) % 9}};
  return shape;
}
Plan fibonacci_broadcast(Rank self, const RootedShape& shape) {
  return tree_broadcast(self, fibonacci(shape));
}
Plan fibonacci_reduce(Rank self, const RootedShape& shape) {
  return tree_reduce(self, fibonacci(shape), Order::commutative);
}
Plan fibonacci_ordered_reduce(Rank self, const RootedShape& shape) {
  return tree_reduce(self, fibonacci(shape), Order::rank_order);
}
/// The root sends directly to all others, inside a node and across; in three pieces if that is a
/// single level.
RootedShape pieced(RootedShape shape) {
  shape.fans = {.in_node = {shape.rank_count}, .across = {shape.rank_count}};
  shape.pieces = 3;
  return shape;
}
Plan pieced_broadcast(Rank self, const RootedShape& shape) {
  return tree_broadcast(self, pieced(shape));
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

void expect_divided_right(const RootedShape& shape) {
  EXPECT_EQ(first_violation(plans_of(fibonacci_broadcast, shape), Promise::broadcast, shape.root),
            std::nullopt)
      << text_of(shape);
  EXPECT_EQ(first_violation(plans_of(fibonacci_reduce, shape), Promise::each_once, shape.root),
            std::nullopt)
      << text_of(shape);
  EXPECT_EQ(
      first_violation(plans_of(fibonacci_ordered_reduce, shape), Promise::rank_order, shape.root),
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
  EXPECT_EQ(first_violation(plans_of(pieced_broadcast, shape), Promise::broadcast, shape.root),
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

TEST(Rooted, is_right_for_every_rank_count_and_root) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    for (std::uint32_t root = 0; root < ranks; root += ranks <= 32 ? 1 : 7) {
      const RootedShape shape{.root = Rank{root}, .rank_count = ranks};
      expect_right(shape);
      expect_divided_right(shape);
      if (ranks <= 40) expect_chains_right(shape);
      EXPECT_EQ(
          first_violation(plans_of(ordered_reduce, shape), Promise::canonical_tree, shape.root),
          std::nullopt)
          << text_of(shape);
    }
}

TEST(Rooted, is_right_for_every_node_shape_of_up_to_twelve_ranks_and_every_root) {
  for (std::uint32_t ranks = 1; ranks <= (test::samples_divisor == 1 ? 12U : 8U); ++ranks)
    for (const auto& sizes : compositions(ranks)) {
      const NodeOf node_of = in_blocks(sizes);
      for (std::uint32_t root = 0; root < ranks; ++root) {
        const RootedShape shape{.root = Rank{root}, .rank_count = ranks, .node_of = node_of};
        expect_right(shape);
        if (ranks <= 10) expect_divided_right(shape);
        if (ranks <= 8) expect_chains_right(shape);
      }
    }
}

TEST(Rooted, is_right_for_sampled_placements) {
  std::mt19937 random(5);
  for (int sample = 0; sample < test::samples(400); ++sample) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(random() % 60);
    const std::uint32_t nodes = 1 + static_cast<std::uint32_t>(random() % ranks);
    const NodeOf node_of = placed(ranks, nodes, sample % 2 == 0, random);
    const RootedShape shape{.root = Rank{static_cast<std::uint32_t>(random() % ranks)},
                            .rank_count = ranks,
                            .node_of = node_of};
    expect_right(shape);
    expect_divided_right(shape);
    expect_chains_right(shape);
  }
}

TEST(Rooted, two_copies_suffice_however_far_a_rank_runs_ahead) {
  std::mt19937 random(11);
  for (std::uint32_t ranks = 2; ranks <= 24; ++ranks)
    for (const Builder build :
         {broadcast, wide_broadcast, pieced_broadcast, chain_broadcast, chain_reduce,
          chain_ordered_reduce, fibonacci_broadcast, reduce, ordered_reduce, wide_reduce,
          wide_ordered_reduce, fibonacci_reduce, fibonacci_ordered_reduce}) {
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

RootedShape sharing(RootedShape shape) {
  shape.target = Target::of_node;
  return shape;
}
Plan sharing_broadcast(Rank self, const RootedShape& shape) {
  return tree_broadcast(self, sharing(shape));
}
Plan sharing_wide_broadcast(Rank self, const RootedShape& shape) {
  return tree_broadcast(self, sharing(wide(shape)));
}
Plan sharing_fibonacci_broadcast(Rank self, const RootedShape& shape) {
  return tree_broadcast(self, sharing(fibonacci(shape)));
}
Plan sharing_pieced_broadcast(Rank self, const RootedShape& shape) {
  return tree_broadcast(self, sharing(pieced(shape)));
}
Plan sharing_chain_broadcast(Rank self, const RootedShape& shape) {
  return tree_broadcast(self, sharing(chained(shape)));
}
const Builder sharing_broadcasts[] = {sharing_broadcast, sharing_wide_broadcast,
                                      sharing_fibonacci_broadcast, sharing_pieced_broadcast,
                                      sharing_chain_broadcast};

TEST(Rooted, with_one_target_a_node_is_right_for_every_shape_and_root) {
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks)
    for (const auto& sizes : compositions(ranks)) {
      const NodeOf node_of = in_blocks(sizes);
      for (std::uint32_t root = 0; root < ranks; ++root) {
        const RootedShape shape{.root = Rank{root}, .rank_count = ranks, .node_of = node_of};
        for (const Builder build : sharing_broadcasts) {
          const std::vector<Plan> plans = plans_of(build, shape);
          EXPECT_EQ(first_violation(plans, Promise::broadcast, shape.root), std::nullopt)
              << text_of(shape);
          EXPECT_EQ(plans[0].shares_target, sizes.size() < ranks);
          if (ranks <= 6) {
            EXPECT_EQ(test::HappensBefore(plans, 6, 2).race(), std::nullopt) << text_of(shape);
          }
        }
      }
    }
  std::mt19937 random(6);
  for (int sample = 0; sample < test::samples(60); ++sample) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(random() % 60);
    const NodeOf node_of =
        placed(ranks, 1 + static_cast<std::uint32_t>(random() % ranks), sample % 2 == 0, random);
    const RootedShape shape{.root = Rank{static_cast<std::uint32_t>(random() % ranks)},
                            .rank_count = ranks,
                            .node_of = node_of};
    for (const Builder build : sharing_broadcasts)
      EXPECT_EQ(first_violation(plans_of(build, shape), Promise::broadcast, shape.root),
                std::nullopt)
          << text_of(shape);
  }
}

/// One rank of each node writes, the root none; what is not sent to other nodes moves no byte.
TEST(Rooted, with_one_target_a_node_writes_it_once) {
  const NodeOf node_of = in_blocks({3, 1, 4});
  const RootedShape shape{.root = Rank{1}, .rank_count = 8, .node_of = node_of};
  for (const Builder build : sharing_broadcasts) {
    std::vector<std::uint32_t> writers;
    std::size_t far = 0;
    for (const Plan& plan : plans_of(build, shape)) {
      for (const Step& step : plan.steps) {
        if (step.action == Action::copy && step.into.place == Place::target && step.part == 0)
          writers.push_back(index_of(plan.self));
        if (step.action != Action::put || step.payloads == 0 || step.part != 0) continue;
        const bool is_far = node_of[index_of(step.peer)] != node_of[index_of(plan.self)];
        EXPECT_EQ(step.into_target, !is_far);
        far += is_far ? 1 : 0;
      }
    }
    EXPECT_EQ(writers, (std::vector<std::uint32_t>{3, 4}));
    EXPECT_EQ(far, 2u);
  }
  const Plan alone = sharing_wide_broadcast(Rank{0}, {.rank_count = 4, .node_of = in_blocks({4})});
  EXPECT_EQ(alone.algorithm, "flat_tree_shared_target");
  EXPECT_EQ(alone.slot_count, alone.line_slot_count) << "no payload needs a slot";
  EXPECT_EQ(alone.partial_count, 0);
}

/// A rank that has not entered may still read the last result.
TEST(Rooted, with_one_target_a_node_has_to_await_entries) {
  const NodeOf node_of = in_blocks({1, 3});
  const auto without = [&](Rank reader) {
    std::vector<Plan> plans =
        plans_of(sharing_wide_broadcast, {.rank_count = 4, .node_of = node_of});
    const auto is_entry = [](const Step& step) { return step.into_target && step.payloads == 0; };
    std::erase_if(plans[index_of(reader)].steps, is_entry);
    std::erase_if(plans[1].steps,
                  [&](const Step& step) { return is_entry(step) && step.peer == reader; });
    return plans;
  };
  const std::string race = test::HappensBefore(without(Rank{3}), 6, 2).race().value_or("none");
  EXPECT_NE(race.find("of the target of its node while rank 3 may read"), std::string::npos)
      << race;
  const std::string violation =
      first_violation(without(Rank{2}), Promise::broadcast, Rank{0}).value_or("none");
  EXPECT_NE(violation.find("puts without a credit of rank 2"), std::string::npos) << violation;
}

TEST(Rooted, without_credits_they_do_not) {
  std::vector<Plan> plans = plans_of(broadcast, {.root = Rank{0}, .rank_count = 2});
  for (Plan& plan : plans)
    std::erase_if(plan.steps, [](const Step& step) {
      return step.action == Action::await_credit ||
             (step.action == Action::put && step.payloads == 0);
    });
  EXPECT_NE(test::HappensBefore(plans, 6, 2).race(), std::nullopt);
  EXPECT_NE(first_violation(plans, Promise::broadcast, Rank{0}), std::nullopt);
}

TEST(Rooted, a_credit_that_is_never_given_is_seen) {
  std::vector<Plan> plans = plans_of(reduce, {.root = Rank{0}, .rank_count = 3});
  std::erase_if(plans[0].steps, [](const Step& step) {
    return step.action == Action::put && step.peer == Rank{2};
  });
  const auto violation = first_violation(plans, Promise::each_once, Rank{0});
  ASSERT_TRUE(violation);
  EXPECT_NE(violation->find("never gives the credit"), std::string::npos) << *violation;
}

TEST(Rooted, a_wrong_root_is_seen) {
  const std::vector<Plan> plans = plans_of(broadcast, {.root = Rank{1}, .rank_count = 3});
  EXPECT_NE(first_violation(plans, Promise::broadcast, Rank{0}), std::nullopt);
  const std::vector<Plan> others = plans_of(reduce, {.root = Rank{1}, .rank_count = 3});
  EXPECT_NE(first_violation(others, Promise::each_once, Rank{0}), std::nullopt);
}

/// Nobody tells more than one node, and a broadcast connects a rank with two.
TEST(RootedTree, of_a_chain_has_one_node_after_the_other) {
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
TEST(RootedTree, of_a_chain_passes_each_piece_on_at_once) {
  const Plan plan = chain_broadcast(Rank{1}, {.rank_count = 4});
  std::string order;
  for (const Step& step : plan.steps) {
    if (step.action == Action::await) order += " <" + std::to_string(step.part);
    if (step.action == Action::put && step.payloads > 0) order += " >" + std::to_string(step.part);
  }
  EXPECT_EQ(order, " <0 >0 <1 >1 <2 >2 <3 >3");
  EXPECT_EQ(plan.algorithm, "pipelined_chain");
  EXPECT_EQ(plan.per_round, (PerRound{1, 1, 1, 1}));
}

/// Ranks copy one piece while the root writes the next; one credit stands for all pieces.
TEST(RootedTree, in_pieces_sends_each_piece_as_soon_as_it_has_it) {
  const auto order_of = [](const Plan& plan) {
    std::string order;
    for (const Step& step : plan.steps) {
      if (step.action == Action::await) order += " <" + std::to_string(step.part);
      if (step.action == Action::copy) order += " =" + std::to_string(step.part);
      if (step.action == Action::put && step.payloads > 0)
        order += " >" + std::to_string(step.part);
      if (step.action == Action::put && step.payloads == 0) order += " >credit";
      if (step.action == Action::await_credit) order += " <credit";
    }
    return order;
  };
  const RootedShape shape{.rank_count = 3, .fans = {.in_node = {}, .across = {2}}, .pieces = 3};
  const Plan root = tree_broadcast(Rank{0}, shape), leaf = tree_broadcast(Rank{2}, shape);
  EXPECT_EQ(order_of(root), " <credit <credit =0 >0 >0 =1 >1 >1 =2 >2 >2");
  EXPECT_EQ(order_of(leaf), " <0 =0 <1 =1 <2 =2 >credit");
  EXPECT_EQ(root.per_round, PerRound{6});
  EXPECT_EQ(root.parts, 3);
  EXPECT_EQ(root.partial_count, 3);
  EXPECT_EQ(root.slot_count - root.line_slot_count, 3);
}

TEST(RootedTree, fans_say_how_many_are_told_in_a_round) {
  const NodeOf node_of = in_blocks({5, 3});
  const Plan root = tree_broadcast(
      Rank{6}, {.root = Rank{6}, .rank_count = 8, .node_of = node_of, .fans = {.in_node = {4}}});
  EXPECT_EQ(root.per_round, (PerRound{1, 4}));
  EXPECT_EQ(root.algorithm, "knomial_tree");
  // The other node first, then the two ranks of its own.
  const auto told_by = [](const Plan& plan) {
    std::vector<Rank> told;
    for (const Step& step : plan.steps)
      if (step.action == Action::put && step.payloads > 0) told.push_back(step.peer);
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

TEST(RootedTree, what_is_superfluous_is_not_there) {
  const auto rounds = [](std::uint32_t ranks, const PerRound& across) {
    return tree_broadcast(Rank{0}, {.rank_count = ranks, .fans = {.in_node = {}, .across = across}})
        .per_round;
  };
  EXPECT_EQ(rounds(10, {7, 7}), (PerRound{1, 7}));
  EXPECT_EQ(rounds(4, {65536}), (PerRound{3}));
  EXPECT_EQ(rounds(4, {1, 40'000, 2}), (PerRound{1, 1}));
  EXPECT_EQ(rounds(5, {1, 1}), (PerRound{1, 1, 1})) << "too few: ones";
}

TEST(RootedTree, crosses_between_two_nodes_once_and_is_as_high_as_it_says) {
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

constexpr std::uint32_t some_latencies[] = {1, 2, 3, 5, 9, 31, latency_max};

std::vector<Branching> every_branching() {
  std::vector<Branching> all;
  for (const std::uint32_t latency : some_latencies)
    all.push_back({Branching::Rule::fibonacci, latency});
  return all;
}

/// What trees of all counts have, counted vertex by vertex.
PerRound counted_levels(std::uint32_t count, const Branching& branching) {
  PerRound levels;
  for (std::vector<std::uint32_t> row{count}, next; !row.empty(); row.swap(next), next.clear()) {
    std::uint32_t most = 0;
    for (const std::uint32_t one : row) {
      const auto sizes = subtree_sizes(one, branching);
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), 1u), one);
      most = std::max(most, static_cast<std::uint32_t>(sizes.size()));
      next.insert(next.end(), sizes.begin(), sizes.end());
    }
    if (most > 0) levels.insert(levels.begin(), most);
  }
  return levels;
}

TEST(DividedTree, has_as_many_children_as_it_says_and_no_fewer_than_a_smaller_one) {
  for (const Branching& branching : every_branching()) {
    PerRound before;
    for (std::uint32_t count = 1; count <= 300; ++count) {
      const PerRound levels = children_by_level(count, branching);
      EXPECT_EQ(levels, counted_levels(count, branching)) << count;
      ASSERT_GE(levels.size(), before.size());
      for (std::size_t depth = 0; depth < before.size(); ++depth)
        EXPECT_GE(levels[levels.size() - 1 - depth], before[before.size() - 1 - depth]) << count;
      EXPECT_EQ(levels.empty() ? 0 : *std::max_element(levels.begin(), levels.end()),
                levels.empty() ? 0 : levels.back());
      before = levels;
    }
  }
}

/// In the postal model, told as early as can be: nobody who knows is ever idle.
std::uint64_t earliest_end(std::uint32_t count, std::uint32_t latency) {
  std::vector<std::uint64_t> knows_at{0};
  for (std::uint64_t now = 0; knows_at.size() < count; ++now) {
    const auto tellers = static_cast<std::size_t>(std::count_if(
        knows_at.begin(), knows_at.end(), [&](std::uint64_t since) { return since <= now; }));
    for (std::size_t i = 0; i < tellers && knows_at.size() < count; ++i)
      knows_at.push_back(now + latency);
  }
  return *std::max_element(knows_at.begin(), knows_at.end());
}

std::uint64_t end_of(std::uint32_t count, const Branching& branching) {
  const auto sizes = subtree_sizes(count, branching);
  std::uint64_t end = 0, sent = 0;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size)  // told in this order
    end = std::max(end, sent++ + branching.latency + end_of(*size, branching));
  return end;
}

TEST(DividedTree, fibonacci_trees_are_optimal_in_the_postal_model) {
  for (const std::uint32_t latency : some_latencies)
    for (std::uint32_t count = 1; count <= 200; ++count)
      EXPECT_EQ(end_of(count, {Branching::Rule::fibonacci, latency}), earliest_end(count, latency))
          << count << " ranks, latency " << latency;
}

TEST(DividedTree, is_that_of_the_picture) {
  using Sizes = std::vector<std::uint32_t>;
  EXPECT_EQ(subtree_sizes(8, {Branching::Rule::fibonacci, 2}), (Sizes{1, 1, 2, 3}));
  EXPECT_EQ(subtree_sizes(8, {Branching::Rule::fibonacci, 1}), (Sizes{1, 2, 4})) << "binomial";
  EXPECT_EQ(subtree_sizes(8, {Branching::Rule::fibonacci, 7}), Sizes(7, 1)) << "flat";
  EXPECT_TRUE(subtree_sizes(1, {Branching::Rule::fibonacci, 2}).empty());
  const RootedShape shape{.rank_count = 8, .fans = {.across_by = {Branching::Rule::fibonacci, 2}}};
  const Plan root = tree_broadcast(Rank{0}, shape), five = tree_broadcast(Rank{5}, shape);
  const auto told_by = [](const Plan& plan) {
    std::vector<Rank> told;
    for (const Step& step : plan.steps)
      if (step.action == Action::put && step.payloads > 0) told.push_back(step.peer);
    return told;
  };
  EXPECT_EQ(told_by(root), (std::vector<Rank>{Rank{5}, Rank{3}, Rank{2}, Rank{1}}));
  EXPECT_EQ(told_by(five), (std::vector<Rank>{Rank{7}, Rank{6}}));
  EXPECT_EQ(root.algorithm, "fibonacci_tree");
  EXPECT_EQ(root.per_round, (PerRound{4, 2}));
  const NodeOf one_node = in_blocks({5});
  EXPECT_EQ(tree_broadcast(Rank{0}, {.rank_count = 5,
                                     .node_of = one_node,
                                     .fans = {.in_node_by = {Branching::Rule::fibonacci, 2}}})
                .algorithm,
            "fibonacci_tree");
}

TEST(DividedTree, of_many_ranks_needs_no_list_of_them) {
  for (const Branching& branching : every_branching()) {
    const TreePlace place = nested_tree(Rank{0}, Rank{7}, UINT32_MAX, {}, {.across_by = branching});
    EXPECT_TRUE(place.parent);
    EXPECT_LT(place.edge_count, 1024u);
  }
}

TEST(RootedTree, is_that_of_the_picture) {
  const NodeOf node_of = in_blocks({2, 3, 2});
  const TreePlace place = nested_tree(Rank{2}, Rank{2}, 7, node_of);
  std::vector<std::uint32_t> children;
  for (const TreeEdge& child : place.children) children.push_back(index_of(child.peer));
  EXPECT_EQ(children, (std::vector<std::uint32_t>{3, 4, 5, 0}));
}

TEST(RootedTree, of_many_ranks_needs_no_list_of_them) {
  const TreePlace place = nested_tree(Rank{0}, Rank{7}, UINT32_MAX, {});
  EXPECT_EQ(place.fans.size(), 32u);
  EXPECT_TRUE(place.parent);
}

/// A reduce in which only some ranks take part is a tree over these; the others do nothing.
TEST(Rooted, a_reduce_of_some_ranks_is_a_tree_over_them) {
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
            sent += step.action == Action::put && step.payloads > 0 ? 1 : 0;
          }
        }
        EXPECT_EQ(sent, participants - 1);
      }
}

}  // namespace
}  // namespace tutti::plan
