// How much of a collective hides behind computing.  A row has three contestants: the collective
// alone (the row itself), a computation alone that takes as long, and both at once, where the
// computation calls test() after each of its slices.
//
//   alone       |------- collective -------|
//   beside      s |work|t|work|t| ... |work|t|-w-|      s: start(), t: test(), w: wait()
//
// Two kinds of time are not hidden.  In s and t this CPU moves and combines data, or polls: the
// computation cannot use this time, however the library is written, and 1 minus its share bounds
// the overlap.  In w no work is left behind which the collective could hide: its progress came too
// late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "microbench/subject.hpp"
#include "microbench/timer.hpp"
#include "microbench/tutti_side.hpp"

namespace tutti::bench {

/// Arithmetic that touches no memory, in equal slices.
class Work {
 public:
  static constexpr std::size_t slices = 64;

  /// Makes all slices together take `nanoseconds`.
  void set_duration(double nanoseconds, const Timer& timer);
  void do_slice() const noexcept;
  void do_all() const noexcept {
    for (std::size_t done = 0; done < slices; ++done) do_slice();
  }

 private:
  std::uint64_t steps_ = 1;  // of a slice
};

/// The work, alone or while a call of the collective is on its way.
class WorkSubject final : public Subject {
 public:
  WorkSubject(const Work& work, TuttiSubject& collective, const Timer& timer, bool alone)
      : work_(work), collective_(collective), timer_(timer), alone_(alone) {}
  void run(std::size_t calls) override;
  void synchronise() override { collective_.synchronise(); }

  /// Nanoseconds from the end of the work to the end of a call: the median of the last calls.
  double wait_ns() const;

 private:
  static constexpr std::size_t waits_kept = 8192;  // more than a run of the default length has

  const Work& work_;
  TuttiSubject& collective_;
  const Timer& timer_;
  bool alone_;
  std::vector<double> waits_ = std::vector<double>(waits_kept);
  std::size_t waits_count_ = 0;
};

/// The contestants of one row, which refer to each other.
struct Overlap {
  Overlap(TuttiSubject& collective, const Timer& timer)
      : tutti(collective),
        alone(work, collective, timer, true),
        beside(work, collective, timer, false) {}
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  /// Makes the work take as long as the collective does on the slowest rank.  Collective over
  /// `exchange`.
  void calibrate(const Timer& timer, Exchange& exchange);

  TuttiSubject& tutti;
  Work work;
  WorkSubject alone, beside;
};

/// 1 if all of the shorter one is hidden behind the other; 0 if nothing is, or if both at once take
/// longer than one after the other.
double overlap_of(double collective_ns, double work_ns, double both_ns);

/// What start() and test() took beside the work, as a share of the collective's time alone.
double busy_of(double collective_ns, double work_ns, double both_ns, double wait_ns);

}  // namespace tutti::bench
