// Allreduces in lanes that go in turns (plan/allreduce/lane_turns.hpp): which may be chosen, and
// their prices.
#pragma once

#include <vector>

#include "plan/allreduce/lane_turns.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {

/// The variant whose number of turns, pieces, rounds and exchanges has about the least price: the
/// least of those with the least estimates.  None if lanes may not go in turns.  If a choice is
/// named: all that may have the name.
std::vector<Variant> lanes_in_turns(const Query& query);

/// The shape of a variant that has turns.
plan::LaneTurns lane_turns_of(const Query& query, const Variant& variant);

/// The price of a variant that has turns.
plan::Picoseconds lane_turns_cost(const Query& query, const Variant& variant);

}  // namespace tutti::tune
