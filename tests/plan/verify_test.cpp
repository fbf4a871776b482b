// Promise: the verifier finds every kind of error that a plan can have.  Each test plants one into
// plans that were right, and looks for the sentence that names it.
#include "plan/core/verify.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/lanes.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

constexpr std::uint32_t ranks = 11;

/// Rounds (length, messages, short ones): (1, 1, 0), (2, 1, 0), (4, 2, 1).
std::vector<Plan> allreduce_plans(Order order = Order::commutative) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(two_partial_allreduce(Rank{rank}, ranks, {1, 1, 2}, order));
  return plans;
}

/// Rounds (length, messages): (1, 1), (2, 2), (6, 1).
std::vector<Plan> barrier_plans() {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(dissemination_barrier(Rank{rank}, ranks, {2, 2, 1}));
  return plans;
}

/// Groups of 2, 2, 2, 1, 1, 1, 1, 1 ranks; slot 0 in, 1 .. 4 in the core, 5 out.
std::vector<Plan> folded_plans() {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(recursive_multiplying_allreduce(Rank{rank}, ranks, {1, 3}));
  return plans;
}

/// The `nth` step of that kind, counted from 0.
std::size_t find(const Plan& plan, Action action, std::size_t nth = 0) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (plan.steps[i].action == action && nth-- == 0) return i;
  ADD_FAILURE() << "the plan has no such step";
  return 0;
}

Step& step_of(Plan& plan, Action action, std::size_t nth = 0) {
  return plan.steps[find(plan, action, nth)];
}

void erase(Plan& plan, std::size_t step) {
  plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(step));
}

void insert(Plan& plan, std::size_t before, const Step& step) {
  plan.steps.insert(plan.steps.begin() + static_cast<std::ptrdiff_t>(before), step);
}

void expect_violation(const std::vector<Plan>& plans, Promise promise, const std::string& part) {
  const std::optional<std::string> violation = first_violation(plans, promise);
  ASSERT_TRUE(violation) << "not found: " << part;
  EXPECT_NE(violation->find(part), std::string::npos) << *violation;
}

void expect_violation(const std::vector<Plan>& plans, const std::string& part) {
  expect_violation(plans, Promise::each_once, part);
}

TEST(Verify, finds_nothing_in_plans_that_are_right) {
  EXPECT_EQ(first_violation(allreduce_plans(), Promise::each_once), std::nullopt);
  EXPECT_EQ(first_violation(allreduce_plans(), Promise::at_least_once), std::nullopt);
  EXPECT_EQ(first_violation(allreduce_plans(Order::rank_order), Promise::rank_order), std::nullopt);
  EXPECT_EQ(first_violation(barrier_plans(), Promise::barrier), std::nullopt);
}

// Also says that the builders emit nothing that is not needed.
TEST(Verify, finds_that_any_single_step_is_missing) {
  for (std::uint32_t count = 2; count <= 24; ++count) {
    for (const Order order : {Order::commutative, Order::rank_order}) {
      std::vector<Plan> plans;
      for (std::uint32_t rank = 0; rank < count; ++rank)
        plans.push_back(two_partial_allreduce(Rank{rank}, count, uniform(count, 2), order));
      const Promise promise = order == Order::rank_order ? Promise::rank_order : Promise::each_once;
      for (Plan& plan : plans) {
        const Plan right = plan;
        for (std::size_t step = 0; step < right.steps.size(); ++step) {
          erase(plan, step);
          EXPECT_TRUE(first_violation(plans, promise))
              << "P = " << count << ", rank " << index_of(plan.self) << ", step " << step;
          plan = right;
        }
      }
    }
  }
}

TEST(Verify, finds_that_any_single_step_of_recursive_multiplying_is_missing) {
  for (std::uint32_t count = 2; count <= 24; ++count) {
    std::vector<Plan> plans;
    const PerRound core = count % 3 == 0 ? PerRound{2} : PerRound{1};
    for (std::uint32_t rank = 0; rank < count; ++rank)
      plans.push_back(recursive_multiplying_allreduce(Rank{rank}, count, core));
    for (Plan& plan : plans) {
      const Plan right = plan;
      for (std::size_t step = 0; step < right.steps.size(); ++step) {
        erase(plan, step);
        EXPECT_TRUE(first_violation(plans, Promise::same_expression))
            << "P = " << count << ", rank " << index_of(plan.self) << ", step " << step;
        plan = right;
      }
    }
  }
}

