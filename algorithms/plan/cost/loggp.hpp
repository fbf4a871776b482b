// What a network costs, in the terms of LogGP: D. Culler et al., LogP (PPoPP 1993); A. Alexandrov
// et al., LogGP (SPAA 1995); with o split into what a message is delayed at its sender and what its
// receiver spends on it, and gamma, what combining takes.
//
// Integers only, so that equal costs are equal and every rank chooses alike.  A rate is a quotient:
// 6.8 GB/s are 10000 ps for 68 bytes, which is no whole number of picoseconds a byte.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace tutti::plan {

/// An instant or a duration in picoseconds, in which a byte of a fast network still is a number.
using Picoseconds = std::int64_t;

struct Rate {
  Picoseconds time = 0;    // that ...
  std::int64_t bytes = 1;  // ... so many bytes take

  /// Times beyond 53 days, which nobody means, are taken to be this long.
  static constexpr Picoseconds longest = INT64_MAX / 2;

  /// To the nearest picosecond, halves up; at most `longest`.
  Picoseconds of(std::uint64_t message_bytes) const {
    assert(time >= 0 && bytes > 0 && bytes <= INT64_MAX / 2);
    std::int64_t twice = 0;
    const bool fits =
        message_bytes <= std::uint64_t{INT64_MAX / 2} &&
        !__builtin_mul_overflow(2 * static_cast<std::int64_t>(message_bytes), time, &twice) &&
        !__builtin_add_overflow(twice, bytes, &twice);
    return fits ? std::min(twice / (2 * bytes), longest) : of_many(message_bytes);
  }

 private:
  Picoseconds of_many(std::uint64_t message_bytes) const {
    __extension__ typedef unsigned __int128 Wide;
    const Wide divisor = static_cast<Wide>(bytes);
    const Wide twice = 2 * static_cast<Wide>(message_bytes) * static_cast<Wide>(time) + divisor;
    return static_cast<Picoseconds>(std::min(twice / (2 * divisor), static_cast<Wide>(longest)));
  }
};

struct LogGP {
  Picoseconds latency = 0;           // L
  Picoseconds send_overhead = 0;     // o: delays the message, not the sender
  Picoseconds receive_overhead = 0;  // o_r: of the receiver's time, for each message
  Picoseconds gap = 0;               // g: 1 / message rate of a port
  Picoseconds rank_gap = 0;          // g of a rank: of the sender's time, for each message
  Rate per_byte = {};                // G
  Picoseconds work = 0;              // gamma: of combining, for each value ...
  Rate work_per_byte = {};           // ... and for its bytes
  std::int64_t ranks_at_port = 1;    // ranks of a node that send alike, one message each in turn

  /// What one message of each of these ranks takes of their port.
  Picoseconds port_time(std::uint64_t bytes) const {
    return ranks_at_port * std::max(gap, per_byte.of(bytes));
  }
  /// What passes from one message of a rank to its next one.
  Picoseconds sending_time(std::uint64_t bytes) const {
    return std::max(rank_gap, port_time(bytes));
  }
  /// What the message of the last of these ranks takes, which leaves behind those of the others.
  Picoseconds travel_time(std::uint64_t bytes) const {
    return send_overhead + latency + (ranks_at_port - 1) * std::max(gap, per_byte.of(bytes)) +
           per_byte.of(bytes);
  }
  Picoseconds work_time(std::uint64_t bytes) const { return work + work_per_byte.of(bytes); }
  /// What a round of r messages, at least one, takes, each of which is combined as it comes:
  ///   o + L + b G + (r-1) max(max(g, b G), g of a rank, o_r + gamma) + o_r + gamma
  /// or, where that is longer, r (g of a rank + o_r + gamma): a rank takes messages when it has
  /// sent its own.  Messages of 0 bytes, as those of barriers, are not combined.  Where ports are
  /// free when a round begins, the sum over the rounds is what the recurrence (makespan.hpp) gives
  /// for plain dissemination, and for two-partial dissemination less one gamma in each round that
  /// keeps both partials.
  Picoseconds round_time(std::uint32_t messages, std::uint64_t bytes) const {
    assert(messages >= 1);
    const Picoseconds taken = receive_overhead + (bytes == 0 ? 0 : work_time(bytes));
    const Picoseconds come =
        travel_time(bytes) + (messages - 1) * std::max(sending_time(bytes), taken) + taken;
    return std::max(come, messages * (rank_gap + taken));
  }
};

}  // namespace tutti::plan
