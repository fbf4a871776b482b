// What rounds cost on a network that has not been measured: by these prices schedules are compared
// with each other.  The constants are guesses, for one kind of network; every choice that depends
// on them has to come through here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/cost/network.hpp"

namespace tutti::tune {

/// Like FDR InfiniBand between nodes, and like stores of 10 GB/s inside a node (guesses); used
/// until the machine has been measured.
inline constexpr plan::Network assumed_network{
    .between = {.latency = 700'000,
                .send_overhead = 150'000,
                .receive_overhead = 50'000,
                .gap = 100'000,
                .per_byte = {.time = 10'000, .bytes = 68},
                .work = 10'000,
                .work_per_byte = {.time = 125}},
    .inside = {.latency = 100'000,
               .send_overhead = 20'000,
               .per_byte = {.time = 100},
               .receive_overhead = 20'000,
               .read_overhead = 500'000,
               .read_per_byte = {.time = 100}}};

/// A message to a rank of the same node: about what a broadcast of 8 bytes takes there (a guess).
inline constexpr plan::Picoseconds hop_in_memory = 300'000;

/// The share of a port that each of so many ranks of a node has if all send alike.  A round ends
/// with the last message of the last rank, which leaves behind one of each of the others.
plan::LogGP share_of_port(const plan::LogGP& network, std::uint32_t ranks);

/// A round of `messages` of so many values of `value_bytes` each.
plan::Picoseconds round_cost(const plan::LogGP& network, std::uint32_t messages,
                             std::uint64_t values, std::uint64_t value_bytes, bool combines = true);

/// The size of a payload that costs are computed for.  Beyond some MiB their proportions do not
/// change any more, and picoseconds would overflow.
std::uint64_t priced_bytes(std::size_t payload_bytes);

}  // namespace tutti::tune
