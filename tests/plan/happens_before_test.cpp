// Promise: two copies of slots and partials suffice for every schedule, without acknowledgements:
// over consecutive calls, nothing is overwritten while it may be read.  One copy does not.
#include "happens_before.hpp"
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules.hpp"
#include "sizes.hpp"

namespace tutti::plan {
namespace {

std::optional<std::string> race(std::uint32_t rank_count, const test::PlanOf& plan_of,
                                std::uint32_t copies) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) plans.push_back(plan_of(Rank{rank}));
  return test::HappensBefore(plans, 5, copies).race();
}

TEST(HappensBefore, holds_over_consecutive_calls_of_every_schedule) {
  // The cost grows with the square of the messages; beyond are the same rounds, only more of them.
  const std::uint32_t last = std::min(test::every_rank_count_up_to, 80u);
  for (std::uint32_t rank_count = 1; rank_count <= last; ++rank_count)
    test::for_each_schedule(rank_count, [&](const std::string& name, const test::PlanOf& plan_of) {
      EXPECT_EQ(race(rank_count, plan_of, 2), std::nullopt) << name << ", " << rank_count;
    });
}

// Where each rank that is told answers within the call, that orders it; elsewhere two are needed.
TEST(HappensBefore, does_not_hold_with_one_copy) {
  std::uint32_t races = 0;
  for (const std::uint32_t rank_count : {3u, 7u, 16u})
    test::for_each_schedule(rank_count, [&](const std::string&, const test::PlanOf& plan_of) {
      if (race(rank_count, plan_of, 1)) ++races;
    });
  EXPECT_GT(races, 60u);
}

}  // namespace
}  // namespace tutti::plan
