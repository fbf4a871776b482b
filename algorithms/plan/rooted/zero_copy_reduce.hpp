// Reduce among ranks that read each other's memory inside their nodes, of a payload that stays in
// their buffers until it is combined (core/plan.hpp, "By reference").
//
// Idea.  The payload is cut into as many lanes as the smallest node has ranks, and each lane into
// pieces.  One rank of every node works on a lane: it combines each piece out of the sources of its
// node.  Along a chain of the nodes, which ends at that of the root, each worker adds what comes
// from the node behind it and sends the result on.  In the node of the root, the root combines its
// pieces in its target, and another worker in partials, of which it tells the root, which copies
// them into its target.  So all work at the same time, and no source is copied.
//
//   nodes {0 1} {2 3}, root 0, lanes a b, one piece of each
//
//                 rank 0       1       |      2           3
//   given         a <--------- a       |      a <-------- a    references to sources, to the rank
//                 b ---------> b       |      b --------> b    that combines the lane
//   across        a <======================== a                combined over the node
//                              b <======================= b
//   combined      b <========= b       |                       a reference to what is combined over
//                                                              all nodes, which the root copies
//   acknowledged  ab --------> ab      |      a --------> a    from the root; from each reader of a
//                                             b <-------- b    source; from each receiver of what
//                 a ------------------------> a                came across
//                              b -----------------------> b
//
// The lanes of the root's node are numbered from the root on, which works on the first lane; in
// other nodes they are numbered from the lowest rank on.  In a single node the round across is left
// out.  Pieces are short, so that the chain is soon full and the root does not wait long for its
// first piece.  A worker with k nodes behind it combines pieces of its own node k pieces ahead of
// those that it takes from behind: otherwise it would only wait for them.
//
// Cost, for N nodes of L ranks each and a payload B.  A worker combines B / L from each other rank
// of its node, and B / L from the node behind, if there is one.  The root also copies B (L - 1) /
// L. Outside the root's node each worker sends B / L to the next node, so each such node sends B in
// all.  Messages: a reference to each source of a part, and to each result in the root's node; a
// message for each piece across; acknowledgements.  Rounds: three in a single node, otherwise four;
// the chain has N - 1 hops.  Scratch of a worker: partials of B / L (none on the root); over
// several nodes, slots of B / L; a line for each other message.  In a single node the payload may
// go in several chunks; partials then hold one chunk.
//
// A rank acknowledges once in each call that it has read the source or the partials of another
// rank, or has combined what that rank wrote into its slots.  The other rank ends its call only
// then.  So two peers are at most one call apart, and two copies of partials, slots and lines are
// enough.  In the root's node, workers do not acknowledge each other's sources: they wait for the
// root alone, which has all results by then, and a result is announced only when all sources of
// that part have been read.  The root writes a part of its target only when all have read that part
// of its source, so its source and target may be the same memory.
//
// Operands are in no order of ranks.
//
// Literature: single_copy.hpp; reduce-scatter and gather by R. Thakur, R. Rabenseifner, W. Gropp,
// IJHPCA 19 (1), 2005; the chain: rooted.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

struct ZeroCopyReduce {
  Rank root{0};
  std::uint32_t rank_count = 2;
  std::span<const Node> node_of = {};  // of each rank
  std::uint16_t pieces = 1;            // of a lane
};

/// Lanes times pieces: as many parts has the plan.
std::uint32_t zero_copy_parts(const ZeroCopyReduce& shape);

/// Whether each node has several ranks, and slots and parts suffice.
bool is_zero_copy_reduce(const ZeroCopyReduce& shape);

/// Reduce of `self`, for operators that commute.  Needs is_zero_copy_reduce(shape).
Plan zero_copy_reduce(Rank self, const ZeroCopyReduce& shape);

}  // namespace tutti::plan
