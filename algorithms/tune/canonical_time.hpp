// How long canonical dissemination takes where all nodes have equally many ranks that follow each
// other: the recurrence of events (plan/cost/makespan.hpp) without plans, round by round.  All
// nodes do about the same at the same time, so that, of many ranks, a few nodes stand for all:
// those with the longest messages.
#pragma once

#include <cstdint>

#include "plan/core/per_round.hpp"
#include "plan/cost/network.hpp"

namespace tutti::tune {

struct CanonicalShape {
  std::uint32_t rank_count = 1;
  std::uint32_t ranks_per_node = 1;
  std::uint64_t bytes = 0;  // of the payload
};

/// Until the last rank has the result.  The vector has to cover the ranks.
plan::Picoseconds canonical_time(const CanonicalShape& shape, const plan::PerRound& per_round,
                                 const plan::Network& network);
/// Like canonical_time(), but it follows all nodes, however many ranks there are.
plan::Picoseconds canonical_time_of_all(const CanonicalShape& shape,
                                        const plan::PerRound& per_round,
                                        const plan::Network& network);

/// Up to so many ranks, canonical_time() follows all nodes.
inline constexpr std::uint32_t canonical_ranks_of_all = 64;

}  // namespace tutti::tune
