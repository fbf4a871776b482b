// What tutti finds on this machine, gathered before it is printed.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tutti::bench {

struct InfoSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> lines;  // label, text
};

/// Devices and ports, the choice, limits, nodes, processors, settings.  Throws Error where a
/// TUTTI_* variable is wrong or nothing can be chosen.
std::vector<InfoSection> gather_info();

}  // namespace tutti::bench
