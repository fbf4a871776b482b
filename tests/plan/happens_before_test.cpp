// Promise: two copies of slots and partials suffice for every schedule, without acknowledgements:
// over consecutive calls, nothing is overwritten while it may be read.  One copy does not.
#include "happens_before.hpp"

#include <gtest/gtest.h>

#include "schedules.hpp"

namespace tutti::plan {
namespace {

std::optional<std::string> race(std::uint32_t rank_count, const test::PlanOf& plan_of,
                                std::uint32_t copies) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) plans.push_back(plan_of(Rank{rank}));
  return test::HappensBefore(plans, 5, copies).race();
}

TEST(HappensBefore, HoldsOverConsecutiveCallsOfEverySchedule) {
  std::vector<std::uint32_t> rank_counts;
  for (std::uint32_t rank_count = 1; rank_count <= 32; ++rank_count)
    rank_counts.push_back(rank_count);
  for (const std::uint32_t rank_count : {45u, 64u, 97u, 128u}) rank_counts.push_back(rank_count);
  for (const std::uint32_t rank_count : rank_counts)
    test::for_each_schedule(rank_count, [&](const std::string& name, const test::PlanOf& plan_of) {
      EXPECT_EQ(race(rank_count, plan_of, 2), std::nullopt) << name << ", " << rank_count;
    });
}

TEST(HappensBefore, DoesNotHoldWithOneCopy) {
  for (const std::uint32_t rank_count : {3u, 7u, 16u})
    test::for_each_schedule(rank_count, [&](const std::string& name, const test::PlanOf& plan_of) {
      // Where answers come back, they order it.
      if (name.starts_with("barrier") || name == "chunked_fold") return;
      EXPECT_NE(race(rank_count, plan_of, 1), std::nullopt) << name << ", " << rank_count;
    });
}

}  // namespace
}  // namespace tutti::plan
