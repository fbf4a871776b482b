// Gather and scatter of small blocks where ranks share nodes: those of a node go together.
//
// Idea.  One rank of each node, its head, is the only one that talks with the root: all blocks of
// its node are one message, side by side in its order.  The root is the head of its own node, the
// lowest rank that of any other.  So the root has N - 1 messages of the network instead of P - L,
// and as many connections; each block is copied once more at its head, which is why they have to be
// small.
//
//   gather, nodes {0 1} {2 3 4} {5}, root 1:   0 -> 1: 0     3 -> 2: 3, 4 -> 2: 4     2 -> 1: 234
//                                                                                     5 -> 1: 5
//
// One-way: whoever sends can be two calls ahead of whom it tells, so a rank that is no head four
// ahead of the root.
//
// Slots of a gather: of each member of a node (at its head), of each node (at the root), and two
// lines; of a scatter: one, and a line for each node and each member.  Each has room for all blocks
// of a node.
#pragma once

#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// `node_of`: of each rank; more than one node.  For is_block_exchange() of the ranks (blocks.hpp).
Plan node_gather(Rank self, std::span<const Node> node_of, Rank root);
Plan node_scatter(Rank self, std::span<const Node> node_of, Rank root);

}  // namespace tutti::plan
