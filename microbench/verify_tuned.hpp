// What a tuning file would say that tutti-tune had written on a machine which exists as numbers:
// what each candidate takes is the recurrence of its events, with noise (noisy_times.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "microbench/verify_choices.hpp"
#include "tune/knowledge.hpp"
#include "tune/tuning.hpp"

namespace tutti::bench {

/// What a program knows that has no tuning file, whatever the network is.
tune::Knowledge without_file();

/// Races the candidates of a cell, which are those by `known` and the choice without a file, on the
/// machine that is `truth`; up to so often as tutti-tune does if the race is noisy.
tune::Finding found_for(const ChoiceCell& cell, const tune::Knowledge& known,
                        const plan::Network& truth, std::uint64_t seed);

/// Cells that tutti-tune would race by default, if it ran on 2, 4, 8, 16, ... nodes: the nearest
/// above and below a cell, along bytes and nodes, of all agreements.  None has the bytes or the
/// nodes of the cell, and none more than `ranks_max` ranks.
std::vector<ChoiceCell> tuned_nearby(const ChoiceCell& cell, std::uint32_t ranks_max);

/// What a program knows that has a file with the finding of this cell's race.
tune::Knowledge after_race(const ChoiceCell& cell, const tune::Machine& known,
                           const plan::Network& truth, std::uint64_t seed);

/// Simulated tuning files, one for each preset, collective and number of ranks per node.  The
/// machine parameters in a file are off by `percent_off`; which of them are too high and which too
/// low differs from file to file.  The race of a cell is run when its finding is first needed, and
/// its finding is kept, so that cells with common neighbours share it.  Findings depend on the
/// options alone, not on the order of calls.  Thread-safe; if two threads need the same finding at
/// once, both may run its race, with the same result.
class TunedFiles {
 public:
  explicit TunedFiles(const VerifyOptions& options)
      : percent_off_(options.percent_off), seed_(options.seed), ranks_max_(options.ranks_max) {}

  /// Returns what a program knows that has loaded the file of this cell's preset, collective and
  /// number of ranks per node, if that holds the findings of tuned_nearby(cell) and no others.
  tune::Knowledge nearby(const ChoiceCell& cell);

 private:
  tune::Finding finding_of(const ChoiceCell& cell, const tune::Knowledge& model,
                           const plan::Network& truth, std::uint64_t seed);

  const std::uint32_t percent_off_;
  const std::uint64_t seed_;
  const std::uint32_t ranks_max_;
  std::mutex mutex_;
  std::map<std::string, tune::Finding> findings_;  // by ChoiceCell::text()
};

}  // namespace tutti::bench
