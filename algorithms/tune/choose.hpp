// choose() filters the rows of the registry for a request, prices what is left, and takes the
// least.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tutti/types.hpp>
#include <utility>
#include <vector>

#include "plan/allreduce/shared_ring.hpp"
#include "plan/core/plan.hpp"
#include "tune/choice.hpp"
#include "tune/knowledge.hpp"

namespace tutti::tune {

/// By price alone, on a network.  Pure, so all ranks get the same result.  Throws
/// Error{invalid_argument} for messages per round that do not serve so many ranks, with the nearest
/// that do, and Error{unsupported} for a schedule that cannot do what is asked, with those that
/// can.
Choice choose(const CollectiveRequest& request, const Topology& topology,
              const plan::Network& network);

/// Rules decide, then findings, then prices, unless the request says how it is done.  Throws
/// likewise.
Choice choose(const CollectiveRequest& request, const Topology& topology,
              const Knowledge& knowledge);

/// The choice of that name for that request; nothing if no schedule has that name there, or if it
/// cannot be made.
std::optional<Choice> choice_named(const std::string& name, const CollectiveRequest& request,
                                   const Topology& topology, const Knowledge& knowledge);

/// Everything that a price decided about: all rows and variants that are considered.  A test or a
/// verification compares their times.
std::vector<Choice> rivals(const CollectiveRequest& request, const Topology& topology,
                           const plan::Network& network);

/// Which half of the shared ring a collective is, or both.
plan::RingPhases phases_of(Collective collective) noexcept;

/// The payload that would go along a shared ring, as if all blocks of nodes were as long as the
/// longest.
std::size_t shared_ring_bytes(const CollectiveRequest& request, const Topology& topology);

/// What a shared ring would take of the arena of the first rank of the largest node.
std::uint64_t shared_ring_arena_bytes(const CollectiveRequest& request, const Topology& topology);

/// Whether a flow of chunks would be chosen for a request if all ranks had room for it, so that
/// they have to tell.  All ranks get the same result.  False also for what choose() refuses.
bool depends_on_ring_room(const CollectiveRequest& request, const Topology& topology,
                          const Knowledge& knowledge);

/// `self`'s plan of what is chosen.
inline plan::Plan plan_for(const CollectiveRequest& request, const Topology& topology, Rank self,
                           const plan::Network& network) {
  return choose(request, topology, network).plan(self);
}
inline plan::Plan plan_for(const CollectiveRequest& request, const Topology& topology, Rank self,
                           const Knowledge& knowledge) {
  return choose(request, topology, knowledge).plan(self);
}

}  // namespace tutti::tune
