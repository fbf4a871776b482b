// Plans of long calls, as the cost of a call in chunks needs them (plan/cost/makespan.hpp).
#pragma once

#include <cassert>
#include <cstdint>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// The plan of a call whose payload goes in `count` chunks, as the engine runs it: one copy of the
/// plan after the other, and a credit of two chunks before is one of this call.  It is no plan to
/// be run.
inline Plan in_chunks(const Plan& plan, std::uint32_t count) {
  assert(std::uint64_t{plan.slot_count} * count <= UINT16_MAX);
  assert(std::uint64_t{plan.parts} * count <= UINT16_MAX);
  Plan call = plan;
  call.steps.clear();
  call.parts = static_cast<std::uint16_t>(plan.parts * count);
  call.slot_count = static_cast<std::uint16_t>(plan.slot_count * count);
  call.short_slot_count = 0;  // lines are not modelled in several chunks
  for (std::uint32_t chunk = 0; chunk < count; ++chunk)
    for (Step step : plan.steps) {
      const bool is_of_this_call = step.action == Action::await_credit && chunk >= 2;
      if (is_of_this_call) step.action = Action::await;
      step.slot = static_cast<std::uint16_t>(step.slot + (is_of_this_call ? chunk - 2 : chunk) *
                                                             plan.slot_count);
      step.part = static_cast<std::uint16_t>(step.part + chunk * plan.parts);
      call.steps.push_back(step);
    }
  return call;
}

}  // namespace tutti::plan
