// Promise: chunked fold gives every rank 0 o 1 o ... o P-1 along the canonical tree in every part
// of the payload, in two rounds, and no rank is told by all at the same time.
#include "plan/allreduce/chunked_fold.hpp"
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <utility>

#include "happens_before.hpp"
#include "needed_steps.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"

namespace tutti::plan {
namespace {

std::optional<std::string> violation(std::uint32_t ranks) {
  return first_violation(
      ranks, [&](Rank rank) { return chunked_fold_allreduce(rank, ranks); },
      Promise::canonical_tree);
}

TEST(ChunkedFold, follows_the_tree_for_all_rank_counts_up_to_128) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    ASSERT_EQ(violation(ranks), std::nullopt) << "P = " << ranks;
}

// Work is P per rank: 2000 ranks once, four million parts (500 under the sanitizer).
TEST(ChunkedFold, follows_the_tree_for_sampled_rank_counts_up_to_2000) {
  const std::uint32_t most = test::samples_divisor == 1 ? 2000 : 500;
  std::mt19937 random(1);
  for (int sample = 0; sample < test::samples(6); ++sample) {
    const auto ranks = sample == 0 ? most : 129 + static_cast<std::uint32_t>(random() % 372);
    ASSERT_EQ(violation(ranks), std::nullopt) << "P = " << ranks;
  }
}

std::vector<Plan> zero_copy_plans(std::uint32_t ranks) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(chunked_fold_allreduce(Rank{rank}, ranks, Buffers::registered));
  return plans;
}

TEST(ChunkedFold, zero_copy_it_is_the_same) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    ASSERT_EQ(first_violation(zero_copy_plans(ranks), Promise::canonical_tree), std::nullopt)
        << "P = " << ranks;
}

TEST(ChunkedFold, zero_copy_nothing_is_written_while_it_is_in_use) {
  using test::HappensBefore;
  for (std::uint32_t ranks = 2; ranks <= 8; ++ranks)
    for (const auto buffers : {HappensBefore::Buffers::same, HappensBefore::Buffers::apart})
      ASSERT_EQ(HappensBefore(zero_copy_plans(ranks), 5, 2, buffers).race(), std::nullopt)
          << "P = " << ranks;
}

// Allgather alone: what is written into a target does not say that its rank has entered.
TEST(ChunkedFold, nobody_writes_a_target_of_a_rank_that_may_not_have_entered) {
  constexpr std::uint32_t ranks = 3;
  std::vector<Plan> plans = zero_copy_plans(ranks);
  for (Plan& plan : plans) {
    plan.steps.clear();
    plan.per_round.clear();
    StepWriter steps(plan);
    steps.begin_round(ranks - 1);
    steps.begin_part(static_cast<std::uint16_t>(index_of(plan.self)));
    steps.copy(source_register, partial_register(0));
    const auto slot_of = [](std::uint32_t i) { return static_cast<std::uint16_t>(ranks - 1 + i); };
    for (std::uint32_t i = 0; i + 1 < ranks; ++i)
      steps.put_into_target(rank_ahead(plan.self, i + 1, ranks), slot_of(i), partial_register(0));
    steps.copy(partial_register(0), target_register);
    for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
      const Rank peer = rank_behind(plan.self, i + 1, ranks);
      steps.begin_part(static_cast<std::uint16_t>(index_of(peer)));
      steps.await_in_target(peer, slot_of(i));
    }
  }
  const std::string violation = first_violation(plans, Promise::canonical_tree).value_or("none");
  EXPECT_NE(violation.find("which may not have entered"), std::string::npos) << violation;
  const std::string race = test::HappensBefore(plans, 3, 2).race().value_or("none");
  EXPECT_NE(race.find("which may not have entered"), std::string::npos) << race;
}

// Also says that the builder emits nothing that is not needed.
TEST(ChunkedFold, needs_every_step) {
  for (std::uint32_t ranks = 2; ranks <= 13; ++ranks) {
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      plans.push_back(chunked_fold_allreduce(Rank{rank}, ranks));
    test::expect_every_step_needed(std::move(plans), Promise::canonical_tree);
  }
}

// The formulae of the catalogue.
TEST(ChunkedFold, costs_what_the_catalogue_says) {
  for (std::uint32_t ranks = 2; ranks <= 300; ++ranks) {
    const Plan plan = chunked_fold_allreduce(Rank{ranks / 2}, ranks);
    ASSERT_EQ(plan.per_round, (PerRound{ranks - 1, ranks - 1}));
    ASSERT_TRUE(plan.all_alike);
    ASSERT_EQ(plan.parts, ranks);
    ASSERT_EQ(plan.payloads, 1);
    ASSERT_EQ(plan.slot_count, 2 * (ranks - 1));
    ASSERT_LE(plan.partial_count, ranks + 2 * std::bit_width(ranks - 1));
    std::uint32_t sent = 0, combined = 0;
    for (const Step& step : plan.steps) {
      sent += step.action == Action::put ? step.payloads : 0;
      if (step.action != Action::combine) continue;
      ++combined;
      ASSERT_EQ(step.part, ranks / 2);
    }
    ASSERT_EQ(sent, 2 * (ranks - 1));
    ASSERT_EQ(combined, ranks - 1);
  }
}

TEST(ChunkedFold, tells_each_rank_at_another_time) {
  constexpr std::uint32_t ranks = 24;
  std::vector<std::vector<bool>> told(std::size_t{2} * ranks, std::vector<bool>(ranks - 1));
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::size_t sent[2] = {0, 0};
    for (const Step& step : chunked_fold_allreduce(Rank{rank}, ranks).steps) {
      if (step.action != Action::put) continue;
      if (sent[step.round] == 0) {
        EXPECT_EQ(index_of(step.peer), (rank + 1) % ranks);
      }
      auto&& place = told[std::size_t{2} * index_of(step.peer) + step.round][sent[step.round]++];
      EXPECT_FALSE(place);
      place = true;
    }
  }
}

TEST(ChunkedFold, sends_parts_to_their_ranks) {
  for (const Step& step : chunked_fold_allreduce(Rank{3}, 11).steps)
    if (step.action == Action::put) {
      EXPECT_EQ(step.part, step.round == 0 ? index_of(step.peer) : 3);
    }
}

TEST(ChunkedFold, of_one_rank_copies_its_contribution) {
  const Plan plan = chunked_fold_allreduce(Rank{0}, 1);
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].from.place, Place::source);
  EXPECT_EQ(plan.steps[0].into.place, Place::target);
  EXPECT_EQ(plan.parts, 1);
  EXPECT_EQ(plan.partial_count + plan.slot_count, 0);
}

TEST(IsChunkedFold, keeps_to_the_slots_there_are) {
  EXPECT_FALSE(is_chunked_fold(0));
  EXPECT_TRUE(is_chunked_fold(1));
  EXPECT_TRUE(is_chunked_fold(16385));
  EXPECT_FALSE(is_chunked_fold(16386));
  EXPECT_FALSE(is_chunked_fold(UINT32_MAX));
  EXPECT_EQ(chunked_fold_allreduce(Rank{16384}, 16385).slot_count, slots_max);
}

}  // namespace
}  // namespace tutti::plan
