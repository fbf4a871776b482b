// Promise: gather and fold gives every rank 0 o 1 o ... o P-1 along the canonical tree, for every
// number of ranks and every vector that covers it, and sends every contribution once.
#include "plan/allreduce/gather_fold.hpp"
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <utility>

#include "needed_steps.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "vectors.hpp"

namespace tutti::plan {
namespace {

Plan build(std::uint32_t rank, std::uint32_t ranks, const PerRound& vector) {
  return gather_fold_allreduce(Rank{rank}, ranks, vector);
}

std::optional<std::string> violation(std::uint32_t ranks, const PerRound& vector) {
  return first_violation(
      ranks, [&](Rank rank) { return gather_fold_allreduce(rank, ranks, vector); },
      Promise::canonical_tree);
}

TEST(GatherFold, FollowsTheTreeForAllUniformVectorsUpTo128Ranks) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      ASSERT_EQ(violation(ranks, uniform(ranks, n)), std::nullopt)
          << "P = " << ranks << ", n = " << n;
}

TEST(GatherFold, FollowsTheTreeForAllMinimalVectorsUpTo32Ranks) {
  for (std::uint32_t ranks = 2; ranks <= 32; ++ranks)
    test::for_each_minimal_vector(ranks, 7, [&](const PerRound& vector) {
      ASSERT_EQ(violation(ranks, vector), std::nullopt)
          << "P = " << ranks << ", vector " << testing::PrintToString(vector);
    });
}

TEST(GatherFold, ToleratesVectorsLargerThanNeeded) {
  for (std::uint32_t ranks = 1; ranks <= 40; ++ranks)
    for (const PerRound& vector : {PerRound{7, 7, 7}, {1, 63, 1}, {UINT32_MAX, 1}, {3, UINT32_MAX}})
      ASSERT_EQ(violation(ranks, vector), std::nullopt)
          << "P = " << ranks << ", vector " << testing::PrintToString(vector);
}

// Work is P per rank: 2000 ranks once, four million combinations (700 under the sanitizer).
TEST(GatherFold, FollowsTheTreeForSampledRankCountsUpTo2000) {
  const std::uint32_t most = test::samples_divisor == 1 ? 2000 : 700;
  std::mt19937 engine(1);
  const auto random = [&](std::uint32_t below) {
    return static_cast<std::uint32_t>(engine() % below);
  };
  for (int sample = 0; sample < test::samples(12); ++sample) {
    const std::uint32_t ranks = sample == 0 ? most : 1 + random(700);
    PerRound vector;
    while (!covers(ranks, vector)) vector.push_back(1 + random(15));
    ASSERT_EQ(violation(ranks, vector), std::nullopt)
        << "P = " << ranks << ", vector " << testing::PrintToString(vector);
  }
}

// Also says that the builder emits nothing that is not needed.
TEST(GatherFold, NeedsEveryStep) {
  for (std::uint32_t ranks = 2; ranks <= 20; ++ranks) {
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      plans.push_back(build(rank, ranks, uniform(ranks, 2)));
    test::expect_every_step_needed(std::move(plans), Promise::canonical_tree);
  }
}

// The formulae of the catalogue, for one rank each.
TEST(GatherFold, CostsWhatTheCatalogueSays) {
  for (std::uint32_t ranks = 2; ranks <= 300; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n) {
      PerRound messages;  // backwards from P
      std::uint32_t held = ranks;
      for (std::uint32_t grown = ranks, length; grown > 1; grown = length) {
        length = (grown + n) / (n + 1);
        if (grown == ranks) held = length;
        messages.insert(messages.begin(), (grown - 1) / length);
      }
      const Plan plan = build(ranks / 2, ranks, uniform(ranks, n));
      ASSERT_EQ(plan.per_round, messages) << ranks << ' ' << n;
      ASSERT_EQ(plan.payloads, held);
      std::uint32_t sent = 0, received = 0, combined = 0, longest = 0;
      for (const Step& step : plan.steps) {
        sent += step.action == Action::put ? step.payloads : 0;
        received += step.action == Action::await ? step.payloads : 0;
        combined += step.action == Action::combine ? 1 : 0;
        if (step.action == Action::put) longest = std::max<std::uint32_t>(longest, step.payloads);
      }
      ASSERT_EQ(sent, ranks - 1);
      ASSERT_EQ(received, ranks - 1);
      ASSERT_EQ(combined, ranks - 1);
      ASSERT_EQ(longest, held - (messages.back() == 1 ? (messages.back() + 1) * held - ranks : 0));
      ASSERT_LE((plan.partial_count - 1u) * plan.payloads,
                2u * std::bit_width(ranks) + plan.payloads);
    }
}

// What has arrived is passed on before it is folded, and what is held is folded before the next
// message is awaited.
TEST(GatherFold, PutsBeforeAnythingElseAndFoldsWhileItWaits) {
  const Plan plan = build(40, 43, {2, 2, 4});
  bool puts_over = false;
  std::vector<std::uint32_t> combines(3);
  for (std::size_t i = 1; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (step.round != plan.steps[i - 1].round) puts_over = false;
    if (step.action == Action::put) {
      EXPECT_FALSE(puts_over);
      continue;
    }
    puts_over = true;
    if (step.action == Action::combine) ++combines[step.round];
  }
  EXPECT_EQ(combines, (std::vector<std::uint32_t>{0, 1, 41}));  // 39 o 40, 38 is held in round 1
}

TEST(GatherFold, OfOneRankCopiesItsContribution) {
  const Plan plan = build(0, 1, {});
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].from.place, Place::source);
  EXPECT_EQ(plan.steps[0].into.place, Place::target);
  EXPECT_EQ(plan.partial_count + plan.slot_count, 0);
}

TEST(IsGatherFold, RefusesWhatCannotBeBuilt) {
  EXPECT_TRUE(is_gather_fold(1, {}));
  EXPECT_TRUE(is_gather_fold(43, {3, 3, 3}));
  EXPECT_FALSE(is_gather_fold(43, {3, 3}));
  EXPECT_FALSE(is_gather_fold(0, {}));
  EXPECT_TRUE(is_gather_fold(65535, {255, 255}));
  EXPECT_FALSE(is_gather_fold(65536, {255, 255}));
  EXPECT_FALSE(is_gather_fold(40000, {39999}));  // too many messages
  const Plan plan = build(65534, 65535, {1, 32767});
  EXPECT_EQ(plan.payloads, 2);
  EXPECT_EQ(build(3, 65535, {32767, 1}).payloads, 32768);
}

}  // namespace
}  // namespace tutti::plan
