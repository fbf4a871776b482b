// What a call takes by the recurrence of its events (plan/cost/makespan.hpp), of plans of all
// ranks: the judge of prices, and of few ranks the last word between the cheapest.
#pragma once

#include <cstddef>
#include <functional>

#include "plan/core/plan.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {

/// On the network of the query, all ranks starting at once.  The chunks of a broadcast or reduce
/// follow each other, as in the engine; of other collectives all is one chunk.
plan::Picoseconds plan_time(const Query& query, const std::function<plan::Plan(Rank)>& plan_of);

/// About how many messages that follows, at most; SIZE_MAX: not all that happens is modelled.
/// `plan` is that of rank 0.
std::size_t messages_followed(const Query& query, const Row& row, const plan::Plan& plan);

}  // namespace tutti::tune
