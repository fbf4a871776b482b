// What would flip a choice: the values of the machine's parameters by which another one wins.
#pragma once

#include <string>

#include "tune/knowledge.hpp"
#include "tune/request.hpp"
#include "tune/topology.hpp"

namespace tutti::tune {

/// What would change the choice: for each parameter of the machine, the nearest value within a
/// factor of 8 by which another choice wins, a line each; empty: none.  It calls choose() some
/// hundred times.  fan_max is not varied, because no price depends on it.
std::string what_would_flip(const CollectiveRequest& request, const Topology& topology,
                            const Knowledge& knowledge);

}  // namespace tutti::tune
