// Virtual time: a sequential discrete-event simulation of all ranks of a job over the real code.
// Each rank has a clock; only the one whose next wish to run is the earliest (by time, then by
// rank) runs, all others sleep.  What it does costs no time but what the model of the network says,
// so the result is the same on any number of CPUs, however they are shared.
//
// The ranks are processes that inherited this object's memory by fork.  Between leave() and enter()
// they are in real time, and the device is the ordinary one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/fabric_model.hpp"

namespace tutti::verbs::soft {

class VirtualTime {
 public:
  /// Before the ranks are forked.  Throws Error where there is no memory for it.
  explicit VirtualTime(std::uint32_t rank_count);
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  /// In the process of `rank`, before it opens the device; the object must outlive its use.
  void join(std::uint32_t rank) noexcept;
  /// What this process has joined, or NULL.
  static VirtualTime* joined() noexcept;

  std::uint32_t rank() const noexcept { return rank_; }

  /// Collective.  Returns when all ranks have entered, each at the same virtual instant: 0.  The
  /// change is made under `guard`, which keeps out the process's other threads.
  void enter(std::mutex& guard) noexcept;
  /// This rank's part is over; the others go on.  First its messages must have been delivered, for
  /// which see Timing::drain().
  void leave(std::mutex& guard) noexcept;
  bool is_entered() const noexcept;
  /// Nobody had the turn handed on for half a minute of real time: all are in real time for good,
  /// where what it left undone shows as any failure does.
  bool is_broken() const noexcept;

  /// While entered: this rank's clock.
  Picoseconds now() const noexcept;

  /// Lets the others run until it is `until`, or an arrival comes if `listening`.  True if one did.
  bool sleep(Picoseconds until, bool listening) noexcept;

  /// Something has arrived at `rank`, now.
  void arrive_at(std::uint32_t rank) noexcept;

 private:
  struct Seat;
  struct Table;

  Table& table() const noexcept;
  Seat& seat(std::uint32_t rank) const noexcept;
  Seat& own() const noexcept { return seat(rank_); }
  void hand_over() noexcept;
  void await_turn(std::uint32_t before) noexcept;

  std::uint32_t rank_count_;
  std::uint32_t rank_ = 0;
  // Changed under the guard, and read by the rank's one thread without it.
  std::atomic<bool> entered_{false};
  detail::Mapping mapping_;
};

}  // namespace tutti::verbs::soft
