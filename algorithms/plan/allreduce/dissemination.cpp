// See dissemination.hpp.  Partial t is W of round t: one each, because a partial that was put is
// not written again.  The last round goes into the target.  The source is read once, by the first
// step, so it may be the target as well.
#include "plan/allreduce/dissemination.hpp"

#include <cassert>
#include <vector>

#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

Plan empty_plan(Rank self, std::uint32_t rank_count, const std::vector<Round>& rounds) {
  assert(index_of(self) < rank_count);
  Plan plan{.self = self, .rank_count = rank_count, .algorithm = "dissemination"};
  for (const Round& round : rounds)
    plan.slot_count = static_cast<std::uint16_t>(plan.slot_count + round.messages);
  return plan;
}

/// Message i of a round travels i + 1 lengths.
std::uint64_t offset(const Round& round, std::uint32_t message) {
  return (message + std::uint64_t{1}) * round.length;
}

}  // namespace

Plan dissemination_barrier(Rank self, std::uint32_t rank_count, const PerRound& per_round) {
  assert(is_executable(rank_count, per_round));
  const std::vector<Round> rounds = two_partial_rounds(rank_count, per_round);
  Plan plan = empty_plan(self, rank_count, rounds);
  plan.payloads = 0;
  StepWriter steps{plan};
  std::uint16_t first_slot = 0;
  for (const Round& round : rounds) {
    steps.begin_round(round.messages);
    std::uint16_t slot = first_slot;
    for (std::uint32_t message = 0; message < round.messages; ++message)
      steps.put(rank_ahead(self, offset(round, message), rank_count), slot++, 0);
    for (std::uint32_t message = 0; message < round.messages; ++message)
      steps.await(rank_behind(self, offset(round, message), rank_count), first_slot++, 0);
  }
  return plan;
}

Plan dissemination_allreduce(Rank self, std::uint32_t rank_count, const PerRound& per_round) {
  assert(is_executable(rank_count, per_round));
  const std::vector<Round> rounds = two_partial_rounds(rank_count, per_round);
  Plan plan = empty_plan(self, rank_count, rounds);
  StepWriter steps{plan};
  if (rounds.empty()) steps.copy(source_register, target_register);
  std::uint16_t first_slot = 0;
  std::uint16_t w_index = 0;
  for (const Round& round : rounds) {
    steps.begin_round(round.messages);
    const Register w = partial_register(w_index++);
    const Register grown = w_index == rounds.size() ? target_register : partial_register(w_index);
    if (w.index == 0) steps.copy(source_register, w);
    std::uint16_t slot = first_slot;
    for (std::uint32_t message = 0; message < round.messages; ++message)
      steps.put(rank_ahead(self, offset(round, message), rank_count), slot++, 1, w);
    steps.copy(w, grown);
    for (std::uint32_t message = 0; message < round.messages; ++message, ++first_slot) {
      steps.await(rank_behind(self, offset(round, message), rank_count), first_slot, 1);
      steps.combine(slot_register(first_slot), grown);
    }
  }
  plan.partial_count = w_index;
  return plan;
}

}  // namespace tutti::plan
