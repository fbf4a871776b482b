// Trees in which a vertex divides those that it stands for: binary trees, and Fibonacci trees.
//
// Idea.  In a k-nomial tree (rooted_tree.hpp) all ranks of a round tell as many others, then wait
// for each other's round.  In a Fibonacci tree every rank that knows something goes on telling, one
// message after another.  A message is on its way for `latency` times as long as it keeps its
// sender busy, so that after t such times f(t) ranks know:
//
//   f(t) = 1 for t < latency     f(t) = f(t-1) + f(t-latency)
//
// which is the most in the postal model, that of LogP without overheads (latency 1: binomial;
// latency P - 1 and more: flat).  A vertex that stands for m ranks and has the least t with
// f(t) >= m gives a child m - f(t-1) of them, and goes on as one of f(t-1); the child of most ranks
// is told first.  A vertex of a binary tree has two children with half of the rest each.
//
//   P = 8, latency 2                                    binary
//   0 --- 1                                             0 --- 1 --- 2
//   |`--- 2                                             |      `--- 3
//   |`--- 3 --- 4                                       |
//    `--- 5 --- 6       rank 0 tells 5, 3, 2, 1          `--- 4 --- 5
//          `--- 7       and rank 5 tells 7, 6                  `--- 6 --- 7
//
// Vertices are numbered in preorder, so that each stands for a run of them, as in k-nomial trees,
// and what is folded along the tree is folded in that order.
//
// Literature: A. Bar-Noy, S. Kipnis, "Designing broadcasting algorithms in the postal model for
// message-passing systems", SPAA 1992; R. Karp, A. Sahay, E. Santos, K. Schauser, "Optimal
// broadcast and summation in the LogP model", SPAA 1993; compared with binomial trees on an SMP
// cluster in V. Tipparaju, J. Nieplocha, D. Panda, "Fast collective operations using shared and
// remote memory access protocols on clusters", IPDPS 2003, 2.1.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/core/per_round.hpp"

namespace tutti::plan {

/// Above, children are nearly all of the ranks that there are.
inline constexpr std::uint32_t latency_max = 64;

struct Branching {
  enum class Rule : std::uint8_t { fans, binary, fibonacci };
  Rule rule = Rule::fans;     // fans: k-nomial, which is none of these trees
  std::uint32_t latency = 1;  // of Fibonacci trees, 1 .. latency_max
};

/// Ranks below each child of the root of a tree of `count`, in the order of their numbers: the one
/// that is told first comes last.
std::vector<std::uint32_t> subtree_sizes(std::uint32_t count, const Branching& branching);

/// The most children of a vertex, by level from the leaves on, each level a round; no less than
/// those of a tree of fewer ranks, level by level from the root.
PerRound children_by_level(std::uint32_t count, const Branching& branching);

}  // namespace tutti::plan
