// Promise: recursive multiplying gives every rank the same expression, 0 o 1 o ... o P-1 in one
// association, for every number of ranks, in the rounds and messages that the catalogue states.
#include "plan/allreduce/recursive_multiplying.hpp"
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>

#include "plan/allreduce/two_partial.hpp"
#include "plan/core/verify.hpp"
#include "rule_of_thumb.hpp"
#include "sizes.hpp"
#include "vectors.hpp"

namespace tutti::plan {
namespace {

constexpr std::array<std::uint64_t, 3> payloads = {8, 1024, 65536};  // one of each cost ratio

std::optional<std::string> violation(std::uint32_t ranks, const PerRound& core,
                                     Promise promise = Promise::same_expression) {
  return first_violation(
      ranks, [&](Rank rank) { return recursive_multiplying_allreduce(rank, ranks, core); },
      promise);
}

std::uint32_t product_of(const PerRound& vector) {
  std::uint32_t product = 1;
  for (const std::uint32_t entry : vector) product *= entry + 1;
  return product;
}

std::uint32_t sum_of(const PerRound& vector) {
  return std::accumulate(vector.begin(), vector.end(), 0u);
}

bool factors(std::uint32_t ranks) {  // into entries of at most 7
  for (const std::uint32_t prime : {2u, 3u, 5u, 7u})
    while (ranks % prime == 0) ranks /= prime;
  return ranks == 1;
}

/// The sum over all rounds, those of the fold included, that the rule makes least.
std::uint64_t cost_of(std::uint32_t ranks, const PerRound& core, std::uint64_t ratio) {
  const PerRound rounds = recursive_multiplying_rounds(ranks, core);
  return sum_of(rounds) + ratio * rounds.size();
}

TEST(RecursiveMultiplying, is_one_expression_for_all_factorisations_up_to_128_ranks) {
  std::uint32_t factorisations = 0;
  test::for_each_core(128, 7, [&](const PerRound& core) {
    ++factorisations;
    const std::uint32_t ranks = product_of(core);
    ASSERT_EQ(violation(ranks, core), std::nullopt)
        << "P = " << ranks << ", core " << testing::PrintToString(core);
  });
  EXPECT_EQ(factorisations, 655U);
}

TEST(RecursiveMultiplying, keeps_the_weaker_promises_too) {
  for (const std::uint32_t ranks : {1u, 6u, 7u, 24u, 43u})
    for (const Promise promise : {Promise::rank_order, Promise::each_once, Promise::at_least_once})
      EXPECT_EQ(violation(ranks, test::rule_core(ranks, 8), promise), std::nullopt);
}

TEST(RecursiveMultiplying, folds_what_is_in_excess_for_every_core_up_to_40_ranks) {
  for (std::uint32_t ranks = 1; ranks <= 40; ++ranks)
    test::for_each_core(ranks, 7, [&](const PerRound& core) {
      ASSERT_EQ(violation(ranks, core), std::nullopt)
          << "P = " << ranks << ", core " << testing::PrintToString(core);
    });
}

TEST(RecursiveMultiplying, is_one_expression_with_the_rules_core_for_every_rank_count_up_to_256) {
  for (std::uint32_t ranks = 1; ranks <= test::up_to(256); ++ranks)
    for (const std::uint64_t bytes : payloads) {
      const PerRound core = test::rule_core(ranks, bytes);
      ASSERT_EQ(violation(ranks, core), std::nullopt)
          << "P = " << ranks << ", core " << testing::PrintToString(core);
    }
}

TEST(RecursiveMultiplying, is_one_expression_for_sampled_rank_counts_up_to_2000) {
  std::mt19937 engine(1);
  const auto random = [&](std::uint32_t below) {
    return static_cast<std::uint32_t>(engine() % below);
  };
  for (int sample = 0; sample < test::samples(40); ++sample) {
    const std::uint32_t ranks = sample == 0 ? 2000 : 1 + random(2000);
    PerRound at_most;
    while (!covers(ranks, at_most)) at_most.push_back(1 + random(15));
    const PerRound core = test::rule_core(ranks, payloads[random(3)], at_most);
    ASSERT_EQ(violation(ranks, core), std::nullopt)
        << "P = " << ranks << ", core " << testing::PrintToString(core);
  }
}

TEST(RecursiveMultiplying, folds_groups_of_any_size) {
  for (const auto& [ranks, core] : {std::pair<std::uint32_t, PerRound>{9, {}},
                                    {9, {1}},
                                    {29, {2}},
                                    {31, {1, 1}},
                                    {100, {5}},
                                    {1000, {3}}})
    EXPECT_EQ(violation(ranks, core), std::nullopt) << ranks;
}

// The formulae of the catalogue: rounds, messages, partials and slots.
TEST(RecursiveMultiplying, costs_what_the_catalogue_says) {
  for (std::uint32_t ranks = 1; ranks <= 40; ++ranks)
    test::for_each_core(ranks, 7, [&](const PerRound& core) {
      const std::uint32_t product = product_of(core);
      const std::uint32_t m = sum_of(core);
      const std::uint32_t g = (ranks + product - 1) / product;
      const bool folds = product != ranks;
      std::uint32_t puts_max = 0, partials_max = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const Plan plan = recursive_multiplying_allreduce(Rank{rank}, ranks, core);
        ASSERT_EQ(plan.per_round, recursive_multiplying_rounds(ranks, core));
        ASSERT_EQ(plan.per_round.size(), core.size() + (folds ? 2 : 0));
        ASSERT_EQ(plan.slot_count, folds ? m + g : m);
        ASSERT_EQ(plan.all_alike, !folds);
        ASSERT_EQ(plan.payloads, 1);
        const auto puts = static_cast<std::uint32_t>(
            std::count_if(plan.steps.begin(), plan.steps.end(),
                          [](const Step& step) { return step.action == Action::put; }));
        if (!folds) {
          ASSERT_EQ(puts, m);
        }
        puts_max = std::max(puts_max, puts);
        partials_max = std::max<std::uint32_t>(partials_max, plan.partial_count);
      }
      ASSERT_EQ(puts_max, folds ? m + g - 1 : m);
      ASSERT_EQ(partials_max, core.size() + (folds ? 1 : 0));
    });
}

TEST(RecursiveMultiplying, puts_before_anything_else_in_every_round_of_the_core) {
  for (const std::uint32_t rank : {0u, 7u, 23u}) {
    std::uint32_t round = 0;
    bool puts_over = false;
    for (const Step& step : recursive_multiplying_allreduce(Rank{rank}, 24, {3, 2, 1}).steps) {
      if (step.round != round) puts_over = false;
      round = step.round;
      const bool starts = step.action == Action::copy && step.from.place == Place::source;
      if (step.action == Action::put) {
        EXPECT_FALSE(puts_over);
      } else if (!starts) {
        puts_over = true;
      }
    }
  }
}

// If all members of a group told the same one first, its receives would wait for each other: in
// virtual time that cost P = 96 a quarter of an allreduce.
TEST(RecursiveMultiplying, tells_each_member_of_a_group_at_another_time) {
  constexpr std::uint32_t ranks = 24;
  std::vector<std::vector<bool>> told(ranks * 3, std::vector<bool>(3));  // by receiver and round
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::array<std::size_t, 3> sent = {};
    for (const Step& step : recursive_multiplying_allreduce(Rank{rank}, ranks, {3, 2, 1}).steps) {
      if (step.action != Action::put) continue;
      auto&& place = told[index_of(step.peer) * 3 + step.round][sent[step.round]++];
      EXPECT_FALSE(place);
      place = true;
    }
  }
}

