#include "plan/core/copies.hpp"

#include <algorithm>
#include <cassert>

#include "plan/core/per_round.hpp"

namespace tutti::plan {
namespace {

void move(Register& where, std::uint32_t copy, const Plan& plan) {
  const std::uint32_t each = where.place == Place::partial ? plan.partial_count
                             : where.place == Place::slot  ? plan.slot_count
                                                           : std::uint32_t{0};
  where.index = static_cast<std::uint16_t>(where.index + copy * each);
}

}  // namespace

bool has_room_for_copies(const Plan& plan, std::uint32_t count) noexcept {
  constexpr std::uint64_t partials_max = UINT16_MAX;
  return count <= slots_max && std::uint64_t{plan.slot_count} * count <= slots_max &&
         std::uint64_t{plan.partial_count} * count <= partials_max;
}

Plan in_copies(const Plan& plan, std::uint32_t count) {
  assert(has_room_for_copies(plan, count));
  assert(plan.line_slot_count + plan.short_slot_count == 0);
  Plan copies = plan;
  copies.steps.clear();
  copies.slot_count = static_cast<std::uint16_t>(plan.slot_count * count);
  copies.partial_count = static_cast<std::uint16_t>(plan.partial_count * count);
  for (std::uint32_t copy = 0; copy < count; ++copy)
    for (Step step : plan.steps) {
      step.slot = static_cast<std::uint16_t>(step.slot + copy * plan.slot_count);
      move(step.from, copy, plan);
      move(step.into, copy, plan);
      copies.steps.push_back(step);
    }
  return copies;
}

Plan in_sub_blocks(const Plan& plan, std::uint32_t count) {
  assert(count > 0 && plan.payloads == 1 && !plan.swaps_blocks && plan.answers.empty());
  assert(plan.parts * count <= UINT16_MAX);
  const Plan copies = in_copies(plan, count);
  Plan cut = copies;
  cut.parts = static_cast<std::uint16_t>(plan.parts * count);
  cut.incoming_max *= count;
  for (std::uint32_t& messages : cut.per_round) messages *= count;
  cut.steps.clear();
  // Steps are in the order of rounds, but for a few that come late.
  const std::size_t length = plan.steps.size();
  std::uint32_t round = 0;
  for (std::size_t begin = 0, end = 0; begin < length; begin = end) {
    round = std::max(round, plan.steps[begin].round);
    while (end < length && plan.steps[end].round <= round) ++end;
    for (std::uint32_t copy = 0; copy < count; ++copy)
      for (std::size_t at = begin; at < end; ++at) {
        Step step = copies.steps[copy * length + at];
        step.part = static_cast<std::uint16_t>(step.part * count + copy);
        cut.steps.push_back(step);
      }
  }
  return cut;
}

}  // namespace tutti::plan
