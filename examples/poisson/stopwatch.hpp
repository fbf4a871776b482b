// Time that is spent on one kind of work.
#pragma once

#include <chrono>

namespace poisson {

class Stopwatch {
 public:
  /// Runs `work` and adds the time that it takes.
  template <class Work>
  void time(const Work& work) {
    const auto begin = Clock::now();
    work();
    total_ += Clock::now() - begin;
  }

  void reset() { total_ = {}; }
  double seconds() const { return std::chrono::duration<double>(total_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::duration total_{};
};

}  // namespace poisson
