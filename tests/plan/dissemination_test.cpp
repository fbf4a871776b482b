// Promise: after a dissemination barrier every rank has heard from every rank; the allreduce gives
// every rank every contribution at least once.  Rounds and messages are those of two-partial
// dissemination.
#include "plan/allreduce/dissemination.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "plan/allreduce/two_partial.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "vectors.hpp"

namespace tutti::plan {
namespace {

std::optional<std::string> barrier_violation(std::uint32_t ranks, const PerRound& vector) {
  return first_violation(
      ranks, [&](Rank rank) { return dissemination_barrier(rank, ranks, vector); },
      Promise::barrier);
}

std::optional<std::string> allreduce_violation(std::uint32_t ranks, const PerRound& vector) {
  return first_violation(
      ranks, [&](Rank rank) { return dissemination_allreduce(rank, ranks, vector); },
      Promise::at_least_once);
}

TEST(DisseminationBarrier, hears_from_all_for_all_uniform_vectors_up_to_256_ranks) {
  for (std::uint32_t ranks = 1; ranks <= test::up_to(256); ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      ASSERT_EQ(barrier_violation(ranks, uniform(ranks, n)), std::nullopt)
          << "P = " << ranks << ", n = " << n;
}

TEST(DisseminationBarrier, hears_from_all_for_all_minimal_vectors_up_to_64_ranks) {
  std::uint32_t vectors = 0;
  for (std::uint32_t ranks = 2; ranks <= 64; ++ranks) {
    test::for_each_minimal_vector(ranks, 7, [&](const PerRound& vector) {
      ++vectors;
      if (ranks > test::up_to(64)) return;
      ASSERT_EQ(barrier_violation(ranks, vector), std::nullopt)
          << "P = " << ranks << ", vector " << testing::PrintToString(vector);
    });
  }
  EXPECT_EQ(vectors, 5710U);
}

TEST(DisseminationAllreduce, holds_every_contribution_for_all_uniform_vectors_up_to_256_ranks) {
  for (std::uint32_t ranks = 1; ranks <= test::up_to(256); ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      ASSERT_EQ(allreduce_violation(ranks, uniform(ranks, n)), std::nullopt)
          << "P = " << ranks << ", n = " << n;
}

TEST(DisseminationAllreduce, holds_every_contribution_for_all_minimal_vectors_up_to_64_ranks) {
  for (std::uint32_t ranks = 2; ranks <= test::up_to(64); ++ranks) {
    test::for_each_minimal_vector(ranks, 7, [&](const PerRound& vector) {
      ASSERT_EQ(allreduce_violation(ranks, vector), std::nullopt)
          << "P = " << ranks << ", vector " << testing::PrintToString(vector);
    });
  }
}

TEST(Dissemination, has_the_rounds_and_messages_of_two_partial_dissemination) {
  for (std::uint32_t ranks = 1; ranks <= 300; ++ranks) {
    for (std::uint32_t n = 1; n <= 8; ++n) {
      PerRound expected;
      for (const Round& round : two_partial_rounds(ranks, uniform(ranks, n)))
        expected.push_back(round.messages);
      ASSERT_EQ(dissemination_barrier(Rank{0}, ranks, uniform(ranks, n)).per_round, expected);
      ASSERT_EQ(dissemination_allreduce(Rank{0}, ranks, uniform(ranks, n)).per_round, expected);
      ASSERT_EQ(expected.size(), test::exact_rounds(ranks, n));
    }
  }
  EXPECT_EQ(dissemination_barrier(Rank{0}, 96, {7, 7, 7}).per_round, (PerRound{1, 5, 7}));
}

TEST(DisseminationBarrier, only_puts_and_awaits) {
  for (const Step& step : dissemination_barrier(Rank{3}, 43, {3, 3, 3}).steps) {
    EXPECT_TRUE(step.action == Action::put || step.action == Action::await);
    EXPECT_EQ(step.payloads, 0);
  }
}

TEST(Dissemination, of_one_rank_tells_nobody) {
  EXPECT_TRUE(dissemination_barrier(Rank{0}, 1, {}).steps.empty());
  const Plan plan = dissemination_allreduce(Rank{0}, 1, {});
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].action, Action::copy);
}

TEST(Dissemination, of_a_million_ranks_is_small) {
  const PerRound vector = uniform(1'000'000, 7);
  for (const std::uint32_t rank : {0U, 499'999U, 999'999U}) {
    EXPECT_LE(dissemination_barrier(Rank{rank}, 1'000'000, vector).steps.size(), 2U * 49);
    EXPECT_LE(dissemination_allreduce(Rank{rank}, 1'000'000, vector).steps.size(), 3U * 49 + 8);
  }
}

}  // namespace
}  // namespace tutti::plan
