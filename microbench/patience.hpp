// How probes wait: they spin, read the clock now and then, and give up with a reason.
#pragma once

#include <sched.h>

#include <string>
#include <tutti/detail/clock.hpp>

#include "microbench/subject.hpp"

namespace tutti::bench {

/// Spins until `ready()`.  It reads the clock and yields only after some 10 us of spinning, so that
/// these do not change a figure.  Throws RunFailed after call_timeout.
template <class Ready>
void spin_until(const char* what, Ready ready) {
  constexpr unsigned polls_before_clock = 1u << 14;
  Timeout begin{0};
  for (;;) {
    for (unsigned polls = 0; polls < polls_before_clock; ++polls)
      if (ready()) return;
    const Timeout now = detail::MonotonicClock::read();
    if (begin == Timeout{0}) begin = now;
    if (now - begin > call_timeout)
      throw RunFailed(std::string(what) + ": nothing from the other rank for 60 s");
    sched_yield();
  }
}

}  // namespace tutti::bench
