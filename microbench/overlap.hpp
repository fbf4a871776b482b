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

class WorkAlone final : public Subject {
 public:
  WorkAlone(const Work& work, TuttiSubject& beside) : work_(work), beside_(beside) {}
  void run(std::size_t calls) override;
  void synchronise() override { beside_.synchronise(); }

 private:
  const Work& work_;
  TuttiSubject& beside_;
};

class WorkBeside final : public Subject {
 public:
  WorkBeside(const Work& work, TuttiSubject& beside) : work_(work), beside_(beside) {}
  void run(std::size_t calls) override;
  void synchronise() override { beside_.synchronise(); }

 private:
  const Work& work_;
  TuttiSubject& beside_;
};

/// Of one row; the parts refer to each other.
struct Overlap {
  explicit Overlap(TuttiSubject& collective)
      : tutti(collective), alone(work, collective), beside(work, collective) {}
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  /// Collective over `exchange`: the work takes as long as the collective, on the slowest rank.
  void calibrate(const Timer& timer, Exchange& exchange);

  TuttiSubject& tutti;
  Work work;
  WorkAlone alone;
  WorkBeside beside;
};

/// 1: all of the shorter one is hidden behind the other; 0: nothing is, or less than nothing.
double overlap_of(double collective_ns, double work_ns, double both_ns);

}  // namespace tutti::bench
