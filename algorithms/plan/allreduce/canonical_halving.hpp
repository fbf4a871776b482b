// Recursive halving and doubling (Rabenseifner's allreduce) along the canonical tree
// (canonical_tree.hpp): reduce-scatter and allreduce for large payloads of many ranks, each of
// which talks with few.  It gives the same bits as every other schedule that follows the tree, in
// rank order.
//
// Idea.  The payload is cut into parts.  In round t the ranks that differ in bit t alone halve what
// they hold: each sends the parts whose number has the other's bit t, and keeps those with its own,
// to which it adds what it receives.  After round t a rank holds, for each of its parts, what the
// 2^(t+1) ranks of its node of the tree have contributed: every value on its way is a node of the
// tree.  After all k rounds of P = 2^k ranks each has one part of the result, which goes back the
// same way.
//
//   P = 4, parts a, b, c, d (00, 01, 10, 11)
//   round 0   0 and 1: 0 sends d, b, keeps c, a     2 and 3 likewise     a: 0 o 1 on 0, 2 o 3 on 2
//   round 1   0 and 2: 0 sends c, keeps a           1 and 3 likewise     a: (0 o 1) o (2 o 3) on 0
//   back      0 sends a to 2 and receives c; then 0 sends a, c to 1, and receives b, d
//
// Parts are passed on as soon as they are there, those with the longest way first.
//
// Other numbers of ranks are cubes of 2^e ranks, the largest first: P = 11 is 0 .. 7, 8 and 9, 10.
// Each cube halves by itself.  It sends what it and the cubes behind it have to the cube before,
// which carries it along, one value beside the other, to the rank that has the same part in the end
// and puts them together: 01234567 o (89 o 10).  A cube of 2^e ranks sends to the first 2^e of the
// other, which are done with round e - 1 by then.  The cubes of 4, 2 and 1 ranks, if there are
// larger ones, all send to the first 8 ranks of the last of these, at the same time: so no rank
// carries more than an eighth of a payload.  Results go back by the same messages.
//
//   P = 11   round 0   8 and 9 have (8 o 9) of half the parts each
//            then      8 sends one part each to 0, 2, 4, 6, and 9 to 1, 3, 5, 7; 10 sends one to
//            each
//                      of them, and they have (89 o 10)
//
// An allreduce has as many parts as the first cube has ranks.  A reduce-scatter has a part, of any
// length, for each rank; the first cube sends the others theirs.
//
// Cost per rank.  Connections to log2 P others if P = 2^k, else to at most 4 more.  A payload
// but for a part out, and up to an eighth more (P > 8); as much in, and up to three eighths more.
// An allreduce sends twice that, and the results of three eighths to the smallest cubes.  No
// schedule sends less where P = 2^k.  The parts that go to one rank are a stream
// (core/peer_stream.hpp), which is answered but for P = 2^k <= 64.  Registers are up to 2.5
// payloads of slots and 2 of partials.
//
// Two parities suffice, because a part has the contributions of all ranks to this call.
//
// Literature: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19 (1), 2005, 4.5; there the farthest ranks come first in the first
// half, which saves a copy of the parts, but keeps no order.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether there are slots for so many ranks, which the builders need.
bool is_canonical_halving(std::uint32_t rank_count);

/// Messages in each round, one way and without answers, of a rank that carries nothing.
std::vector<std::uint32_t> canonical_halving_runs(std::uint32_t rank_count);

/// The most ranks that a rank is connected with.
std::uint32_t canonical_halving_partners_max(std::uint32_t rank_count);

/// Allreduce plan of `self`.  Needs is_canonical_halving(rank_count).  Time and memory are
/// proportional to P.
Plan canonical_halving_allreduce(Rank self, std::uint32_t rank_count);

/// Part p of the result gets into the target of rank p, which receives no other; parts may have any
/// length.
Plan canonical_halving_reduce_scatter(Rank self, std::uint32_t rank_count);

}  // namespace tutti::plan
