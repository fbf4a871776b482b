// Promise: scans hold the ranks up to their own, in order, for every rank count; two copies of
// their slots suffice however far a rank runs ahead.
#include "plan/allreduce/scan.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "happens_before.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

std::vector<Plan> scans(std::uint32_t rank_count, Prefix prefix) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(doubling_scan(Rank{rank}, rank_count, prefix));
  return plans;
}

TEST(Scan, is_right_for_every_rank_count) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks) {
    EXPECT_EQ(first_violation(scans(ranks, Prefix::inclusive), Promise::scan), std::nullopt)
        << ranks << " ranks";
    EXPECT_EQ(first_violation(scans(ranks, Prefix::exclusive), Promise::exscan), std::nullopt)
        << ranks << " ranks";
  }
}

TEST(Scan, takes_as_many_rounds_as_it_says) {
  for (std::uint32_t ranks = 2; ranks <= 64; ++ranks)
    EXPECT_EQ(scans(ranks, Prefix::inclusive)[0].per_round.size(),
              static_cast<std::size_t>(std::bit_width(ranks - 1)));
}

TEST(Scan, two_copies_of_everything_suffice) {
  for (const Prefix prefix : {Prefix::inclusive, Prefix::exclusive})
    for (std::uint32_t ranks = 2; ranks <= 12; ++ranks)
      EXPECT_EQ(test::HappensBefore(scans(ranks, prefix), 6, 2).race(), std::nullopt)
          << ranks << " ranks";
}

std::vector<Plan> scans_of(const tutti::test::NodeOf& node_of, Prefix prefix) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < node_of.size(); ++rank)
    plans.push_back(node_scan(Rank{rank}, node_of, prefix));
  return plans;
}

TEST(Scan, of_nodes_is_right_for_every_shape) {
  for (std::uint32_t ranks = 2; ranks <= 10; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks)) {
      const tutti::test::NodeOf node_of = tutti::test::in_blocks(sizes);
      for (const Prefix prefix : {Prefix::inclusive, Prefix::exclusive}) {
        const std::vector<Plan> plans = scans_of(node_of, prefix);
        EXPECT_EQ(
            first_violation(plans, prefix == Prefix::inclusive ? Promise::scan : Promise::exscan),
            std::nullopt)
            << tutti::test::text_of(node_of);
        if (ranks > 7) continue;
        EXPECT_EQ(test::HappensBefore(plans, 6, 2).race(), std::nullopt)
            << tutti::test::text_of(node_of);
      }
    }
  for (const std::vector<std::uint32_t>& sizes :
       std::vector<std::vector<std::uint32_t>>{{8, 8, 8, 8}, {1, 16, 3}, {5, 5, 5, 5, 5, 5, 5}})
    EXPECT_EQ(
        first_violation(scans_of(tutti::test::in_blocks(sizes), Prefix::inclusive), Promise::scan),
        std::nullopt);
}

TEST(Scan, of_nodes_one_rank_of_each_uses_the_network) {
  const tutti::test::NodeOf node_of = tutti::test::in_blocks({4, 4, 4, 4});
  for (const Plan& plan : scans_of(node_of, Prefix::inclusive))
    for (const Step& step : plan.steps)
      if (step.peer != no_rank && node_of[index_of(step.peer)] != node_of[index_of(plan.self)]) {
        EXPECT_EQ(index_of(plan.self) % 4, 3u);
        EXPECT_EQ(index_of(step.peer) % 4, 3u);
      }
}

TEST(Scan, without_credits_they_would_not) {
  std::vector<Plan> plans = scans(3, Prefix::inclusive);
  for (Plan& plan : plans)
    std::erase_if(plan.steps, [](const Step& step) {
      return step.action == Action::await_credit ||
             (step.action == Action::put && step.payloads == 0);
    });
  EXPECT_NE(test::HappensBefore(plans, 6, 2).race(), std::nullopt);
}

/// Rank 0 of an inclusive scan hears from nobody, and so runs ahead.
TEST(Scan, a_plan_that_claims_to_be_synchronising_is_seen) {
  std::vector<Plan> plans = scans(3, Prefix::inclusive);
  for (Plan& plan : plans) {
    plan.flow_control = FlowControl::synchronising;
    std::erase_if(plan.steps, [](const Step& step) {
      return step.action == Action::await_credit ||
             (step.action == Action::put && step.payloads == 0);
    });
  }
  const std::optional<std::string> violation = first_violation(plans, Promise::scan);
  ASSERT_NE(violation, std::nullopt);
  EXPECT_NE(violation->find("is declared synchronising"), std::string::npos) << *violation;
}

TEST(Scan, another_order_or_another_rank_is_seen) {
  EXPECT_NE(first_violation(scans(3, Prefix::inclusive), Promise::exscan), std::nullopt);
  EXPECT_NE(first_violation(scans(3, Prefix::exclusive), Promise::scan), std::nullopt);
}

}  // namespace
}  // namespace tutti::plan
