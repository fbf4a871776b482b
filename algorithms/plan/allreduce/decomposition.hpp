// Dissemination by the digits of P: allreduce for any number of ranks and any n, in which the
// messages that make up for P not being a power of n+1 are off the critical path.
//
// Idea.  Let q_l = (n+1)^(l-1), and S_l the partial of q_{l+1} ranks that a rank has after round l
// of plain dissemination, rounds counted from 1.  With L as many rounds as leave q_{L+1} <= P, the
// digits of P,
//     P = d_1 q_1 + ... + d_{L+1} q_{L+1},
// cut the ring, from the rank to its left, into d_{L+1} pieces like S_L, d_L pieces like S_{L-1},
// and so on.  The first piece is the own S_L.  Pieces like S_{l-1} exist at their senders when
// round l begins, so they are put then, although they are needed at the very end, and nothing waits
// for them in between: only the top digit, if larger than 1, takes a round of its own.
//
// Digits may be sent piece by piece, or, joined, as one message: the prefix of d_l q_l ranks, which
// exists one round later.
//
// P = 7, n = 1 (digits 1 1 1, L = 2); rank 6
//   ranks      0   1   2   3   4   5   6
//   round 0    c   .   .   .   .   S   own        S_0 of 5; and, for the end, c: S_0 of 0
//   round 1    .   b   b   S   S   own own        S_1 of 4 (3..4); and, for the end, b: S_1 of 2
//   end        c   b   b   own own own own
//
// Cost per rank.  Rounds: L, one more if d_{L+1} > 1, or if joined and d_L > 1.  Messages:
// n L + d_{L+1} - 1, and the sum of all d_l with l <= L, or joined the number of those that are not
// 0.  Partials: L, one for d_{L+1} > 1, one in rank order, and joined one for every other d_l > 1.
// Bytes sent = messages x payload; in rank order a message whose interval has rank 0 in its inside
// carries two payloads (seam.hpp).  For n = 1 these are floor(log2 P) rounds, at most 2 messages
// each.
//
// Two-partial dissemination (two_partial.hpp) in as many rounds takes no more messages (compared
// for n = 1, P <= 2048), but all of them are waited for in their rounds.
//
// Literature: Al Ahad, Simmendinger, Iakymchuk, Laure, Markidis 2018 ("Efficient algorithms for
// collective operations with notified communication in shared windows", PAW-ATM 2018), for n = 1.
#pragma once

#include <cstdint>

#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

enum class Digits : std::uint8_t {
  joined,    // one message for a digit of P, whatever its value
  separate,  // as many messages as it says, one round earlier
};

/// Whether the builder accepts it: both counts are at least 1, and the messages at most slots_max.
bool is_decomposable(std::uint32_t rank_count, std::uint32_t n, Digits digits);

/// Allreduce plan of `self`, named "decomposition" or, if separate, "decomposition_digits".  Needs
/// is_decomposable(), and the same arguments on all ranks.  Time and memory are proportional to the
/// rank's own messages.
Plan decomposition_allreduce(Rank self, std::uint32_t rank_count, std::uint32_t n, Digits digits,
                             Order order);

}  // namespace tutti::plan
