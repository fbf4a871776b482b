// Vectors of messages per round.  A rank that sends n_1, n_2, ... messages in its rounds reaches
// at most (n_1+1)(n_2+1)... ranks, so a vector serves P ranks if and only if that product covers
// P; the two-partial scheme attains every such vector.  Integers only: ceil(log P / log(n+1)) in
// doubles is wrong by a round for (P, n) = (125, 4), (216, 5), (15625, 4) and others.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::plan {

/// Messages of each round; every entry is at least 1.
using PerRound = std::vector<std::uint32_t>;

/// Notifications are slot numbers, and a 32-bit immediate has 15 bits for one.
inline constexpr std::uint64_t slots_max = 1u << 15;

/// Whether every entry is at least 1 and the product of (entry + 1) reaches `rank_count`.
bool covers(std::uint32_t rank_count, const PerRound& per_round);

/// One executed round of a dissemination (two_partial.hpp): partials of `length` grow to (messages
/// + 1) length - short_messages.
struct Round {
  std::uint32_t length = 1;          // m: ranks in W when the round begins
  std::uint32_t messages = 0;        // r
  std::uint32_t short_messages = 0;  // c: how many of them, the last ones, carry V instead of W
  friend bool operator==(const Round&, const Round&) = default;
};

/// The rounds that are executed, fewer than the entries if some are superfluous.  Needs
/// covers(rank_count, per_round).
std::vector<Round> two_partial_rounds(std::uint32_t rank_count, const PerRound& per_round);

/// Whether the builders accept the vector: it covers `rank_count` (at least 1) and needs no more
/// than slots_max messages.  This is the precondition of every builder of this layer.
bool is_executable(std::uint32_t rank_count, const PerRound& per_round);

/// `messages` (at least 1) in each of as few rounds as cover `rank_count`; empty for one rank.
PerRound uniform(std::uint32_t rank_count, std::uint32_t messages);

/// The covering vector of entries 1 .. `largest` (at least 1) that has the fewest rounds, then the
/// fewest messages, then the product nearest to `rank_count` (equal to it, no partial is ever
/// trimmed and no second one travels), then the larger entries, larger ones first.  Empty for one
/// rank.
PerRound nearest_covering(std::uint32_t rank_count, std::uint32_t largest);

}  // namespace tutti::plan
