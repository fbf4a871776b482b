// Prefix reduction by doubling distances (W. D. Hillis, G. L. Steele Jr., Data Parallel Algorithms,
// CACM 29(12), 1986): in round k every rank tells the one 2^k ahead of it what the 2^k ranks up to
// itself hold together, in rank order.
//
// Where ranks share nodes: doubling inside each node, then over the last ranks of the nodes, which
// know what their nodes hold, and then each of these tells its node what the nodes before it hold.
// So one rank of a node uses the network.
//
//   nodes {0 1} {2 3} {4 5}, what is told:
//
//   in the nodes         0 -> 1: 0          2 -> 3: 2            4 -> 5: 4
//   over the last ranks           1 -> 3: 01         3 -> 5: 23           1 -> 5: 01
//   in the nodes                            3 -> 2: 01           5 -> 4: 0123
#pragma once

#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

enum class Prefix : std::uint8_t {
  inclusive,  // the target of rank p = 0 o ... o p
  exclusive,  // the target of rank p = 0 o ... o p-1; that of rank 0 stays as it is
};

/// For any number of ranks, ceil(log2 P) rounds of at most one message.  One-way: a rank can be two
/// calls ahead of whom it tells.
Plan doubling_scan(Rank self, std::uint32_t rank_count, Prefix prefix);

/// For nodes_are_runs(node_of), of each rank: ceil(log2 L) + ceil(log2 N) rounds of at most one
/// message, and one in which the last rank of a node tells the others, for nodes of up to L ranks.
/// How operands are associated depends on the nodes.  One-way, as the other.
Plan node_scan(Rank self, std::span<const Node> node_of, Prefix prefix);

}  // namespace tutti::plan
