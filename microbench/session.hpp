// One run of tutti-bench on one rank: from the exchange to the report.
#pragma once

#include <string>
#include <tutti/exchange.hpp>

#include "microbench/mpi_side.hpp"
#include "microbench/options.hpp"
#include "microbench/probes.hpp"

namespace tutti::bench {

/// How this rank came to be.
struct Launch {
  const char* bootstrap = "";  // "local", "tcp" or "mpi"
  Exchange& exchange;
  MpiSide* mpi = nullptr;               // under MPI only
  ProbeMemory* probe_memory = nullptr;  // made before forking; else the ranks make it together
};

/// Collective.  Measures, checks, prints on rank 0.  Returns the exit status: 0, or 1 if a result
/// was wrong.  Throws Error, the same on all ranks as a rule, and RunFailed.
int run_session(const Options& options, const Launch& launch);

}  // namespace tutti::bench
