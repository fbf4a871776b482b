// Two-level gather, scatter and allgather of small blocks where ranks share nodes: the blocks of a
// node go together.
//
// Idea.  One rank of each node, its head (core/node_shares.hpp), is the only one that talks with
// the root: all blocks of its node are one message, side by side in the order of its ranks.  So the
// root has N - 1 messages of the network instead of P - L, and as many connections; each block is
// copied once more at its head, which is why blocks have to be small.
//
//   gather, nodes {0 1} {2 3 4} {5}, root 1:   0 -> 1: 0     3 -> 2: 3, 4 -> 2: 4     2 -> 1: 234
//                                                                                     5 -> 1: 5
//
// In an allgather, every head sends the blocks of its node to all other heads, and then all blocks
// to the ranks of its node, in one message each.  So a node has N - 1 messages of the network
// instead of L (N - 1), and a rank that is no head has no partner on another node.
//
//   allgather, the same nodes:   1 -> 0: 1     3 -> 2: 3, 4 -> 2: 4
//                                0 -> 2, 5: 01     2 -> 0, 5: 234     5 -> 0, 2: 5
//                                0 -> 1: 012345    2 -> 3, 4: 012345
//
// The flow of a gather and a scatter is one-way: a sender can be two calls ahead of its receiver,
// so a rank that is no head can be four calls ahead of the root.
//
// Slots of a gather: one for each member of a node (at its head), one for each node (at the root),
// and two lines.  Slots of a scatter: one, and a line for each node and each member.  Each slot has
// room for all blocks of a node.  Slots of an allgather: one for each member of a node and for each
// node, and one for what comes from the head, each with room for all blocks.
#pragma once

#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// `node_of`: of each rank; more than one node.  For is_block_exchange() of the ranks (blocks.hpp).
Plan node_gather(Rank self, std::span<const Node> node_of, Rank root);
Plan node_scatter(Rank self, std::span<const Node> node_of, Rank root);

/// Blocks are of one length.
Plan leader_allgather(Rank self, std::span<const Node> node_of);

}  // namespace tutti::plan
