// Prices of broadcasts and reduces on several nodes of several ranks.  A message goes from the root
// to the last rank, or in a reduce the other way: along the tree or chain of the nodes, then inside
// a node.  The price of n messages is the time of the first one, and n - 1 times what the busiest
// port or rank takes for one.  Among up to 1024 ranks, on nodes of equally many, the time of the
// first message of a reduce along a tree, or in lanes of the first two, is that of its events
// (reduce_time.hpp).
#pragma once

#include "tune/registry.hpp"

namespace tutti::tune {

/// A tree over the nodes or a chain of them (Variant::fans), and in each node a Fibonacci tree, or
/// lanes where there are several.  `plan` is that of any rank.
plan::Picoseconds rooted_cost_on_nodes(const Query& query, const Variant& variant,
                                       const plan::Plan& plan);

/// Whether such prices are close enough to tell similar trees from each other: where all nodes
/// have equally many ranks.  Among thousands of ranks it would take too long.
bool has_close_prices(const Topology& topology);

/// Messages that a rank sends or combines inside a node while one is on its way, or one more or one
/// less if a Fibonacci tree over the largest node is then faster.
std::uint32_t latency_in_node(const Query& query);
/// The latency of the fastest Fibonacci tree among the ranks of the largest node.
std::uint32_t best_latency_in_node(const Query& query);

}  // namespace tutti::tune
