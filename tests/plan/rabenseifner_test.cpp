// Promise: for every number of ranks all ranks get one expression in rank order, from log P
// partners; every byte is sent twice at most, but by those that are folded; two copies of
// everything suffice.
#include "plan/allreduce/rabenseifner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/core/verify.hpp"
#include "plan/cost/makespan.hpp"
#include "sizes.hpp"

namespace tutti::plan {
namespace {

std::vector<Plan> plans_of(std::uint32_t rank_count) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(rabenseifner_allreduce(Rank{rank}, rank_count));
  return plans;
}

TEST(Rabenseifner, GivesOneExpressionInRankOrderForEveryRankCount) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    EXPECT_EQ(first_violation(plans_of(ranks), Promise::same_expression), std::nullopt)
        << ranks << " ranks";
  EXPECT_EQ(first_violation(plans_of(test::up_to(300)), Promise::same_expression), std::nullopt);
}

TEST(Rabenseifner, TwoCopiesOfEverythingSuffice) {
  for (std::uint32_t ranks = 2; ranks <= 11; ++ranks)
    EXPECT_EQ(test::HappensBefore(plans_of(ranks), 5, 2).race(), std::nullopt) << ranks << " ranks";
  EXPECT_NE(test::HappensBefore(plans_of(4), 5, 1).race(), std::nullopt);
}

TEST(Rabenseifner, HasFewPartnersAndSendsEachByteTwiceAtMost) {
  for (const std::uint32_t ranks : {2u, 4u, 8u, 32u, 64u})
    for (const Plan& plan : plans_of(ranks)) {
      std::set<Rank> partners;
      std::size_t puts = 0;
      for (const Step& step : plan.steps) {
        if (step.peer != no_rank) partners.insert(step.peer);
        puts += step.action == Action::put ? 1 : 0;
      }
      EXPECT_EQ(partners.size(), std::size_t(std::bit_width(ranks) - 1));
      EXPECT_EQ(puts, 2 * (ranks - 1));
      EXPECT_EQ(plan.parts, ranks);
      EXPECT_LE(plan.partial_count, 3 * ranks);
    }
}

/// Each message that was not looked at needs a receive.
TEST(Rabenseifner, RanksThatDoNotLookFindNoMoreThanIsPromised) {
  for (const std::uint32_t ranks : {2u, 3u, 8u, 12u, 64u, 70u}) {
    const std::vector<Plan> plans = plans_of(ranks);
    EXPECT_LE(test::most_on_their_way(plans, 4), plans[0].incoming_max) << ranks << " ranks";
  }
}

/// What it is for: the bytes count, not the rounds.
TEST(Rabenseifner, TakesTheTimeOfItsBytesWhereTheyAreMany) {
  constexpr LogGP network{.latency = 700'000,
                          .send_overhead = 150'000,
                          .receive_overhead = 50'000,
                          .gap = 100'000,
                          .per_byte = {.time = 10'000, .bytes = 68}};
  for (const std::uint32_t ranks : {4u, 8u, 16u, 32u}) {
    const Call call{.payload_bytes = 1u << 20};
    const Picoseconds bytes = 2 * (ranks - 1) * network.port_time(call.payload_bytes / ranks);
    const Picoseconds time = makespan(plans_of(ranks), network, call);
    EXPECT_GE(time, bytes);
    EXPECT_LE(time, bytes + bytes / 20) << ranks << " ranks";
  }
}

TEST(Rabenseifner, HasABoundOfRanks) {
  EXPECT_FALSE(is_rabenseifner(0));
  EXPECT_TRUE(is_rabenseifner(1));
  EXPECT_TRUE(is_rabenseifner(32'640));
  EXPECT_FALSE(is_rabenseifner(32'641));
  EXPECT_FALSE(is_rabenseifner(UINT32_MAX));
}

}  // namespace
}  // namespace tutti::plan
