// The clock of all figures: the time-stamp counter where it runs at one rate in all states
// (constant_tsc and nonstop_tsc), CLOCK_MONOTONIC elsewhere.  What one reading costs is printed
// with the results and not subtracted from them.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/detail/clock.hpp>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti::bench {

class Timer {
 public:
  /// Takes about 20 ms to calibrate the counter against CLOCK_MONOTONIC.
  Timer();

  std::uint64_t ticks() const noexcept {
#if defined(__x86_64__)
    // No fence: a timed call waits for another process and takes far longer than the counter's
    // window of reordering, and a batch takes longer still.
    if (counter_) return __rdtsc();
#endif
    return static_cast<std::uint64_t>(detail::MonotonicClock::read().count());
  }

  double nanoseconds(std::uint64_t ticks) const noexcept {
    return static_cast<double>(ticks) * nanoseconds_per_tick_;
  }

  double cost_ns() const noexcept {
    return cost_ns_;
  }
  const std::string& name() const noexcept {
    return name_;
  }

 private:
  bool counter_ = false;
  double nanoseconds_per_tick_ = 1;
  double cost_ns_ = 0;
  std::string name_;
};

}  // namespace tutti::bench
