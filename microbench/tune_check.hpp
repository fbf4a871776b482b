// Whether a network is still what a tuning file says of it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tune/fit.hpp"
#include "tune/machine.hpp"

namespace tutti::bench {

/// Exit statuses of --check, besides 0 and that of bad input, 2.
inline constexpr int status_changed = 1;
inline constexpr int status_unknown = 3;  // it failed, or nothing could be compared

/// The probes that the figures which are compared are fitted from.
std::vector<tune::Probe> probes_to_check(bool is_one_node);

struct NetworkCheck {
  bool has_changed = false;
  std::size_t compared = 0;  // figures
  std::string text = {};     // a line for each figure, and the verdict
};

/// Compares the three figures that say most about a network: those between nodes, or those inside a
/// node where nothing else was measured.  A figure has changed if it differs by more than a fifth,
/// and its interval does not meet that of the file.  It counts as unchanged only if both intervals
/// are so narrow that a figure of half or twice the size would show.  Pure.
NetworkCheck check_network(const tune::Machine& file, const tune::Machine& now);

}  // namespace tutti::bench