TEST(RecursiveMultiplying, awaits_in_slot_order) {
  for (const std::uint32_t ranks : {24u, 29u})
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      int last = -1;
      for (const Step& step : recursive_multiplying_allreduce(Rank{rank}, ranks, {3, 2, 1}).steps) {
        if (step.action != Action::await) continue;
        EXPECT_GT(step.slot, last);
        last = step.slot;
      }
    }
}

TEST(RecursiveMultiplying, of_one_rank_copies_its_contribution) {
  const Plan plan = recursive_multiplying_allreduce(Rank{0}, 1, {});
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].from.place, Place::source);
  EXPECT_EQ(plan.steps[0].into.place, Place::target);
}

TEST(RecursiveMultiplying, of_a_million_ranks_is_small) {
  for (const std::uint32_t ranks : {1'000'000u, 1'000'003u, UINT32_MAX}) {
    const PerRound core = test::rule_core(ranks, 8);
    ASSERT_TRUE(is_core(ranks, core));
    for (const std::uint32_t rank : {0u, 499'999u, ranks - 1})
      EXPECT_LE(recursive_multiplying_allreduce(Rank{rank}, ranks, core).steps.size(), 250U);
  }
}

TEST(IsCore, refuses_what_cannot_be_built) {
  EXPECT_TRUE(is_core(1, {}));
  EXPECT_TRUE(is_core(12, {5, 1}));
  EXPECT_TRUE(is_core(13, {5, 1}));
  EXPECT_FALSE(is_core(11, {5, 1}));
  EXPECT_FALSE(is_core(12, {5, 0}));
  EXPECT_FALSE(is_core(0, {}));
  EXPECT_TRUE(is_core(32769, {32768}));
  EXPECT_FALSE(is_core(32770, {32769}));
  EXPECT_FALSE(is_core(65538, {32767}));  // m + g is one too many
  EXPECT_FALSE(is_core(7, {UINT32_MAX, UINT32_MAX, UINT32_MAX}));
  EXPECT_FALSE(is_core(UINT32_MAX, {UINT32_MAX, UINT32_MAX}));
}

TEST(CoreRule, takes_the_least_cost_of_all_cores) {
  constexpr std::array<std::uint64_t, 3> ratios = {4, 2, 1};  // of the payloads
  for (std::uint32_t ranks = 2; ranks <= 64; ++ranks)
    for (std::size_t i = 0; i < 3; ++i) {
      std::uint64_t least = UINT64_MAX;
      test::for_each_core(ranks, 7, [&](const PerRound& core) {
        const std::uint32_t product = product_of(core);
        if ((ranks + product - 1) / product - 1 > 7) return;
        least = std::min(least, cost_of(ranks, core, ratios[i]));
      });
      const PerRound core = test::rule_core(ranks, payloads[i]);
      EXPECT_EQ(cost_of(ranks, core, ratios[i]), least) << ranks << ' ' << ratios[i];
      EXPECT_TRUE(std::is_sorted(core.rbegin(), core.rend()));
    }
  EXPECT_EQ(test::rule_core(96, 8), (PerRound{5, 3, 3}));
  EXPECT_EQ(test::rule_core(13, 8), (PerRound{4}));  // 2 + 4 + 2
}

TEST(CoreRule, takes_a_vector_whose_product_is_p_as_it_is) {
  for (const PerRound& vector : {PerRound{1, 2, 3}, {3, 2, 1}, {23}, {1, 1, 1, 2}, {2, 7}})
    for (const std::uint64_t bytes : payloads)
      EXPECT_EQ(test::rule_core(24, bytes, vector), vector);
}

TEST(CoreRule, keeps_to_the_callers_vector_in_its_order) {
  for (std::uint32_t ranks = 2; ranks <= 64; ++ranks)
    test::for_each_minimal_vector(ranks, 4, [&](const PerRound& vector) {
      const PerRound core = test::rule_core(ranks, 8, vector);
      ASSERT_TRUE(is_core(ranks, core));
      // Each entry has its own bound, left to right.
      auto bound = vector.begin();
      for (const std::uint32_t entry : core) {
        while (bound != vector.end() && *bound < entry) ++bound;
        ASSERT_NE(bound, vector.end()) << ranks << ' ' << testing::PrintToString(vector);
        ++bound;
      }
      const std::uint32_t largest = *std::max_element(vector.begin(), vector.end());
      for (const std::uint32_t messages : recursive_multiplying_rounds(ranks, core))
        ASSERT_LE(messages, largest);
    });
  EXPECT_EQ(test::rule_core(5, 8, {UINT32_MAX}), PerRound{4});
  EXPECT_EQ(test::rule_core(7, 8, {1, 1, 1}), (PerRound{1, 1}));
  EXPECT_EQ(test::rule_core(1, 8, {3}), PerRound());
}

TEST(CoreRule, adds_rounds_only_where_p_does_not_factor) {
  for (std::uint32_t ranks = 1; ranks <= 64; ++ranks)
    if (factors(ranks)) {
      EXPECT_EQ(product_of(test::rule_core(ranks, 8)), ranks) << ranks;
    }
}

}  // namespace
}  // namespace tutti::plan
