// How long canonical halving takes where all nodes have equally many ranks that follow each other:
// the recurrence of events (plan/cost/makespan.hpp) for a few nodes of each cube.  The others of a
// cube do the same at about the same time, so a node that is followed receives what it sends to
// them; all its ranks send as its first one does.
#pragma once

#include <optional>

#include "plan/cost/network.hpp"
#include "tune/canonical_time.hpp"

namespace tutti::tune {

/// The time until the last rank has the result; nothing if a rank that is followed never gets it,
/// because the messages that stand for others do not suffice.
std::optional<plan::Picoseconds> halving_time(const CanonicalShape& shape,
                                              const plan::Network& network);

}  // namespace tutti::tune
