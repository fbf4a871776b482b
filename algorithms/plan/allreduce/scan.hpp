// Scan and exscan by recursive doubling (W. D. Hillis, G. L. Steele Jr., Data Parallel Algorithms,
// CACM 29(12), 1986): in round k every rank sends the sum of the 2^k ranks up to itself, in rank
// order, to the rank 2^k ahead.
//
// Where ranks share nodes, doubling goes inside each node first, then over the last ranks of the
// nodes, which have the sums of their nodes; then each of these sends its node the sum of the nodes
// before it.  So one rank of a node uses the network.
//
//   nodes {0 1} {2 3} {4 5}, messages and the ranks whose sum they bring:
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
/// calls ahead of the rank that it sends to.
Plan doubling_scan(Rank self, std::uint32_t rank_count, Prefix prefix);

/// For N nodes of up to L ranks: ceil(log2 L) + ceil(log2 N) rounds of at most one message, and for
/// several nodes one in which the last rank of a node sends to the others.  Needs
/// nodes_are_runs(node_of).  The association of operands depends on the nodes.  One-way as
/// doubling_scan().
Plan node_scan(Rank self, std::span<const Node> node_of, Prefix prefix);

}  // namespace tutti::plan
