// Large payloads among ranks that can read each other's memory: nothing is copied but from a user's
// buffer into another's.  Ranks tell each other where their buffers lie, read there, and say when
// they are done (plan.hpp, by reference).
//
//   broadcast, P = 3, root 0     allreduce, P = 2, in parts A and B
//
//   rank 0   1   2               rank 0              1
//        r-->|                        source B r---->|  target B = B0 o B1
//        r------>|    reads  target A = A0 o A1 |<---r source A
//        |<--a                        target A r---->|  reads A
//        |<------a                reads B      |<----r target B
//                                              a<--->a
//                                         r: reference, a: acknowledgement, a notification alone
//
// Broadcast: one round of P - 1 messages at the root, and as many acknowledgements; all read at
// once (V. Tipparaju, J. Nieplocha, D. Panda, IPDPS 2003, 2.2, without their shared buffer).
// Allreduce: three rounds of P - 1 messages; every rank combines one part of the payload, in an
// order of its own, and reads the others' parts, so that all ranks get the same bits.  Reduce: the
// same, but that the others combine into a partial, which the root reads.  Scratch: a line for each
// message; of reduce a partial of one part.  None keeps rank order.
#pragma once

#include <cstdint>
#include <tutti/types.hpp>

#include "plan/plan.hpp"

namespace tutti::plan {

/// Whether the plans below have slots enough.
bool is_single_copy(std::uint32_t rank_count) noexcept;

/// The root's source gets into all other targets; the root's target is not touched.
Plan single_copy_broadcast(Rank self, std::uint32_t rank_count, Rank root);

/// The root's target gets the sources of all ranks.
Plan single_copy_reduce(Rank self, std::uint32_t rank_count, Rank root);

/// All targets get the sources of all ranks, and the same bits.
Plan single_copy_allreduce(Rank self, std::uint32_t rank_count);

}  // namespace tutti::plan
