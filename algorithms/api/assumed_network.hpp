// What rounds cost where the network has not been measured: by its numbers schedules are compared
// with each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/cost/loggp.hpp"

namespace tutti::api {

/// Like FDR InfiniBand; used until the network has been measured.
inline constexpr plan::LogGP assumed_network{.latency = 700'000,
                                             .send_overhead = 150'000,
                                             .receive_overhead = 50'000,
                                             .gap = 100'000,
                                             .per_byte = {.time = 10'000, .bytes = 68},
                                             .work = 10'000,
                                             .work_per_byte = {.time = 125}};

/// Telling a rank of the same node: about what a broadcast of 8 bytes takes there (a first guess).
inline constexpr plan::Picoseconds hop_in_memory = 300'000;

/// What a round costs on the assumed network: messages of so many payloads.
plan::Picoseconds round_cost(std::uint32_t messages, std::uint64_t payloads, std::uint64_t payload,
                             bool combines = true);

/// The payload, for costs.  Beyond some MiB their proportions do not change any more, and
/// picoseconds would run over.
std::uint64_t priced_bytes(std::size_t payload_bytes);

}  // namespace tutti::api
