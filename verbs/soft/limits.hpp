// What one process can ask of the device; query_device reports these numbers.
#pragma once

#include <cstdint>

#include "verbs/soft/layout.hpp"

namespace tutti::verbs::soft {

inline constexpr std::uint32_t work_requests_max = 16384;  // per queue; its ring then takes 1 MiB
inline constexpr std::uint32_t completions_max = 65535;
inline constexpr std::uint32_t completion_queues_max = 65536;
inline constexpr std::uint32_t domains_max = 65536;
inline constexpr std::uint32_t address_handles_max = 65536;
inline constexpr std::uint32_t shared_receive_queues_max = 1024;
inline constexpr std::uint32_t inline_max_bytes = 512;  // copied as a whole if the request waits
inline constexpr std::uint32_t message_max_bytes = std::uint32_t{1} << 30;
// Reads are executed one at a time; the attribute is accepted up to what adapters offer.
inline constexpr std::uint8_t reads_in_flight_max = 16;
static_assert(completions_max <= std::uint32_t{1} << 30);  // ibv_cq counts by int
static_assert(reads_in_flight_max != 0);
static_assert(inline_max_bytes <= message_max_bytes);

}  // namespace tutti::verbs::soft
