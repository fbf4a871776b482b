// Which of a few candidates is the fastest, from as few measurements as decide it.
//
// Candidates run in blocks, each block all that are left in an order shuffled by the seed, with a
// control probe.  A sample is the mean of a batch, of the slowest rank.  Candidates are compared by
// the ratios within blocks (Wilcoxon's signed-rank test, with Holm's correction for several
// comparisons).  One that is slower with 99 % confidence drops out.  Within 2 % of the best, the
// first of the list is kept, which is the choice without a race.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "plan/cost/loggp.hpp"

namespace tutti::tune {

struct RaceLimits {
  std::uint32_t blocks_min = 6;
  std::uint32_t blocks_max = 40;
  std::uint64_t seed = 1;
};

struct RaceResult {
  std::uint32_t winner = 0;                  // index of the candidate
  std::vector<plan::Picoseconds> times = {};  // of each, the median of its blocks
  std::uint32_t blocks = 0;                  // that were run
  std::uint32_t samples = 0;                 // in all
  bool is_noisy = false;  // the control moved as much as the candidates differ
};

/// `sample(candidate)` is what one batch takes; `control()` that of a probe which does not change.
/// `may_go_on()`: whether there is time for another block.  Needs at least one candidate.
RaceResult race(std::uint32_t candidate_count,
                const std::function<plan::Picoseconds(std::uint32_t)>& sample,
                const std::function<plan::Picoseconds()>& control,
                const std::function<bool()>& may_go_on, const RaceLimits& limits);

}  // namespace tutti::tune
