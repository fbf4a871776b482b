// What a schedule costs, round by round, and which messages per round cost least.
//
// A round of r messages of b bytes, with g' = max(g, b G) and gamma of b bytes:
//
//   after_all       T(r) = o + (r-1) g' + L + b G + o_r + r gamma
//   while_arriving  T(r) = o + L + b G + (r-1) max(g', o_r + gamma) + o_r + gamma
//
// The messages leave g' apart and the last one travels.  Either all are combined once it is there,
// or each as it comes, so that only one gamma is left at the end unless combining takes longer than
// the gap.  A payload of 0 bytes is a barrier's: nothing is combined.  The cost of a schedule is
// the sum over its rounds.
//
// Against the recurrence (makespan.hpp), where o + L + b G + o_r >= g', so that ports are free when
// a round begins: while_arriving is exact for plain dissemination and the barrier, and for
// two-partial dissemination but for one gamma in each round that keeps both partials.  after_all
// overestimates it, on an FDR-like network by 5 % at 8 bytes and by a fifth at 2 KiB, where the
// vectors that it likes best are up to a quarter slower than the best.
//
// The best vector of two-partial and plain dissemination is chosen from its last round to its first
// one.  A round of r messages leaves ceil(m / (r+1)) of m ranks to the rounds before it, so that
//   C(1) = 0     C(m) = min over r of T(r) + C(ceil(m / (r+1)))
// and only the least r of each quotient counts.
#pragma once

#include <cstdint>

#include "plan/core/per_round.hpp"
#include "plan/cost/loggp.hpp"

namespace tutti::plan {

/// The largest `largest_entry`: no vector has more than 32 rounds, so they all have slots.
inline constexpr std::uint32_t entry_max = 1024;

enum class Combining : std::uint8_t { after_all, while_arriving };

/// T(messages), of at least one message.
Picoseconds round_time(std::uint32_t messages, std::uint64_t payload_bytes, const LogGP& network,
                       Combining combining);

/// Sum over the rounds of two-partial or plain dissemination.  Needs covers(rank_count, per_round).
Picoseconds dissemination_time(std::uint32_t rank_count, const PerRound& per_round,
                               std::uint64_t payload_bytes, const LogGP& network,
                               Combining combining);

/// The covering vector of entries 1 .. `largest_entry` (1 .. entry_max) of least
/// dissemination_time(), of those the one of fewest rounds, then fewest messages; larger entries
/// first.  Empty for one rank.  Always executable.  Needs at least one rank.
PerRound best_per_round(std::uint32_t rank_count, std::uint64_t payload_bytes, const LogGP& network,
                        std::uint32_t largest_entry, Combining combining);

}  // namespace tutti::plan
