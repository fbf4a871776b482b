// Gather and fold: allreduce for tiny payloads.  Every rank collects all contributions as they are
// and folds them itself along the canonical tree (canonical_tree.hpp): the same bits on all ranks
// and for every vector, in rank order.
//
// Idea.  Rank p holds the contributions p, p-1, ... of the m ranks that end at itself, side by side
// in one partial, newest first.  In a round of r messages it sends all of them to the ranks m, 2m,
// ... ahead, the farthest of which needs only the first m' - r m, and appends what it hears.  The
// lengths follow the chain of two-partial dissemination (two_partial.hpp).  What the last round
// brings is folded where it arrives.  Folding begins with the first message and goes on while
// others are on their way; but what has arrived is passed on first.
//
// P = 5, n = 2; rank 4:
//   round 0, m=1   holds 4     hears 3                        holds 4 3
//   round 1, m=2   holds 4 3   hears 2 1 from 2, 0 from 0     folds [(0 o 1) o (2 o 3)] o 4
//
// Cost per rank.  Rounds and messages of two-partial dissemination; P - 1 payloads sent, P - 1
// combined.  Registers have room for the m payloads of the last round; one partial and those for
// the at most 2 log2 P scratch payloads.
//
// Literature: the allgather is that of Bruck, Ho, Kipnis, Upfal, Weathersby 1997 ("Efficient
// algorithms for all-to-all communications in multiport message-passing systems").
#pragma once

#include <cstdint>

#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether the builder accepts the vector: is_executable(rank_count, per_round), and at most 65,535
/// ranks, so that 16 bits number the contributions.  (Long before that it stops being worth it.)
bool is_gather_fold(std::uint32_t rank_count, const PerRound& per_round);

/// Allreduce plan of `self`.  Needs is_gather_fold(rank_count, per_round), and the same vector on
/// all ranks.  Time and memory are proportional to P.
Plan gather_fold_allreduce(Rank self, std::uint32_t rank_count, const PerRound& per_round);

}  // namespace tutti::plan