// Puts and awaits match.

TEST(Verify, finds_a_swapped_peer_of_a_put) {
  auto plans = allreduce_plans();
  std::swap(step_of(plans[4], Action::put).peer, step_of(plans[7], Action::put).peer);
  expect_violation(plans, "is awaited from rank 4 but written by rank 7");
}

TEST(Verify, finds_a_swapped_peer_of_an_await) {
  auto plans = allreduce_plans();
  step_of(plans[4], Action::await, 0).peer = Rank{9};
  expect_violation(plans, "is awaited from rank 9 but written by rank 3");
}

TEST(Verify, finds_a_dropped_await) {
  auto plans = allreduce_plans();
  erase(plans[4], find(plans[4], Action::await, 2));
  expect_violation(plans, "messages of a round");
  --plans[4].per_round[2];  // even if the plan's own count agrees
  expect_violation(plans, "messages of a round");
}

TEST(Verify, finds_a_dropped_put) {
  auto plans = allreduce_plans();
  erase(plans[4], find(plans[4], Action::put, 2));
  expect_violation(plans, "messages of a round");
}

TEST(Verify, finds_a_duplicated_put) {
  auto plans = allreduce_plans();
  const std::size_t put = find(plans[4], Action::put, 1);
  insert(plans[4], put, plans[4].steps[put]);
  expect_violation(plans, "is a peer twice in one round");
}

TEST(Verify, finds_a_slot_written_twice) {
  auto plans = allreduce_plans();
  const Step& put = step_of(plans[4], Action::put, 2);
  Step& other = step_of(plans[0], Action::put, 2);
  other.slot = put.slot;
  other.peer = put.peer;
  expect_violation(plans, "has written");
}

TEST(Verify, finds_a_slot_awaited_twice) {
  auto plans = barrier_plans();
  step_of(plans[4], Action::await, 2).slot = 0;
  expect_violation(plans, Promise::barrier, "is awaited twice");
}

TEST(Verify, finds_a_message_that_is_never_awaited) {
  auto plans = barrier_plans();
  for (Plan& plan : plans) ++plan.slot_count;  // a slot nobody awaits takes the message
  step_of(plans[4], Action::put, 3).slot = static_cast<std::uint16_t>(plans[4].slot_count - 1);
  expect_violation(plans, Promise::barrier, "waits for ever for slot 3 from rank 4");
}

TEST(Verify, finds_wrong_payloads) {
  auto plans = allreduce_plans(Order::rank_order);
  Step& await = step_of(plans[4], Action::await, 2);
  await.payloads = await.payloads == 1 ? 2 : 1;
  expect_violation(plans, Promise::rank_order, "payloads but put with");
  plans = allreduce_plans(Order::rank_order);
  Step& put = step_of(plans[0], Action::put, 1);  // wraps, two payloads
  ASSERT_EQ(put.payloads, 2);
  put.payloads = 1;
  expect_violation(plans, Promise::rank_order, "payloads but put with 1");
  plans = allreduce_plans();
  step_of(plans[4], Action::put, 0).payloads = 2;
  expect_violation(plans, "more payloads than a slot has");
}

TEST(Verify, finds_a_put_of_a_payload_that_is_undefined) {
  auto plans = allreduce_plans(Order::rank_order);
  Step& put = step_of(plans[8], Action::put, 1);
  ASSERT_EQ(put.payloads, 1);  // does not wrap: no second payload
  put.payloads = 2;
  expect_violation(plans, Promise::rank_order, "which is undefined");
}

TEST(Verify, finds_a_message_to_oneself) {
  auto plans = allreduce_plans();
  step_of(plans[4], Action::put, 0).peer = Rank{4};
  expect_violation(plans, "the peer is the rank itself");
}

