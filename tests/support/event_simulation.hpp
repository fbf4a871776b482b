// How long a collective takes on a network of LogGP, by the events of its plan alone: no device, no
// engine, no clock.  Virtual time is compared with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::test {

/// Picoseconds.
struct Network {
  std::int64_t latency = 0;
  std::int64_t send_overhead = 0;
  std::int64_t receive_overhead = 0;
  std::int64_t gap = 0;
  double per_byte = 0;
  std::int64_t work = 0;  // of one combination
  double work_per_byte = 0;
};

/// When each rank has finished, where they start at `starts` (empty: at 0).
std::vector<std::int64_t> completion_times(const std::vector<plan::Plan>& plans,
                                           std::size_t payload_bytes, std::size_t element_bytes,
                                           const Network& network,
                                           const std::vector<std::int64_t>& starts);

/// From when all ranks start to when the last one has finished.
std::int64_t makespan(const std::vector<plan::Plan>& plans, std::size_t payload_bytes,
                      const Network& network);

}  // namespace tutti::test
