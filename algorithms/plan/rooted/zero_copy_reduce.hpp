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
//             rank 0        1      |      2           3
//   given     a <---------- a      |      a <-------- a     references to sources, to the rank
//             b ----------> b      |      b --------> b     that combines the lane
//   across    a <========================= a                combined over the node
//                           b <======================= b
//   combined  b <========== b      |                        references to what has been combined
//                                                           over all nodes, which the root copies
//   read      a b --------> b      |      a --------> a     acknowledgements: from the root; from
//                           |      |      b <-------- b     who has read a source;
//             a --------------------------> a               from who has taken what came across
//                           b ------------------------> b
//
// With a single node, what is across is left out, and parts are dealt out from the root on, which
// works on the first lane.  Pieces are short, so that a chain is soon full, and the root does not
// wait long for the first one.  A worker combines over its node as many pieces ahead as there are
// nodes behind it: it would only wait for them.
//
// Cost, for N nodes of L ranks each, payload B: a worker combines B / L of all others of its node,
// and once more of what comes across; the root copies (L - 1) / L B.  To other nodes each worker
// but those of the root's node sends B / L, so each node sends what a rank has once.  Messages: a
// reference to each source of a part, and to each result in the node of the root; a message for
// each piece across; acknowledgements.  Rounds: three in a single node, four else; the chain has
// N - 1 hops.  Scratch of a worker: partials of B / L, and slots of as much if there are several
// nodes (of a payload in several chunks, which a single node may have, for one of them), and a line
// for each other message.
//
// Whoever reads a source, a partial or a slot of another rank acknowledges it in each call, and the
// other ends its call no earlier: so each pair of peers stays in step, and two copies of partials,
// slots and lines are enough.  In the node of the root, the acknowledgement of the root serves for
// those of all workers to each other: it has all results, for which all sources were read.  The
// root writes a part of its target when all have read that part of its source, so both may be the
// same memory.
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