TEST(Verify, finds_peers_slots_and_registers_that_do_not_exist) {
  auto plans = allreduce_plans();
  step_of(plans[4], Action::put).peer = no_rank;
  expect_violation(plans, "the peer does not exist");
  plans = allreduce_plans();
  step_of(plans[4], Action::await).slot = plans[4].slot_count;
  expect_violation(plans, "does not exist");
  plans = allreduce_plans();
  step_of(plans[4], Action::combine).into.index = plans[4].partial_count;
  expect_violation(plans, "does not exist");
  plans = allreduce_plans();
  step_of(plans[4], Action::put).from = {.place = Place::source};
  expect_violation(plans, "a put sends partials, not");
}

TEST(Verify, finds_a_deadlock) {
  auto plans = barrier_plans();
  for (Plan& plan : plans)  // everybody listens before anybody speaks
    std::stable_sort(plan.steps.begin(), plan.steps.end(), [](const Step& left, const Step& right) {
      return left.round < right.round ||
             (left.round == right.round && left.action == Action::await &&
              right.action == Action::put);
    });
  expect_violation(plans, Promise::barrier, "waits for ever");
}

TEST(Verify, finds_a_wrong_number_of_messages) {
  auto plans = allreduce_plans();
  for (Plan& plan : plans) ++plan.per_round[1];
  expect_violation(plans, "messages of a round");
}

// Circulant plans tell as many as they say in every round; they may listen later, not less.
TEST(Verify, allows_messages_to_be_awaited_in_a_later_round) {
  auto plans = allreduce_plans();
  for (Plan& plan : plans) plan.per_round.push_back(0);
  EXPECT_EQ(first_violation(plans, Promise::each_once), std::nullopt);
  for (Plan& plan : plans) {  // the last message of all, and what is done with it
    const auto last = std::find_if(plan.steps.rbegin(), plan.steps.rend(),
                                   [](const Step& step) { return step.action == Action::await; });
    for (auto step = last.base() - 1; step != plan.steps.end(); ++step) ++step->round;
  }
  EXPECT_EQ(first_violation(plans, Promise::each_once), std::nullopt);
  for (Plan& plan : plans) ++plan.per_round.back();  // as many as there are awaits, but no put
  expect_violation(plans, "messages of a round");
}

TEST(Verify, finds_plans_of_different_shape) {
  auto plans = allreduce_plans();
  ++plans[4].slot_count;
  expect_violation(plans, "not laid out as on rank 0");
  plans = allreduce_plans();
  plans[4].payloads = 2;
  expect_violation(plans, "not laid out as on rank 0");
  plans = allreduce_plans();
  std::swap(plans[4], plans[5]);
  expect_violation(plans, "belongs to");
}

TEST(Verify, finds_rounds_that_go_backwards) {
  auto plans = allreduce_plans();
  step_of(plans[4], Action::await, 2).round = 0;
  expect_violation(plans, "rounds go backwards");
}

// Registers.

TEST(Verify, finds_a_write_to_a_posted_partial) {
  auto plans = allreduce_plans();
  const Step put = step_of(plans[4], Action::put);
  step_of(plans[4], Action::combine).into = put.from;
  expect_violation(plans, "which was put");
}

TEST(Verify, finds_a_source_read_after_the_target_was_written) {
  auto plans = allreduce_plans();
  Plan& plan = plans[4];
  plan.steps.push_back({.action = Action::copy,
                        .payloads = 1,
                        .round = plan.steps.back().round,
                        .from = {.place = Place::source},
                        .into = {.place = Place::target}});
  expect_violation(plans, "reads source after target was written");
}

TEST(Verify, finds_a_slot_read_before_its_await) {
  auto plans = allreduce_plans();
  Plan& plan = plans[4];
  const std::size_t await = find(plan, Action::await, 3);
  std::swap(plan.steps[await], plan.steps[await + 1]);
  expect_violation(plans, "which was not awaited");
}

TEST(Verify, finds_a_read_of_what_is_undefined) {
  auto plans = allreduce_plans();
  erase(plans[4], find(plans[4], Action::copy, 0));
  expect_violation(plans, "which is undefined");
}

