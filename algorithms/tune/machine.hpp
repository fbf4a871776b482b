// A machine is described parameter by parameter: by the value, the interval it lies in with 95 %
// probability, and where it is from.  All values are integers, because every rank has to compute
// the same prices from them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "plan/cost/network.hpp"

namespace tutti::tune {

enum class Origin : std::uint8_t { preset, measured, given };
const char* name_of(Origin origin) noexcept;

/// The parameters of LogGP between nodes and of messages in a node's memory (plan/cost/loggp.hpp,
/// plan/cost/network.hpp).  o and L between nodes occur as a sum alone, so they are one parameter.
enum class Parameter : std::uint8_t {
  latency,                  // o + L between nodes, in picoseconds
  receive_overhead,         // o_r, picoseconds a message
  gap,                      // g of a node's port, picoseconds a message
  rank_gap,                 // g of a rank, picoseconds of its time for each message that it sends
  per_byte,                 // G of a node's port, femtoseconds a byte
  combine,                  // gamma, picoseconds a value ...
  combine_per_byte,         // ... and femtoseconds a byte
  inside_latency,           // picoseconds
  inside_send_overhead,     // picoseconds a message
  inside_receive_overhead,  // picoseconds a message
  inside_per_byte,          // femtoseconds a byte
  inside_read_overhead,     // picoseconds a payload that is read where it is
  inside_read_per_byte,     // femtoseconds a byte of it
  fan_max,                  // senders to one receiver at a time, beyond which time is more than a
                            // tenth above the model; 0: not known.  For people: no price is made
                            // of it
};
inline constexpr std::size_t parameter_count = 14;
/// As in files: "latency_ps", "per_byte_fs", "fan_max".
const char* key_of(Parameter parameter) noexcept;
/// The most that a file may say: 1 s, 100 ns a byte.
std::int64_t most_of(Parameter parameter) noexcept;

struct Figure {
  std::int64_t value = 0;
  std::int64_t low = 0, high = 0;
  Origin origin = Origin::preset;
  friend bool operator==(const Figure&, const Figure&) = default;
};

struct Machine {
  std::string name = {};  // "fdr", or what measured it
  std::array<Figure, parameter_count> figures = {};

  const Figure& operator[](Parameter parameter) const {
    return figures[static_cast<std::size_t>(parameter)];
  }
  Figure& operator[](Parameter parameter) { return figures[static_cast<std::size_t>(parameter)]; }
  plan::Network network() const;
  /// Whether this description fits the other machine: all intervals contain the values of the other
  /// one, except that of fan_max, which no price depends on.  Where the other one has no gap of its
  /// ranks, as presets have none, this one's has to begin below the gap of the other one's port.
  bool may_be(const Machine& other) const noexcept;
  friend bool operator==(const Machine&, const Machine&) = default;
};

/// Whether something describes a machine: a tuning file may hold rules or findings alone.
inline bool is_described(const Machine& machine) {
  return machine != Machine{};
}

/// "qdr", "fdr", "edr", "hdr", "ndr", "roce100", "roce25", "roce10".  Throws
/// Error{invalid_argument} for others.
const Machine& machine_preset(std::string_view name);
/// The preset whose rate is nearest to that of a port; InfiniBand or Ethernet.  A rate of 0 is not
/// known: fdr, or roce25.
const Machine& machine_of_link(bool is_ethernet, std::uint32_t gigabits_per_second);

}  // namespace tutti::tune
