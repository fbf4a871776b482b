// Large payloads among ranks that can read each other's memory: nothing is copied but from a user's
// buffer into another's.  Ranks tell each other where their buffers lie, read there, and say when
// they are done (plan.hpp, by reference).
//
//   broadcast, P = 3, root 0     reduce, P = 3, root 0     allreduce, P = 2, in parts A and B
//
//   rank 0   1   2               rank 0   1   2            rank 0              1
//        r-->|                        |<--r                     source B r---->|  target B = B0 o
//        B1 r------>|                    |<------r   combines  target A =|<----r source A
//        |<--a    reads               a-->|                     target A r---->|  reads A
//        |<------a                    a------>|       reads B         |<----r target B
//                                                                     a<---->a
//                                         r: reference, a: acknowledgement, a notification alone
//
// Broadcast and reduce: one round of P - 1 messages at the root, and as many acknowledgements; all
// read at once from the root (V. Tipparaju, J. Nieplocha, D. Panda, IPDPS 2003, 2.2, without their
// shared buffer), the root of a reduce reads all.  Allreduce: three rounds of P - 1 messages; every
// rank combines one part of the payload, the own operand first, then those of the ranks after it,
// so that all ranks get the same bits, and reads the others' parts.  Scratch: a line for each
// message.  None keeps rank order.
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
