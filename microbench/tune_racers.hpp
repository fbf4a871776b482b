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

/// Candidates of a race; more in a single node, whose schedules the model hardly tells apart.
inline constexpr std::size_t racers_max = 4, racers_in_node_max = 6;

/// The candidates of a race, alike on all ranks.  The first one is the untuned choice, if it is
/// possible on the machine that was measured; the others follow by price.
struct Racers {
  std::vector<tune::Choice> choices = {};
  std::string untuned = {};  // the name of what is taken untuned
};
/// `machine`: the network as it was measured; `untuned`: what is known without a file.
Racers racers_of(const tune::CollectiveRequest& request, const tune::Topology& topology,
                 const tune::Knowledge& machine, const tune::Knowledge& untuned);

/// The choice of that name, with its price on a machine; nothing if it is made for another one, as
/// a tree whose shape depends on the latency.
std::optional<tune::Choice> choice_named(const std::string& name, tune::CollectiveRequest request,
                                         const tune::Topology& topology,
                                         const tune::Knowledge& machine);

/// The call that a finding is about, as far as a finding says what it was: blocks of equal length,
/// all ranks, room and connections for every schedule.
tune::CollectiveRequest request_of(const tune::Finding& finding);
/// A finding of more ranks keeps the price that it has: a file may name 2^36 of them, and a
/// topology has a number for each.
inline constexpr std::uint64_t ranks_priced_max = 4096;
/// Its ranks: as many on each node.  Nothing if they are more than that.
std::optional<tune::Topology> topology_of(const tune::Finding& finding);

/// Prices the choices of a finding on the machine.  Where a choice cannot be told again (it is made
/// for another machine, or needs what a finding does not say), its earlier price stays: without
/// one, what was measured would correct no price any more.  If there is not enough memory, all
/// prices stay. `messages_max`: of plans of more messages, by the formula.
void price_anew(tune::Finding& finding, const tune::CollectiveRequest& request,
                const tune::Topology& topology, const tune::Knowledge& machine,
                std::size_t messages_max);

/// What a race says about a request.  Of the racers, those take part that have a time.
tune::Finding finding_of(const tune::CollectiveRequest& request, const tune::Topology& topology,
                         const std::vector<tune::Choice>& racers, const tune::RaceResult& result);

}  // namespace tutti::bench
