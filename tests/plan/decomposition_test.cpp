// Promise: dissemination by the digits of P gives every rank every contribution exactly once, for
// every number of ranks, n and form, in rank order where that is asked for, in the rounds and
// messages that the catalogue states; and only plain dissemination is waited for before the end.
#include "plan/allreduce/decomposition.hpp"
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "plan/allreduce/two_partial.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "steps_of.hpp"
#include "vectors.hpp"

namespace tutti::plan {
namespace {

constexpr Digits digit_forms[] = {Digits::joined, Digits::separate};
constexpr Order orders[] = {Order::commutative, Order::rank_order};

std::optional<std::string> violation(std::uint32_t ranks, std::uint32_t n, Digits digits,
                                     Order order) {
  const Promise promise = order == Order::rank_order ? Promise::rank_order : Promise::each_once;
  return first_violation(
      ranks, [&](Rank rank) { return decomposition_allreduce(rank, ranks, n, digits, order); },
      promise);
}

std::string name_of(std::uint32_t ranks, std::uint32_t n, Digits digits, Order order) {
  return "P = " + std::to_string(ranks) + ", n = " + std::to_string(n) +
         (digits == Digits::joined ? ", joined" : ", separate") +
         (order == Order::rank_order ? ", in rank order" : "");
}

/// The digits of `ranks` in base n+1, found from the top, and returned the lowest first.
std::vector<std::uint32_t> digits_of(std::uint32_t ranks, std::uint32_t n) {
  std::uint32_t stride = 1, count = 1;
  while (std::uint64_t{stride} * (n + 1) <= ranks) {
    stride *= n + 1;
    ++count;
  }
  std::vector<std::uint32_t> digits(count);
  for (std::uint32_t l = count; l-- > 0; stride /= n + 1)
    while (ranks >= stride) {
      ranks -= stride;
      ++digits[l];
    }
  return digits;
}

/// The messages of each round by the catalogue's formulae.
PerRound rounds_of(std::uint32_t ranks, std::uint32_t n, Digits form) {
  const std::vector<std::uint32_t> d = digits_of(ranks, n);
  const std::size_t top = d.size() - 1;
  PerRound rounds(top, n);
  rounds.push_back(d[top] - 1);
  for (std::size_t l = 0; l < top; ++l)
    if (form == Digits::separate)
      rounds[l] += d[l];
    else if (d[l] > 0)
      ++rounds[d[l] == 1 ? l : l + 1];
  if (rounds.back() == 0) rounds.pop_back();
  return rounds;
}

TEST(Decomposition, holds_every_contribution_once_for_all_rank_counts_up_to_128) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      for (const Digits digits : digit_forms)
        for (const Order order : orders)
          ASSERT_EQ(violation(ranks, n, digits, order), std::nullopt)
              << name_of(ranks, n, digits, order);
}

TEST(Decomposition, holds_every_contribution_once_for_sampled_rank_counts_up_to_2000) {
  std::mt19937 engine(1);
  for (int sample = 0; sample < test::samples(40); ++sample) {
    const auto ranks = static_cast<std::uint32_t>(sample == 0 ? 2000 : 1 + engine() % 2000);
    const auto n = static_cast<std::uint32_t>(1 + engine() % 20);
    for (const Digits digits : digit_forms)
      for (const Order order : orders)
        ASSERT_EQ(violation(ranks, n, digits, order), std::nullopt)
            << name_of(ranks, n, digits, order);
  }
}

TEST(Decomposition, tolerates_more_messages_than_ranks) {
  for (std::uint32_t ranks = 1; ranks <= 20; ++ranks)
    for (const std::uint32_t n : {ranks, 1000u, UINT32_MAX})
      for (const Digits digits : digit_forms)
        for (const Order order : orders)
          ASSERT_EQ(violation(ranks, n, digits, order), std::nullopt)
              << name_of(ranks, n, digits, order);
}

TEST(Decomposition, costs_what_the_catalogue_says) {
  for (std::uint32_t ranks = 1; ranks <= 1100; ++ranks)
    for (std::uint32_t n = 1; n <= 9; ++n)
      for (const Digits form : digit_forms)
        for (const Order order : orders) {
          const std::vector<std::uint32_t> d = digits_of(ranks, n);
          const auto top = static_cast<std::uint32_t>(d.size() - 1);
          const Plan plan = decomposition_allreduce(Rank{ranks / 3}, ranks, n, form, order);
          ASSERT_EQ(plan.per_round, rounds_of(ranks, n, form)) << name_of(ranks, n, form, order);
          const bool joined_at_end = form == Digits::joined && top > 0 && d[top - 1] > 1;
          ASSERT_EQ(plan.per_round.size(), top + (d[top] > 1 || joined_at_end ? 1 : 0));
          std::uint32_t extra = 0, prefixes = 0;
          for (std::uint32_t l = 0; l < top; ++l) {
            extra += form == Digits::joined ? std::min(d[l], 1u) : d[l];
            prefixes += form == Digits::joined && d[l] > 1 ? 1 : 0;
          }
          const std::uint32_t messages = n * top + d[top] - 1 + extra;
          ASSERT_EQ(test::count_of(plan, Action::put), messages);
          ASSERT_EQ(plan.slot_count, messages);
          if (ranks == 1) continue;
          const bool ordered = order == Order::rank_order;
          ASSERT_EQ(plan.partial_count, top + (d[top] > 1 ? 1 : 0) + prefixes + (ordered ? 1 : 0));
          ASSERT_EQ(plan.payloads, ordered ? 2 : 1);
          if (!ordered) {
            ASSERT_EQ(test::count_of(plan, Action::combine), messages);
          }
        }
}

TEST(Decomposition, of_base_two_takes_the_rounds_and_messages_of_the_paper) {
  for (std::uint32_t ranks = 1; ranks <= 2048; ++ranks)
    for (const Digits digits : digit_forms) {
      const PerRound rounds =
          decomposition_allreduce(Rank{0}, ranks, 1, digits, Order::commutative).per_round;
      const auto bits = static_cast<std::uint32_t>(std::bit_width(ranks));
      ASSERT_EQ(rounds.size(), bits - 1);
      ASSERT_EQ(std::accumulate(rounds.begin(), rounds.end(), 0u),
                bits - 2 + static_cast<std::uint32_t>(std::popcount(ranks)));
      ASSERT_TRUE(std::all_of(rounds.begin(), rounds.end(), [](auto m) { return m <= 2; }));
    }
}

TEST(Decomposition, waits_for_plain_dissemination_only_before_the_end) {
  for (std::uint32_t ranks = 2; ranks <= 300; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      for (const Digits digits : digit_forms) {
        const Plan plan = decomposition_allreduce(Rank{0}, ranks, n, digits, Order::commutative);
        PerRound awaits(plan.per_round.size());
        for (const Step& step : plan.steps)
          if (step.action == Action::await) ++awaits[step.round];
        for (std::size_t round = 0; round + 1 < awaits.size(); ++round)
          ASSERT_EQ(awaits[round], n) << name_of(ranks, n, digits, Order::commutative);
      }
}

TEST(Decomposition, sends_first_joins_in_slot_order_and_wastes_nothing) {
  for (std::uint32_t ranks = 2; ranks <= 300; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      for (const Digits digits : digit_forms)
        for (const Order order : orders) {
          const Plan plan = decomposition_allreduce(Rank{ranks / 2}, ranks, n, digits, order);
          ASSERT_TRUE(test::puts_come_first(plan)) << name_of(ranks, n, digits, order);
          ASSERT_TRUE(test::arrivals_are_in_slot_order(plan)) << name_of(ranks, n, digits, order);
          ASSERT_TRUE(test::nothing_is_wasted(plan)) << name_of(ranks, n, digits, order);
        }
}

// What the header says about the other schedule, in as many rounds: least messages per vector.
TEST(Decomposition, of_base_two_takes_no_fewer_messages_than_two_partial_in_as_many_rounds) {
  for (std::uint32_t ranks = 2; ranks <= 2048; ++ranks) {
    const PerRound rounds =
        decomposition_allreduce(Rank{0}, ranks, 1, Digits::separate, Order::commutative).per_round;
    std::uint32_t least = 0;  // sum of as many entries whose product of (entry + 1) reaches P
    for (std::uint64_t reached = 0; reached < ranks; ++least) {
      reached = 1;
      const auto count = static_cast<std::uint32_t>(rounds.size());
      for (std::uint32_t i = 0; i < count; ++i) reached *= 1 + (least + 1 + i) / count;
    }
    ASSERT_LE(least, std::accumulate(rounds.begin(), rounds.end(), 0u)) << ranks;
  }
}

TEST(Decomposition, needs_messages_that_have_a_slot) {
  for (const Digits digits : digit_forms) {
    EXPECT_FALSE(is_decomposable(0, 1, digits));
    EXPECT_FALSE(is_decomposable(5, 0, digits));
    EXPECT_TRUE(is_decomposable(1, UINT32_MAX, digits));
    EXPECT_TRUE(is_decomposable(UINT32_MAX, 1, digits));
    EXPECT_TRUE(is_decomposable(32769, UINT32_MAX, digits));
    EXPECT_FALSE(is_decomposable(32770, UINT32_MAX, digits));
  }
  // 2 and 20000 in base 30001: 30000 messages, one, and the 20000, joined or not
  constexpr std::uint32_t ranks = 2 * 30001 + 20000;
  EXPECT_TRUE(is_decomposable(ranks, 30000, Digits::joined));
  EXPECT_FALSE(is_decomposable(ranks, 30000, Digits::separate));
}

TEST(Decomposition, of_a_million_ranks_is_small) {
  constexpr std::uint32_t ranks = 1'000'000;
  for (const std::uint32_t n : {1u, 7u})
    for (const Digits digits : digit_forms)
      for (const Order order : orders)
        for (const std::uint32_t rank : {0u, 1u, 499'999u, 999'999u}) {
          const Plan plan = decomposition_allreduce(Rank{rank}, ranks, n, digits, order);
          EXPECT_LE(plan.steps.size(), 4 * (plan.slot_count + plan.per_round.size()));
          EXPECT_EQ(plan.per_round, rounds_of(ranks, n, digits));
        }
}

}  // namespace
}  // namespace tutti::plan
