// How long a caller is prepared to wait (Timeout, a duration, public) and the instant that follows
// from it (Deadline, internal).  A public timeout becomes one deadline at the door, so nested waits
// cannot add up.
#pragma once

#include <chrono>

namespace tutti {

/// The longest that one call may take from its begin to its end; Timeout::max() waits forever.
using Timeout = std::chrono::nanoseconds;

inline constexpr Timeout wait_forever = Timeout::max();

/// An instant on a detail::Clock, in nanoseconds since that clock's epoch.
class Deadline {
 public:
  /// The instant `timeout` after `now`; never overflows.  A negative timeout has already passed.
  static constexpr Deadline after(Timeout timeout, Timeout now) noexcept {
    return Deadline{timeout >= Timeout::max() - now ? Timeout::max() : now + timeout};
  }

  constexpr bool passed(Timeout now) const noexcept {
    return instant_ != Timeout::max() && now >= instant_;
  }

  /// What is left of it at `now`, never negative; Timeout::max() if it never passes.
  constexpr Timeout remaining(Timeout now) const noexcept {
    if (instant_ == Timeout::max()) return Timeout::max();
    return now >= instant_ ? Timeout::zero() : instant_ - now;
  }

 private:
  explicit constexpr Deadline(Timeout instant) noexcept : instant_(instant) {}
  Timeout instant_;
};

}  // namespace tutti
