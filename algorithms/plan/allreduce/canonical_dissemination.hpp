// Canonical dissemination: allreduce for any number of ranks and any messages per round that cover
// it, whose result is the canonical tree's (canonical_tree.hpp): the same bits on all ranks and for
// every vector, in rank order.
//
// Idea.  Rank p knows the m ranks that end at itself, as the blocks of the canonical tree, side by
// side in one partial.  In a round of r messages it receives what r others know; the intervals
// cover the m' <= (r+1) m ranks that end at p, and siblings among the blocks are combined.  The
// lengths follow the chain of two-partial dissemination (two_partial.hpp), m = ceil(m' / (r+1)).
// Where (r+1) m is more than m', the last peer is nearer than r m, at the distance m' - m: its
// interval overlaps with that of the peer before it, and a block that comes twice, or within a
// larger one, is left unread.  So every rank knows exactly m ranks, and sender and receiver know
// the blocks of every message without negotiation.
//
// P = 5, n = 2; rank 4 (a stroke separates blocks):
//   round 0, m=1   knows 4        receives 3          knows 3 | 4
//   round 1, m=2   knows 3 | 4    receives 12 = 1 | 2 from 2, 01 from 1 (the distance is 3, not 4)
//                  01 o (2 o 3), then o 4: the root;  the 1 of rank 2 is left unread
//
// Cost per rank.  Rounds and messages of two-partial dissemination.  Bytes sent: blocks x payload,
// with at most 2 log2 P + 1 blocks in a message; at most 7 for P = 128 and 11 for P = 200, n = 1
// .. 8. Partials: one per round, and some for scratch.
//
// Over 240 cases of P and n, the longest messages of the rounds carry 2046 blocks all together.
// They would be 2456 if intervals grew as far as they can and overlapped in the last round only,
// and 1967 if they were trimmed by sending V's, as two-partial dissemination does, which takes
// twice the partials and further combinations.
//
// Literature: that of two_partial.hpp and canonical_tree.hpp.
#pragma once

#include <cstdint>

#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Allreduce plan of `self`.  Needs is_executable(rank_count, per_round), and the same vector on
/// all ranks.  Time and memory are proportional to the blocks of the rank's own messages.
Plan canonical_dissemination_allreduce(Rank self, std::uint32_t rank_count,
                                       const PerRound& per_round);

}  // namespace tutti::plan
