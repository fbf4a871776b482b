// Promise: the arithmetic on vectors of messages per round is exact and never overflows.
#include "plan/core/per_round.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <tuple>

#include "plan/allreduce/two_partial.hpp"
#include "vectors.hpp"

namespace tutti::plan {
namespace {

TEST(Covers, is_the_product_reaching_the_rank_count) {
  EXPECT_TRUE(covers(1, {}));
  EXPECT_FALSE(covers(2, {}));
  EXPECT_TRUE(covers(96, {3, 3, 5}));
  EXPECT_FALSE(covers(97, {3, 3, 5}));
  EXPECT_TRUE(covers(97, {3, 3, 5, 1}));
}

TEST(Covers, refuses_rounds_without_messages) {
  EXPECT_FALSE(covers(1, {0}));
  EXPECT_FALSE(covers(4, {3, 0}));
}

TEST(Covers, does_not_overflow) {
  EXPECT_TRUE(covers(UINT32_MAX, {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}));
  EXPECT_TRUE(covers(UINT32_MAX, PerRound(64, UINT32_MAX)));
  EXPECT_TRUE(covers(UINT32_MAX, PerRound(1000, 1)));
  EXPECT_FALSE(covers(UINT32_MAX, PerRound(31, 1)));
  EXPECT_TRUE(covers(UINT32_MAX, PerRound(32, 1)));
}

TEST(IsExecutable, refuses_more_messages_than_slot_numbers) {
  EXPECT_TRUE(is_executable(32769, {32768}));
  EXPECT_FALSE(is_executable(32770, {32769}));
  EXPECT_FALSE(is_executable(0, {}));
  EXPECT_TRUE(is_executable(5, {UINT32_MAX}));  // 4 messages are executed
}

TEST(Uniform, has_the_exact_number_of_rounds_where_floating_logarithms_are_wrong) {
  EXPECT_EQ(uniform(125, 4), PerRound(3, 4));
  EXPECT_EQ(uniform(216, 5), PerRound(3, 5));
  EXPECT_EQ(uniform(15625, 4), PerRound(6, 4));
  EXPECT_EQ(uniform(16807, 6), PerRound(5, 6));
  EXPECT_EQ(uniform(46656, 5), PerRound(6, 5));
  EXPECT_EQ(uniform(2097152, 7), PerRound(7, 7));
}

TEST(Uniform, has_the_fewest_rounds_that_cover) {
  for (std::uint32_t ranks = 1; ranks <= 5000; ++ranks) {
    for (std::uint32_t n = 1; n <= 16; ++n) {
      const PerRound vector = uniform(ranks, n);
      ASSERT_EQ(vector, PerRound(test::exact_rounds(ranks, n), n)) << ranks << ' ' << n;
      ASSERT_TRUE(covers(ranks, vector));
    }
  }
  EXPECT_EQ(uniform(UINT32_MAX, 1), PerRound(32, 1));
  EXPECT_EQ(uniform(UINT32_MAX, UINT32_MAX), PerRound(1, UINT32_MAX));
}

/// Fewest rounds, fewest messages, nearest product, then the larger entries: by trying all vectors.
PerRound nearest_by_brute_force(std::uint32_t ranks, std::uint32_t largest) {
  const std::uint32_t rounds = test::exact_rounds(ranks, largest);
  std::tuple<std::uint64_t, std::uint64_t, PerRound> best{UINT64_MAX, 0, {}};
  PerRound vector(rounds);
  const std::function<void(std::size_t)> choose = [&](std::size_t position) {
    if (position < rounds) {
      for (std::uint32_t entry = 1; entry <= largest; ++entry) {
        vector[position] = entry;
        choose(position + 1);
      }
      return;
    }
    std::uint64_t product = 1;
    for (const std::uint32_t entry : vector) product *= entry + 1;
    if (product < ranks) return;
    const auto messages = std::accumulate(vector.begin(), vector.end(), std::uint64_t{0});
    const auto& [best_messages, best_product, best_vector] = best;
    if (std::tuple{messages, product} < std::tuple{best_messages, best_product} ||
        (std::tuple{messages, product} == std::tuple{best_messages, best_product} &&
         vector > best_vector))
      best = {messages, product, vector};
  };
  choose(0);
  return std::get<PerRound>(best);
}

TEST(NearestCovering, is_what_trying_all_vectors_finds) {
  for (std::uint32_t ranks = 1; ranks <= 200; ++ranks)
    for (std::uint32_t largest = 1; largest <= 8; ++largest)
      ASSERT_EQ(nearest_covering(ranks, largest), nearest_by_brute_force(ranks, largest))
          << ranks << ' ' << largest;
}

TEST(NearestCovering, prefers_the_product_that_needs_no_trimming) {
  EXPECT_EQ(nearest_covering(1, 7), PerRound());
  EXPECT_EQ(nearest_covering(96, 7), (PerRound{5, 3, 3}));
  EXPECT_EQ(nearest_covering(64, 7), (PerRound{7, 7}));
}

TEST(NearestCovering, is_quick_for_many_ranks) {
  for (const std::uint32_t ranks : {1'000'000U, UINT32_MAX}) {
    for (const std::uint32_t largest : {1U, 2U, 7U, 20U, 300U, 2000U, 65535U, UINT32_MAX}) {
      const PerRound vector = nearest_covering(ranks, largest);
      EXPECT_TRUE(covers(ranks, vector));
      EXPECT_EQ(vector.size(), uniform(ranks, largest).size());
      EXPECT_LE(*std::max_element(vector.begin(), vector.end()), largest);
    }
  }
}

}  // namespace
}  // namespace tutti::plan
