// Promise: alltoalls whose blocks go through other ranks are right for any number of ranks and any
// n; two copies of their slots suffice; rounds, messages and blocks are as many as is said.
#include "plan/blocks/bruck_alltoall.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "happens_before.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;

std::vector<Plan> plans_of(std::uint32_t rank_count, std::uint32_t n) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(bruck_alltoall(Rank{rank}, rank_count, n));
  return plans;
}

std::string violation_of(const std::vector<Plan>& plans) {
  return first_violation(plans, Promise::gather).value_or("none");
}

/// All of few ranks, and some of many.
template <class F>
void for_sizes(F&& f) {
  for (std::uint32_t rank_count = 1; rank_count <= 24; ++rank_count)
    for (std::uint32_t n = 1; n <= 5; ++n) f(rank_count, n);
  std::mt19937 random(19);
  for (int sample = 0; sample < test::samples(40); ++sample)
    f(25 + static_cast<std::uint32_t>(random()) % 72,
      1 + static_cast<std::uint32_t>(random()) % 12);
  f(96, 7);
  f(96, 95);
  f(7, 100);  // all are near
}

TEST(BruckAlltoall, is_right_for_any_number_of_ranks_and_messages_per_round) {
  for_sizes([](std::uint32_t rank_count, std::uint32_t n) {
    EXPECT_EQ(violation_of(plans_of(rank_count, n)), "none") << rank_count << " ranks, n " << n;
  });
}

TEST(BruckAlltoall, two_copies_suffice_and_one_does_not) {
  for (std::uint32_t rank_count = 2; rank_count <= 24; ++rank_count)
    for (std::uint32_t n = 1; n <= 5; ++n) {
      const std::vector<Plan> plans = plans_of(rank_count, n);
      EXPECT_EQ(HappensBefore(plans, 5, 2).race(), std::nullopt) << rank_count << " ranks, n " << n;
      EXPECT_NE(HappensBefore(plans, 5, 1).race(), std::nullopt) << rank_count << " ranks, n " << n;
    }
}

/// Digits of a number that are not 0.
std::uint64_t digits_of(std::uint32_t number, std::uint32_t base) {
  std::uint64_t digits = 0;
  for (; number > 0; number /= base) digits += number % base != 0 ? 1 : 0;
  return digits;
}

TEST(BruckAlltoall, has_the_rounds_messages_and_blocks_that_its_header_says) {
  for_sizes([](std::uint32_t rank_count, std::uint32_t n) {
    std::uint64_t rounds = 0, unit = 1;  // of the last round
    for (std::uint64_t reached = 1; reached < rank_count; reached *= n + 1) {
      unit = reached;
      ++rounds;
    }
    std::uint64_t blocks = 0;
    for (std::uint32_t distance = 1; distance < rank_count; ++distance)
      blocks += digits_of(distance, n + 1);
    for (const Plan& plan : plans_of(rank_count, n)) {
      EXPECT_EQ(plan.per_round.size(), rounds) << rank_count << " ranks, n " << n;
      std::uint64_t messages = 0, sent = 0;
      std::uint16_t longest = 1;
      for (const Step& step : plan.steps)
        if (step.action == Action::put) {
          ++messages;
          sent += step.payloads;
          longest = std::max(longest, step.payloads);
        }
      const std::uint64_t expected =
          rounds == 0 ? 0 : n * (rounds - 1) + (rank_count + unit - 1) / unit - 1;
      EXPECT_EQ(messages, expected) << rank_count << " ranks, n " << n;
      EXPECT_EQ(sent, blocks) << rank_count << " ranks, n " << n;
      EXPECT_EQ(plan.slot_count, messages) << rank_count << " ranks, n " << n;
      EXPECT_EQ(plan.partial_count, messages) << rank_count << " ranks, n " << n;
      EXPECT_EQ(plan.payloads, longest) << rank_count << " ranks, n " << n;
    }
  });
  EXPECT_EQ(bruck_rounds(5, 1), (std::vector<BruckRound>{{1, 1, 2}, {2, 1, 2}, {4, 1, 1}}));
  EXPECT_EQ(bruck_rounds(5, 2), (std::vector<BruckRound>{{1, 2, 2}, {3, 1, 2}}));
  EXPECT_EQ(bruck_rounds(96, 7), (std::vector<BruckRound>{{1, 7, 12}, {8, 7, 16}, {64, 1, 32}}));
}

// ---- What the verifier refuses ------------------------------------------------------------------

TEST(BruckAlltoall, a_block_that_goes_astray_is_seen) {
  std::size_t spoiled = 0;
  const std::vector<Plan> right = plans_of(9, 2);
  for (std::size_t i = 0; i < right[4].steps.size(); ++i) {
    const Step& step = right[4].steps[i];
    if (step.action != Action::copy || step.from.place != Place::slot) continue;
    std::vector<Plan> plans = right;
    Step& other = plans[4].steps[i];
    other.from.payload = static_cast<std::uint16_t>((step.from.payload + 1) % right[4].payloads);
    EXPECT_NE(violation_of(plans), "none") << i;
    ++spoiled;
  }
  EXPECT_EQ(spoiled, 4u + 8u);  // distances 4, 7, 5 and 8 go on; all arrive
}

}  // namespace
}  // namespace tutti::plan
