// Chunked fold: direct reduce-scatter and allgather, an allreduce for large payloads.  Every rank
// folds one P-th of the payload for all, along the canonical tree (canonical_tree.hpp): the same
// bits on all ranks as from every other schedule that follows the tree, in rank order.
//
// Idea.  The payload is cut into P parts.  In the first round rank p sends part b of its
// contribution to rank b, for all b; rank b folds the P contributions to its part, combining what
// is complete after each arrival; in the second round it sends the result to all.  Each rank begins
// with its successor, so that nobody is told by all at the same time.
//
// P = 3 (parts a, b, c):
//   round 0   0 sends b to 1, c to 2    1 sends c to 2, a to 0    2 sends a to 0, b to 1
//             0 folds a: (0 o 1) o 2    1 folds b                 2 folds c
//   round 1   0 sends a                 1 sends b                 2 sends c
//
// Cost per rank.  2 rounds of P - 1 messages, 2 (P-1)/P payload bytes sent and (P-1)/P combined: no
// allreduce sends less.  Registers have room for one part: P partials and those for the at most
// 2 log2 P scratch parts, 2 (P - 1) slots; all together about 3 payloads.
//
// Zero-copy, parts are sent from the source and results written into the targets: 2 (P-1)/P
// payloads less are copied, and registers take about one payload.
//
// Literature: the direct algorithm, or reduce-scatter and allgather by pairwise exchange, of
// Thakur, Rabenseifner, Gropp 2005 ("Optimization of collective communication operations in
// MPICH").
#pragma once

#include <cstdint>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether the builder accepts that many ranks: 2 (P - 1) messages within slots_max.
bool is_chunked_fold(std::uint32_t rank_count);

/// Allreduce plan of `self`, of P parts.  Needs is_chunked_fold(rank_count).  Time and memory are
/// proportional to P.
Plan chunked_fold_allreduce(Rank self, std::uint32_t rank_count,
                            Buffers buffers = Buffers::anywhere);

/// The first round alone: part p of the result gets into the target of rank p, which receives no
/// other.
Plan chunked_fold_reduce_scatter(Rank self, std::uint32_t rank_count);

}  // namespace tutti::plan
