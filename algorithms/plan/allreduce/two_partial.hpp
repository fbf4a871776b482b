// Two-partial dissemination: allreduce for any number of ranks and any messages per round that
// cover it, with no inverse operator.
//
// Idea.  I(p, m) is the cyclic interval of the m ranks that end at p.  Rank p keeps W = I(p, m) and
// V = W without its own contribution = I(p-1, m-1).  In a round of r messages it receives r pieces
// that continue W to the left: W's of length m, the last c of them V's of length m-1, so that W
// grows to m' = (r+1) m - c, and any m' between m and (r+1) m can be met exactly.  The chain of
// lengths is fixed backwards from P: m = ceil(m' / (n+1)).
//
// Cost per rank.  The executed rounds are at most the entries of the vector (for a uniform n
// exactly ceil(log_{n+1} P)), with at most n messages each; bytes sent = messages x payload.  In
// rank order, a message whose interval has rank 0 in its inside carries two payloads: fewer than m
// of the P senders of a W of length m, as both ends know.  No schedule with as many messages per
// round reaches more ranks.
//
// P = 5, n = 2; rank 4, own contribution first, read from right to left:
//   ranks              0   1   2   3   4
//   round 0, m=1       .   .   .   W   own     W of 3                     -> W = 3..4, V = 3
//   round 1, m=2, c=1  V   W   W   own own     W of 2 (1..2), V of 1 (0)  -> W = 0..4
//
// In rank order (operators that do not commute) a partial that wraps is kept in two parts
// (seam.hpp).
//
// Literature: the n-way dissemination allreduce of End, Yahyapour, Alrutz, Simmendinger 2015
// ("Adaption of the n-way dissemination algorithm for GASPI split-phase allreduce"), to which it
// is equal where P = (n+1)^k; Bruck, Ho 1993 ("Efficient global combine operations in multi-port
// message-passing systems"); for n = 1 Bar-Noy, Kipnis, Schieber 1993.
#pragma once

#include <cstdint>

#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Allreduce plan of `self`.  Needs is_executable(rank_count, per_round), and the same vector and
/// order on all ranks.  Time and memory are proportional to the rank's own messages.
Plan two_partial_allreduce(Rank self, std::uint32_t rank_count, const PerRound& per_round,
                           Order order);

}  // namespace tutti::plan
