// Two-level gather and scatter of small blocks where ranks share nodes: the blocks of a node go
// together.
//
// Idea.  One rank of each node, its head (core/node_shares.hpp), is the only one that talks with
// the root: all blocks of its node are one message, side by side in the order of its ranks.  So the
// root has N - 1 messages of the network instead of P - L, and as many connections; each block is
// copied once more at its head, which is why blocks have to be small.
//
//   gather, nodes {0 1} {2 3 4} {5}, root 1:   0 -> 1: 0     3 -> 2: 3, 4 -> 2: 4     2 -> 1: 234
//                                                                                     5 -> 1: 5
//
// The flow is one-way: a sender can be two calls ahead of its receiver, so a rank that is no head
// can be four calls ahead of the root.
//
// Slots of a gather: one for each member of a node (at its head), one for each node (at the root),
// and two lines.  Slots of a scatter: one, and a line for each node and each member.  Each slot has
// room for all blocks of a node.
#pragma once

#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// `node_of`: of each rank; more than one node.  For is_block_exchange() of the ranks (blocks.hpp).
Plan node_gather(Rank self, std::span<const Node> node_of, Rank root);
Plan node_scatter(Rank self, std::span<const Node> node_of, Rank root);

}  // namespace tutti::plan
