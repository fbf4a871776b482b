// The two ends of a ring of datagrams in the receiver's segment; see DatagramRing.  Each end is
// used with the mutex of its Process held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/layout.hpp"
#include "verbs/soft/watch.hpp"

namespace tutti::verbs::soft {

/// The sender's end.
class DatagramWriter {
 public:
  DatagramWriter() = default;
  explicit DatagramWriter(DatagramRing& ring) noexcept : ring_(&ring) {}
  explicit operator bool() const noexcept { return ring_ != nullptr; }

  /// False when the ring is full.
  bool write(std::span<const std::byte> datagram) noexcept;
  /// Called after write(): whether the receiver wants to be called.
  bool finds_bell() noexcept;

 private:
  DatagramRing* ring_ = nullptr;
  std::uint64_t written_ = 0;
  std::uint64_t taken_ = 0;  // as last seen: how many the receiver has taken
};

/// The receiver's end.
class DatagramReader {
 public:
  /// The watch shows without the mutex whether there is a datagram, once the ring has begun.
  DatagramReader(DatagramRing& ring, Watch& watch) noexcept;
  DatagramReader(const DatagramReader&) = delete;
  DatagramReader& operator=(const DatagramReader&) = delete;
  ~DatagramReader();

  /// Starts reading the ring: everything that its sender has sent in another way has been received.
  void begin() noexcept;
  bool has_begun() const noexcept { return has_begun_; }
  bool is_ready() const noexcept;
  /// The oldest datagram.  There must be one; it stays until it is released.
  std::span<const std::byte> front() const noexcept;
  void release_front() noexcept;
  std::uint64_t taken() const noexcept { return taken_; }

  /// Asks to be called for the next datagram.  True when there is one already.
  bool want_call() noexcept;

 private:
  DatagramSlot& slot() const noexcept { return ring_.slots[taken_ % DatagramRing::slots_count]; }
  void move_watch() noexcept;

  DatagramRing& ring_;
  Watch& watch_;
  std::uint64_t taken_ = 0;
  bool has_begun_ = false;
};

}  // namespace tutti::verbs::soft
