// From samples and outcomes to the values of the report.
#pragma once

#include <optional>
#include <vector>

#include "microbench/cases.hpp"
#include "microbench/check.hpp"
#include "microbench/measure.hpp"
#include "microbench/report.hpp"

namespace tutti::bench {

inline constexpr std::size_t check_calls_default = 1000;

/// What one case has yielded; results are in the order of the cases.
struct Result {
  const Case* which = nullptr;
  Effort effort;
  Samples samples;
  std::optional<Samples> mpi = {};
  std::vector<double> overlaps = {};  // of each block, if asked for
  std::vector<double> busy = {};      // of each block, if asked for: 1 minus it bounds the overlap
  CheckOutcome outcome = {};
  double slowest_median_ns = 0;  // of all ranks
};

/// Everything a report is made of.
struct Findings {
  const Options& options;
  const Launch& launch;
  const Placement& placement;
  const Context& context;
  const Communicator& communicator;
  const Timer& timer;
  CommonEffort common_effort;
  std::vector<Result> results;
};

Report report_of(const Findings& findings);

}  // namespace tutti::bench
