// Reduce-scatter where order does not matter: ranks of a node first add up what each of them passes
// on, so that of a node every block crosses the network once; and of many nodes a rank talks with
// log N.
//
// Idea.  In the node, the rank that stands where a block's owner does in its own node (rank k of
// its lane; counted modulo their number where nodes differ) gets the contributions of the others to
// that block, and adds them up.  What it holds then are N sums, by how far ahead their owners'
// nodes are: 0 .. N-1.  Across the nodes these are handed on along skips N = s0 > s1 > .. > 1: the
// sums of the distances s1 .. s0 - 1 go to the node s1 ahead, where they are of the distances
// 0 .. s0 - s1 - 1 and are added to those; then the distances s2 .. s1 - 1 go s2 ahead, and so on,
// until only distance 0 is left, the own block.  With skips that are halves there are
// ceil(log2 N) rounds, with all of N - 1, .., 1 every sum goes straight to its owner.  Either way
// a rank sends N - 1 blocks, and no reduce-scatter sends fewer.
//
//   N = 5, skips 3, 2, 1, node 0; which sums it has left, and what it is told:
//
//   round 0   tells 3 and 4 to node 3     0 1 2     hears from node 2: to be added to 0 and 1
//   round 1   tells 2 to node 2           0 1       from node 3: to 0
//   round 2   tells 1 to node 1           0         from node 4: to 0
//
// A sum is sent as soon as it is complete, those of the farthest first.
//
// Cost per rank, for N nodes of L ranks: N (L - 1) messages in memory, N - 1 across, of a block
// each, to so many partners as there are skips; as many combined.  N L partials, N L - 1 slots.
//
// No more than `run` sums go to one node, because each needs a receive: a skip is at least that
// which is left less `run`.  So run = 1 is the direct exchange, and beyond 2 run nodes there are
// N / run partners more.  Where nodes are not all of one size, all goes directly.
//
// Two parities suffice: a block has the contributions of all ranks to this call.
//
// Literature: J. L. Traff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
// arXiv:2410.14234, 2024, for halves; the stage inside the nodes as in J. L. Traff, S. Hunold,
// "Decomposing collectives for exploiting multi-lane communication", CLUSTER 2020.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/plan.hpp"

namespace tutti::plan {

struct CirculantShape {
  std::uint32_t rank_count = 1;
  std::span<const Node> node_of = {};  // of each rank; empty: each rank is a node of its own
  std::uint32_t run = 1;               // at least 1
};

/// Whether there are slots enough.
bool is_circulant_reduce_scatter(const CirculantShape& shape);

/// Part p of the result is in the target of rank p, which is told no other: blocks of any length.
/// For operators that commute.  Needs is_circulant_reduce_scatter(shape).
Plan circulant_reduce_scatter(Rank self, const CirculantShape& shape);

}  // namespace tutti::plan
