// Recursive multiplying: allreduce whose result is one expression, the same on every rank, so that
// floating-point results agree in all bits, and operators that do not commute see rank order.
//
// Idea.  Let P' = (n_1+1)(n_2+1)...(n_k+1), and write ranks in that mixed radix, lowest digit
// first.  In round i a rank exchanges its partial with the n_i ranks that differ from it in digit i
// alone.  The partials of such a group belong to adjacent blocks of ranks, so every member
// folds them in digit order, from right to left, v_0 o (v_1 o (... o v_n)), its own at its own
// place: after the round the group holds one block, and the same expression of it everywhere.
//
// A member sends to its successor in the group first, so that messages are spread over receivers.
//
// P = 6, core 2,1 (a block in brackets; all ranks show the same association):
//   rank      0        1        2        3        4        5
//   round 0   [0 o (1 o 2)] exchanged in 0,1,2    [3 o (4 o 5)] exchanged in 3,4,5
//   round 1   0 with 3, 1 with 4, 2 with 5:       [0 o (1 o 2)] o [3 o (4 o 5)]
//
// Any P.  P ranks are cut into P' <= P groups of consecutive ranks, as even as can be, the larger
// ones first.  The first rank of a group, its leader, folds the group's contributions from right to
// left in one round before the core (in), takes part in the core for its group, and sends the
// others the result in one round after it (out).  The groups are intervals, so rank order holds;
// one leader folds for all of its group and sends them what it has, so results are identical.
//
// P = 7, core 2,1 (P' = 6): groups 01 2 3 4 5 6
//   in   0 <- 1      core as above between 0, 2, 3, 4, 5, 6      out   0 -> 1
//
// Cost per rank, with g = ceil(P / P').  Where P' = P: k rounds, M = n_1 + ... + n_k messages, k
// partials, M slots: no more than two-partial dissemination with that vector.  Otherwise: k + 2
// rounds; a leader sends at most M + g - 1 messages, the others one; at most k + 1 partials, and
// M + g slots (numbered alike everywhere, though most ranks use some of them only).  Bytes sent are
// messages x payload; a message never carries more than one.
//
// Two parities suffice although ranks differ in role: the result that a rank waits for, in the core
// or told by its leader, contains the contributions of all ranks to this call, so no rank completes
// a call that some rank has not entered; and every message is awaited by its receiver.
//
// Literature: recursive doubling of MPI libraries, generalised to other factors as in Ruefenacht,
// Bull, Booth 2017 ("Generalisation of recursive doubling for allreduce: Now with simulation",
// Parallel Computing 69).
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether the builder accepts the core: entries of at least 1, a product of (entry + 1) that does
/// not exceed `rank_count` (at least 1), and no more than slots_max messages.
bool is_core(std::uint32_t rank_count, const PerRound& core);

/// Messages of each round, the most that a rank sends or receives: the core, with one round more on
/// either side where its product is not `rank_count`.  Needs is_core(rank_count, core).
PerRound recursive_multiplying_rounds(std::uint32_t rank_count, const PerRound& core);

/// What rounds cost, in any unit.
struct CorePrices {
  struct OfRound {
    std::int64_t fixed = 0, each = 0;
    std::int64_t least = 0, busy = 0;  // what is waited for, if that is more than is done meanwhile
    std::int64_t shared = 0;           // of what others use as well; all they do is not less
    std::int64_t own = 0;              // of the rank's time; all of it is not less
    std::int64_t of(std::uint64_t messages) const {
      const auto count = static_cast<std::int64_t>(messages);
      return std::max(
          {fixed + count * each + std::max(least, count * busy), count * shared, count * own});
    }
  };
  OfRound combining = {};     // of the core, and of the round before it
  OfRound out = {};           // of the round after it, in which nothing is combined
  std::uint32_t largest = 7;  // messages of a round at most
};

/// The core of least price over its rounds, those of the fold included; of those the one of fewest
/// rounds, then fewest messages; larger entries first.  Only such are considered as send at most
/// `messages_max` messages in all their rounds, if there are any.
PerRound cheapest_core(std::uint32_t rank_count, const CorePrices& prices,
                       std::uint64_t messages_max);

/// The cheapest core whose rounds have the entries of `at_most`, in their order, as upper bounds; a
/// round may be left out.  A vector whose product of (entry + 1) is `rank_count` is taken as it is.
/// The rounds of the fold, if any, are in addition, with at most the largest entry.  Needs
/// is_executable(rank_count, at_most).
PerRound cheapest_core_within(std::uint32_t rank_count, const CorePrices& prices,
                              const PerRound& at_most);

/// Allreduce plan of `self`.  Needs is_core(rank_count, core), and the same core on all ranks. Time
/// and memory are proportional to the rank's own messages.
Plan recursive_multiplying_allreduce(Rank self, std::uint32_t rank_count, const PerRound& core);

}  // namespace tutti::plan
