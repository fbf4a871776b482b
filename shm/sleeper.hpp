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
//
// A rank whose communicator has failed wakes its neighbours, too, although it has no message for
// them.  It counts that as an alarm in the sleeper's mapping, so that the sleeper asks why it was
// woken; a byte alone would not say it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tutti/detail/descriptor.hpp>
#include <tutti/timeout.hpp>
#include <unordered_map>

namespace tutti::shm {

/// Lies in the first page of a mapping, behind the board of the measurements (copy_costs.hpp).
struct SleepBoard {
  static constexpr std::size_t offset = 2048;
  static constexpr std::uint32_t awake = 0, asleep = 1;
  alignas(64) std::uint32_t state;
  std::uint32_t alarms;  // counted by ranks of the node whose communicators have failed
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

  /// Whether there were alarms since the last call.  As with messages, one that comes after
  /// lie_down() ends the sleep, and one that came before is seen by a look after lie_down().
  bool takes_alarm() noexcept;

 private:
  std::shared_ptr<detail::Mapping> mapping_;
  std::uint32_t alarms_taken_ = 0;
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
  /// Wakes the sleeper and lets it know that there may be a failure to ask for.
  void alarm() const noexcept;

 private:
  std::shared_ptr<detail::Mapping> mapping_;
  detail::Descriptor writing_;
};

/// The wakers of a context, one for each sleeper, which its communicators share.  One thread at a
/// time.
class Wakers {
 public:
  /// The waker of the sleeper whose memory has this nonce (MappingCard).  It is made, from the
  /// other arguments, if no communicator holds it.  Throws Error{system}.
  std::shared_ptr<const Waker> of(std::uint64_t nonce, std::int32_t process, int descriptor,
                                  const std::shared_ptr<detail::Mapping>& mapping);

  /// Wakes all these sleepers, and lets them know that there may be a failure to ask for.
  void alarm() const noexcept;

  /// How many wakers communicators hold.
  std::size_t count() const noexcept;

 private:
  std::unordered_map<std::uint64_t, std::weak_ptr<const Waker>> by_nonce_;
};

}  // namespace tutti::shm
