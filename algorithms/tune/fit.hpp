// From times that probes took to the parameters of a machine.
//
// Each probe takes a time that is a line in the number of messages or bytes (loggp.hpp), so that
// slopes and intercepts are the parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tune/machine.hpp"

namespace tutti::tune {

/// With b the bytes of a message, k messages, p = max(g, b G):
enum class Probe : std::uint8_t {
  one_way,         // half a round trip of one message: o + L + b G + o_r
  stream,          // k messages of b bytes, each over a queue pair of its own, to a rank that
                   // answers the last one with a message of 8 bytes: (k - 1) max(p, o_r) is in it
  waiting,         // what a program takes to see k messages of which all have come: k o_r
  combine,         // what combining b bytes takes, without messages: gamma
  shared_port,     // stream, by all ranks of a node at once: k is what all of them send
  incast,          // until one rank has a message of b bytes from each of k others, sent at once
  inside_one_way,  // half a round trip of one message in a node's memory:
                   // o + b G + L + o_r of the inside
  inside_store,    // what storing k messages of b bytes takes their sender: k (o + b G)
  inside_take,     // what a program takes to see k messages that are visible: k o_r
  inside_read,     // what reading b bytes in another rank's memory takes
};
const char* name_of(Probe probe) noexcept;

struct Sample {
  Probe probe = Probe::one_way;
  std::uint64_t bytes = 0;     // b
  std::uint32_t messages = 1;  // k
  plan::Picoseconds time = 0;  // the least of a batch
  friend bool operator==(const Sample&, const Sample&) = default;
};

struct Fit {
  Machine machine = {};
  /// Residuals of the samples, in their order: measured less what the machine says.
  std::vector<plan::Picoseconds> residuals = {};
  /// Remarks on parameters that could not be told, which are those of `fallback`.
  std::vector<std::string> remarks = {};
};

/// Theil-Sen slopes with at most one breakpoint (protocol changes of a network), and intervals by
/// bootstrap over the samples, from a generator of `seed`.  Pure.
Fit fit(const std::vector<Sample>& samples, const Machine& fallback, std::uint64_t seed);

}  // namespace tutti::tune
