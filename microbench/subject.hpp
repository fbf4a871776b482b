// A subject is timed: a probe, a collective of tutti, or its counterpart of MPI.  One loop samples
// all of them, so that all sides are treated alike.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tutti/timeout.hpp>
#include <tutti/types.hpp>
#include <utility>

namespace tutti::bench {

/// No single call may take longer; a run that is stuck ends with a reason instead of hanging.
inline constexpr Timeout call_timeout = std::chrono::seconds(60);

/// A call failed while running: a dead peer, a transport error, a timeout.  It differs from rank to
/// rank, so every rank reports its own.
struct RunFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Subject {
 public:
  Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  virtual ~Subject() = default;

  /// Makes `calls` calls; the loop is inside, so that a batch costs one virtual call.  Collective.
  /// Throws RunFailed.
  virtual void run(std::size_t calls) = 0;

  /// Returns when all ranks have entered; uses only the library that is being timed.  Collective.
  virtual void synchronise() = 0;

  /// The root of calls in which some ranks do not wait for others.  Such calls are timed one by
  /// one, from the root's start to the last rank's end, as a rank's own times would say little.
  virtual std::optional<Rank> root() const noexcept { return {}; }

  /// How many hand-overs one call has: a call that goes there and back has two, and its time is
  /// halved.
  virtual double hand_overs_per_call() const noexcept { return 1; }
};

/// A rooted collective of two ranks whose root changes after every call: the rank that has received
/// in one call sends in the next, as in a ping-pong.  So a call is one hand-over, and a batch is
/// timed by one rank's clock, without the barrier, and its skew, that calls with one root need.
class TakingTurns final : public Subject {
 public:
  /// Takes one collective twice: with the one root and with the other.
  TakingTurns(std::unique_ptr<Subject> one, std::unique_ptr<Subject> other)
      : subjects_{std::move(one), std::move(other)} {}
  void run(std::size_t calls) override {
    for (; calls > 0; --calls) {
      subjects_[turn_]->run(1);
      turn_ = 1 - turn_;
    }
  }
  void synchronise() override { subjects_[0]->synchronise(); }

 private:
  std::unique_ptr<Subject> subjects_[2];
  std::size_t turn_ = 0;
};

}  // namespace tutti::bench