TEST(Verify, finds_an_undefined_target) {
  auto plans = allreduce_plans();
  std::vector<Step>& steps = plans[4].steps;
  std::erase_if(steps, [](const Step& step) {
    return step.into.place == Place::target && step.action != Action::put &&
           step.action != Action::await;
  });
  expect_violation(plans, "target is undefined");
}

TEST(Verify, finds_writes_to_what_is_not_the_ranks) {
  auto plans = allreduce_plans();
  step_of(plans[4], Action::combine).into = {.place = Place::slot};
  expect_violation(plans, "writes slot");
  plans = allreduce_plans();
  step_of(plans[4], Action::combine).into = {.place = Place::source};
  expect_violation(plans, "writes source");
}

// Contributions.

TEST(Verify, finds_a_missing_contribution) {
  auto plans = allreduce_plans();
  erase(plans[4], plans[4].steps.size() - 1);
  expect_violation(plans, "is missing");
  expect_violation(plans, Promise::at_least_once, "is missing");
}

TEST(Verify, finds_a_contribution_that_enters_twice) {
  auto plans = allreduce_plans();
  plans[4].steps.push_back(plans[4].steps.back());
  expect_violation(plans, "enters more than once");
  EXPECT_EQ(first_violation(plans, Promise::at_least_once), std::nullopt);
}

TEST(Verify, finds_reordered_operands) {
  auto plans = allreduce_plans(Order::rank_order);
  // Rank P-1 never wraps: exchange the last two messages it joins, each with its await.
  std::vector<Step>& steps = plans[ranks - 1].steps;
  const std::size_t end = steps.size();
  ASSERT_EQ(steps[end - 4].action, Action::await);
  ASSERT_EQ(steps[end - 2].action, Action::await);
  std::swap(steps[end - 4], steps[end - 2]);
  std::swap(steps[end - 3], steps[end - 1]);
  expect_violation(plans, Promise::rank_order, "operands are out of order");
  EXPECT_EQ(first_violation(plans, Promise::each_once), std::nullopt);
}

TEST(Verify, finds_that_a_rotated_order_is_not_rank_order) {
  expect_violation(allreduce_plans(), Promise::rank_order, "operands are out of order");
}

// Where ranks differ in role, per_round is only the most.

TEST(Verify, finds_more_messages_than_per_round_says) {
  auto plans = folded_plans();
  EXPECT_EQ(first_violation(plans, Promise::same_expression), std::nullopt);
  for (Plan& plan : plans) --plan.per_round[2];
  expect_violation(plans, Promise::same_expression, "messages of a round");
  plans = folded_plans();
  --plans[4].per_round[2];
  expect_violation(plans, Promise::same_expression, "messages of a round");
  plans = folded_plans();
  plans[4].all_alike = true;
  expect_violation(plans, Promise::same_expression, "messages of a round");
}

TEST(Verify, finds_a_message_left_over) {
  auto plans = folded_plans();
  std::vector<Step>& steps = plans[1].steps;  // takes its own contribution for the result
  std::erase_if(steps, [](const Step& step) { return step.action == Action::await; });
  steps.back().from = {.place = Place::partial};
  expect_violation(plans, Promise::same_expression, "is missing");
  plans = folded_plans();
  Step again = step_of(plans[1], Action::put);  // tells somebody who does not listen
  again.peer = Rank{10};
  again.round = 1;
  insert(plans[1], find(plans[1], Action::await), again);
  expect_violation(plans, Promise::same_expression, "rank 10: a message from rank 1 is never");
}

// Agreement in all bits.

TEST(Verify, finds_that_two_partial_dissemination_associates_differently_on_each_rank) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    plans.push_back(two_partial_allreduce(Rank{rank}, 3, {1, 1}, Order::rank_order));
  EXPECT_EQ(first_violation(plans, Promise::rank_order), std::nullopt);
  expect_violation(plans, Promise::same_expression,
                   "ordered or associated otherwise than on rank 0");
}

TEST(Verify, finds_that_a_rotated_order_is_not_the_same_expression) {
  expect_violation(allreduce_plans(), Promise::same_expression, "operands are out of order");
}

