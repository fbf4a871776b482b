// What a run of tutti-tune says at its end, to people: what was found, where tuned differs from
// untuned and by how much, and where the file is.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "microbench/tune_options.hpp"
#include "tune/fit.hpp"
#include "tune/tuning.hpp"

namespace tutti::bench {

/// Borrowed.
struct TuneFindings {
  const TuneOptions& options;
  const tune::Tuning& tuning;                            // as it was written
  const std::vector<tune::Finding>& found;               // of this run
  const std::map<std::string, std::string>& untuned_of;  // the choice without a file, by title_of()
  const std::vector<std::string>& remarks;
  std::string device = {};
  std::uint32_t rank_count = 0;
  std::uint32_t node_count = 0;
  double seconds = 0;
};

/// "allreduce 64 B relaxed".
std::string title_of(const tune::Finding& finding);

/// The remarks of a fit, one line each.  What these ranks cannot measure shares one line, and so
/// does what there was no time for: `untried` has the probes that were not made.
std::vector<std::string> lines_of_fit(const std::vector<std::string>& remarks,
                                      const std::set<tune::Probe>& untried,
                                      const std::string& preset);

std::string tune_summary(const TuneFindings& findings);

}  // namespace tutti::bench
