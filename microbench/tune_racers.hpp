// Who takes part in the race of a cell, and what is found by it, whatever the samples are: of a
// communicator (tune_race.hpp), or drawn on a machine that exists as numbers (verify_tuned.hpp).
// All of it is pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tune/choose.hpp"
#include "tune/race.hpp"
#include "tune/tuning.hpp"

namespace tutti::bench {

/// The contributions, or blocks, that are tuned unless others are asked for.
inline constexpr std::array<std::size_t, 9> tuned_bytes_by_default = {
    8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};

/// No buffer of a rank becomes larger than that.
inline constexpr std::size_t tuned_buffer_bytes_max = std::size_t{1} << 28;

/// How often a race is repeated during which the machine was noisy.
inline constexpr int noisy_tries = 3;

/// How many candidates race: in a single node, where the model tells less, more than elsewhere; on
/// several nodes up to ten, if the model does not tell which of them is the fastest.
inline constexpr std::size_t racers_max = 5, racers_in_node_max = 6, racers_alike_max = 10;

/// The candidates of a race, alike on all ranks.  The first one is the untuned choice, if it is
/// possible on the machine that was measured; the others follow as in tune::candidates().
struct Racers {
  std::vector<tune::Choice> choices = {};
  std::string untuned = {};  // the name of what is taken untuned
};
/// `machine`: the network as it was measured; `untuned`: what is known without a file.
Racers racers_of(const tune::CollectiveRequest& request, const tune::Topology& topology,
                 const tune::Knowledge& machine, const tune::Knowledge& untuned);

/// The call of a finding.  What a finding does not say is assumed: blocks of equal length, all
/// ranks, room and connections for every schedule.
tune::CollectiveRequest request_of(const tune::Finding& finding);
/// A finding of more ranks keeps its price: a file may name 2^36 ranks, and a topology has a number
/// for each.
inline constexpr std::uint64_t ranks_priced_max = 4096;
/// Its ranks, equally many on each node; nothing if they are more than ranks_priced_max.
std::optional<tune::Topology> topology_of(const tune::Finding& finding);

/// Prices the choices of a finding on the machine.  A choice that cannot be made by its name here
/// (it is of another machine, or needs what a finding does not say) keeps its price: without a
/// price, its time would correct nothing.  If memory is short, all keep theirs.  Plans of more than
/// `messages_max` messages are priced by the formula.
void price_anew(tune::Finding& finding, const tune::CollectiveRequest& request,
                const tune::Topology& topology, const tune::Knowledge& machine,
                std::size_t messages_max);

/// What a race says about a request.  Of the racers, those take part that have a time.
tune::Finding finding_of(const tune::CollectiveRequest& request, const tune::Topology& topology,
                         const std::vector<tune::Choice>& racers, const tune::RaceResult& result);

}  // namespace tutti::bench
