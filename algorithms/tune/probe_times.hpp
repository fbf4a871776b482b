// What the probes of the network took, beside what the machine that was fitted to them predicts.
// By this a file says how well the model holds for single messages.
#pragma once

#include <cstdint>
#include <vector>

#include "tune/fit.hpp"

namespace tutti::tune {

struct ProbeTime {
  Probe probe = Probe::one_way;
  std::uint64_t bytes = 0;  // of a message
  std::uint32_t messages = 1;
  std::uint32_t ranks = 1;         // as in Sample: those that send at once
  plan::Picoseconds measured = 0;  // the least of all repetitions
  plan::Picoseconds predicted = 0;
  friend bool operator==(const ProbeTime&, const ProbeTime&) = default;
};

/// Bounds of what a file may have; a few dozen probes are usual.
inline constexpr std::size_t probe_times_max = 1024;
inline constexpr std::uint64_t probe_bytes_max = std::uint64_t{4} << 30;
inline constexpr std::uint32_t probe_messages_max = 65536;

/// Returns one time for each probe with its bytes, messages and ranks, in the order of the samples:
/// the least one.  `residuals` are those of fit(); samples that it leaves out are left out.  Pure.
std::vector<ProbeTime> probe_times_of(const std::vector<Sample>& samples,
                                      const std::vector<plan::Picoseconds>& residuals);

}  // namespace tutti::tune
