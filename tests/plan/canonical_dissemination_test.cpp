// Promise: canonical dissemination gives every rank 0 o 1 o ... o P-1 along the canonical tree, for
// every number of ranks and every vector that covers it, in the rounds, messages and blocks that
// the catalogue states.
#include "plan/allreduce/canonical_dissemination.hpp"
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>

#include "naive_tree.hpp"
#include "needed_steps.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "vectors.hpp"

namespace tutti::plan {
namespace {

Plan build(std::uint32_t rank, std::uint32_t ranks, const PerRound& vector) {
  return canonical_dissemination_allreduce(Rank{rank}, ranks, vector);
}

std::optional<std::string> violation(std::uint32_t ranks, const PerRound& vector) {
  return first_violation(
      ranks, [&](Rank rank) { return canonical_dissemination_allreduce(rank, ranks, vector); },
      Promise::canonical_tree);
}

TEST(CanonicalDissemination, follows_the_tree_for_all_uniform_vectors_up_to_128_ranks) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      ASSERT_EQ(violation(ranks, uniform(ranks, n)), std::nullopt)
          << "P = " << ranks << ", n = " << n;
}

TEST(CanonicalDissemination, follows_the_tree_for_all_minimal_vectors_up_to_32_ranks) {
  for (std::uint32_t ranks = 2; ranks <= 32; ++ranks)
    test::for_each_minimal_vector(ranks, 7, [&](const PerRound& vector) {
      ASSERT_EQ(violation(ranks, vector), std::nullopt)
          << "P = " << ranks << ", vector " << testing::PrintToString(vector);
    });
}

TEST(CanonicalDissemination, tolerates_vectors_larger_than_needed) {
  for (std::uint32_t ranks = 1; ranks <= 40; ++ranks)
    for (const PerRound& vector : {PerRound{7, 7, 7}, {1, 63, 1}, {UINT32_MAX, 1}, {3, UINT32_MAX}})
      ASSERT_EQ(violation(ranks, vector), std::nullopt)
          << "P = " << ranks << ", vector " << testing::PrintToString(vector);
}

TEST(CanonicalDissemination, follows_the_tree_for_sampled_rank_counts_up_to_2000) {
  std::mt19937 engine(1);
  const auto random = [&](std::uint32_t below) {
    return static_cast<std::uint32_t>(engine() % below);
  };
  for (int sample = 0; sample < test::samples(25); ++sample) {
    const std::uint32_t ranks = sample == 0 ? 2000 : 1 + random(2000);
    PerRound vector;
    while (!covers(ranks, vector)) vector.push_back(1 + random(15));
    ASSERT_EQ(violation(ranks, vector), std::nullopt)
        << "P = " << ranks << ", vector " << testing::PrintToString(vector);
  }
}

// Also says that the builder emits nothing that is not needed.
TEST(CanonicalDissemination, needs_every_step) {
  for (std::uint32_t ranks = 2; ranks <= 24; ++ranks) {
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      plans.push_back(build(rank, ranks, uniform(ranks, 2)));
    test::expect_every_step_needed(std::move(plans), Promise::canonical_tree);
  }
}

/// Blocks of the longest message of each round, of all ranks.
std::vector<std::size_t> blocks_per_round(std::uint32_t ranks, const PerRound& vector) {
  std::vector<std::size_t> most(two_partial_rounds(ranks, vector).size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    for (const Step& step : build(rank, ranks, vector).steps)
      if (step.action == Action::put)
        most[step.round] = std::max<std::size_t>(most[step.round], step.payloads);
  return most;
}

TEST(CanonicalDissemination, has_the_rounds_and_messages_of_two_partial_dissemination) {
  for (std::uint32_t ranks = 1; ranks <= 300; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n) {
      // Independently: backwards from P.
      PerRound expected;
      for (std::uint32_t grown = ranks, length; grown > 1; grown = length) {
        length = (grown + n) / (n + 1);
        expected.insert(expected.begin(), (grown - 1) / length);
      }
      const Plan plan = build(ranks / 3, ranks, uniform(ranks, n));
      ASSERT_EQ(plan.per_round, expected) << ranks << ' ' << n;
      ASSERT_EQ(plan.per_round.size(), test::exact_rounds(ranks, n));
      ASSERT_TRUE(plan.all_alike);
      ASSERT_LE(plan.partial_count, plan.per_round.size() + std::size_t{2} * std::bit_width(ranks));
    }
  EXPECT_EQ(build(0, 96, {7, 7, 7}).per_round, (PerRound{1, 5, 7}));
}

TEST(CanonicalDissemination, sends_the_blocks_of_the_own_interval) {
  for (const std::uint32_t ranks : {5u, 13u, 43u, 64u, 96u}) {
    const auto nodes = test::naive_nodes(ranks);
    for (std::uint32_t n = 1; n <= 7; n += 2)
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto rounds = two_partial_rounds(ranks, uniform(ranks, n));
        for (const Step& step : build(rank, ranks, uniform(ranks, n)).steps)
          if (step.action == Action::put) {
            ASSERT_EQ(step.payloads,
                      test::naive_blocks(nodes, ranks, rank, rounds[step.round].length).size());
          }
      }
  }
}

TEST(CanonicalDissemination, carries_few_blocks) {
  for (std::uint32_t n = 1; n <= 8; ++n) {
    EXPECT_LE(build(1, 128, uniform(128, n)).payloads, 7) << n;
    EXPECT_LE(build(1, 200, uniform(200, n)).payloads, 11) << n;
  }
  EXPECT_EQ(build(1, 128, uniform(128, 7)).payloads, 5);
  EXPECT_EQ(build(1, 200, uniform(200, 1)).payloads, 11);
}

// Registers are no larger than the longest message of all ranks.
TEST(CanonicalDissemination, has_room_for_the_longest_message_and_no_more) {
  for (std::uint32_t ranks = 2; ranks <= test::every_rank_count_up_to; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n) {
      const auto blocks = blocks_per_round(ranks, uniform(ranks, n));
      ASSERT_EQ(build(ranks - 1, ranks, uniform(ranks, n)).payloads,
                *std::max_element(blocks.begin(), blocks.end()))
          << "P = " << ranks << ", n = " << n;
    }
}

// The table was computed independently of this code, for two schedules: one whose intervals grow
// greedily and overlap in the last round, and two-partial dissemination, whose messages are the
// same where it never trims.
TEST(CanonicalDissemination, carries_the_blocks_of_the_reference_table) {
  std::ifstream table(TUTTI_TEST_DATA "/canonical_tree_payload.csv");
  ASSERT_TRUE(table) << "tests/data/canonical_tree_payload.csv is missing";
  std::string line;
  std::getline(table, line);
  ASSERT_EQ(line, "P,n,schedule,max_blocks_in_a_message,max_blocks_per_round,sum_of_round_maxima");
  std::size_t own = 0, greedy = 0, equal = 0;
  while (std::getline(table, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    std::uint32_t ranks = 0, n = 0, most = 0;
    std::string schedule;
    fields >> ranks >> n >> schedule >> most;
    std::vector<std::size_t> numbers;
    for (std::size_t number = 0; fields >> number;) numbers.push_back(number);
    const std::size_t sum = numbers.back();
    numbers.pop_back();
    const auto blocks = blocks_per_round(ranks, uniform(ranks, n));
    if (schedule == "overlap") {
      greedy += sum;
      for (const std::size_t count : blocks) own += count;
      continue;
    }
    const auto rounds = two_partial_rounds(ranks, uniform(ranks, n));
    if (std::any_of(rounds.begin(), rounds.end(), [](auto& r) { return r.short_messages > 0; }))
      continue;
    ++equal;
    EXPECT_EQ(blocks, numbers) << "P = " << ranks << ", n = " << n;
  }
  EXPECT_EQ(equal, 69U);
  EXPECT_EQ(greedy, 2456U);
  EXPECT_EQ(own, 2046U);
}

TEST(CanonicalDissemination, puts_before_anything_else_and_awaits_in_slot_order) {
  for (std::uint32_t rank = 0; rank < 43; ++rank) {
    const Plan plan = build(rank, 43, {2, 2, 4});
    bool puts_over = false;
    int last_slot = -1;
    for (std::size_t i = 1; i < plan.steps.size(); ++i) {  // the first copies the contribution
      const Step& step = plan.steps[i];
      if (step.round != plan.steps[i - 1].round) puts_over = false;
      if (step.action == Action::put) {
        EXPECT_FALSE(puts_over);
        continue;
      }
      puts_over = true;
      if (step.action != Action::await) continue;
      EXPECT_GT(step.slot, last_slot);
      last_slot = step.slot;
    }
  }
}

TEST(CanonicalDissemination, of_one_rank_copies_its_contribution) {
  const Plan plan = build(0, 1, {});
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].from.place, Place::source);
  EXPECT_EQ(plan.steps[0].into.place, Place::target);
  EXPECT_EQ(plan.partial_count + plan.slot_count, 0);
}

TEST(CanonicalDissemination, of_a_million_ranks_is_small) {
  for (const std::uint32_t rank : {0u, 1u, 499'999u, 999'999u}) {
    const Plan plan = build(rank, 1'000'000, uniform(1'000'000, 7));
    EXPECT_EQ(plan.per_round.size(), 7U);
    EXPECT_EQ(plan.payloads, build(7, 1'000'000, uniform(1'000'000, 7)).payloads);
    EXPECT_LE(plan.payloads, 40);
    EXPECT_LE(plan.partial_count, 10);
    EXPECT_LE(plan.steps.size(), 2000U);
  }
}

}  // namespace
}  // namespace tutti::plan
