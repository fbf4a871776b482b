// Whether a network is still what a tuning file says of it.
#pragma once

#include <string>

#include "tune/machine.hpp"

namespace tutti::bench {

struct NetworkCheck {
  bool has_changed = false;
  std::string text = {};  // a line for each figure, and the verdict
};

/// Compares the three figures that say most about a network: those between nodes, or those inside a
/// node where nothing else was measured.  A figure has changed if it differs by more than a fifth,
/// and its interval does not meet that of the file.  Pure.
NetworkCheck check_network(const tune::Machine& file, const tune::Machine& now);

}  // namespace tutti::bench
