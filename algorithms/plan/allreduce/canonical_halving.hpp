// Recursive halving along the canonical tree (canonical_tree.hpp): reduce-scatter and allreduce for
// large payloads of many ranks, each of which talks with few.  The same bits as from every other
// schedule that follows the tree, in rank order.
//
// Idea.  The payload is cut into parts.  In round t the ranks that differ in bit t alone halve what
// they hold: each sends the parts whose number has the other's bit t, and keeps those with its own,
// to which it adds what it hears.  After round t a rank knows of its parts what the 2^(t+1) ranks
// of its node of the tree have contributed: no value on its way is other than a node.  After all k
// rounds of P = 2^k ranks each has one part of the result, and tells it back the same way.
//
//   P = 4, parts a, b, c, d (00, 01, 10, 11)
//   round 0   0 and 1: 0 sends b, d, keeps a, c     2 and 3 likewise     a: 0 o 1 on 0, 2 o 3 on 2
//   round 1   0 and 2: 0 sends c, keeps a           1 and 3 likewise     a: (0 o 1) o (2 o 3) on 0
//   back      0 tells 2 a and hears c; then 0 tells 1 a and c, and hears b and d
//
// Other numbers of ranks are cubes of 2^e ranks, the largest first: P = 11 is 0 .. 7, 8 and 9, 10.
// Each halves by itself.  What a cube and those behind it have is told to the cube before, in which
// it is carried along, one value beside the other, to the rank that has the same part in the end
// and puts them together: 01234567 o (89 o 10).  A cube of 2^e ranks tells the first 2^e of the
// other, which are done with round e - 1 by then.  Those of 4, 2 and 1 ranks, if there are larger
// ones, all tell the first 8 ranks of the last of these, at the same time: so nobody carries more
// than an eighth of a payload.  Results go back by the same messages.
//
//   P = 11   round 0   8 and 9 have (8 o 9) of half the parts each
//            then      8 tells 0, 2, 4, 6, and 9 tells 1, 3, 5, 7, what it has of one part each;
//                      10 tells all of them, and they have (89 o 10)
//
// The parts of an allreduce are as many as the first cube has ranks.  A reduce-scatter has a part,
// of any length, for each rank; the first cube tells the others theirs.
//
// Cost per rank.  Connections to log2 P others if P = 2^k, else to at most 4 more.  A payload
// but for a part out, and up to an eighth more (P > 8); as much in, and up to three eighths more.
// For an allreduce twice that out, and the results of three eighths to the smallest cubes.  None
// sends less where P = 2^k.  Of the parts that go to one rank at most three windows of 4 are on
// their way (windows.hpp).  Registers are up to 2.5 payloads of slots and 2 of partials.
//
// Two parities suffice: a part has the contributions of all ranks to this call.
//
// Literature: recursive halving and doubling of Thakur, Rabenseifner, Gropp 2005 ("Optimization of
// collective communication operations in MPICH"), with the nearest ranks first.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether the builders accept that many ranks: what is needed of slots_max.
bool is_canonical_halving(std::uint32_t rank_count);

/// Messages in each round, one way, of a rank that carries nothing, but for answers.
std::vector<std::uint32_t> canonical_halving_runs(std::uint32_t rank_count);

/// Others that a rank is connected with, at most.
std::uint32_t canonical_halving_partners_max(std::uint32_t rank_count);

/// Allreduce plan of `self`.  Needs is_canonical_halving(rank_count).  Time and memory are
/// proportional to P.
Plan canonical_halving_allreduce(Rank self, std::uint32_t rank_count);

/// Part p of the result is in the target of rank p, which is told no other: blocks of any length.
Plan canonical_halving_reduce_scatter(Rank self, std::uint32_t rank_count);

}  // namespace tutti::plan
