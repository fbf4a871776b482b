// What a machine costs whose nodes have several ranks: messages between nodes by LogGP, messages
// inside a node by what a store into shared memory takes.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/cost/loggp.hpp"

namespace tutti::plan {

/// Messages inside a node.  Ranks move them themselves, so that they cost time of the program,
/// where a network's card works on its own.
struct NodeMemory {
  Picoseconds latency = 0;           // L: from the end of a store until another rank can see it
  Picoseconds send_overhead = 0;     // o: of the sender's time, for each message ...
  Rate per_byte = {};                // G: ... and for its bytes
  Picoseconds receive_overhead = 0;  // o_r: of the receiver's time, for each message
  Picoseconds read_overhead = 0;     // of the reader's time, for a payload that stays in the buffer
                                     // of its sender ...
  Rate read_per_byte = {};           // ... and for its bytes

  Picoseconds store_time(std::uint64_t bytes) const { return send_overhead + per_byte.of(bytes); }
  Picoseconds read_time(std::uint64_t bytes) const {
    return read_overhead + read_per_byte.of(bytes);
  }
};

struct Network {
  LogGP between = {};  // g and G are those of a node's port, which its ranks share; another g is
                       // that of each rank
  NodeMemory inside = {};
};

/// Which ranks share a node; empty: each is a node of its own.
using NodesOfRanks = std::span<const Node>;

}  // namespace tutti::plan
