#include "microbench/timer.hpp"

#include <fmt/format.h>

#include <fstream>
#include <vector>

#include "microbench/statistics.hpp"

namespace tutti::bench {
namespace {

bool counter_is_steady() {
#if defined(__x86_64__)
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags"))
      return line.find(" constant_tsc") != std::string::npos &&
             line.find(" nonstop_tsc") != std::string::npos;
#endif
  return false;
}

constexpr auto calibration = std::chrono::milliseconds(20);

}  // namespace

Timer::Timer() : counter_(counter_is_steady()), name_("clock_gettime(CLOCK_MONOTONIC)") {
  if (counter_) {
    const Timeout begin = detail::MonotonicClock::read();
    const std::uint64_t first = ticks();
    Timeout end = begin;
    while (end - begin < calibration) end = detail::MonotonicClock::read();
    nanoseconds_per_tick_ =
        static_cast<double>((end - begin).count()) / static_cast<double>(ticks() - first);
    name_ = fmt::format("time-stamp counter at {:.1f} MHz", 1000 / nanoseconds_per_tick_);
  }
  constexpr int readings = 200;
  std::vector<double> costs;
  for (int repetition = 0; repetition < 21; ++repetition) {
    const std::uint64_t first = ticks();
    std::uint64_t last = first;
    for (int i = 0; i < readings; ++i) last = ticks();
    costs.push_back(nanoseconds(last - first) / readings);
  }
  cost_ns_ = median(costs);
}

}  // namespace tutti::bench
