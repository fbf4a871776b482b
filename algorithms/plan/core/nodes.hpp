// Which ranks share a node, as plans see it.  Nodes are numbered by their lowest rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tutti/types.hpp>
#include <vector>

namespace tutti::plan {

/// The ranks of each node, in rank order.  `node_of` holds the node of each rank; empty: each rank
/// is one of its own.
std::vector<std::vector<Rank>> members_of_nodes(std::uint32_t rank_count,
                                                std::span<const Node> node_of);

/// Number of nodes; `rank_count` counts only where `node_of` is empty.
std::uint32_t node_count_of(std::span<const Node> node_of, std::uint32_t rank_count);

/// Number of ranks of the largest node.
std::size_t largest_node_of(std::span<const Node> node_of);

/// Holds what one look at all ranks tells of the nodes.
struct NodeCounts {
  std::uint32_t nodes = 1;
  std::uint32_t smallest = 1, largest = 1;  // ranks of a node
  bool are_runs = true;                     // as nodes_are_runs()
};
NodeCounts counts_of_nodes(std::uint32_t rank_count, std::span<const Node> node_of);

/// Whether each node's ranks follow each other: then what is combined node after node is combined
/// in rank order.
bool nodes_are_runs(std::span<const Node> node_of);

/// The node of each domain, where domains are parts of nodes, numbered likewise.
std::vector<Node> nodes_of_domains(std::span<const Node> node_of, std::span<const Node> domain_of);

}  // namespace tutti::plan
