// What a run of tutti-tune says at its end, to people: what was found, where tuned differs from
// untuned and by how much, and where the file is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "microbench/tune_options.hpp"
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

std::string tune_summary(const TuneFindings& findings);

}  // namespace tutti::bench
