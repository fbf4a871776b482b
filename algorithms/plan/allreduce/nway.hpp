// Adapted n-way dissemination: allreduce with n messages in every round but the last, for those
// numbers of ranks whose last round can be cut at a border of partials.
//
// Idea.  In the rounds before the last, S grows from the own contribution to the Q = (n+1)^(k-1)
// ranks that end at the rank itself.  On the way a rank holds the prefixes of S of the lengths
// m (n+1)^e, m = 1 .. n+1, and no others.  A border is the left end of a prefix, named by the round
// l and the message j that completed it; 0, 0 is the border behind the own contribution.  In the
// last round s senders continue S to the left by whole S's, the last of them by a prefix A of
// length a.  If A reaches round the ring into the first b ranks of the receiver, and the receiver
// holds the prefix of length b, these are taken out.  So the schedule exists if and only if
// P = s Q + a - b with prefix lengths a, and b or b = 0 (the base border).
//
// Taking out.  With an inverse, the prefix B of length b is taken out of the result.  Without one,
// the rank keeps what it receives beyond that border apart from B, in T: each S that follows is T o
// B, one combination more, and the result is T with the last round, so it may keep rank order.
//
// P = 8, n = 2 (k = 2, Q = 3): s = 2, a = 2, b = 0; rank 7
//   ranks      0   1   2   3   4   5   6   7
//   round 0    .   .   .   .   .   S   S   own    S's of 6 and 5, one rank each
//   round 1    A   A   S   S   S   own own own    S of 4 (2..4), A of 1 (0..1)
//
// P = 7, n = 1 (k = 3, Q = 4): s = 1, a = 4, b = 1; rank 6
//   ranks      0   1   2   3   4   5   6
//   round 0    .   .   .   .   .   S   own        S of 5
//   round 1    .   .   .   S   S   own own        S of 4 (3..4)
//   round 2    A   A   A   own own own A,B        A of 2 is 6, 0, 1, 2: 6 a second time
//
// Cost per rank.  k = ceil(log_{n+1} P) rounds; n (k-1) messages in all but the last and s in the
// last (s - 1 where a = b: a prefix of that length would come from the rank itself); at most k + 3
// partials; bytes sent = messages x payload.  In rank order a message whose interval has rank 0 in
// its inside carries two payloads (seam.hpp).
//
// Which P.  All up to (n+1)^3, because any number up to (n+1)^2 is m (n+1) - b with b <= n; beyond,
// fewer and fewer: of P = 2 .. 1024, n = 1 serves 175 and n = 7 serves 771.  Two-partial
// dissemination (two_partial.hpp) serves all P with every n, takes nothing out, and does not take
// more messages (compared for P <= 1024, n <= 8).
//
// Literature: End, Yahyapour, Alrutz, Simmendinger 2015 ("Adaption of the n-way dissemination
// algorithm for GASPI split-phase allreduce", INFOCOMP 2015), whose 5-tuples and cases are named
// here.  Their equation (8) has to hold in the integers, not modulo P; and where the border of the
// sender meets the base border, the sender sends up to border j_snd, not j_snd - 1.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

/// The left end of a prefix: complete after message `message` of round `round`, both from 1 on as
/// in the paper (j and l), or 0, 0: behind the own contribution.
struct Border {
  std::uint32_t round = 0;
  std::uint32_t message = 0;
  friend bool operator==(const Border&, const Border&) = default;
};

/// The cases of the paper's theorem 1, by its numbers, and two that it treats apart.
enum class AdaptionCase : std::uint8_t {
  both_borders = 1,        // A is a prefix that was completed by a message, and so is B
  own_data_sent = 2,       // A is the sender's own contribution, B was completed by a message
  whole_partials = 3,      // P = s Q: only whole S's are sent, nothing is taken out
  first_round_sent = 4,    // own contribution and own contribution: A is shorter by it instead
  own_data_taken_out = 5,  // B is the receiver's own contribution
  base_border,             // nothing is taken out
  power,                   // the same with P = (n+1)^k: no adaption at all
};

/// One way to make the last round fit.
struct Adaption {
  std::uint32_t n = 1;
  std::uint32_t rounds = 0;          // k
  std::uint32_t whole_messages = 0;  // of the last round: those that carry S
  std::uint32_t prefix_sent = 0;     // a: length of A, carried by one message more; 0: none
  std::uint32_t taken_out = 0;       // b: length of B
  AdaptionCase theorem_case = AdaptionCase::power;
  std::uint32_t senders = 0;  // s of the 5-tuple
  Border sent;                // l_snd, j_snd
  Border received;            // l_rcv, j_rcv; without meaning at the base border
  friend bool operator==(const Adaption&, const Adaption&) = default;
};

/// All 5-tuples that fit, in their order (s, l_snd, j_snd, l_rcv, j_rcv), those at the base border
/// last; empty if none does, or more than slots_max messages were needed, or an argument is 0. Time
/// and memory are proportional to the messages of a rank.
std::vector<Adaption> adaptions(std::uint32_t rank_count, std::uint32_t n);

/// The adaption to use: the one with the fewest messages; of these the one with the shortest prefix
/// taken out, best none; of these one that sends whole S's only; and of equal ones the first.
std::optional<Adaption> adaption(std::uint32_t rank_count, std::uint32_t n);

/// Whether there is one: the precondition of the builder.
bool is_adaptable(std::uint32_t rank_count, std::uint32_t n);

/// The n nearest to the one asked for (at least 1) for which `rank_count` (at least 1) is
/// adaptable, the smaller one of two.  There is always one: at the latest where (n+1)^3 reaches the
/// ranks.
std::uint32_t nearest_adaptable_n(std::uint32_t rank_count, std::uint32_t n);

/// Messages of each round.
PerRound nway_rounds(const Adaption& adaption);

enum class TakeOut : std::uint8_t {
  recompute,  // for any operator
  inverse,    // for commutative operators that have an inverse
};

/// Allreduce plan of `self`, named "nway" or "nway_inverse".  Needs is_adaptable(rank_count, n);
/// the same arguments on all ranks; and no inverse in rank order.  Time and memory are proportional
/// to the rank's own messages.
Plan nway_allreduce(Rank self, std::uint32_t rank_count, std::uint32_t n, TakeOut take_out,
                    Order order);

/// nway_allreduce() with one of adaptions(rank_count, n).
Plan nway_allreduce(Rank self, std::uint32_t rank_count, const Adaption& adaption, TakeOut take_out,
                    Order order);

}  // namespace tutti::plan
