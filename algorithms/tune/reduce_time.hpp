// How long a reduce of one chunk, or in lanes of two, takes along a tree of nodes, whose ranks
// share a port: the recurrence of events (plan/cost/makespan.hpp) without plans.  Subtrees of as
// many nodes take alike, and all nodes are alike inside, so that few events are left: thousands of
// ranks take microseconds.
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
  std::uint32_t chunk_count = 1;     // 2 only in several lanes
  bool in_rank_order = false;        // inside nodes
  bool as_seen = false;              // messages are combined as they come
};

/// Until the root has the result, and has told its children.
plan::Picoseconds reduce_time(const ReduceShape& shape, const plan::Network& network);

/// The vertices below each child of the root of a tree of so many, in the order of their numbers.
std::vector<std::uint32_t> subtrees(std::uint32_t count, const plan::PerRound& fans,
                                    const plan::Branching& by);

}  // namespace tutti::tune
