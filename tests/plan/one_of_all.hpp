// Makespans from the plan of one rank, for schedules in which all ranks do the same.
#pragma once

#include "plan/cost/makespan.hpp"

namespace tutti::plan::test {

/// makespan() of a circulant schedule, whose ranks do the same things at the same time if they
/// start together: a rank's messages arrive when those of its peers do, as if it had sent them to
/// itself.
inline Picoseconds circulant_makespan(Plan plan, const LogGP& network, const Call& call) {
  plan.self = Rank{0};
  for (Step& step : plan.steps)
    if (step.peer != no_rank) step.peer = Rank{0};
  return makespan({&plan, 1}, network, call);
}

}  // namespace tutti::plan::test
