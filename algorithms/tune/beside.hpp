// This finds what is beside a choice: the same schedule with other messages in each round, or with
// another tree.  Prices hardly tell these from each other, so races do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tune/choose.hpp"

namespace tutti::tune {

/// Whether a choice could have other messages in each round.
bool has_vector(const Choice& choice);

/// Choice::name() with as many messages in each round as its plan has: choices that differ in
/// others are the same schedule, for example any vector on two ranks.
std::string name_when_trimmed(const Choice& choice);

/// `choice` for that request, with 1 to 7 messages in each round instead of the messages that it
/// has, as far as they can be asked for, and one of those that are the same schedule; empty if it
/// has none to vary.
std::vector<Choice> with_uniform_vectors(const Choice& choice, const CollectiveRequest& request,
                                         const Topology& topology, const Knowledge& knowledge);

/// Whether a choice has a Fibonacci tree over the nodes, and is no chain.
bool has_latency(const Choice& choice);

/// The row, the number of lanes, and for each number of nodes in its tree the sizes of the
/// subtrees: equal for choices that differ in nothing but a latency that makes no difference.
using Trees = std::tuple<std::string_view, std::uint32_t,
                         std::map<std::uint32_t, std::vector<std::uint32_t>>>;
Trees trees_of(const Choice& choice);

/// Sorts them, the fastest first, each by its events, or by its price if it has more messages than
/// its share of 2 messages_max.
std::vector<Choice> by_events(std::vector<Choice> choices, std::size_t messages_max);

/// The fastest neighbours of a choice, at most three.  A neighbour has another vector
/// (neighbours_of()), n messages in each round (of cores also in the first of two), a near latency,
/// or one of four latencies up to that of a nearly flat tree.  One lower and one higher latency
/// come first.
std::vector<Choice> beside(const Choice& choice, const CollectiveRequest& request,
                           const Topology& topology, const Knowledge& knowledge,
                           std::size_t messages_max);

/// Returns the choices whose neighbours beside() is to find: `first`, each other choice in `found`
/// that has a tree, and then, until there are four in all, the fastest choice of each further shape
/// in `fastest_first`.  Two choices have the same shape if they differ only in the messages of
/// their rounds, or only in the latency of their tree.
std::vector<Choice> worth_varying(const Choice& first, const std::vector<Choice>& found,
                                  const std::vector<Choice>& fastest_first);

/// Reorders `fastest_first` so that the places of a race do not all go to trees whose latencies
/// err in the same direction: which of them are fast depends on parameters that may be off.  For
/// each tree in `found`, the fastest choice of its shape with a lower latency and the fastest one
/// with a higher latency keep their places.  Those with other latencies move to the end.
std::vector<Choice> on_both_sides_first(std::vector<Choice> fastest_first,
                                        const std::vector<Choice>& found);

}  // namespace tutti::tune
