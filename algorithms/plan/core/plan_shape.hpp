// The part of the verifier that looks at each plan alone: its steps must be in the order of their
// rounds, name registers, parts and peers that exist, send to no peer twice in a round, and be as
// many as the plan says.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// The first violation that can be seen without running the plans.
std::optional<std::string> shape_violation(std::span<const Plan> plans);

}  // namespace tutti::plan
