// Fibonacci trees, the optimal ones of the postal model, in which a vertex shares out the vertices
// that it stands for.
//
// Idea.  In a k-nomial tree (rooted_tree.hpp) all ranks of a round send as many messages, then wait
// for each other's round.  In a Fibonacci tree every rank that has the payload goes on sending, one
// message after another.  A message is on its way for `latency` times as long as it keeps its
// sender busy, so that after t such times f(t) ranks have it:
//
//   f(t) = 1 for t < latency     f(t) = f(t-1) + f(t-latency)
//
// which is the most in the postal model, that of LogP without overheads (latency 1: binomial;
// latency P - 1 and more: flat).  A vertex that stands for m ranks and has the least t with
// f(t) >= m gives a child m - f(t-1) of them, and goes on as one of f(t-1); the child of most ranks
// is sent to first.
//
//   P = 8, latency 2
//   0 --- 1
//   |`--- 2
//   |`--- 3 --- 4
//    `--- 5 --- 6       rank 0 sends to 5, 3, 2, 1
//          `--- 7       rank 5 sends to 7, 6
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

/// The largest latency: with a larger one nearly all ranks would be children of the root.
inline constexpr std::uint32_t latency_max = 64;

struct Branching {
  enum class Rule : std::uint8_t { fans, fibonacci };
  Rule rule = Rule::fans;     // fans: k-nomial, which is none of these trees
  std::uint32_t latency = 1;  // of Fibonacci trees, 1 .. latency_max
};

/// The ranks that each child of the root of a tree of `count` stands for, in the order of their
/// numbers: the child that is sent to first comes last.
std::vector<std::uint32_t> subtree_sizes(std::uint32_t count, const Branching& branching);

/// The most children of a vertex, by level from the leaves on, each level a round.  Level by level
/// from the root they are no fewer than those of a tree of fewer ranks.
PerRound children_by_level(std::uint32_t count, const Branching& branching);

}  // namespace tutti::plan