TEST(Verify, finds_one_rank_that_associates_differently) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    plans.push_back(recursive_multiplying_allreduce(Rank{rank}, 3, {2}));
  // Rank 2: (0 o 1) o 2 instead of 0 o (1 o 2), by way of a further partial.
  Plan& plan = plans[2];
  const std::size_t first = find(plan, Action::copy, 1);  // target = 2
  const Register own = plan.steps[first].from;
  const Register other{.place = Place::partial, .index = plan.partial_count++};
  std::vector<Step> steps(plan.steps.begin(),
                          plan.steps.begin() + static_cast<std::ptrdiff_t>(first));
  const Step one = step_of(plan, Action::await, 0), zero = step_of(plan, Action::await, 1);
  const std::uint32_t round = one.round;
  const auto slot = [](const Step& await) {
    return Register{.place = Place::slot, .index = await.slot};
  };
  steps.insert(
      steps.end(),
      {one,
       {.action = Action::copy, .payloads = 1, .round = round, .from = slot(one), .into = other},
       zero,
       {.action = Action::combine, .round = round, .from = slot(zero), .into = other},
       {.action = Action::copy,
        .payloads = 1,
        .round = round,
        .from = own,
        .into = {.place = Place::target}},
       {.action = Action::combine,
        .round = round,
        .from = other,
        .into = {.place = Place::target}}});
  plan.steps = steps;
  EXPECT_EQ(first_violation(plans, Promise::rank_order), std::nullopt);
  expect_violation(plans, Promise::same_expression,
                   "rank 2: operands are ordered or associated otherwise");
}

TEST(Verify, finds_a_barrier_that_has_not_heard_from_all) {
  auto plans = barrier_plans();
  for (Plan& plan : plans) {  // all leave the last round out, consistently
    const std::uint32_t last = plan.steps.back().round;
    std::erase_if(plan.steps, [&](const Step& step) { return step.round == last; });
    plan.per_round.pop_back();
  }
  expect_violation(plans, Promise::barrier, "is missing");
}

// ---- Parts, several payloads, taking out, flow control -----------------------------------------

/// Two ranks; each folds one half of the payload and tells the other the result of it.
std::vector<Plan> halves() {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const Rank peer{1 - rank};
    const auto own = static_cast<std::uint16_t>(rank), other = static_cast<std::uint16_t>(1 - rank);
    Plan plan;
    plan.self = Rank{rank};
    plan.rank_count = 2;
    plan.parts = 2;
    plan.partial_count = 2;
    plan.slot_count = 2;
    StepWriter steps(plan);
    steps.begin_round(1);
    steps.begin_part(other);
    steps.copy(source_register, partial_register(0));
    steps.put(peer, 0, 1, partial_register(0));
    steps.begin_part(own);
    steps.copy(source_register, partial_register(1));
    steps.await(peer, 0, 1);
    steps.combine(slot_register(0), partial_register(1));
    steps.begin_round(1);
    steps.put(peer, 1, 1, partial_register(1));
    steps.copy(partial_register(1), target_register);
    steps.begin_part(other);
    steps.await(peer, 1, 1);
    steps.copy(slot_register(1), target_register);
    plans.push_back(std::move(plan));
  }
  return plans;
}

TEST(Verify, knows_parts_of_a_payload) {
  EXPECT_EQ(first_violation(halves(), Promise::each_once), std::nullopt);
  auto plans = halves();
  step_of(plans[1], Action::combine).part = 0;
  expect_violation(plans, "holds part 1, the step is about 0");
  plans = halves();
  step_of(plans[0], Action::copy, 3).part = 0;
  expect_violation(plans, "holds part 1, the step is about 0");
  plans = halves();
  step_of(plans[0], Action::copy).part = 2;
  expect_violation(plans, "part 2 does not exist");
  plans = halves();
  erase(plans[0], find(plans[0], Action::copy, 3));
  expect_violation(plans, "rank 0, part 1: target is undefined");
  plans = halves();
  plans[1].parts = 3;
  expect_violation(plans, "laid out");
}

