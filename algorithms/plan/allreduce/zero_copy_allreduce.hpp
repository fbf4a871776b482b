// Allreduce of ranks that share nodes, in lanes (lanes.hpp), whose payload stays in the users'
// buffers: inside a node, contributions and results are read where they are, and between nodes a
// result is written straight into a target (core/plan.hpp, "By reference" and "Zero copy").
//
// Idea.  The payload is cut into as many lanes as the smallest node has ranks, and each lane into a
// part for each node, which goes in pieces.  The k-th rank of a node combines all parts of lane k
// over its node, out of the sources of the others: that of its own node into its target, the others
// for the ranks of lane k of their nodes, which combine them and write the result into the targets
// of their lane (direct reduce-scatter and allgather, as chunked_fold).  As soon as a result is in
// its target, the others of its node are told to copy it from there.
//
//   nodes {0 1} {2 3}, lanes a b, parts 1 (of the first node) and 2
//
//           rank 0           1        |       2           3
//   given   a <-------------- a1 a2   |       a <-------- a1 a2     references to sources
//           b1 b2 ----------> b       |       b1 b2 ----> b
//   across  a2 ===========================> a2                      combined over the node
//           a1 <=========================== a1
//                            b2 ======================> b2
//                            b1 <====================== b1
//   back    a1 ===========================> a1                      results, into the target
//           a2 <=========================== a2                      (b likewise)
//   told    a1 a2 ----------> a1 a2   |       a1 a2 ----> a1 a2     references to targets
//           b1 b2 <---------- b1 b2   |       b1 b2 <---- b1 b2
//
// With a single node, what is across and back is left out.  These stages follow each other piece by
// piece, each a piece behind the one before it, so that the network and the memory of the nodes
// work at the same time.
//
// Cost, for N nodes of L ranks each, payload B: in memory a rank reads (L - 1) / L B of sources,
// which it combines without a copy, and copies as much of results.  To other nodes it sends
// 2 (N - 1) / N B / L bytes, as no allreduce in lanes sends less, in 2 (N - 1) messages for each
// piece.  Rounds: five, or three in a single node.  Scratch: what is sent across and what comes, (N
// - 1) / N B / L each; lines for references, results and acknowledgements.
//
// A part is combined by one rank of each node, and by one over the nodes, so that all ranks get the
// same bits.  Operands are in no order of ranks.
//
// A rank completes a call only when nobody reads its buffers any more: whoever combines a part of
// its source tells it of the result, and whoever reads its target acknowledges at the end.  So each
// pair of peers stays in step, and two copies of the registers are enough.
//
// Literature: lanes.hpp; chunked_fold.hpp for what happens across; for combining in place of
// copying, rooted/single_copy.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

struct ZeroCopyLanes {
  std::uint32_t rank_count = 1;
  std::span<const Node> node_of = {};  // of each rank
  std::uint16_t pieces = 1;            // of each part
};

/// The number of parts of the plan: lanes times nodes times pieces.
std::uint32_t zero_copy_parts(const ZeroCopyLanes& shape);

/// Whether a node has several ranks, and the plan needs no more slots than there may be.
bool is_zero_copy_allreduce(const ZeroCopyLanes& shape);

/// Allreduce of `self`, for operators that commute.  Needs is_zero_copy_allreduce(shape), and ranks
/// that share a node.
Plan zero_copy_allreduce(Rank self, const ZeroCopyLanes& shape);

}  // namespace tutti::plan
