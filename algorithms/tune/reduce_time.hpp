// Computes about how long a reduce of one chunk takes along a tree of nodes, whose ranks share a
// port, or of two chunks if there are several lanes.  It is the recurrence of events
// (plan/cost/makespan.hpp) without plans.  Subtrees of as many nodes take the same time, and all
// nodes do the same inside, so that few events are left: the time of thousands of ranks is computed
// in microseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/cost/network.hpp"
#include "plan/rooted/rooted_tree.hpp"

namespace tutti::tune {

struct ReduceShape {
  std::uint32_t node_count = 1;
  std::uint32_t ranks_per_node = 1;  // of the largest node
  std::uint32_t lane_count = 1;      // 1: a tree in each node
  plan::TreeFans fans = {};          // no chain
  std::uint64_t bytes = 0;           // of a message, which is a chunk of a lane
  std::uint32_t chunk_count = 1;     // or 2, if there are several lanes
  bool in_rank_order = false;        // inside nodes
  bool as_seen = false;              // messages of other nodes are combined as they come
};

/// Returns the time until the root has the result, and has sent its credits.
plan::Picoseconds reduce_time(const ReduceShape& shape, const plan::Network& network);

/// Returns the size of the subtree of each child of the root of `count` vertices, in the order of
/// their numbers.
std::vector<std::uint32_t> subtrees(std::uint32_t count, const plan::PerRound& fans,
                                    const plan::Branching& by);

}  // namespace tutti::tune
