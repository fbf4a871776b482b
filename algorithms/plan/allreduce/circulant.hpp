// Circulant (Traff) reduce-scatter and allreduce, and direct reduce-scatter: each of many ranks
// talks with few, and no schedule sends less.  Where ranks share nodes, a reduce-scatter adds up
// inside them first, so that every block leaves a node once.
//
// Idea.  A sum is named by the distance of the rank whose block it belongs to: 0 .. P-1 ahead. Sums
// are handed on along skips P = s0 > s1 > .. > 1: the sums of the distances s1 .. s0 - 1 go to the
// rank s1 ahead, where their distances are 0 .. s0 - s1 - 1, and are added to its own; then the
// distances s2 .. s1 - 1 go s2 ahead, and so on, until only distance 0 is left, the own block. With
// skips that are halves there are ceil(log2 P) rounds; with skips P - 1, .., 1 every sum goes
// straight to its owner; either way a rank sends P - 1 blocks.  Up to 24 ranks take halves.  With
// more ranks at most 12 blocks, or P / 12 if that is more, go to one rank, which makes up to 12
// more skips.
//
//   P = 5, skips 3, 2, 1, rank 0; the sums it has left, and what it receives:
//
//   round 0   sends 3 and 4 to rank 3     0 1 2     from rank 2: added to 0 and 1
//   round 1   sends 2 to rank 2           0 1       from rank 3: added to 0
//   round 2   sends 1 to rank 1           0         from rank 4: added to 0
//
// An allreduce goes back the same way: whoever received a sum from a rank sends it the result.  A
// sum or result is sent as soon as it is complete; sums with the largest distance go first.
//
// Nodes.  The holder of a block in a node (core/node_shares.hpp) gets the contributions of the
// others of its node to that block and adds them up; then the sum goes across as above, with nodes
// for ranks.  Where nodes differ in size, all sums go to their owners directly.
//
// The blocks that go to one rank are a stream (core/peer_stream.hpp): from 156 ranks on some of
// them are answered.
//
// Cost per rank, for N nodes of L ranks: N (L - 1) messages in memory, N - 1 across, of a block
// each, to as many ranks as there are skips, and from as many; as many blocks combined.  N L
// partials, N L - 1 slots.  An allreduce (L = 1) has twice the messages and slots, and up to 2 P
// partials.
//
// Two parities suffice, because a block has the contributions of all ranks to this call.  Results
// are equal on all ranks, bit by bit, because one rank computes each part.
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

/// Along which skips sums are handed on: few, or all, to their owners at once.
enum class Skips : std::uint8_t { few, ones };

struct CirculantShape {
  std::uint32_t rank_count = 1;
  std::span<const Node> node_of = {};  // of each rank; empty: each rank is a node of its own
  Skips skips = Skips::few;
};

/// Whether there are slots enough.
bool is_circulant_reduce_scatter(const CirculantShape& shape);
bool is_circulant_allreduce(std::uint32_t rank_count);

/// The number of sums to each partner, from the farthest on; an allreduce has as many results on
/// its way back.
std::vector<std::uint32_t> circulant_runs(std::uint32_t rank_count, Skips skips);

/// Part p of the result gets into the target of rank p, which receives no other; parts may have any
/// length.  For operators that commute.  Needs is_circulant_reduce_scatter(shape).
Plan circulant_reduce_scatter(Rank self, const CirculantShape& shape);

/// Has P parts.  For operators that commute.  Needs is_circulant_allreduce(rank_count).
Plan circulant_allreduce(Rank self, std::uint32_t rank_count);

}  // namespace tutti::plan
