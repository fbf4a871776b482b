// See scan.hpp.  What comes in round k has slot k; the credit for what was sent in it, the slot so
// many behind.
#include "plan/scan.hpp"

#include <bit>
#include <cassert>

#include "plan/steps.hpp"

namespace tutti::plan {

Plan doubling_scan(Rank self, std::uint32_t rank_count, Prefix prefix) {
  assert(index_of(self) < rank_count);
  const auto rounds = static_cast<std::uint16_t>(std::bit_width(rank_count - 1));
  Plan plan;
  plan.self = self;
  plan.rank_count = rank_count;
  plan.algorithm = "doubling";
  plan.per_round.assign(rounds, 1);
  StepWriter steps{plan};
  const bool inclusive = prefix == Prefix::inclusive;
  if (rank_count == 1) {
    if (inclusive) steps.copy(source_register, target_register);
    return plan;
  }
  plan.all_alike = false;
  plan.flow_control = FlowControl::one_way;
  plan.slot_count = static_cast<std::uint16_t>(2 * rounds);
  plan.line_slot_count = rounds;
  const auto credit_of = [&](std::uint16_t round) {
    return static_cast<std::uint16_t>(rounds + round);
  };
  const std::uint32_t rank = index_of(self);
  const auto tells = [&](std::uint16_t round) {
    return round < rounds && rank + (1u << round) < rank_count;
  };
  const auto hears = [&](std::uint16_t round) { return rank >= 1u << round; };
  for (std::uint16_t round = 0; tells(round); ++round)
    steps.await_credit(Rank{rank + (1u << round)}, credit_of(round));
  // What the 2^round ranks up to this one hold; a new partial whenever the last one was put.
  Register held = partial_register(plan.partial_count++);
  steps.copy(source_register, held);
  if (inclusive) steps.copy(source_register, target_register);
  for (std::uint16_t round = 0; round < rounds; ++round) {
    steps.set_round(round);
    if (tells(round)) steps.put(Rank{rank + (1u << round)}, round, 1, held);
    if (!hears(round)) continue;
    const Rank behind{rank - (1u << round)};
    steps.await(behind, round, 1);
    if (inclusive || round > 0)
      steps.combine(slot_register(round), target_register);
    else
      steps.copy(slot_register(round), target_register);
    if (tells(static_cast<std::uint16_t>(round + 1))) {
      const Register grown = partial_register(plan.partial_count++);
      steps.copy(held, grown);
      steps.combine(slot_register(round), grown);
      held = grown;
    }
    steps.put(behind, credit_of(round), 0);
  }
  return plan;
}

}  // namespace tutti::plan
