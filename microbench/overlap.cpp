#include "microbench/overlap.hpp"

#include <algorithm>
#include <span>
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
    asm volatile("" : "+r"(value));  // each step depends on the one before, and is not removed
  }
}

void Work::set_duration(double nanoseconds, const Timer& timer) {
  const auto correct = [&](double wanted, double taken) {
    const double steps = static_cast<double>(steps_) * wanted / std::max(taken, 1.0);
    steps_ = std::max<std::uint64_t>(static_cast<std::uint64_t>(steps), 1);
  };
  steps_ = 1000;
  correct(nanoseconds / slices, median_time(timer, [&] { do_slice(); }));
  // A few microseconds do not measure a CPU's speed: the second time is over the whole duration.
  correct(nanoseconds, median_time(timer, [&] { do_all(); }));
}

void WorkSubject::run(std::size_t calls) {
  for (; calls > 0; --calls) {
    if (alone_) {
      work_.do_all();
      continue;
    }
    std::uint64_t done = 0;
    collective_.run_beside(
        Work::slices, [this] { work_.do_slice(); }, [&] { done = timer_.ticks(); });
    waits_[waits_count_++ % waits_kept] = timer_.nanoseconds(timer_.ticks() - done);
  }
}

double WorkSubject::wait_ns() const {
  return median(std::span(waits_).first(std::min(waits_count_, waits_kept)));
}

void Overlap::calibrate(const Timer& timer, Exchange& exchange) {
  tutti.synchronise();
  tutti.run(calibrations);
  // Two calls are timed, because ranks may take turns at being ahead.
  const double mine = median_time(timer, [&] { tutti.run(2); }) / 2;
  work.set_duration(largest(gather(exchange, mine)), timer);
}

double overlap_of(double collective_ns, double work_ns, double both_ns) {
  return std::max(0.0, collective_ns + work_ns - both_ns) / std::min(collective_ns, work_ns);
}

double busy_of(double collective_ns, double work_ns, double both_ns, double wait_ns) {
  return std::max(0.0, both_ns - work_ns - wait_ns) / collective_ns;
}

}  // namespace tutti::bench
