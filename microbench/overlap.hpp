// How much of a collective hides behind computing: three contestants of one row, the collective
// alone (the row itself), as long a computation alone, and both at once, the computation calling
// test() after each of its slices.
#pragma once

#include <cstdint>

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

 private:
  std::uint64_t steps_ = 1;  // of a slice
};

/// The work, alone or while a call of the collective is on its way.
class WorkSubject final : public Subject {
 public:
  WorkSubject(const Work& work, TuttiSubject& collective, bool alone)
      : work_(work), collective_(collective), alone_(alone) {}
  void run(std::size_t calls) override;
  void synchronise() override { collective_.synchronise(); }

 private:
  const Work& work_;
  TuttiSubject& collective_;
  bool alone_;
};

/// Of one row; the parts refer to each other.
struct Overlap {
  explicit Overlap(TuttiSubject& collective)
      : tutti(collective), alone(work, collective, true), beside(work, collective, false) {}
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

}  // namespace tutti::bench
