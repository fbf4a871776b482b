// Promise: halving along the canonical tree gives the tree's bits for every rank count; two copies
// of its slots suffice; each rank has few partners, few messages on their way from each, and sends
// no more than an eighth of a payload beyond what has to be sent.
#include "plan/allreduce/canonical_halving.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <vector>

#include "happens_before.hpp"
#include "needed_steps.hpp"
#include "on_their_way.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;

std::vector<Plan> plans_of(std::uint32_t ranks, Plan (*plan_of)(Rank, std::uint32_t)) {
  EXPECT_TRUE(is_canonical_halving(ranks));
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) plans.push_back(plan_of(Rank{rank}, ranks));
  return plans;
}

std::vector<Plan> allreduces(std::uint32_t ranks) {
  return plans_of(ranks, canonical_halving_allreduce);
}

std::vector<Plan> scatters(std::uint32_t ranks) {
  return plans_of(ranks, canonical_halving_reduce_scatter);
}

void expect_right(std::uint32_t ranks) {
  EXPECT_EQ(first_violation(allreduces(ranks), Promise::canonical_tree), std::nullopt)
      << ranks << " ranks";
  EXPECT_EQ(first_violation(scatters(ranks), Promise::reduce_scatter), std::nullopt)
      << ranks << " ranks, reduce-scatter";
}

TEST(CanonicalHalving, follows_the_tree_for_every_rank_count) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks) expect_right(ranks);
}

TEST(CanonicalHalving, follows_the_tree_for_many_ranks) {
  for (const std::uint32_t ranks :
       {129u, 137u, 167u, 200u, 231u, 255u, 256u, 257u, 263u, 279u, 300u, 511u})
    if (ranks <= test::up_to(511)) expect_right(ranks);
}

TEST(CanonicalHalving, two_copies_do) {
  for (std::uint32_t ranks = 2; ranks <= 9; ++ranks) {
    EXPECT_EQ(HappensBefore(allreduces(ranks), 4, 2).race(), std::nullopt) << ranks << " ranks";
    EXPECT_EQ(HappensBefore(scatters(ranks), 4, 2).race(), std::nullopt) << ranks << " ranks";
  }
}

TEST(CanonicalHalving, two_copies_do_where_windows_are_answered) {
  for (const std::uint32_t ranks : {39u, 43u}) {
    ASSERT_GT(allreduces(ranks)[0].line_slot_count, 0u);
    EXPECT_EQ(HappensBefore(allreduces(ranks), 3, 2).race(), std::nullopt) << ranks << " ranks";
    EXPECT_EQ(HappensBefore(scatters(ranks), 3, 2).race(), std::nullopt) << ranks << " ranks";
  }
}

/// The connections of up to 32 ranks of one cube have receives for all messages.
TEST(CanonicalHalving, a_power_of_two_up_to_32_needs_no_answers) {
  for (const std::uint32_t ranks : {16u, 32u}) {
    EXPECT_EQ(allreduces(ranks)[0].line_slot_count, 0u);
    EXPECT_EQ(scatters(ranks)[0].line_slot_count, 0u);
  }
  EXPECT_GT(allreduces(64)[0].line_slot_count, 0u);
  EXPECT_EQ(HappensBefore(allreduces(32), 3, 2).race(), std::nullopt);
  EXPECT_EQ(HappensBefore(scatters(32), 3, 2).race(), std::nullopt);
}

/// Each message that was not looked at needs a receive.
TEST(CanonicalHalving, ranks_that_do_not_look_find_no_more_than_is_promised) {
  for (const std::uint32_t ranks : {2u, 3u, 8u, 11u, 24u, 25u, 33u, 39u, 64u, 65u, 127u, 128u})
    for (const bool everywhere : {true, false}) {
      const std::vector<Plan> plans = everywhere ? allreduces(ranks) : scatters(ranks);
      const bool unanswered = std::has_single_bit(ranks) && ranks <= 32;
      for (const Plan& plan : plans) EXPECT_LE(plan.incoming_max, unanswered ? ranks : 30u);
      const std::uint32_t of_two_calls = unanswered ? ranks : 24;
      const std::uint32_t most = plans[0].incoming_max;
      EXPECT_LE(test::most_on_their_way(plans, 4), most == 0 ? of_two_calls : most)
          << ranks << " ranks" << (everywhere ? "" : ", reduce-scatter");
    }
}

