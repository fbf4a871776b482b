// Promise: broadcast by reference is right for every rank count and root; two copies of its slots
// suffice; nobody writes a buffer, or ends a call, while a peer may read it.
#include "plan/rooted/single_copy.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "happens_before.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"

namespace tutti::plan {
namespace {

std::vector<Plan> broadcasts(std::uint32_t rank_count, Rank root) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(single_copy_broadcast(Rank{rank}, rank_count, root));
  return plans;
}

std::vector<Plan> reduces(Rank root) {
  return {single_copy_reduce(Rank{0}, root), single_copy_reduce(Rank{1}, root)};
}

constexpr std::uint32_t calls = 5;

TEST(SingleCopy, is_right_for_every_rank_count_and_root) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    for (std::uint32_t root = 0; root < ranks; root += ranks <= 16 ? 1 : 7)
      EXPECT_EQ(first_violation(broadcasts(ranks, Rank{root}), Promise::broadcast, Rank{root}),
                std::nullopt)
          << ranks << " ranks, root " << root;
}

TEST(SingleCopy, nothing_is_written_while_a_peer_may_read_it) {
  for (std::uint32_t ranks = 2; ranks <= 12; ++ranks)
    for (std::uint32_t root = 0; root < ranks; ++root)
      EXPECT_EQ(test::HappensBefore(broadcasts(ranks, Rank{root}), calls, 2).race(), std::nullopt)
          << ranks << " ranks, root " << root;
}

TEST(SingleCopy, reduces_of_two_ranks_are_right) {
  for (const Rank root : {Rank{0}, Rank{1}}) {
    EXPECT_EQ(first_violation(reduces(root), Promise::each_once, root), std::nullopt);
    EXPECT_EQ(test::HappensBefore(reduces(root), calls, 2).race(), std::nullopt);
    EXPECT_NE(first_violation(reduces(root), Promise::rank_order, root), std::nullopt);
    std::vector<Plan> plans = reduces(root);
    std::swap(plans[index_of(root)].steps[1], plans[index_of(root)].steps[2]);
    EXPECT_NE(test::HappensBefore(plans, calls, 2).race(), std::nullopt) << "read too late";
  }
}

std::vector<Plan> allreduces() {
  return {single_copy_allreduce(Rank{0}), single_copy_allreduce(Rank{1})};
}

TEST(SingleCopy, allreduces_of_two_ranks_are_right) {
  using Buffers = test::HappensBefore::Buffers;
  EXPECT_EQ(first_violation(allreduces(), Promise::each_once), std::nullopt);
  EXPECT_NE(first_violation(allreduces(), Promise::rank_order), std::nullopt);
  for (const Buffers buffers : {Buffers::same, Buffers::apart})
    EXPECT_EQ(test::HappensBefore(allreduces(), calls, 2, buffers).race(), std::nullopt);
}

TEST(SingleCopy, an_allreduce_that_does_not_acknowledge_is_seen) {
  using Buffers = test::HappensBefore::Buffers;
  for (const Buffers buffers : {Buffers::same, Buffers::apart}) {
    std::vector<Plan> plans = allreduces();
    for (Plan& plan : plans)
      std::erase_if(plan.steps, [](const Step& step) {
        return (step.action == Action::put || step.action == Action::await) && step.payloads == 0;
      });
    EXPECT_NE(test::HappensBefore(plans, calls, 2, buffers).race(), std::nullopt);
    // The result is copied into what the peer may still be reading, if that is the source, too.
    plans = allreduces();
    for (Plan& plan : plans)
      std::erase_if(plan.steps, [](const Step& step) {
        return step.action == Action::await && step.round == 1 && step.payloads > 0;
      });
    EXPECT_NE(test::HappensBefore(plans, calls, 2, buffers).race(), std::nullopt);
  }
}

bool is_notification(const Step& step) {
  return (step.action == Action::put || step.action == Action::await) && step.payloads == 0;
}

TEST(SingleCopy, without_acknowledgements_it_would_be) {
  std::vector<Plan> plans = broadcasts(3, Rank{1});
  for (Plan& plan : plans) std::erase_if(plan.steps, is_notification);
  EXPECT_NE(test::HappensBefore(plans, calls, 2).race(), std::nullopt);
}

TEST(SingleCopy, acknowledging_before_reading_is_seen) {
  std::vector<Plan> plans = broadcasts(2, Rank{0});
  ASSERT_EQ(plans[1].steps.size(), 3u);
  std::swap(plans[1].steps[1], plans[1].steps[2]);
  EXPECT_NE(test::HappensBefore(plans, calls, 2).race(), std::nullopt);
}

// ---- What the verifier refuses ------------------------------------------------------------------

std::string violation_of(std::vector<Plan> plans) {
  return first_violation(plans, Promise::broadcast, Rank{0}).value_or("none");
}

TEST(SingleCopy, a_put_without_an_answer_is_refused) {
  std::vector<Plan> plans = broadcasts(2, Rank{0});
  for (Plan& plan : plans) std::erase_if(plan.steps, is_notification);
  EXPECT_NE(violation_of(plans).find("without hearing from it"), std::string::npos)
      << violation_of(plans);
}

TEST(SingleCopy, a_reference_is_read_as_one) {
  std::vector<Plan> plans = broadcasts(2, Rank{0});
  plans[1].steps[1].by_reference = false;
  EXPECT_NE(violation_of(plans).find("another kind of message"), std::string::npos)
      << violation_of(plans);
  plans = broadcasts(2, Rank{0});
  plans[1].steps[0].by_reference = false;
  EXPECT_NE(violation_of(plans), "none");
}

TEST(SingleCopy, slots_are_not_told_of_and_partials_only_if_they_hold_something) {
  std::vector<Plan> plans = broadcasts(2, Rank{0});
  plans[0].steps[0].from.place = Place::slot;
  EXPECT_NE(violation_of(plans).find("by reference tells of a source, target or partial"),
            std::string::npos)
      << violation_of(plans);
  plans[0].steps[0].from.place = Place::partial;
  EXPECT_NE(violation_of(plans).find("does not exist"), std::string::npos) << violation_of(plans);
  plans[0].partial_count = 1;
  EXPECT_NE(violation_of(plans).find("which is undefined"), std::string::npos)
      << violation_of(plans);
}

TEST(SingleCopy, what_is_read_by_reference_is_a_slot_of_the_one_who_told) {
  std::vector<Plan> plans = broadcasts(3, Rank{0});
  plans[1].steps[1].peer = Rank{2};
  EXPECT_NE(violation_of(plans).find("of which rank 0 has told"), std::string::npos)
      << violation_of(plans);
  plans = broadcasts(3, Rank{0});
  plans[1].steps[1].action = Action::take_out;
  EXPECT_NE(violation_of(plans).find("in another way"), std::string::npos) << violation_of(plans);
}

}  // namespace
}  // namespace tutti::plan
