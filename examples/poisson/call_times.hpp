// When the calls of one collective began and ended, by a clock that all ranks of a host share.  The
// clock is read before and after each of its functions, for every implementation alike.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

namespace poisson {

/// Times in seconds, of the host's monotonic clock.
struct CallTime {
  double started = 0;  // this rank begins the call: others can have what it brings from now on
  double waiting = 0;  // it has nothing else to do from now on
  double ended = 0;
};

class CallTimes {
 public:
  /// Runs `work` and adds the time that it takes; start() begins a call, wait() ends it, and run()
  /// is both.
  template <class Work>
  void start(const Work& work) {
    const double begin = now();
    work();
    seconds_ += now() - begin;
    calls_.push_back({.started = begin});
  }
  template <class Work>
  void progress(const Work& work) {
    const double begin = now();
    work();
    seconds_ += now() - begin;
  }
  template <class Work>
  void wait(const Work& work) {
    const double begin = now();
    work();
    calls_.back().waiting = begin;
    calls_.back().ended = now();
    seconds_ += calls_.back().ended - begin;
  }
  template <class Work>
  void run(const Work& work) {
    const double begin = now();
    work();
    const double end = now();
    calls_.push_back({.started = begin, .waiting = begin, .ended = end});
    seconds_ += end - begin;
  }

  /// `calls`: of so many there is room, so that none is timed that takes memory.
  void reset(std::size_t calls) {
    calls_.clear();
    calls_.reserve(calls);
    seconds_ = 0;
  }
  /// In all of its functions, waiting for other ranks included.
  double seconds() const { return seconds_; }
  std::span<const CallTime> calls() const { return calls_; }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  std::vector<CallTime> calls_;
  double seconds_ = 0;
};

}  // namespace poisson
