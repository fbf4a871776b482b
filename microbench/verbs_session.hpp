// tutti-bench with cases of the verbs layer.
#pragma once

#include "microbench/cases.hpp"

namespace tutti::bench {

inline constexpr std::size_t verbs_samples_default = 30;

/// Measures all cases and prints the report.  Collective.  Returns the exit status.  Throws Error,
/// RunFailed.
int run_verbs_session(const Options& options, const Launch& launch);

}  // namespace tutti::bench
