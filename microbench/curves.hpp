// Latency over the number of ranks, by the model of a network: what tutti chooses, beside the
// schedules of the literature.  The axes of V. End et al. (INFOCOMP 2015, V).
//
// "tutti" is what the library chooses for this network.  "n = 1" to "n = 7" are n-way dissemination
// with n in all rounds, where P can be adapted to it.  In "recursive doubling", ranks beyond a
// power of two are folded into neighbours.  "reduce + broadcast" go along binomial trees, one after
// the other.  "ring" is that of allreduces.
//
// Each rank is a node of its own.  Times are those of plan/cost/makespan.hpp, which are those of
// virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "plan/cost/loggp.hpp"

namespace tutti::bench {

struct CurvePoint {
  std::string collective;
  std::uint64_t bytes = 0;
  std::string curve;
  std::uint32_t ranks = 0;
  plan::Picoseconds time = 0;
};

/// Calls `take` with the points of all curves for 2 to `ranks_most` ranks.  `fabric` is a preset.
void curves(const std::string& fabric, std::uint32_t ranks_most,
            const std::function<void(const CurvePoint&)>& take);

/// `tutti-bench curves`; `arguments` begins with "curves".  Returns what to print.
std::string run_curves(std::span<const char* const> arguments);

}  // namespace tutti::bench
