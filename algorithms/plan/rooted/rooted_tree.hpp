// Trees over all ranks from any root, one within another where ranks share nodes: the nodes form a
// tree whose vertices are one rank each (its representative: the root, or the lowest rank of the
// node), and below each representative the ranks of its node form another.  A message crosses
// between two nodes once.
//
// Idea.  In a k-nomial tree every rank that has the payload sends it to n others in each round, so
// that after rounds of n_1 .. n_k messages (n_1 + 1) ... (n_k + 1) ranks have it.  With ones that
// is the binomial tree; with one round of n - 1, the root is the parent of all.
//
//   P = 7, root 2, nodes {0 1} {2 3 4} {5 6}        2 --- 5 --- 6
//   (nodes in the order {2 3 4} {5 6} {0 1})        |\.
//   ones everywhere                                 | `-- 0 --- 1
//                                                   |\.
//                                                   | `-- 4
//                                                   `---- 3
//
// Vertices are counted from the root.  From the leaves on, level i has a stride s_i = (f_0 + 1) ...
// (f_(i-1) + 1), for f_j children of level j; vertex v is child d of level i of another one where i
// is its lowest digit that is not 0 in these strides, and d that digit.  It stands for the vertices
// up to v + s_i, and has children of all lower levels.
//
// Either of the nested trees may be one of divided_tree.hpp instead.
//
// Literature: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19 (1), 2005, 4 (binomial); k-nomial trees are the same with another
// base.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tutti/types.hpp>
#include <vector>

#include "plan/core/per_round.hpp"
#include "plan/rooted/divided_tree.hpp"

namespace tutti::plan {

/// Children by level, from the leaves on; ones where the given numbers do not cover the ranks of
/// the largest node, or the nodes.  A tree that branches by another rule does not use them.
struct TreeFans {
  PerRound in_node = {};
  PerRound across = {};
  Branching in_node_by = {};
  Branching across_by = {};
  bool is_chain = false;  // nodes are a chain: each has the next one as its only child
};

struct TreeEdge {
  Rank peer = no_rank;
  std::uint16_t number = 0;  // alike at both ends, and another one for each child of a parent
  std::uint16_t level = 0;   // counted from the leaves of the whole tree
};

/// The edges of one rank in the tree.
struct TreePlace {
  std::optional<TreeEdge> parent = {};   // none: the root
  std::vector<TreeEdge> children = {};   // by number: those of the own node first
  std::uint16_t edge_count = 0;          // numbers that there are
  std::uint16_t edge_count_in_node = 0;  // the first ones of them: edges inside nodes
  PerRound fans = {};         // of the whole tree, by level, at most; a chain counts as one
  Branching::Rule rule = {};  // of the tree over the nodes, if they are several
};

/// The literature name of the tree.
std::string tree_name(const TreePlace& place);

/// `node_of` holds the node of each rank; empty: each rank is one of its own.
TreePlace nested_tree(Rank self, Rank root, std::uint32_t rank_count, std::span<const Node> node_of,
                      const TreeFans& fans = {});

}  // namespace tutti::plan
