// Dissemination: barrier, and allreduce for operators that may meet a contribution twice.
//
// Idea.  Rank p has received from the m ranks that end at itself, directly or through others.  In a
// round of r messages it sends to the ranks m, 2m, ... r m ahead and receives from those behind,
// and then has received from (r+1) m ranks.  A contribution that comes twice does no harm, so
// nothing is ever trimmed; but the lengths follow the chain of the two-partial scheme
// (two_partial.hpp) backwards from P, which saves messages: P = 96 with at most 7, 7, 7 takes 1 + 5
// + 7 of them instead of 7 + 7 + 1.
//
// Cost per rank.  Rounds and messages of two-partial dissemination; the barrier sends notifications
// only, the allreduce messages x payload bytes.
//
// P = 5, n = 2; rank 4:
//   ranks         0   1   2   3   4
//   round 0, m=1  .   .   .   x   own      receives from 3          (sends to 0)
//   round 1, m=2  x   x   x   own own      receives from 2 and 0    (sends to 1, 3)
//                                          0 brings 0 and 4: 4 is met twice
//
// Literature: Hensgen, Finkel, Manber 1988 ("Two algorithms for barrier synchronization"), for
// n = 1; End, Yahyapour, Alrutz, Simmendinger 2015 for n messages a round.
#pragma once

#include <cstdint>

#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Puts and awaits of `self`, without payload.  Needs is_executable(rank_count, per_round), and the
/// same vector on all ranks.
Plan dissemination_barrier(Rank self, std::uint32_t rank_count, const PerRound& per_round);

/// Allreduce of `self` for operators that are idempotent and commutative (min, max, and, or).  Same
/// needs; every contribution enters at least once.
Plan dissemination_allreduce(Rank self, std::uint32_t rank_count, const PerRound& per_round);

}  // namespace tutti::plan
