// How long canonical halving takes where all nodes have equally many ranks that follow each other:
// the recurrence of events (plan/cost/makespan.hpp) of one rank of each cube.  The others of a cube
// do the same at about the same time, so that it receives what it sends to them; the ranks of its
// node send as many messages as it does, each after the other.
#pragma once

#include <optional>

#include "plan/cost/network.hpp"
#include "tune/canonical_time.hpp"

namespace tutti::tune {

/// Until the last rank has the result; nothing if one of those that are followed never gets it, as
/// the messages that stand for others do not suffice.
std::optional<plan::Picoseconds> halving_time(const CanonicalShape& shape,
                                              const plan::Network& network);

}  // namespace tutti::tune
