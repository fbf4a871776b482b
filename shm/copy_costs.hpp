// Measures what two ranks of a node pay for a payload, on this machine and at this moment.  Either
// one rank copies it into its mapping and the other out of it, or the other reads it where its user
// has it (peer_memory.hpp).  Which way is faster differs between machines by more than a factor of
// three, so it is measured when ranks meet.
//
//   leader    own memory -> block of its mapping, step k     sees answer k    ...    reads alone
//   partner                             sees step k, block -> own memory, answer k
//
// Each rank writes only to its own mapping, and the partner only to one line of its board.  So a
// rank that comes late, or not at all, costs the other its patience and does no other harm.  All
// figures are the least of several tries, because any disturbance makes a try longer.  Tries with
// both ranks on one CPU do not count: nothing crosses from cache to cache there.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>

namespace tutti::shm {

inline constexpr std::size_t costs_page_bytes = 4096;
inline constexpr std::size_t costs_chunk_bytes = 65536;

/// Nanoseconds.  A plain value that allgather can carry.
struct CopyCosts {
  double word = 0;        // from a store until the other rank has seen it
  double read_call = 0;   // a process_vm_readv of 8 bytes
  double read_page = 0;   // a process_vm_readv of a whole page
  double read_chunk = 0;  // a process_vm_readv of a chunk
  double put_page = 0;    // a page copied from own memory into the mapping
  double put_chunk = 0;
  double get_page = 0;  // a page that another rank has just put there, copied into own memory
  double get_chunk = 0;
  double own_chunk = 0;  // a chunk copied within own memory

  double read_per_byte() const noexcept {  // within a page
    return std::max(0.0, (read_page - read_call) / costs_page_bytes);
  }
  double read_per_page() const noexcept {  // without its bytes
    constexpr double pages = static_cast<double>(costs_chunk_bytes) / costs_page_bytes;
    return std::max(0.0, (read_chunk - read_call - read_per_byte() * costs_chunk_bytes) / pages);
  }
};

/// Lies in the first page of a mapping, behind its nonce; only the mapping's owner writes it.
struct CopyBoard {
  static constexpr std::size_t offset = 1024;
  /// Names the probe and the step that it has reached, so that one probe is never taken for
  /// another.  Release, after everything else that the owner has written; acquire, before the other
  /// rank reads that.  This covers the block's bytes, too.
  alignas(64) std::uint64_t step;
  std::uint64_t block;   // its address in the leader's process
  std::uint64_t cpu;     // the partner's CPU when it answered
  std::uint64_t get_ns;  // the time of the partner's last copy
};
static_assert(sizeof(CopyBoard) == 64);
static_assert(CopyBoard::offset % alignof(CopyBoard) == 0);
static_assert(CopyBoard::offset + sizeof(CopyBoard) <= costs_page_bytes);
static_assert(std::is_trivially_copyable_v<CopyCosts>);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

/// One side of a probe.
struct CopyProbe {
  std::uint64_t id;  // names this probe, the same on both sides; the lowest 16 bits are 0
  CopyBoard* mine;
  const CopyBoard* theirs;
  std::chrono::nanoseconds patience = std::chrono::milliseconds(8);  // for the whole probe
};

/// The board of a mapping whose first page has nothing else behind the nonce.
inline CopyBoard* board_of(std::byte* mapping) noexcept {
  return reinterpret_cast<CopyBoard*>(mapping + CopyBoard::offset);
}

struct CopyOutcome {
  /// Empty if the partner did not come, was too slow or never on another CPU, or if its memory
  /// cannot be read.
  std::optional<CopyCosts> costs = {};
  bool block_is_free = true;  // false: the partner may still read it
};

/// The leader's side.  `block`, in its mapping, has costs_chunk_bytes; nullptr: there was no room,
/// and the partner is informed.  `process` and `readable`: memory of that process to be read, as
/// large as the block.
CopyOutcome measure_copies_as_leader(const CopyProbe& probe, std::byte* block, std::int32_t process,
                                     std::uint64_t readable);

/// The partner's side.  `block_at(address)`: where the leader's block lies in this process.
void measure_copies_as_partner(const CopyProbe& probe,
                               const std::function<const std::byte*(std::uint64_t)>& block_at);

}  // namespace tutti::shm
