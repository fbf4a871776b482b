// What the steps of one plan look like, for tests of properties that the verifier does not prove.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "plan/core/plan.hpp"

namespace tutti::plan::test {

inline std::uint32_t count_of(const Plan& plan, Action action) {
  return static_cast<std::uint32_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(),
                    [action](const Step& step) { return step.action == action; }));
}

/// Whether in every round puts come before awaits, and before everything else but the copy of the
/// source that begins a plan.
inline bool puts_come_first(const Plan& plan) {
  for (std::size_t i = 1; i < plan.steps.size(); ++i) {
    const Step& before = plan.steps[i - 1];
    if (plan.steps[i].action == Action::put && before.action != Action::put && i > 1 &&
        before.round == plan.steps[i].round)
      return false;
  }
  return true;
}

/// Whether arrivals are awaited in the order of their slots, and each is read once awaited, before
/// the next await: results are then the same in every run.
inline bool arrivals_are_in_slot_order(const Plan& plan) {
  std::uint32_t awaited = 0;
  for (const Step& step : plan.steps) {
    if (step.action == Action::await && step.slot != awaited++) return false;
    const bool reads_slot = step.action != Action::await && step.from.place == Place::slot;
    if (reads_slot && step.from.index + 1u != awaited) return false;
  }
  return awaited == plan.slot_count;
}

/// Whether every value that is written to a partial is read, so that no step is wasted.
inline bool nothing_is_wasted(const Plan& plan) {
  std::map<std::pair<std::uint16_t, std::uint16_t>, bool> unread;  // by partial and payload
  const auto key = [](const Register& where, std::uint16_t payload = 0) {
    return std::pair{where.index, static_cast<std::uint16_t>(where.payload + payload)};
  };
  for (const Step& step : plan.steps) {
    if (step.action == Action::await) continue;
    const std::uint16_t width =
        step.action == Action::put || step.action == Action::copy ? step.payloads : 1;
    if (step.from.place == Place::partial)
      for (std::uint16_t i = 0; i < width; ++i) unread[key(step.from, i)] = false;
    if (step.action == Action::put || step.into.place != Place::partial) continue;
    if (step.action == Action::copy && unread[key(step.into)]) return false;
    unread[key(step.into)] = true;
  }
  return std::none_of(unread.begin(), unread.end(), [](const auto& entry) { return entry.second; });
}

}  // namespace tutti::plan::test
