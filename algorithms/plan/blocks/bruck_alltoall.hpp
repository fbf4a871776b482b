// Alltoall of small blocks of one length in few rounds: every block goes through other ranks, by
// the digits of its distance.
//
// Idea.  The block from rank q for rank p has the distance d = p - q, counted around.  Written in
// base n + 1, d says how it travels: in round k, whose unit is (n + 1)^k, it goes j units ahead if
// digit k of d is j, and stays where it is if that is 0.  So every rank sends one message for each
// j, to the rank j units ahead, with all blocks that have this digit, whosever they are; n messages
// a round.  A block that has come with its last digit that is not 0 is for this rank.  Others are
// laid into the message that they go on with.  In a message, blocks are in the order of their
// distances.
//
//   P = 5, n = 1, block qp from rank q for rank p; rank 0:
//   round 0, unit 1   0 -> 1: 01 03      4 -> 0: 40 42     d = 1, 3
//   round 1, unit 2   0 -> 2: 02 42      3 -> 0: 30 20     d = 2, 3
//   round 2, unit 4   0 -> 4: 04         1 -> 0: 10        d = 4
//
//   P = 5, n = 2
//   round 0, unit 1   0 -> 1: 01 04      4 -> 0: 40 43     d = 1, 4
//                     0 -> 2: 02         3 -> 0: 30        d = 2
//   round 1, unit 3   0 -> 3: 03 43      2 -> 0: 20 10     d = 3, 4
//
// Synchronising: each rank completes with a block of every rank.
//
// Cost, for each rank: K = ceil(log_{n+1} P) rounds; n (K - 1) + ceil(P / (n+1)^(K-1)) - 1
// messages.  A rank sends a block for each digit that is not 0 of the distances 1 .. P - 1, at most
// (K n P) / (n + 1) blocks.  It has a slot and a partial for each message, each as long as the
// longest message: about P / (n + 1) to P / 2 blocks.
//
// Literature: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for
// All-to-All Communications in Multiport Message-Passing Systems", IEEE TPDS 8 (11), 1997: the
// index operation, of radix n + 1 with n ports.  There blocks are rotated before and after; here
// the copies into and out of the registers put them in their places.
#pragma once

#include <cstdint>
#include <tutti/types.hpp>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::plan {

struct BruckRound {
  std::uint32_t unit = 1;      // of distance
  std::uint32_t messages = 0;  // to the ranks 1, 2, ... units ahead
  std::uint32_t blocks = 0;    // of the first one; the others have no more
  friend bool operator==(const BruckRound&, const BruckRound&) = default;
};

/// `n` is at least 1.
std::vector<BruckRound> bruck_rounds(std::uint32_t rank_count, std::uint32_t n);

/// What each rank has: `slots` of so many payloads, and as many partials.
struct BruckRegisters {
  std::uint32_t slots = 0;
  std::uint32_t payloads = 1;
};
BruckRegisters bruck_registers(const std::vector<BruckRound>& rounds);

/// For blocks of one length.  Needs is_block_exchange(rank_count), and `n` of at least 1.
Plan bruck_alltoall(Rank self, std::uint32_t rank_count, std::uint32_t n);

}  // namespace tutti::plan
