// How a rank that sleeps is woken by the ranks of its node.  A rank that may sleep has a word in
// the first page of its mapping, and a pipe.  The others open the pipe through /proc/<process>/fd,
// by the same permission by which they map the memory.  A pipe, because a sleeper also waits for
// the completion channel of a device, and poll() waits for several descriptors at once.
//
//   sleeper                                     writer
//     exchange(state, asleep)                     payload, word of the message (mailbox.hpp)
//     looks once more for messages                fetch_or(state, 0)
//     poll(pipe, ...)                             if it is asleep: a byte into the pipe
//     exchange(state, awake)
//
// No wake-up is lost (Dekker): both sides change the state atomically, if only from a value to
// itself, and one of the two changes is the first.  If it is the sleeper's, the writer finds it
// asleep and writes a byte.  If it is the writer's, the sleeper's exchange reads what that one has
// left (acquire, release), and so the sleeper sees the message when it looks once more.  Plain
// stores and loads would not do, because a load may overtake an earlier store to another word, on
// x86, too.
//
// Every writer that finds the sleeper asleep writes a byte, so that none relies on another one that
// may be stopped.  A byte may come when nobody sleeps any more; it ends the next sleep early, which
// does no harm.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tutti/detail/descriptor.hpp>
#include <tutti/timeout.hpp>

namespace tutti::shm {

/// Lies in the first page of a mapping, behind the board of the measurements (copy_costs.hpp).
struct SleepBoard {
  static constexpr std::size_t offset = 2048;
  static constexpr std::uint32_t awake = 0, asleep = 1;
  alignas(64) std::uint32_t state;
};
static_assert(sizeof(SleepBoard) == 64);
static_assert(std::atomic_ref<std::uint32_t>::is_always_lock_free);

/// The rank that sleeps; one thread at a time.
class Sleeper {
 public:
  /// `mapping`: the memory that this process offers to its node, zeroed.  Throws Error{system}.
  explicit Sleeper(std::shared_ptr<detail::Mapping> mapping);

  /// What a Waker opens.
  int descriptor() const noexcept { return reading_.get(); }

  /// From now on whoever stores a message for this rank ends its sleep.  The caller looks for
  /// messages once more before it sleeps.
  void lie_down() noexcept;
  /// Sleeps until it is woken, `other` (a descriptor; -1: none) can be read, the time has passed,
  /// or a signal has come.  Returns whether `other` can be read.
  bool sleep(int other, Timeout at_most) noexcept;
  void get_up() noexcept;

 private:
  std::shared_ptr<detail::Mapping> mapping_;
  detail::Descriptor reading_;
  detail::Descriptor writing_;  // so that the pipe has a writer as long as this exists
};

/// A rank that writes messages for a sleeper of its node.
class Waker {
 public:
  /// The sleeper's process, its Sleeper::descriptor(), and its memory as mapped here.  Throws
  /// Error{system}.
  Waker(std::int32_t process, int descriptor, std::shared_ptr<detail::Mapping> mapping);

  /// Called after a message was stored.
  void wake() const noexcept;

 private:
  std::shared_ptr<detail::Mapping> mapping_;
  detail::Descriptor writing_;
};

}  // namespace tutti::shm
