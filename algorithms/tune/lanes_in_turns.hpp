// Allreduces in lanes that go in turns (plan/allreduce/lane_turns.hpp): which may be chosen, and
// their prices.
#pragma once

#include <vector>

#include "plan/allreduce/lane_turns.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {

/// The variant with the number of turns, their pieces, the rounds and the exchanges of the least
/// price, or none if lanes may not go in turns.  If a choice is named: all that may have the name.
std::vector<Variant> lanes_in_turns(const Query& query);

/// The shape of a variant that has turns.
plan::LaneTurns lane_turns_of(const Query& query, const Variant& variant);

/// The price of a variant that has turns.
plan::Picoseconds lane_turns_cost(const Query& query, const Variant& variant);

}  // namespace tutti::tune
