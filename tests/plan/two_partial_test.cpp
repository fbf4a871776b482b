// Promise: two-partial dissemination gives every rank every contribution exactly once, for every
// number of ranks and every vector that covers it, in rank order where that is asked for, in the
// rounds and messages that the catalogue states.
#include "plan/allreduce/two_partial.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>

#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "vectors.hpp"

namespace tutti::plan {
namespace {

std::optional<std::string> violation(std::uint32_t ranks, const PerRound& vector, Order order) {
  const Promise promise = order == Order::rank_order ? Promise::rank_order : Promise::each_once;
  return first_violation(
      ranks, [&](Rank rank) { return two_partial_allreduce(rank, ranks, vector, order); }, promise);
}

std::uint64_t messages_in(const std::vector<Round>& rounds) {
  return std::accumulate(
      rounds.begin(), rounds.end(), std::uint64_t{0},
      [](std::uint64_t sum, const Round& round) { return sum + round.messages; });
}

TEST(TwoPartialRounds, grow_from_one_rank_to_all_by_the_formula) {
  for (std::uint32_t ranks = 2; ranks <= 64; ++ranks) {
    test::for_each_minimal_vector(ranks, 7, [&](const PerRound& vector) {
      std::uint64_t length = 1;
      for (const Round& round : two_partial_rounds(ranks, vector)) {
        ASSERT_EQ(round.length, length);
        ASSERT_LE(round.short_messages, round.messages);
        ASSERT_TRUE(round.short_messages == 0 || round.length >= 2);
        length = (round.messages + 1) * length - round.short_messages;
      }
      ASSERT_EQ(length, ranks);
    });
  }
}

TEST(TwoPartialRounds, of_uniform_vectors_are_as_many_as_the_exact_logarithm) {
  for (const auto& [ranks, n, rounds] :
       {std::tuple{125U, 4U, 3U}, {216U, 5U, 3U}, {15625U, 4U, 6U}, {126U, 4U, 4U}}) {
    EXPECT_EQ(two_partial_rounds(ranks, uniform(ranks, n)).size(), rounds) << ranks << ' ' << n;
    EXPECT_EQ(two_partial_allreduce(Rank{1}, ranks, uniform(ranks, n), Order::commutative)
                  .per_round.size(),
              rounds);
  }
}

TEST(TwoPartialRounds, skip_rounds_that_are_not_needed) {
  EXPECT_EQ(two_partial_rounds(5, {4, 7, 7}), (std::vector<Round>{{1, 4, 0}}));
  EXPECT_TRUE(two_partial_rounds(1, {3, 3}).empty());
}

// The table was computed independently of this code.
TEST(TwoPartialRounds, equal_the_reference_table) {
  std::ifstream table(TUTTI_TEST_DATA "/two_partial_plans.csv");
  ASSERT_TRUE(table) << "tests/data/two_partial_plans.csv is missing";
  std::string line;
  std::getline(table, line);
  ASSERT_EQ(line, "P,n,rounds,msgs,plan_m:r:c_per_round");
  std::uint32_t lines = 0;
  for (; std::getline(table, line); ++lines) {
    std::istringstream fields(line);
    std::uint32_t ranks = 0, n = 0;
    char comma = ',';
    fields >> ranks >> comma >> n;
    const std::vector<Round> rounds = two_partial_rounds(ranks, uniform(ranks, n));
    std::ostringstream expected;
    expected << ranks << ',' << n << ',' << rounds.size() << ',' << messages_in(rounds) << ',';
    for (std::size_t i = 0; i < rounds.size(); ++i)
      expected << (i > 0 ? " " : "") << rounds[i].length << ':' << rounds[i].messages << ':'
               << rounds[i].short_messages;
    ASSERT_EQ(line, expected.str());
  }
  EXPECT_EQ(lines, 1024U * 8U);
}

TEST(TwoPartialAllreduce, holds_every_contribution_once_for_all_uniform_vectors_up_to_256_ranks) {
  for (std::uint32_t ranks = 1; ranks <= test::up_to(256); ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      ASSERT_EQ(violation(ranks, uniform(ranks, n), Order::commutative), std::nullopt)
          << "P = " << ranks << ", n = " << n;
}

TEST(TwoPartialAllreduce, holds_every_contribution_once_for_all_minimal_vectors_up_to_64_ranks) {
  std::uint32_t vectors = 0;
  for (std::uint32_t ranks = 2; ranks <= 64; ++ranks) {
    test::for_each_minimal_vector(ranks, 7, [&](const PerRound& vector) {
      ++vectors;
      if (ranks > test::up_to(64)) return;
      ASSERT_EQ(violation(ranks, vector, Order::commutative), std::nullopt)
          << "P = " << ranks << ", vector " << testing::PrintToString(vector);
    });
  }
  EXPECT_EQ(vectors, 5710U);
}

TEST(TwoPartialAllreduce, keeps_rank_order_for_all_uniform_vectors_up_to_64_ranks) {
  for (std::uint32_t ranks = 1; ranks <= test::up_to(64); ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      ASSERT_EQ(violation(ranks, uniform(ranks, n), Order::rank_order), std::nullopt)
          << "P = " << ranks << ", n = " << n;
}

TEST(TwoPartialAllreduce, keeps_rank_order_for_all_minimal_vectors_up_to_32_ranks) {
  for (std::uint32_t ranks = 2; ranks <= 32; ++ranks) {
    test::for_each_minimal_vector(ranks, 7, [&](const PerRound& vector) {
      ASSERT_EQ(violation(ranks, vector, Order::rank_order), std::nullopt)
          << "P = " << ranks << ", vector " << testing::PrintToString(vector);
    });
  }
}

TEST(TwoPartialAllreduce, tolerates_vectors_larger_than_needed) {
  for (std::uint32_t ranks = 1; ranks <= 40; ++ranks)
    for (const PerRound& vector : {PerRound{7, 7, 7}, {1, 63, 1}, {UINT32_MAX, 1}, {3, UINT32_MAX}})
      for (const Order order : {Order::commutative, Order::rank_order})
        ASSERT_EQ(violation(ranks, vector, order), std::nullopt)
            << "P = " << ranks << ", vector " << testing::PrintToString(vector);
}

TEST(TwoPartialAllreduce, combines_no_more_than_messages_and_rounds) {
  for (std::uint32_t ranks = 2; ranks <= 200; ++ranks) {
    for (std::uint32_t n = 1; n <= 8; ++n) {
      const Plan plan =
          two_partial_allreduce(Rank{ranks / 2}, ranks, uniform(ranks, n), Order::commutative);
      std::uint64_t combines = 0, messages = 0;
      for (const Step& step : plan.steps) {
        combines += step.action == Action::combine ? 1 : 0;
        messages += step.action == Action::put ? 1 : 0;
      }
      ASSERT_LE(combines, messages + plan.per_round.size() - 1) << ranks << ' ' << n;
      ASSERT_EQ(messages, messages_in(two_partial_rounds(ranks, uniform(ranks, n))));
    }
  }
}

TEST(TwoPartialAllreduce, puts_before_anything_else_in_every_round) {
  for (const Order order : {Order::commutative, Order::rank_order}) {
    for (std::uint32_t rank = 0; rank < 43; ++rank) {
      const Plan plan = two_partial_allreduce(Rank{rank}, 43, {2, 2, 4}, order);
      bool awaiting = false;
      for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        const Step& step = plan.steps[i];
        if (i == 0 || step.round != plan.steps[i - 1].round) awaiting = false;
        if (step.action == Action::await) awaiting = true;
        if (step.action != Action::put || i == 0) continue;
        const Step& before = plan.steps[i - 1];
        EXPECT_FALSE(awaiting);
        EXPECT_TRUE(before.round != step.round || before.action == Action::put || i == 1);
      }
    }
  }
}

// A W of length m wraps on the m-1 first ranks; a V on all of them but the first and the last.
TEST(TwoPartialAllreduce, sends_two_payloads_only_across_the_seam) {
  const PerRound vector{3, 3, 3};
  for (std::uint32_t ranks = 17; ranks <= 64; ++ranks) {
    const std::vector<Round> rounds = two_partial_rounds(ranks, vector);
    std::vector<std::uint32_t> doubled(rounds.size());  // messages of two payloads, of all ranks
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      for (const Step& step :
           two_partial_allreduce(Rank{rank}, ranks, vector, Order::rank_order).steps)
        if (step.action == Action::put && step.payloads == 2) ++doubled[step.round];
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      const auto& [length, messages, short_messages] = rounds[i];
      const std::uint32_t of_v = length > 2 ? length - 2 : 0;
      EXPECT_EQ(doubled[i], (messages - short_messages) * (length - 1) + short_messages * of_v);
    }
  }
}

// P = 5, n = 1: the second round sends V's only, so W is first needed in the last round.
TEST(TwoPartialAllreduce, does_not_compute_partials_that_nobody_reads) {
  const Plan plan = two_partial_allreduce(Rank{2}, 5, {1, 1, 1}, Order::commutative);
  const Register unread{.place = Place::partial, .index = 1};
  for (const Step& step : plan.steps) {
    const bool writes = step.action == Action::copy || step.action == Action::combine;
    EXPECT_FALSE(writes && step.into == unread);
  }
}

TEST(TwoPartialAllreduce, of_one_rank_copies_its_contribution) {
  for (const Order order : {Order::commutative, Order::rank_order}) {
    const Plan plan = two_partial_allreduce(Rank{0}, 1, {}, order);
    ASSERT_EQ(plan.steps.size(), 1U);
    EXPECT_EQ(plan.steps[0].action, Action::copy);
    EXPECT_EQ(plan.steps[0].from.place, Place::source);
    EXPECT_EQ(plan.steps[0].into.place, Place::target);
    EXPECT_EQ(plan.payloads, 1);
    EXPECT_EQ(plan.slot_count, 0);
  }
}

TEST(TwoPartialAllreduce, of_a_million_ranks_is_small) {
  for (const Order order : {Order::commutative, Order::rank_order}) {
    for (const std::uint32_t rank : {0U, 1U, 499'999U, 999'999U}) {
      const Plan plan = two_partial_allreduce(Rank{rank}, 1'000'000, uniform(1'000'000, 7), order);
      EXPECT_EQ(plan.per_round.size(), 7U);
      EXPECT_LE(plan.slot_count, 49);
      EXPECT_LE(plan.partial_count, 15);
      EXPECT_LE(plan.steps.size(), 49U * 4 + 7 * 5);
    }
  }
}

TEST(TwoPartialAllreduce, uses_all_slot_numbers_there_are) {
  const Plan plan = two_partial_allreduce(Rank{7}, 32769, {32768}, Order::rank_order);
  EXPECT_EQ(plan.slot_count, 32768);
  EXPECT_EQ(plan.steps.back().round, 0U);
}

}  // namespace
}  // namespace tutti::plan
