// How long an allgather takes whose blocks are passed on between nodes one by one, and given to the
// ranks of each node: the recurrence of events (plan/cost/makespan.hpp) of one node, without plans
// of its ranks.  All nodes do alike, and the ranks of a node differ only in who is first at their
// port.
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

/// Until the last rank has all blocks.  Needs a vector that covers the nodes.
plan::Picoseconds blocks_time(const BlocksShape& shape, const plan::PerRound& per_round,
                              const plan::Network& network);

}  // namespace tutti::tune