TEST(Verify, finds_payloads_beside_a_register) {
  auto plans = allreduce_plans();
  step_of(plans[5], Action::copy).payloads = 2;
  expect_violation(plans, "does not have 2 payloads");
  plans = allreduce_plans();
  step_of(plans[5], Action::copy).payloads = 0;
  expect_violation(plans, "copies nothing");
  plans = allreduce_plans(Order::rank_order);
  Step& put = step_of(plans[5], Action::put);
  put.payloads = 2;
  put.from.payload = 1;
  expect_violation(plans, Promise::rank_order, "does not have 2 payloads");
}

TEST(Verify, finds_contributions_taken_out_that_are_not_there) {
  const auto doubled_and_taken_out = [](std::uint32_t taken) {
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      Plan plan = two_partial_allreduce(Rank{rank}, 2, {1}, Order::commutative);
      StepWriter steps(plan);
      steps.combine(slot_register(0), target_register);
      for (std::uint32_t i = 0; i < taken; ++i) steps.take_out(slot_register(0), target_register);
      plans.push_back(std::move(plan));
    }
    return plans;
  };
  EXPECT_EQ(first_violation(doubled_and_taken_out(1), Promise::each_once), std::nullopt);
  expect_violation(doubled_and_taken_out(0), "enters more than once");
  expect_violation(doubled_and_taken_out(2), "is missing");
  expect_violation(doubled_and_taken_out(3), "which it does not have");
  expect_violation(doubled_and_taken_out(1), Promise::at_least_once, "takes out what may");
}

TEST(Verify, finds_another_tree_than_the_canonical_one) {
  const auto plans_of = [](std::uint32_t rank_count, const PerRound& core) {
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < rank_count; ++rank)
      plans.push_back(recursive_multiplying_allreduce(Rank{rank}, rank_count, core));
    return plans;
  };
  EXPECT_EQ(first_violation(plans_of(8, {1, 1, 1}), Promise::canonical_tree), std::nullopt);
  EXPECT_EQ(first_violation(plans_of(8, {3, 1}), Promise::same_expression), std::nullopt);
  expect_violation(plans_of(8, {3, 1}), Promise::canonical_tree, "along the canonical tree");
}

TEST(Verify, refuses_a_wrong_flow_control) {
  auto plans = allreduce_plans();
  plans[3].flow_control = FlowControl::one_way;
  expect_violation(plans, "declares another flow control");
  for (Plan& plan : plans) plan.flow_control = FlowControl::one_way;
  expect_violation(plans, "puts without a credit of rank");
}

/// Both tell each other, and give each other credit.
std::vector<Plan> exchange_with_credits() {
  std::vector<Plan> plans(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Plan& plan = plans[rank];
    plan.self = Rank{rank};
    plan.rank_count = 2;
    plan.flow_control = FlowControl::one_way;
    plan.partial_count = 1;
    plan.slot_count = 2;
    plan.line_slot_count = 1;
    StepWriter steps{plan};
    const Rank other{1 - rank};
    steps.begin_round(1);
    steps.await_credit(other, 1);
    steps.copy(source_register, partial_register(0));
    steps.put(other, 0, 1, partial_register(0));
    steps.await(other, 0, 1);
    steps.copy(slot_register(0), target_register);
    steps.combine(partial_register(0), target_register);
    steps.put(other, 1, 0);
  }
  return plans;
}

TEST(Verify, refuses_credits_where_nobody_runs_ahead) {
  auto plans = exchange_with_credits();
  expect_violation(plans, "is declared one-way");
  for (Plan& plan : plans) plan.flow_control = FlowControl::synchronising;
  expect_violation(plans, "awaits a credit, and is not one-way");
}

TEST(Verify, finds_what_goes_into_a_wrong_kind_of_slot) {
  auto plans = exchange_with_credits();
  for (Plan& plan : plans) plan.line_slot_count = 0;
  expect_violation(plans, "is none of those for credits");
  for (Plan& plan : plans) plan.line_slot_count = 2;
  expect_violation(plans, "has no room for a message");
}

