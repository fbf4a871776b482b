// The part of the verifier that looks at each plan alone: that its steps are in the order of their
// rounds, name registers, parts and peers that there are, tell nobody twice, and are as many as the
// plan says.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// As first_violation(), of what can be seen without running the plans.
std::optional<std::string> shape_violation(std::span<const Plan> plans);

}  // namespace tutti::plan
