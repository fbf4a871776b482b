// A lock for sections of a few dozen instructions inside one process.  It must never lie in memory
// that another process maps: a process killed inside the section would leave it locked.
#pragma once

#include <sched.h>

#include <atomic>
#include <cassert>

#include "tutti/detail/pause.hpp"

namespace tutti::verbs::soft {

class SpinLock {
 public:
  void lock() noexcept {
    for (unsigned tries = 1; !try_lock(); ++tries) {
      // The holder may have been preempted, on a busy machine for a whole time slice.
      if (tries % 128 == 0)
        ::sched_yield();
      else
        detail::pause();
    }
  }

  // Acquire pairs with the release of unlock(): the next holder sees everything the last one wrote.
  bool try_lock() noexcept {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }

  void unlock() noexcept {
    assert(is_held());
    held_.store(false, std::memory_order_release);
  }

  /// Whether some thread holds it: for assertions of those that need it held.
  bool is_held() const noexcept { return held_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace tutti::verbs::soft
