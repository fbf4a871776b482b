// How much of a collective hides behind computing: three contestants of one row, the collective
// alone (the row itself), as long a computation alone, and both at once, the computation calling
// test() after each of its slices.
//
//   alone       |------- collective -------|
//   beside      s |work|t|work|t| ... |work|t|-w-|      s: start(), t: test(), w: wait()
//
// What is not hidden is of two kinds.  In s and t this CPU moved and combined data, or looked for
// them: the computation has no use of that time however the library is written, and 1 less its
// share bounds the overlap.  In w there was nothing left to hide behind: the progress came too
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

  /// A whole of it shall take so long.
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

  /// Nanoseconds from the end of the work to that of a call: the median of the last calls.
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

/// Of one row; the parts refer to each other.
struct Overlap {
  Overlap(TuttiSubject& collective, const Timer& timer)
      : tutti(collective),
        alone(work, collective, timer, true),
        beside(work, collective, timer, false) {}
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  /// Collective over `exchange`: the work takes as long as the collective, on the slowest rank.
  void calibrate(const Timer& timer, Exchange& exchange);

  TuttiSubject& tutti;
  Work work;
  WorkSubject alone, beside;
};

/// 1: all of the shorter one is hidden behind the other; 0: nothing is, or less than nothing.
double overlap_of(double collective_ns, double work_ns, double both_ns);

/// What start() and test() took beside the work, as a share of the collective's time alone.
double busy_of(double collective_ns, double work_ns, double both_ns, double wait_ns);

}  // namespace tutti::bench
