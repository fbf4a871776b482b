// One run of tutti-bench on one rank: from the exchange to the report.
#pragma once

#include <cstdio>
#include <string>

#include "microbench/cases.hpp"
#include "microbench/options.hpp"

namespace tutti::bench {

/// Measures, checks, and prints on rank 0.  Collective.  Returns the exit status: 0; 1 if a result
/// was wrong; 3 on rank 0 if a bound of --expect is not met.  Throws Error, alike on all ranks
/// where the user's values are at fault, and RunFailed.
int run_session(const Options& options, const Launch& launch);

/// The text of a report.  Throws RunFailed if it cannot be written as a whole.
void write(const std::string& text, std::FILE* file);

}  // namespace tutti::bench
