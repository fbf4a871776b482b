// The small value types that every layer shares, and the only conversions between them and numbers.
// An index starts at 0, a count at 1, bytes are a count times the bytes of one element.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// One process (or thread) of a communicator: 0 .. rank_count - 1.
enum class Rank : std::uint32_t {};

/// One shared-memory domain: 0 .. node_count - 1.
enum class Node : std::uint32_t {};

/// Position of a rank on its node; local rank 0 is the leader.
enum class LocalRank : std::uint32_t {};

/// How ranks are spread over the nodes of an imposed shape.
enum class Placement : std::uint8_t {
  block,   // 0 0 1 1 2
  cyclic,  // 0 1 2 0 1
  random,  // any, drawn from a seed; the same on every machine and compiler
};

/// Stands for no rank where a rank may be absent, in failures for example.
inline constexpr Rank no_rank{UINT32_MAX};

constexpr std::uint32_t index_of(Rank rank) noexcept {
  return static_cast<std::uint32_t>(rank);
}
constexpr std::uint32_t index_of(Node node) noexcept {
  return static_cast<std::uint32_t>(node);
}
constexpr std::uint32_t index_of(LocalRank rank) noexcept {
  return static_cast<std::uint32_t>(rank);
}

/// How a message from a rank of another node says that it is there.
enum class Notify : std::uint8_t {
  immediate,  // by a write with immediate, for which the device makes a completion
  flag,       // messages of at most 56 bytes: by a word at their end, which is polled in memory;
              // longer ones by immediate.  For devices that are known to place a line of 64 bytes
              // whole, or were seen to (docs/choosing_and_tuning.md).  If ranks start an operation
              // unequally often and destroy it, a message that arrives after that may go
              // undetected; with immediate it does not
};

}  // namespace tutti
