// Two-level alltoall of small blocks of one length where ranks share nodes: all blocks from one
// node to another are one message.
//
// Idea.  For each two nodes, one rank of each, a porter, talks with the other (it carries,
// core/node_shares.hpp).  Each member of a node gives each porter its blocks for the nodes that
// this porter carries to, side by side, and behind them the block for the porter itself.  A porter
// puts the blocks of all members together for each of its nodes, and deals out what it gets for
// them. So a node of L ranks has N - 1 messages of the network instead of L (P - L), shared out
// over its ranks.  Each block is copied twice more, which is why blocks have to be small.
//
//   nodes {0 1} {2 3} {4}, block qp from rank q for rank p
//   round 0   0 -> 1: 04 01      1 -> 0: 12 13 10     2 -> 3: 20 21 23     3 -> 2: 34 32
//   round 1   0 -> 3: 02 03 12 13     3 -> 0: 20 21 30 31     1 -> 4: 04 14    4 -> 1: 40 41  ...
//   round 2   0 -> 1: 21 31      1 -> 0: 40      3 -> 2: 02 12      2 -> 3: 43
//
// Synchronising, because each rank completes with a block of every rank.
//
// Slots: L - 1 for what the other members give, one for each node that a rank carries to, and L - 1
// for what the other porters deal out.
//
// Literature: one message between two nodes as in A. Jackson, S. Booth, "Planned AlltoAllv: A
// Cluster Approach", HPCx TR0409, 2004.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether slots and payloads suffice; false for a single node.
bool is_node_alltoall(std::span<const Node> node_of);

/// Payloads in the slots of each rank; its partials have no more.
std::uint64_t node_alltoall_payloads(std::span<const Node> node_of);

/// `node_of` holds the node of each rank.  All blocks have one length.
Plan node_alltoall(Rank self, std::span<const Node> node_of);

}  // namespace tutti::plan
