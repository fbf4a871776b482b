// Topologies of equal nodes, and quotients of times, as several tests of prices take them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "plan/cost/makespan.hpp"
#include "tune/topology.hpp"

namespace tutti::tune {

inline Topology nodes_of(std::uint32_t node_count, std::uint32_t ranks_per_node) {
  Topology topology{.rank_count = node_count * ranks_per_node};
  for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
    topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

/// How times compare with those of the recurrence of events.
struct Quotients {
  double least = 1, largest = 1;
  std::size_t count = 0, equal = 0;

  void add(plan::Picoseconds time, plan::Picoseconds truth) {
    const double quotient = static_cast<double>(time) / static_cast<double>(truth);
    least = std::min(least, quotient);
    largest = std::max(largest, quotient);
    ++count;
    equal += time == truth ? 1 : 0;
  }
  void print(const char* what) const {
    std::printf("%s: %zu, of which %zu are equal, %.3f to %.3f of the recurrence\n", what, count,
                equal, least, largest);
  }
};

}  // namespace tutti::tune
