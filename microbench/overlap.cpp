#include "microbench/overlap.hpp"

#include <algorithm>
#include <vector>

#include "microbench/statistics.hpp"
#include "microbench/together.hpp"

namespace tutti::bench {
namespace {

constexpr int calibrations = 9;

template <class F>
double median_time(const Timer& timer, F&& f) {
  std::vector<double> times;
  for (int i = 0; i < calibrations; ++i) {
    const std::uint64_t begin = timer.ticks();
    f();
    times.push_back(timer.nanoseconds(timer.ticks() - begin));
  }
  return median(times);
}

}  // namespace

void Work::do_slice() const noexcept {
  std::uint64_t value = 1;
  for (std::uint64_t step = 0; step < steps_; ++step) {
    value = value * 6364136223846793005u + 1;
    asm volatile("" : "+r"(value));  // each step waits for the one before, and is kept
  }
}

void Work::set_duration(double nanoseconds, const Timer& timer) {
  const double wanted = nanoseconds / slices;
  steps_ = 1000;
  const double taken = median_time(timer, [&] { do_slice(); });
  steps_ = std::max<std::uint64_t>(
      static_cast<std::uint64_t>(static_cast<double>(steps_) * wanted / std::max(taken, 1.0)), 1);
}

void WorkSubject::run(std::size_t calls) {
  const auto slice = [this] { work_.do_slice(); };
  for (; calls > 0; --calls)
    if (alone_)
      for (std::size_t done = 0; done < Work::slices; ++done) slice();
    else
      collective_.run_beside(Work::slices, slice);
}

void Overlap::calibrate(const Timer& timer, Exchange& exchange) {
  tutti.synchronise();
  tutti.run(calibrations);
  const double mine = median_time(timer, [&] { tutti.run(1); });
  work.set_duration(largest(gather(exchange, mine)), timer);
}

double overlap_of(double collective_ns, double work_ns, double both_ns) {
  return std::max(0.0, collective_ns + work_ns - both_ns) / std::min(collective_ns, work_ns);
}

}  // namespace tutti::bench
