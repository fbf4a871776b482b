// Promise: collectives by reference are right for every rank count and root; two copies of their
// slots suffice; nobody writes a buffer, or ends a call, while a peer may read it, also in place.
#include "plan/single_copy.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "happens_before.hpp"
#include "plan/verify.hpp"
#include "sizes.hpp"

namespace tutti::plan {
namespace {

using PlanOf = std::function<Plan(Rank)>;

std::vector<Plan> plans_of(std::uint32_t rank_count, const PlanOf& plan_of) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) plans.push_back(plan_of(Rank{rank}));
  return plans;
}
std::vector<Plan> broadcasts(std::uint32_t rank_count, Rank root) {
  return plans_of(rank_count,
                  [&](Rank self) { return single_copy_broadcast(self, rank_count, root); });
}
std::vector<Plan> reduces(std::uint32_t rank_count, Rank root) {
  return plans_of(rank_count,
                  [&](Rank self) { return single_copy_reduce(self, rank_count, root); });
}
std::vector<Plan> allreduces(std::uint32_t rank_count) {
  return plans_of(rank_count, [&](Rank self) { return single_copy_allreduce(self, rank_count); });
}

constexpr std::uint32_t calls = 5;

TEST(SingleCopy, IsRightForEveryRankCountAndRoot) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks) {
    EXPECT_EQ(first_violation(allreduces(ranks), Promise::same_result), std::nullopt) << ranks;
    for (std::uint32_t root = 0; root < ranks; root += ranks <= 16 ? 1 : 7) {
      EXPECT_EQ(first_violation(broadcasts(ranks, Rank{root}), Promise::broadcast, Rank{root}),
                std::nullopt)
          << ranks << " ranks, root " << root;
      EXPECT_EQ(first_violation(reduces(ranks, Rank{root}), Promise::each_once, Rank{root}),
                std::nullopt)
          << ranks << " ranks, root " << root;
    }
  }
}

TEST(SingleCopy, NothingIsWrittenWhileAPeerMayReadIt) {
  for (std::uint32_t ranks = 2; ranks <= 12; ++ranks) {
    EXPECT_EQ(test::HappensBefore(allreduces(ranks), calls, 2).race(), std::nullopt) << ranks;
    for (std::uint32_t root = 0; root < ranks; ++root) {
      EXPECT_EQ(test::HappensBefore(broadcasts(ranks, Rank{root}), calls, 2).race(), std::nullopt)
          << ranks << " ranks, root " << root;
      EXPECT_EQ(test::HappensBefore(reduces(ranks, Rank{root}), calls, 2).race(), std::nullopt)
          << ranks << " ranks, root " << root;
    }
  }
}

bool is_notification(const Step& step) {
  return (step.action == Action::put || step.action == Action::await) && step.segments == 0;
}

TEST(SingleCopy, WithoutAcknowledgementsItWouldBe) {
  for (std::vector<Plan> plans : {broadcasts(3, Rank{1}), reduces(3, Rank{1}), allreduces(3)}) {
    for (Plan& plan : plans) std::erase_if(plan.steps, is_notification);
    EXPECT_NE(test::HappensBefore(plans, calls, 2).race(), std::nullopt) << plans[0].parts;
  }
}

TEST(SingleCopy, AcknowledgingBeforeReadingIsSeen) {
  std::vector<Plan> plans = broadcasts(2, Rank{0});
  ASSERT_EQ(plans[1].steps.size(), 3u);
  std::swap(plans[1].steps[1], plans[1].steps[2]);
  EXPECT_NE(test::HappensBefore(plans, calls, 2).race(), std::nullopt);
}

// ---- What the verifier refuses ------------------------------------------------------------------

std::string violation_of(std::vector<Plan> plans) {
  return first_violation(plans, Promise::broadcast, Rank{0}).value_or("none");
}

TEST(SingleCopy, APutWithoutAnAnswerIsRefused) {
  std::vector<Plan> plans = broadcasts(2, Rank{0});
  for (Plan& plan : plans) std::erase_if(plan.steps, is_notification);
  EXPECT_NE(violation_of(plans).find("without hearing from it"), std::string::npos)
      << violation_of(plans);
}

TEST(SingleCopy, AReferenceIsReadAsOne) {
  std::vector<Plan> plans = broadcasts(2, Rank{0});
  plans[1].steps[1].by_reference = false;
  EXPECT_NE(violation_of(plans).find("another kind of message"), std::string::npos)
      << violation_of(plans);
  plans = broadcasts(2, Rank{0});
  plans[1].steps[0].by_reference = false;
  EXPECT_NE(violation_of(plans), "none");
}

TEST(SingleCopy, SlotsAreNotToldOf) {
  std::vector<Plan> plans = broadcasts(2, Rank{0});
  plans[0].steps[0].from = {.place = Place::slot, .index = 1};
  EXPECT_NE(violation_of(plans).find("by reference tells of one payload here"), std::string::npos)
      << violation_of(plans);
}

}  // namespace
}  // namespace tutti::plan
