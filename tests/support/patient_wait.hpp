// A wait that finds out how late this process gets a core: what is promised within a time is
// promised of processes that run.
#pragma once

#include <algorithm>
#include <chrono>
#include <tutti/operation.hpp>

namespace tutti::test {

class PatientWait {
 public:
  using Clock = std::chrono::steady_clock;

  /// Waits by turns of a twentieth of a second, until the operation has ended or failed, or until
  /// `limit` has passed.
  Status operator()(Operation& operation, std::chrono::nanoseconds limit) {
    const auto end = Clock::now() + limit;
    for (;;) {
      const auto begin = Clock::now();
      const Status status = operation.wait(turn);
      const auto now = Clock::now();
      lateness_ = std::max<std::chrono::nanoseconds>(lateness_, now - begin - turn);
      if (status != Status::timed_out || now >= end) return status;
    }
  }

  /// The longest delay of a turn.
  std::chrono::nanoseconds lateness() const { return lateness_; }

 private:
  static constexpr std::chrono::milliseconds turn{50};
  std::chrono::nanoseconds lateness_{0};
};

/// How much longer than on an idle machine a death may take to be heard of.  It is found by one
/// look, made known, and heard of by another look, and each of them may be late; twice that leaves
/// room for a rank of the side channel that relays.
inline std::chrono::nanoseconds allowance_for(std::chrono::nanoseconds lateness) {
  return 4 * lateness;
}

}  // namespace tutti::test
