// Reduce-scatter and allreduce along skips of a circle: of many ranks each talks with few, and no
// schedule sends less.  Where ranks share nodes, a reduce-scatter adds up inside them first, so
// that every block leaves a node once.
//
// Idea.  Whose block a sum is of is told by how far ahead that rank is: 0 .. P-1.  Sums are handed
// on along skips P = s0 > s1 > .. > 1: those of the distances s1 .. s0 - 1 go to the rank s1 ahead,
// where they are of the distances 0 .. s0 - s1 - 1 and are added to those; then the distances
// s2 .. s1 - 1 go s2 ahead, and so on, until only distance 0 is left, the own block.  With skips
// that are halves there are ceil(log2 P) rounds; with all of P - 1, .., 1 every sum goes straight
// to its owner; either way a rank sends P - 1 blocks.  Here halves of up to 24 ranks are taken, and
// of more at most 12 blocks go to one, or P / 12 if that is more, so that there are up to 12 skips
// more.
//
//   P = 5, skips 3, 2, 1, rank 0; which sums it has left, and what it is told:
//
//   round 0   tells 3 and 4 to rank 3     0 1 2     hears from rank 2: to be added to 0 and 1
//   round 1   tells 2 to rank 2           0 1       from rank 3: to 0
//   round 2   tells 1 to rank 1           0         from rank 4: to 0
//
// An allreduce goes back the same way: who had a sum from a rank tells it the result.  A sum or
// result is sent as soon as it is complete; of sums those of the farthest first.
//
// Nodes.  The rank that stands where a block's owner does in its own node (rank k of its lane;
// counted modulo their number where nodes differ) gets the contributions of the others of its node
// to that block, and adds them up; then it goes across as above, with nodes for ranks.  Where nodes
// are not all of one size, all goes directly.
//
// Of the blocks that go to one rank, at most three windows of 4 are on their way (windows.hpp):
// from 156 ranks on some have to be answered for.
//
// Cost per rank, for N nodes of L ranks: N (L - 1) messages in memory, N - 1 across, of a block
// each, to so many ranks as there are skips, and from as many; as many combined.  N L partials, N L
// - 1 slots. Of an allreduce (L = 1): twice the messages and slots, up to 2 P partials.
//
// Two parities suffice: a block has the contributions of all ranks to this call.  Results are alike
// on all ranks, bit by bit: one rank computes each part.
//
// Literature: J. L. Traff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
// arXiv:2410.14234, 2024, for halves; the stage inside the nodes as in J. L. Traff, S. Hunold,
// "Decomposing collectives for exploiting multi-lane communication", CLUSTER 2020.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Between ranks that sums are handed on: few, or to their owners at once.
enum class Skips : std::uint8_t { few, ones };

struct CirculantShape {
  std::uint32_t rank_count = 1;
  std::span<const Node> node_of = {};  // of each rank; empty: each rank is a node of its own
  Skips skips = Skips::few;
};

/// Whether there are slots enough.
bool is_circulant_reduce_scatter(const CirculantShape& shape);
bool is_circulant_allreduce(std::uint32_t rank_count);

/// Sums to each partner, from the farthest on; an allreduce has as many results on its way back.
std::vector<std::uint32_t> circulant_runs(std::uint32_t rank_count, Skips skips);

/// Part p of the result is in the target of rank p, which is told no other: blocks of any length.
/// For operators that commute.  Needs is_circulant_reduce_scatter(shape).
Plan circulant_reduce_scatter(Rank self, const CirculantShape& shape);

/// Of P parts.  For operators that commute.  Needs is_circulant_allreduce(rank_count).
Plan circulant_allreduce(Rank self, std::uint32_t rank_count);

}  // namespace tutti::plan
