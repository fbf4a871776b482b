// What an emulated network costs, in the terms of LogGP, and what goes wrong in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tutti::verbs::soft {

/// An instant or a duration in picoseconds, so that a byte of a fast network takes a whole number.
using Picoseconds = std::int64_t;
inline constexpr Picoseconds picoseconds_per_ns = 1000;
inline constexpr Picoseconds never_ps = std::numeric_limits<Picoseconds>::max();

/// D. Culler et al., LogP (PPoPP 1993); A. Alexandrov et al., LogGP (SPAA 1995).  A message of b
/// bytes that is posted at t leaves the sender's port at s >= t, and the port is taken for max(g, b
/// G).  It arrives at s + o + L + b G, takes the receiver's port for max(g, b G), and the
/// receiver's program knows it o_r after its poll.  The answer takes L.  Posting takes the sender's
/// program the g of a rank.
struct FabricModel {
  std::string name;
  Picoseconds latency = 0;           // L
  Picoseconds send_overhead = 0;     // o
  Picoseconds receive_overhead = 0;  // o_r, a part of the program's time
  Picoseconds gap = 0;               // g: 1 / message rate of a port
  Picoseconds rank_gap = 0;          // g of a rank, a part of the program's time
  double per_byte = 0;               // G, picoseconds
  // Gamma: the program's time for what it combines.
  Picoseconds work = 0;
  double work_per_byte = 0;

  /// L from one place (row) to another (column), in place of `latency`; empty: the same everywhere.
  std::vector<std::vector<Picoseconds>> latencies;

  /// Between ranks of a node, in virtual time: see plan/cost/makespan.hpp.
  struct Inside {
    Picoseconds latency = 0;           // L: from the end of a store until another rank can see it
    Picoseconds send_overhead = 0;     // o: of the sender's time, for each message ...
    double per_byte = 0;               // G: ... and for its bytes
    Picoseconds receive_overhead = 0;  // o_r: of the receiver's time, for each message
    Picoseconds read_overhead = 0;  // of the time of a rank that reads a payload in the buffer of
                                    // its sender ...
    double read_per_byte = 0;       // ... and for its bytes

    Picoseconds store_time(std::size_t bytes) const;
    Picoseconds read_time(std::size_t bytes) const;
    /// Copying bytes that the reader has mapped takes no overhead of asking for them.
    Picoseconds copy_time(std::size_t bytes) const;
  } inside;

  struct Faults {
    std::uint64_t seed = 1;
    double delay_probability = 0;      // for one message
    Picoseconds delay = 0;             // the longest one; uniform from 0
    double drop_probability = 0;       // for one packet; each loss costs the queue pair's timeout
    double not_ready_probability = 0;  // that a ready receiver answers "not ready"
    struct Slow {
      std::uint32_t place;
      double factor;  // multiplies o, o_r, both g, and gamma
    };
    std::vector<Slow> slow;
    struct LinkDown {
      std::uint32_t place;
      Picoseconds from, until;  // in the emulation's time
    };
    std::vector<LinkDown> link_down;
  } faults;

  Picoseconds wire_time(std::size_t bytes) const;  // b G
  Picoseconds port_time(std::size_t bytes) const;  // max(g, b G)
  Picoseconds work_time(std::size_t bytes) const;  // gamma
  Picoseconds latency_between(std::uint32_t from, std::uint32_t to) const;
};

/// Reads a preset's name or the path of a JSON file (EMULATION.md).  Throws Error
/// (invalid_argument) that names the value, its place in the file and what was expected.
FabricModel read_fabric_model(const std::string& preset_or_file);

/// "qdr, fdr, ...".
std::string fabric_preset_names();

}  // namespace tutti::verbs::soft
