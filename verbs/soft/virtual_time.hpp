// Virtual time: a sequential discrete-event simulation of all ranks of a job over the real code.
// Each rank has a clock and a time at which it wants to run next; only the rank with the earliest
// such time runs (the lowest rank among equals), all others sleep.  Its work takes no time except
// what the model of the network says, so the result is the same on any number of CPUs, however they
// are shared.
//
// The ranks are processes that inherited this object's memory by fork.  Between leave() and enter()
// they are in real time, and the device is the ordinary one.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/fabric_model.hpp"
#include "verbs/soft/shared_ports.hpp"

namespace tutti::verbs::soft {

class VirtualTime {
 public:
  /// Created before the ranks are forked.  `node_of` says which node each rank is of, from 0 on;
  /// empty: each is a node of its own.  Throws Error where there is no memory for it.
  explicit VirtualTime(std::uint32_t rank_count, std::span<const std::uint32_t> node_of = {});
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  /// Called in the process of `rank` before it opens the device; the object must outlive its use.
  void join(std::uint32_t rank) noexcept;
  /// The object that this process has joined, or NULL.
  static VirtualTime* joined() noexcept;

  std::uint32_t rank() const noexcept { return rank_; }
  std::uint32_t rank_count() const noexcept { return rank_count_; }

  /// Collective.  Returns when all ranks have entered, each at the same virtual instant: 0.  The
  /// change is made under `guard`, which keeps out the process's other threads.
  void enter(std::mutex& guard) noexcept;
  /// Ends this rank's part; the others go on.  Its messages must have been delivered before, see
  /// Timing::drain().
  void leave(std::mutex& guard) noexcept;
  bool is_entered() const noexcept;
  /// No turn was handed over for half a minute of real time: all ranks are in real time for good,
  /// where what is left undone shows as any failure does.
  bool is_broken() const noexcept;

  /// This rank's clock; only while it has entered.
  Picoseconds now() const noexcept;

  /// Lets the others run until the time `until` or, if `listening`, until an arrival.  True if
  /// there was an arrival.
  bool sleep(Picoseconds until, bool listening) noexcept;

  /// Something has arrived at `rank`, now.
  void arrive_at(std::uint32_t rank) noexcept;
  /// Something may be seen by the other ranks of this rank's node, now.
  void arrive_at_neighbours() noexcept;

  /// Returns the ports of the node of `rank`.  If the job has no such rank, because it is the place
  /// of a process outside of the job, returns the ports of the calling rank's own node.
  SharedPorts::Ports& ports_of(std::uint32_t rank) const noexcept;

 private:
  struct Seat;
  struct Table;

  Table& table() const noexcept;
  Seat& seat(std::uint32_t rank) const noexcept;
  Seat& own() const noexcept { return seat(rank_); }
  /// When the rank wants the turn; never_ps: it has left.  These lie side by side, because whoever
  /// hands over the turn looks at all of them.
  Picoseconds& wake(std::uint32_t rank) const noexcept;
  void hand_over() noexcept;
  void await_turn(std::uint32_t before) noexcept;

  std::uint32_t rank_count_;
  std::uint32_t rank_ = 0;
  // Changed under the guard, and read by the rank's one thread without it.
  std::atomic<bool> entered_{false};
  SharedPorts ports_;
  detail::Mapping mapping_;
};

}  // namespace tutti::verbs::soft
