// The verifier's sentences about what is wrong with a plan, and their parts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "plan/core/plan.hpp"

namespace tutti::plan {

using Violation = std::optional<std::string>;

inline std::string name_of(Rank rank) {
  return "rank " + std::to_string(index_of(rank));
}

inline std::string name_of(const Register& where) {
  switch (where.place) {
    case Place::source:
      return "source";
    case Place::target:
      return "target";
    case Place::partial:
      return "partial " + std::to_string(where.index) + "." + std::to_string(where.payload);
    case Place::slot:
      return "slot " + std::to_string(where.index) + "." + std::to_string(where.payload);
  }
  return "?";
}

/// The sentence that names rank, step and round, then says what is wrong.
inline std::string at(const Plan& plan, std::size_t step, const std::string& what) {
  return name_of(plan.self) + ", step " + std::to_string(step) + " (round " +
         std::to_string(plan.steps[step].round) + "): " + what;
}

/// Whether a put or an await is about a rank's entry, to which a shared target belongs.
inline bool is_entry(const Step& step) {
  return step.into_target && step.payloads == 0;
}

/// Whether a put says that a message was read, instead of being one.
inline bool is_credit(const Plan& plan, const Step& step) {
  return plan.flow_control == FlowControl::one_way && step.action == Action::put &&
         step.payloads == 0 && !step.into_target;
}

}  // namespace tutti::plan
