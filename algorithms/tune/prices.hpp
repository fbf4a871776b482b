// What several prices are made of: rounds of messages, and a rank's share of the port of its node.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/cost/network.hpp"
#include "tune/request.hpp"
#include "tune/topology.hpp"

namespace tutti::tune {

/// The share of a port that each of so many ranks of a node has if all send alike.  A round ends
/// with the last message of the last rank, which leaves behind one of each of the others.
plan::LogGP share_of_port(const plan::LogGP& network, std::uint32_t ranks);

/// A round of `messages` of so many values of `value_bytes` each.
plan::Picoseconds round_cost(const plan::LogGP& network, std::uint32_t messages,
                             std::uint64_t values, std::uint64_t value_bytes, bool combines = true);

/// A round inside a node, where ranks store their messages themselves, and then take those of the
/// others.
plan::Picoseconds round_cost_in_node(const plan::Network& network, std::uint32_t messages,
                                     std::uint64_t values, std::uint64_t value_bytes,
                                     bool combines = true);

/// A message from one rank of a node to another, until it is read.
plan::Picoseconds hop_in_node(const plan::NodeMemory& memory, std::uint64_t bytes);

/// What a port sends in the gap between messages: 680 bytes on FDR InfiniBand.
std::uint64_t bytes_of_gap(const plan::LogGP& network);

/// The size of a payload that costs are computed for.  Beyond some MiB their proportions do not
/// change any more, and picoseconds would overflow.
std::uint64_t priced_bytes(std::size_t payload_bytes);

/// A part of a price, price x by / of, rounded down where it is not negative, and at most
/// plan::Rate::longest.
plan::Picoseconds scaled(plan::Picoseconds price, std::uint64_t by, std::uint64_t of);

/// By how many bits the times of a machine have to be shorter so that 64 bits hold all prices of a
/// request; 0 for machines of today.
int excess_bits(const plan::Network& network, const CollectiveRequest& request,
                const Topology& topology);
/// A machine that is 2^bits times as fast.  Prices are linear in its times, so what is chosen is
/// the same but for roundings.
plan::Network faster(const plan::Network& network, int bits);

}  // namespace tutti::tune
