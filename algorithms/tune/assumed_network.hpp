// What rounds cost on a network that has not been measured: by these prices schedules are compared
// with each other.  The constants are guesses, for one kind of network; every choice that depends
// on them has to come through here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/cost/loggp.hpp"

namespace tutti::tune {

/// Like FDR InfiniBand; used until the network has been measured.
inline constexpr plan::LogGP assumed_network{.latency = 700'000,
                                             .send_overhead = 150'000,
                                             .receive_overhead = 50'000,
                                             .gap = 100'000,
                                             .per_byte = {.time = 10'000, .bytes = 68},
                                             .work = 10'000,
                                             .work_per_byte = {.time = 125}};

/// A message to a rank of the same node: about what a broadcast of 8 bytes takes there (a guess).
inline constexpr plan::Picoseconds hop_in_memory = 300'000;

/// What a rank stores for another one of its node: for each message, and for its bytes at 10 GB/s
/// (guesses).
inline constexpr plan::Picoseconds store_overhead = 40'000;
inline constexpr plan::Rate store_per_byte{.time = 100};

/// A round of `messages` of so many values of `value_bytes` each.
plan::Picoseconds round_cost(std::uint32_t messages, std::uint64_t values,
                             std::uint64_t value_bytes, bool combines = true);

/// The size of a payload that costs are computed for.  Beyond some MiB their proportions do not
/// change any more, and picoseconds would overflow.
std::uint64_t priced_bytes(std::size_t payload_bytes);

}  // namespace tutti::tune
