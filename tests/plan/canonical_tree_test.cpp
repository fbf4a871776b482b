// Promise: blocks are the largest nodes of the canonical tree within an interval, their number is
// bounded as told, and a fold along the tree gives the tree, whatever the order of arrival.
#include "plan/allreduce/canonical_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "naive_tree.hpp"
#include "plan/allreduce/canonical_fold.hpp"

namespace tutti::plan {
namespace {

TEST(CanonicalTree, blocks_are_the_largest_nodes_of_every_interval_up_to_33_ranks) {
  for (std::uint32_t ranks = 1; ranks <= 33; ++ranks) {
    const auto nodes = test::naive_nodes(ranks);
    for (std::uint32_t last = 0; last < ranks; ++last)
      for (std::uint32_t length = 1; length <= ranks; ++length)
        ASSERT_EQ(CanonicalTree(ranks).blocks_of(Rank{last}, length),
                  test::naive_blocks(nodes, ranks, last, length))
            << "P = " << ranks << ", " << length << " ranks that end at " << last;
  }
}

TEST(CanonicalTree, siblings_make_up_the_least_larger_node) {
  for (std::uint32_t ranks = 1; ranks <= 70; ++ranks) {
    const CanonicalTree tree(ranks);
    const auto nodes = test::naive_nodes(ranks);
    for (const auto& [first, end] : nodes) {
      const std::optional<Block> sibling = tree.sibling({first, end - first});
      ASSERT_EQ(sibling.has_value(), first > 0 || end < ranks);
      if (!sibling) continue;
      ASSERT_TRUE(nodes.contains({sibling->first, static_cast<std::uint32_t>(sibling->end())}));
      const auto left = std::min(first, sibling->first);
      const auto right = std::max<std::uint64_t>(end, sibling->end());
      ASSERT_TRUE(sibling->first == end || sibling->end() == first);
      ASSERT_TRUE(nodes.contains({left, static_cast<std::uint32_t>(right)}));
    }
  }
}

TEST(CanonicalTree, blocks_are_counted_and_their_bound_is_tight_up_to_half_of_the_ranks) {
  std::uint32_t loose = 0, all = 0;
  for (std::uint32_t ranks = 1; ranks <= 200; ++ranks) {
    const CanonicalTree tree(ranks);
    for (std::uint32_t length = 1; length <= ranks; ++length) {
      std::size_t most = 0;
      for (std::uint32_t last = 0; last < ranks; ++last) {
        const std::size_t count = tree.blocks_of(Rank{last}, length).size();
        ASSERT_EQ(tree.block_count(Rank{last}, length), count)
            << "P = " << ranks << ", " << length << " that end at " << last;
        most = std::max(most, count);
      }
      ASSERT_GE(tree.blocks_max(length), most) << "P = " << ranks << ", " << length;
      ASSERT_LE(tree.blocks_max(length), 2 * std::bit_width(ranks - 1) + 1);
      if (2 * length <= ranks) {
        ASSERT_EQ(tree.blocks_max(length), most) << "P = " << ranks << ", " << length;
      }
      ++all;
      loose += tree.blocks_max(length) > most ? 1 : 0;
    }
  }
  EXPECT_EQ(all, 20100U);
  EXPECT_LE(loose, all / 20) << "of the longer intervals";
}

TEST(CanonicalTree, of_all_ranks_there_can_be) {
  const CanonicalTree tree(UINT32_MAX);
  EXPECT_EQ(tree.root(), (Block{0, UINT32_MAX}));
  EXPECT_EQ(tree.blocks_of(Rank{UINT32_MAX - 1}, UINT32_MAX - 1).front(), (Block{1, 1}));
  EXPECT_EQ(tree.sibling({0, 1u << 31}), (Block{1u << 31, (1u << 31) - 1}));
  EXPECT_EQ(tree.blocks_of(Rank{UINT32_MAX - 1}, 3),
            (std::vector<Block>{{UINT32_MAX - 3, 3}}));  // clipped
  EXPECT_LE(tree.blocks_max(1u << 31), 65U);
}

/// What a register holds, in brackets.
using Values = std::map<std::pair<Place, std::pair<std::uint16_t, std::uint16_t>>, std::string>;

std::string& value_of(Values& values, const Register& where) {
  return values[{where.place, {where.index, where.payload}}];
}

std::string expression(std::uint32_t first, std::uint32_t end) {
  if (end - first == 1) return std::to_string(first);
  std::uint32_t half = 1;
  while (2 * half < end - first) half *= 2;
  return "(" + expression(first, first + half) + " " + expression(first + half, end) + ")";
}

/// Folds the contributions of `order` into one result; also says how many scratch payloads it took.
std::pair<std::string, std::uint32_t> folded(const std::vector<std::uint32_t>& order) {
  const auto ranks = static_cast<std::uint32_t>(order.size());
  Plan plan;
  plan.rank_count = ranks;
  plan.slot_count = static_cast<std::uint16_t>(ranks);
  StepWriter steps(plan);
  ScratchPayloads scratch(0, 1);
  CanonicalFold fold(CanonicalTree(ranks), steps, scratch);
  fold.want({0, ranks}, target_register);
  Values values;
  for (const std::uint32_t rank : order) {
    const Register at = slot_register(static_cast<std::uint16_t>(rank));
    value_of(values, at) = std::to_string(rank);
    fold.add({rank}, at);
  }
  for (const Step& step : plan.steps) {
    const std::string from = value_of(values, step.from);
    std::string& into = value_of(values, step.into);
    into = step.action == Action::copy ? from : "(" + from + " " + into + ")";
  }
  return {value_of(values, target_register), scratch.partial_count()};
}

TEST(CanonicalFold, gives_the_tree_whatever_the_order) {
  std::mt19937 random(1);
  for (std::uint32_t ranks = 1; ranks <= 70; ++ranks) {
    std::vector<std::uint32_t> order(ranks);
    std::iota(order.begin(), order.end(), 0u);
    for (int sample = 0; sample < 20; ++sample) {
      ASSERT_EQ(folded(order).first, expression(0, ranks)) << testing::PrintToString(order);
      std::shuffle(order.begin(), order.end(), random);
    }
  }
}

TEST(CanonicalFold, takes_logarithmic_scratch_in_the_order_of_the_ring) {
  for (std::uint32_t ranks = 2; ranks <= 100; ++ranks)
    for (std::uint32_t last = 0; last < ranks; ++last) {
      std::vector<std::uint32_t> order(ranks);
      for (std::uint32_t i = 0; i < ranks; ++i) order[i] = (last + ranks - i) % ranks;
      ASSERT_LE(folded(order).second, 2 * std::bit_width(ranks - 1)) << ranks << ' ' << last;
    }
}

}  // namespace
}  // namespace tutti::plan
