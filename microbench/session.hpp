// One run of tutti-bench on one rank: from the exchange to the report.
#pragma once

#include "microbench/cases.hpp"
#include "microbench/options.hpp"

namespace tutti::bench {

/// Collective.  Measures, checks, prints on rank 0.  Returns the exit status: 0, 1 if a result was
/// wrong, or on rank 0 3 if a bound of --expect is not met.  Throws Error, the same on all ranks
/// where the user's values are at fault, and RunFailed.
int run_session(const Options& options, const Launch& launch);

}  // namespace tutti::bench
