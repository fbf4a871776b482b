// Rabenseifner's allreduce: reduce-scatter by recursive halving, then allgather by recursive
// doubling, so that log P partners suffice for what a ring sends to one.
//
// Idea.  The payload is cut into P' = 2^k parts, one for each rank of the core.  In round i of the
// first half a rank and the one that differs from it in bit i each keep the parts that agree with
// them in that bit, and tell the other of the rest; so the parts are halved, and what is kept of
// them doubles.  Neighbours come first, so that what is combined are neighbouring intervals, in
// rank order; and one rank computes each part, so that all have one expression of it.  The second
// half goes back through the same partners.  Each part is one message, which is passed on as soon
// as it is there.
//
//   P = 4, rank 1: parts kept, and what they hold
//
//   round 0   with 0   tells 0 2, keeps 1 3    ranks 0..1       round 2   with 3   1   -> 1 3
//   round 1   with 3   tells 3,   keeps 1      ranks 0..3       round 3   with 0   1 3 -> all
//
// Any P.  As in recursive_multiplying.hpp, ranks are cut into P' groups of neighbours; the first
// rank of a group folds the contributions of the others before, and tells them the result.  P' is
// at most 64, so that the parts of a partner do not need more receives than a connection has.
//
// Cost per rank, with g = ceil(P / P'), payloads of B bytes: 2 k rounds, of P'/2, .., 1, 1, ..,
// P'/2 messages of B / P', to k partners; 2 (P' - 1) B / P' bytes sent.  If g > 1, two more rounds,
// in which g - 1 ranks send B to the first of their group, which sends it to them.  At most 3 P'
// parts in partials, and (g + 3) P' in slots.
//
// Two parities suffice: a result has the contributions of all ranks to this call.
//
// Literature: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19 (1), 2005, 4.5; there the distance is halved in the first half,
// which saves a copy of the parts, but keeps no order.
#pragma once

#include <cstdint>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether there are slots for so many ranks.
bool is_rabenseifner(std::uint32_t rank_count) noexcept;

Plan rabenseifner_allreduce(Rank self, std::uint32_t rank_count);

}  // namespace tutti::plan
