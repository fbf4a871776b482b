// Messages per round of the least price on a machine.
#pragma once

#include <cstdint>
#include <functional>

#include "plan/core/per_round.hpp"
#include "plan/cost/loggp.hpp"

namespace tutti::tune {

/// The largest entry of a vector that nobody asks for.  It is no network's: beyond 16 senders to
/// one receiver at a time, what a switch does is less and less what the model says.
inline constexpr std::uint32_t messages_of_round_max = 15;

using RoundPrice = std::function<plan::Picoseconds(const plan::Round&)>;

/// The vector that covers the ranks and has the least sum of prices over its rounds; of those the
/// one of fewest rounds, then fewest messages, then larger entries first.  No rank has more than
/// `partners_max` partners, if there is such a vector.
plan::PerRound cheapest_vector(std::uint32_t rank_count, std::uint32_t partners_max,
                               const RoundPrice& price);

/// Messages that a rank may send in all rounds: it hears from as many others as it sends to.
std::uint32_t messages_max_of(std::uint32_t rank_count, std::uint32_t partners_max);

}  // namespace tutti::tune
