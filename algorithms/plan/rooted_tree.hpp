// Binomial trees over all ranks from any root, one within another where ranks share nodes: the
// nodes form a binomial tree whose vertices are one rank each (its representative: the root, or the
// lowest rank of the node), and below each representative the ranks of its node form another.  A
// message crosses between two nodes once, and the height is ceil(log2 nodes) + ceil(log2 ranks of
// the largest node): that of one tree over all ranks where both are powers of two.
//
//   P = 7, root 2, nodes {0 1} {2 3 4} {5 6}        2 --- 5 --- 6
//   (nodes in the order {2 3 4} {5 6} {0 1})        |\.
//                                                   | `-- 0 --- 1
//                                                   |\.
//                                                   | `-- 4
//                                                   `---- 3
//
// With flat nodes, a representative tells all ranks of its node itself:
//
//   the same, flat                                  2 --- 5 --- 6
//                                                   |\.
//                                                   | `-- 0 --- 1
//                                                   |`- 3
//                                                   `-- 4
//
// Vertex v of a tree of n, counted from its root, has the children v + 2^k, for all k below the
// lowest bit of v (the root: all k), as far as they are below n; child v + 2^k stands for the
// vertices up to v + 2^(k+1).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tutti/types.hpp>
#include <vector>

namespace tutti::plan {

struct TreeEdge {
  Rank peer = no_rank;
  std::uint16_t level = 0;  // alike at both ends, and another one for each child of a parent
  std::uint16_t round = 0;  // from the leaves on: the level, but flat nodes take one round
};

/// Where a rank stands.
struct TreePlace {
  std::optional<TreeEdge> parent = {};  // none: the root
  std::vector<TreeEdge> children = {};  // by level: those of the own node first
  std::uint16_t level_count = 0;        // of the whole tree
  std::uint16_t round_count = 0;
};

/// Of trees inside nodes.
enum class InNode : std::uint8_t { binomial, flat };

/// `node_of` holds the node of each rank; empty: each rank is one of its own.
TreePlace binomial_tree(Rank self, Rank root, std::uint32_t rank_count,
                        std::span<const Node> node_of, InNode in_node = InNode::binomial);

}  // namespace tutti::plan
