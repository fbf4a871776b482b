// Prices an allgather whose blocks go from node to node one by one, and then to the other ranks of
// each node.  It follows the events of one node (plan/cost/makespan.hpp) without plans of all its
// ranks: all nodes do the same, and the ranks of a node differ only in who is first at their port.
#pragma once

#include <cstdint>

#include "plan/core/per_round.hpp"
#include "plan/cost/network.hpp"

namespace tutti::tune {

struct BlocksShape {
  std::uint32_t node_count = 1;
  std::uint32_t ranks_per_node = 1;
  std::uint64_t bytes = 0;  // of a block
};

/// Whether the events are few enough to be followed for a price.
bool has_blocks_time(const BlocksShape& shape);

/// The time until the last rank has all blocks.  The vector has to cover the nodes.
plan::Picoseconds blocks_time(const BlocksShape& shape, const plan::PerRound& per_round,
                              const plan::Network& network);

}  // namespace tutti::tune
