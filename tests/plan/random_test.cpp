// Promise: what the exhaustive tests prove for few ranks holds for many: random rank counts and
// random vectors, all ranks up to 2000, sampled ranks and their peers up to 20000 and beyond.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <vector>

#include "plan/allreduce/canonical_dissemination.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/verify.hpp"

namespace tutti::plan {
namespace {

/// A vector of entries 1 .. `largest` that covers, longer than needed now and then.
PerRound arbitrary_vector(std::uint32_t rank_count, std::uint32_t largest) {
  PerRound vector;
  while (!covers(rank_count, vector))
    vector.push_back(*rc::gen::inRange<std::uint32_t>(1, largest + 1));
  if (*rc::gen::inRange(0, 8) == 0) vector.push_back(1);
  return vector;
}

using Builder = Plan (*)(Rank, std::uint32_t, const PerRound&);

Plan commutative(Rank self, std::uint32_t rank_count, const PerRound& per_round) {
  return two_partial_allreduce(self, rank_count, per_round, Order::commutative);
}

Plan in_rank_order(Rank self, std::uint32_t rank_count, const PerRound& per_round) {
  return two_partial_allreduce(self, rank_count, per_round, Order::rank_order);
}

struct Schedule {
  const char* name;
  Builder build;
  Promise promise;
};

const std::vector<Schedule> schedules = {
    {"two-partial", commutative, Promise::each_once},
    {"two-partial in rank order", in_rank_order, Promise::rank_order},
    {"dissemination barrier", dissemination_barrier, Promise::barrier},
    {"dissemination allreduce", dissemination_allreduce, Promise::at_least_once},
    {"canonical dissemination", canonical_dissemination_allreduce, Promise::canonical_tree},
};

TEST(RandomPlans, keep_their_promise_on_all_ranks) {
  for (const Schedule& schedule : schedules) {
    EXPECT_TRUE(rc::check(schedule.name, [&] {
      const auto rank_count = *rc::gen::inRange<std::uint32_t>(1, 2001);
      const PerRound vector = arbitrary_vector(rank_count, 15);
      const auto violation = first_violation(
          rank_count, [&](Rank rank) { return schedule.build(rank, rank_count, vector); },
          schedule.promise);
      if (violation) RC_FAIL(*violation);
    }));
  }
}

const Step* find_step(const Plan& plan, Action action, Rank peer, std::uint16_t slot) {
  for (const Step& step : plan.steps)
    if (step.action == action && step.peer == peer && step.slot == slot) return &step;
  return nullptr;
}

TEST(RandomPlans, agree_with_those_of_their_peers) {
  for (const Schedule& schedule : schedules) {
    EXPECT_TRUE(rc::check(schedule.name, [&] {
      const auto rank_count = *rc::gen::inRange<std::uint32_t>(2, 20001);
      const PerRound vector = arbitrary_vector(rank_count, 15);
      const Rank self{*rc::gen::inRange<std::uint32_t>(0, rank_count)};
      const Plan plan = schedule.build(self, rank_count, vector);
      RC_ASSERT(plan.per_round.size() <= vector.size());
      for (const Step& step : plan.steps) {
        if (step.action != Action::put && step.action != Action::await) continue;
        const Plan other = schedule.build(step.peer, rank_count, vector);
        const Action answer = step.action == Action::put ? Action::await : Action::put;
        const Step* match = find_step(other, answer, self, step.slot);
        RC_ASSERT(match != nullptr);
        RC_ASSERT(match->payloads == step.payloads);
        RC_ASSERT(match->round == step.round);
      }
    }));
  }
}

/// Beyond what can be run symbolically at random: lengths still add up to exactly all ranks.
TEST(RandomRounds, grow_to_exactly_all_ranks) {
  EXPECT_TRUE(rc::check("lengths add up", [] {
    const auto rank_count = *rc::gen::inRange<std::uint32_t>(1, UINT32_MAX);
    const PerRound vector = arbitrary_vector(rank_count, 5000);
    std::uint64_t length = 1;
    for (const Round& round : two_partial_rounds(rank_count, vector)) {
      RC_ASSERT(round.length == length);
      RC_ASSERT(round.short_messages <= round.messages);
      length = (round.messages + std::uint64_t{1}) * length - round.short_messages;
    }
    RC_ASSERT(length == rank_count);
  }));
}

}  // namespace
}  // namespace tutti::plan