TEST(Verify, finds_what_is_longer_than_a_short_slot) {
  auto plans = exchange_with_credits();
  for (Plan& plan : plans) {
    plan.payloads = 2;
    plan.short_slot_count = plan.short_payloads = 1;  // slot 0
  }
  expect_violation(plans, "is declared one-way");  // no slot is too short
  auto longer = plans;
  for (Plan& plan : longer)
    for (Step& step : plan.steps)
      if (step.payloads == 1 && step.action != Action::copy) step.payloads = 2;
  expect_violation(longer, "more payloads than slot 0 has");
  auto beyond = plans;
  for (Plan& plan : beyond)
    for (Step& step : plan.steps)
      if (step.from.place == Place::slot) step.from.payload = 1;
  expect_violation(beyond, "does not exist");
  plans[1].short_slot_count = 0;
  expect_violation(plans, "slots are not laid out as on rank 0");
  for (Plan& plan : plans) plan.short_slot_count = 2;
  expect_violation(plans, "more short slots than slots");
  for (Plan& plan : plans) {
    plan.short_slot_count = 1;
    plan.short_payloads = 3;
  }
  expect_violation(plans, "or longer ones");
}

TEST(Verify, finds_a_credit_that_nobody_gives) {
  auto plans = exchange_with_credits();
  plans[1].steps.pop_back();
  expect_violation(plans, "rank 1 never gives the credit");
}

TEST(Verify, refuses_a_synchronising_plan_in_which_a_rank_runs_ahead) {
  std::vector<Plan> plans(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Plan& plan = plans[rank];
    plan.self = Rank{rank};
    plan.rank_count = 2;
    plan.all_alike = false;
    plan.partial_count = plan.slot_count = 1;
    StepWriter steps{plan};
    steps.begin_round(1);
    if (rank == 0) {
      steps.copy(source_register, partial_register(0));
      steps.put(Rank{1}, 0, 1, partial_register(0));
    } else {
      steps.await(Rank{0}, 0, 1);
      steps.copy(slot_register(0), target_register);
    }
  }
  const auto violation = first_violation(plans, Promise::broadcast, Rank{0});
  ASSERT_TRUE(violation);
  EXPECT_NE(violation->find("is declared synchronising"), std::string::npos) << *violation;
}

/// Two ranks of a node, each of which combines a part: partial 0 has the contribution to the other
/// part, and takes the other rank's answer; slot 0 gets contributions, slot 1 + p answers of rank
/// p.
std::vector<Plan> answering_plans() {
  static constexpr Node node_of[] = {Node{0}, Node{0}};
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    plans.push_back(
        lanes_allreduce(Rank{rank}, {.rank_count = 2, .node_of = node_of, .lane_count = 2},
                        Order::commutative, [](Rank self, std::uint32_t nodes) {
                          return two_partial_allreduce(self, nodes, {}, Order::commutative);
                        }));
  return plans;
}

TEST(Verify, finds_an_answer_that_overwrites_what_is_still_needed) {
  EXPECT_EQ(first_violation(answering_plans(), Promise::each_once), std::nullopt);

  auto plans = answering_plans();
  insert(plans[0], find(plans[0], Action::await),
         {.action = Action::copy,
          .payloads = 1,
          .part = 1,
          .from = partial_register(0),
          .into = target_register});
  expect_violation(plans, "answers into partial 0 of rank 0, which uses it after it was sent");

  plans = answering_plans();
  Step again = step_of(plans[0], Action::combine);
  again.action = Action::copy;
  again.payloads = 1;
  again.into = target_register;
  again.round = plans[0].steps.back().round;
  plans[0].steps.push_back(again);
  expect_violation(plans, "answers into partial 0 of rank 1, which is read here later");

  plans = answering_plans();
  erase(plans[0], find(plans[0], Action::await));
  expect_violation(plans, "answers into partial 0 of rank 1, which was not awaited before");
}

TEST(Verify, finds_an_answer_on_which_two_ranks_do_not_agree) {
  auto plans = answering_plans();
  plans[1].answers.clear();
  expect_violation(plans, "by one rank's plan alone");

  plans = answering_plans();
  plans[1].answers[0].partial = 1;
  expect_violation(plans, "by one rank's plan alone");

  plans = answering_plans();
  for (Plan& plan : plans)
    for (Answer& answer : plan.answers) answer.partial = 7;
  expect_violation(plans, "answers into partial 7 of rank 1, which does not send it here");
}

}  // namespace
}  // namespace tutti::plan
