// How the ranks of tutti-bench and tutti-tune are started: forked, by tcp, or by MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tutti/communicator.hpp>
#include <vector>

#include "microbench/cases.hpp"
#include "microbench/options.hpp"

namespace tutti::bench {

/// Runs `run` on every rank, and returns this process's exit status.  A rank that throws, or is
/// ended by a signal, ends with `failure`, unless the user's values are at fault.
int run_ranks(const char* program, const RankOptions& options, int failure,
              const std::function<int(const Launch&)>& run);

}  // namespace tutti::bench
