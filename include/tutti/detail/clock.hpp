// Time enters every layer through a Clock, so that tests and simulations decide what time it is.
// Reading the real clock costs 15-20 ns: a wait reads it only after it has spun for a while.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>

#include "tutti/timeout.hpp"

namespace tutti::detail {

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  virtual Timeout now() noexcept = 0;

  /// Whether time is simulated: then combining and what the ranks of a node do in shared memory
  /// cost what is charged for it, which callers say by these.
  virtual bool is_simulated() const noexcept { return false; }
  virtual void charge_work(std::size_t /*bytes*/) noexcept {}
  /// A message of so many bytes to a rank of this node: charges its sender, and stores `message` in
  /// the word, with release, once its receiver may see it.
  virtual void announce(std::uint64_t* /*word*/, std::uint64_t /*message*/,
                        std::size_t /*bytes*/) noexcept {}
  /// A message from a rank of this node was taken.
  virtual void charge_message() noexcept {}
  /// A message from another node was found in memory, where it is polled.
  virtual void charge_line() noexcept {}
  /// A payload of so many bytes was read in the memory of a rank of this node.
  virtual void charge_reading(std::size_t /*bytes*/) noexcept {}
  /// So many bytes were copied out of memory that the ranks of this node have mapped.
  virtual void charge_copying(std::size_t /*bytes*/) noexcept {}
  /// Whether the program has something else to do than to wait: then no time passes when its next
  /// poll finds nothing.
  virtual void say_busy(bool /*busy*/) noexcept {}
};

/// CLOCK_MONOTONIC; the same epoch in all processes of a machine.
class MonotonicClock final : public Clock {
 public:
  Timeout now() noexcept override { return read(); }

  static Timeout read() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

inline Timeout now() noexcept {
  return MonotonicClock::read();
}

}  // namespace tutti::detail
