// Whether a builder emits nothing that is not needed.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "plan/core/verify.hpp"

namespace tutti::plan::test {

/// Without any one of their steps, the plans of all ranks break the promise.
inline void expect_every_step_needed(std::vector<Plan> plans, Promise promise) {
  for (Plan& plan : plans) {
    const Plan right = plan;
    for (std::size_t step = 0; step < right.steps.size(); ++step) {
      plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(step));
      EXPECT_TRUE(first_violation(plans, promise))
          << "P = " << plans.size() << ", rank " << index_of(plan.self) << ", step " << step;
      plan = right;
    }
  }
}

}  // namespace tutti::plan::test
