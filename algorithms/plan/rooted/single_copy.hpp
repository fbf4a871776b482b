// Single-copy broadcast, and reduce and allreduce of two ranks, of a large payload among ranks that
// can read each other's memory: it is copied once, from one user's buffer into another's.  The
// sender tells where its buffer lies; the receiver reads there and acknowledges (core/plan.hpp, "By
// reference").
//
//   broadcast, P = 3, root 0     reduce, root 0
//
//   rank 0   1   2               rank 0   1
//        r-->|                        |<--r           r: reference
//        r------>|    reads  combines a-->|           a: acknowledgement, a notification alone
//        |<--a
//        |<------a
//
// One round of P - 1 messages, and as many acknowledgements; all read at once, as from the buffer
// of SRM (V. Tipparaju, J. Nieplocha, D. Panda, IPDPS 2003, 2.2), but without that buffer.
// Scratch: a line for each message.
//
//   allreduce, P = 2, the payload in 2 parts, of which rank p combines part p
//
//   rank 0            1
//        r(source)<-->r(source)    combines part 0 | combines part 1    into its target
//        r(target)<-->r(target)    copies part 1   | copies part 0      from the peer's
//        a<---------->a
//
// Three rounds of a message, the last of acknowledgements.  Each rank reads half of the payload to
// combine it and half to copy it: reduce-scatter and allgather (R. Thakur, R. Rabenseifner, W.
// Gropp, IJHPCA 19 (1), 2005) without a buffer between.  A part is combined once, by one rank, so
// both get the same bits.
#pragma once

#include <cstdint>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether there are slots enough.
bool is_single_copy(std::uint32_t rank_count) noexcept;

/// The root's source gets into all other targets; the root's target is not touched.
Plan single_copy_broadcast(Rank self, std::uint32_t rank_count, Rank root);

/// Allreduce of two ranks, for operators that commute.
Plan single_copy_allreduce(Rank self);

/// Reduce of two ranks: the root's target gets both sources, in either order.
Plan single_copy_reduce(Rank self, Rank root);

}  // namespace tutti::plan