/// As seen by rank 0; turned about, so that every rank is.
TEST(CanonicalHalving, no_rank_finds_more_than_is_promised) {
  for (const std::uint32_t ranks : {33u, 43u, 47u}) {
    const std::vector<Plan> plans = ranks == 43 ? scatters(ranks) : allreduces(ranks);
    for (std::uint32_t first = 0; first < ranks; ++first) {
      std::vector<Plan> turned;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        turned.push_back(plans[(rank + first) % ranks]);
        for (Step& step : turned.back().steps)
          if (step.peer != no_rank) step.peer = Rank{(index_of(step.peer) + ranks - first) % ranks};
      }
      EXPECT_LE(test::most_on_their_way(turned, 3), plans[first].incoming_max) << first;
    }
  }
}

TEST(CanonicalHalving, has_few_partners) {
  for (std::uint32_t ranks :
       {2u, 3u, 5u, 7u, 9u, 15u, 17u, 32u, 33u, 63u, 64u, 65u, 100u, 127u, 200u, 1000u, 1024u})
    for (const bool everywhere : {true, false}) {
      const std::vector<Plan> plans = everywhere ? allreduces(ranks) : scatters(ranks);
      for (const Plan& plan : plans) {
        std::set<Rank> partners;
        for (const Step& step : plan.steps)
          if (step.peer != no_rank) partners.insert(step.peer);
        ASSERT_LE(partners.size(), canonical_halving_partners_max(ranks)) << ranks << " ranks";
        if (std::has_single_bit(ranks)) {
          ASSERT_EQ(partners.size(), static_cast<std::size_t>(std::countr_zero(ranks)));
        }
      }
    }
}

std::uint32_t parts_sent(const Plan& plan) {
  std::uint32_t sent = 0;
  for (const Step& step : plan.steps)
    if (step.action == Action::put) sent += step.payloads;
  return sent;
}

/// The figures of the catalogue.
TEST(CanonicalHalving, sends_little_more_than_has_to_be_sent) {
  for (std::uint32_t ranks : {32u, 33u, 35u, 39u, 63u, 64u, 65u, 100u, 127u, 200u, 255u, 263u}) {
    for (const Plan& plan : scatters(ranks))
      ASSERT_LE(parts_sent(plan), std::has_single_bit(ranks) ? ranks - 1 : ranks + ranks / 8)
          << ranks << " ranks, rank " << index_of(plan.self);
    for (const Plan& plan : allreduces(ranks)) {
      const std::uint32_t parts = plan.parts;
      ASSERT_LE(parts_sent(plan), std::has_single_bit(ranks) ? 2 * (ranks - 1) : 5 * parts / 2)
          << ranks << " ranks, rank " << index_of(plan.self);
      ASSERT_LE(plan.slot_count - plan.line_slot_count, 5 * parts / 2);
      ASSERT_LE(plan.partial_count, 2 * parts);
    }
  }
}

TEST(CanonicalHalving, needs_every_step) {
  for (std::uint32_t ranks = 2; ranks <= 13; ++ranks)
    test::expect_every_step_needed(allreduces(ranks), Promise::canonical_tree);
}

TEST(CanonicalHalving, keeps_to_the_slots_there_are) {
  EXPECT_FALSE(is_canonical_halving(0));
  EXPECT_TRUE(is_canonical_halving(8192));
  EXPECT_FALSE(is_canonical_halving(8193));
  for (const std::uint32_t ranks : {1u, 8191u, 8192u}) {
    EXPECT_LE(canonical_halving_allreduce(Rank{0}, ranks).slot_count, slots_max);
    EXPECT_LE(canonical_halving_reduce_scatter(Rank{0}, ranks).slot_count, slots_max);
  }
}

}  // namespace
}  // namespace tutti::plan
