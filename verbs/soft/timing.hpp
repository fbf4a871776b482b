// When messages arrive in an emulated network.  Every request becomes pending and is executed when
// it is due, so that the data land late, too: a program that looks at the memory is not faster than
// one that waits for the completion.
//
// In real time pending requests are executed by the initiator's polls and its helper thread: never
// early, and late by the time until one of these comes.  In virtual time the order is exact.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>

#include "verbs/soft/fabric_model.hpp"
#include "verbs/soft/layout.hpp"
#include "verbs/soft/spin_lock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::verbs::soft {

class Process;
struct CompletionQueue;
struct QueuePair;
struct Request;

class Timing {
 public:
  /// `own` says which place this process is: its row in the model's matrix and its name in the
  /// faults.  The constructor stores the epoch there.
  Timing(FabricModel model, SegmentHeader& own, VirtualTime* virtual_time);

  const FabricModel& model() const noexcept { return model_; }
  /// Whether the network is emulated for a request that comes now.
  bool is_active() const noexcept { return !virtual_time_ || virtual_time_->is_entered(); }
  bool is_virtual() const noexcept { return virtual_time_ && virtual_time_->is_entered(); }
  bool is_never_virtual() const noexcept { return virtual_time_ == nullptr; }
  Picoseconds now() const noexcept;

  /// What happens to a request that is posted now.
  struct Journey {
    Picoseconds due;       // when it reaches the receiver's port
    std::uint64_t number;  // how many requests this process had sent before, and 1
    ibv_wc_status status;  // not success: it fails at that time, and is not executed
  };
  Journey depart(const QueuePair& pair, const Request& request, std::size_t bytes) noexcept;

  /// When a message gets through the receiver's port that it reaches at `due`.  Called at that
  /// time.
  Picoseconds pass_port_of(const QueuePair& pair, const Request& request, std::size_t bytes,
                           Picoseconds due) const noexcept;

  /// Virtual time: something has arrived at the target, now.
  void wake_target(const QueuePair& pair) noexcept;

  /// Virtual time: a request that is due needs a helper thread, which lives in real time.  It is
  /// tried again in steps of virtual time, with a moment of real time before each.
  static constexpr Picoseconds step_of_waiting = 1'000'000;
  void wait_for_real_time() noexcept { waits_ = true; }
  bool takes_wait() noexcept { return std::exchange(waits_, false); }

  /// The request has been executed now: wakes the target, and returns when the answer is back.
  Picoseconds answer(const QueuePair& pair, const Request& request, std::size_t bytes) noexcept;

  // The rest is for virtual time only:

  /// Charges the program's time for the receives among the completions that a poll has found.
  void charge_receives(Process& process, int receives) noexcept;
  /// Charges it for requests that were posted together.
  void charge_posts(Process& process, std::uint64_t posts) noexcept;
  /// Charges it for combining.
  void charge_work(Process& process, std::size_t bytes) noexcept;
  /// A message to a rank of this node: charges its sender, and stores `message` in the word when
  /// the receiver may see it.
  void announce(Process& process, std::uint64_t* word, std::uint64_t message,
                std::size_t bytes) noexcept;
  /// Stores the words that are not due yet: virtual time has ended before.
  void announce_all() noexcept;
  void charge_message(Process& process) noexcept;
  void charge_reading(Process& process, std::size_t bytes) noexcept;
  void charge_copying(Process& process, std::size_t bytes) noexcept;
  /// Whether the program has something else to do than to wait for what it polls next.
  void say_busy(bool busy) noexcept { is_busy_ = busy; }
  /// Executes what is due: requests, and words of messages inside the node.
  void deliver(Process& process) noexcept;
  /// A poll has found nothing: time goes on to this rank's next event, unless the program may have
  /// further completion queues to look at now, or has said that it is busy.
  void idle(Process& process) noexcept;
  /// Passes time until everything that this rank has posted has arrived and been answered.
  void drain(Process& process) noexcept;

 private:
  bool happens(double probability) noexcept;
  bool is_down(std::uint32_t place, Picoseconds at) const noexcept;
  Journey get_through(const QueuePair& pair, const Request& request, std::uint32_t to,
                      std::size_t bytes, Picoseconds at) noexcept;
  void spend(Process& process, Picoseconds time) noexcept;
  void pass_time(Process& process, Picoseconds until) noexcept;
  enum class Port : std::uint8_t { transmit, receive };
  /// Reserves a port of the process `of` for `duration`, from the time at which it is free, but not
  /// before `earliest`.  Returns the time at which the reservation begins.
  Picoseconds take(Port which, SegmentHeader& of, Picoseconds earliest,
                   Picoseconds duration) const noexcept;
  Picoseconds next_due(Process& process) const noexcept;

  FabricModel model_;
  std::uint32_t place_;
  VirtualTime* virtual_time_;
  std::int64_t epoch_ns_;
  bool waits_ = false, is_busy_ = false;
  struct Announcement {
    Picoseconds due;
    std::uint64_t* word;
    std::uint64_t message;
  };
  std::deque<Announcement> announcements_;  // those that are not due yet
  std::uint64_t requests_ = 0;
  // Polls in a row that have found nothing, while no time has passed.
  std::uint32_t empty_polls_ = 0;
  double slowness_ = 1;
  SpinLock lock_;  // guards the numbers
  std::mt19937_64 numbers_;
};

}  // namespace tutti::verbs::soft
