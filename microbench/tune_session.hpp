// One run of tutti-tune on one rank: from the exchange to the tuning file.
//
//   probes and fit          the parameters of the network, with their intervals
//   a race for each cell    of a few candidates, by turns; each finding goes to the journal
//   the file                replaced as a whole
//
// All ranks do the same in the same order.  What only rank 0 knows, its clock and its files, goes
// to the others through the exchange before anything depends on it.
#pragma once

#include "microbench/cases.hpp"
#include "microbench/tune_options.hpp"

namespace tutti::bench {

/// Tunes, or with --check compares, and prints on rank 0.  Collective.  Returns the exit status;
/// that of --check is status_changed or status_unknown on rank 0.  Throws Error, alike on all ranks
/// where the user's values are at fault, and RunFailed.
int run_tune_session(const TuneOptions& options, const Launch& launch);

/// Adds a finding in place of an older one about the same, unless this one is noisy and that one is
/// not.
void take_in(std::vector<tune::Finding>& findings, tune::Finding finding);

}  // namespace tutti::bench
