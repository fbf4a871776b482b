// How long a collective takes on nodes of one or several ranks, by the turns of its ranks alone: no
// device, no engine, no clock.  The recurrence of the cost model and virtual time are compared with
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tutti/types.hpp>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::test {

/// Picoseconds.
struct Network {
  std::int64_t latency = 0;
  std::int64_t send_overhead = 0;
  std::int64_t receive_overhead = 0;
  std::int64_t gap = 0;
  std::int64_t rank_gap = 0;  // of the sender's time
  double per_byte = 0;
  std::int64_t work = 0;  // of one combination
  double work_per_byte = 0;

  // Inside a node.
  struct Inside {
    std::int64_t latency = 0;
    std::int64_t send_overhead = 0;
    double per_byte = 0;
    std::int64_t receive_overhead = 0;
    std::int64_t read_overhead = 0;
    double read_per_byte = 0;
  } inside = {};
  std::vector<Node> node_of = {};  // of each rank; empty: each is a node of its own
};

struct SimulatedCall {
  std::size_t payload_bytes = 0;
  std::size_t element_bytes = 1;
  std::vector<std::int64_t> starts = {};  // of the ranks; empty: all start at 0
  bool any_order = false;                 // messages of a run are taken as they are seen
  bool lines = false;  // between nodes, what fits goes as lines that are polled in memory
};

/// When each rank has finished.
std::vector<std::int64_t> completion_times(const std::vector<plan::Plan>& plans,
                                           const Network& network, const SimulatedCall& call);

/// From when all ranks start to when the last one has finished.
std::int64_t makespan(const std::vector<plan::Plan>& plans, std::size_t payload_bytes,
                      const Network& network);

}  // namespace tutti::test
