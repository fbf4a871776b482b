// What this process has of the device, once for all its contexts: the segment, the connections, the
// tables of its objects, the list of queue pairs with pending requests, and the helper thread.  The
// object lives from the first open_device to the last close_device, and belongs to the process that
// made it: a child of fork finds it inherited() and makes its own.
//
// Order of locks: Process::mutex, QueuePair::send_lock, the notifiers' lock, CompletionQueue::lock,
// QueuePair::receive_lock / SharedReceiveQueue::lock; the locks of the pending list and of event
// queues are innermost.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/backing.hpp"
#include "verbs/soft/bounce_answer.hpp"
#include "verbs/soft/connections.hpp"
#include "verbs/soft/crowd.hpp"
#include "verbs/soft/datagram_sockets.hpp"
#include "verbs/soft/device.hpp"
#include "verbs/soft/notification.hpp"
#include "verbs/soft/segment.hpp"
#include "verbs/soft/settings.hpp"
#include "verbs/soft/spin_lock.hpp"
#include "verbs/soft/timing.hpp"

namespace tutti::verbs::soft {

struct CompletionQueue;
struct Context;
struct QueuePair;
struct SharedReceiveQueue;

/// Indices of a table.  take() returns the one unused for longest, so that stale names stay stale.
class Slots {
 public:
  explicit Slots(std::uint32_t count) : free_(count) {}
  bool take(std::uint32_t& index) {
    if (next_ < free_.size()) {
      index = next_++;
      return true;
    }
    if (free_count_ == 0) return false;
    index = free_[first_free_];
    assert(index < free_.size());
    first_free_ = (first_free_ + 1) % free_.size();
    --free_count_;
    return true;
  }
  void give_back(std::uint32_t index) noexcept {
    assert(index < next_);
    assert(free_count_ < free_.size());
    free_[(first_free_ + free_count_++) % free_.size()] = index;
  }
  std::uint32_t ever_taken_count() const { return next_; }

 private:
  std::uint32_t next_ = 0;
  std::vector<std::uint32_t> free_;  // a ring with room for all: giving back needs no memory
  std::size_t first_free_ = 0;
  std::size_t free_count_ = 0;
};

class Process {
 public:
  /// Adds a context; NULL and an errno value on failure: EBUSY while the process has contexts with
  /// other settings.
  static Process* acquire(const Settings& settings, int& error);
  /// The object of this process, if it has contexts.
  static Process* of_this_process() noexcept;
  /// Removes a context; the last one ends the object.
  void release();

  /// True in a child of the process that made it; nothing may be done with it there.
  bool inherited() const { return abandoned_ || pid_ != ::getpid(); }

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  // The identity with which a queue pair of this process engages a target.
  std::uint64_t token(std::uint32_t queue_pair_number) const {
    assert(queue_pair_number <= queue_pair_number_max);
    return nonce_ << 24 | queue_pair_number;
  }
  std::uint32_t id() const { return connections.id(); }
  Transport transport() const { return settings_.transport; }
  Timing* timing() const { return timing_.get(); }
  /// The network that is emulated; null: none is.
  const FabricModel* emulated() const { return timing_ ? &timing_->model() : nullptr; }
  const Settings& settings() const { return settings_; }
  SegmentView view() const { return view_; }
  /// The number of the host on which others find this process.
  HostNumber host() const { return host_; }

  /// From now on this process stores lines itself or does not write them; see
  /// Driver::keep_lines_whole.  It cannot be undone.  Relaxed: the switch is set before the queue
  /// pairs that rely on it are connected.
  void keep_lines_whole() noexcept { keeps_lines_whole_.store(true, std::memory_order_relaxed); }
  bool keeps_lines_whole() const noexcept {
    return keeps_lines_whole_.load(std::memory_order_relaxed);
  }

  std::mutex mutex;  // guards the members up to the blank line, and all control operations
  Segment segment;
  Backings backings;
  Connections connections;
  DatagramSockets datagrams;
  std::vector<Context*> contexts;
  std::vector<QueuePair*> queue_pairs;
  std::vector<CompletionQueue*> completion_queues;
  CrowdEntries crowd_entries;
  std::vector<SharedReceiveQueue*> shared_receive_queues;
  std::vector<CompletionChannel*> channels;
  Notifiers notifiers;
  Bounces bounces;
  Slots queue_pair_slots{queue_pairs_max};
  Slots region_slots{regions_max};
  std::vector<std::uint32_t> region_generations;
  std::uint32_t domains_count = 0;
  std::uint32_t last_domain = 0;
  std::uint32_t address_handles_count = 0;

  /// Makes room for one more queue pair on every list that may get one, so that no stored request,
  /// no poll and no destruction fails for lack of memory.  The mutex is held.
  void reserve_queue_pair();

  /// Puts the queue pair on the list that the helper thread and every poll work on.  Its send lock
  /// is held.
  void add_pending(QueuePair& pair);
  void remove_pending(QueuePair& pair);
  /// Whether a poll has more to do: requests are pending, others may have something to copy here,
  /// or the network is emulated.
  bool has_pending() const { return pending_count_.load(std::memory_order_relaxed) != 0; }

  void count_bounces(std::size_t count);

  /// Tries the pending requests of all queue pairs once, unless another thread is doing so.
  void progress_pending_slow();

  /// Takes datagrams that have come by rings, and sends waiting ones to the rings of others, unless
  /// another thread holds the mutex.  For polls; see DatagramSockets::has_news().
  void poll_datagrams_slow();

  // These serve an emulated network in real time, where most polls come before anything is due:

  /// Notes that something pending is due at `due`.  Called after it is stored and its queue pair is
  /// on the list.
  void note_due(Picoseconds due) noexcept;
  /// Whether a poll may find something to try.
  bool may_be_due() const noexcept {
    const Picoseconds next = next_due_.load(std::memory_order_relaxed);
    return next != never_ps && (next == 0 || next <= timing_->now());
  }

  // These serve an emulated network in virtual time, where the helper thread leaves requests alone.
  // A rank may have requests to hundreds of others on their way, so only those are looked at that
  // are due.

  /// The queue pair has got a request, or its requests other times.  Its send lock is held.
  void look_at(const QueuePair& pair) noexcept;
  /// Some queue pair may have failed.
  void look_at_all() noexcept;
  /// Tries the requests that are due.
  void deliver_due();
  /// Frees the ports, with nothing on its way: virtual time begins anew.
  void forget_times();
  /// When this process will have something to do; never_ps: never.
  Picoseconds next_due();
  std::uint32_t completion_queues_in_use();
  /// Whether any of its completion queues has something to poll.
  bool has_completions();

  /// Informs the initiator that waits (0: all) that a receive was posted, or a queue pair became
  /// ready.  Never waits for the mutex: while another thread holds it, the helper thread does it
  /// afterwards.
  void kick_slow(std::uint32_t process_id);

  void wake_helper() const;
  /// Makes the helper thread look for asynchronous events.
  void look_slow();
  /// Handles a call that this process has made to itself: see Peer::call.
  void answer_slow(std::uint64_t call);

  /// Frees the index and the memory of a destroyed queue pair as soon as the initiator that is
  /// engaged on it has left, which takes long if it is stopped.  The mutex is held.
  void bury(std::uint32_t index) noexcept;

  /// Waits until the initiators that are engaged now on the queue pairs from `first` to before
  /// `last` have ended or looked again, which takes a running initiator microseconds.  False when
  /// one has not because its process has been stopped for a second, or when it takes longer than
  /// any running initiator could, see process.cpp.  The mutex is held, but not while waiting: the
  /// helper thread needs it to clear up after an initiator that was killed.
  ///
  /// Engaged initiators wait for nothing, least of all for an owner: no circle of waits is
  /// possible.
  bool wait_for_initiators_slow(std::unique_lock<std::mutex>& held, std::uint32_t first,
                                std::uint32_t last) const;
  bool wait_for_initiators_slow(std::unique_lock<std::mutex>& held) const {
    return wait_for_initiators_slow(held, 0, queue_pair_slots.ever_taken_count());
  }

  /// Whether the initiator with this token belongs to the process that died.
  static bool belongs(std::uint64_t token, const Events::Death& death) {
    return token != 0 && token >> 24 == death.nonce && process_id_of(token & 0xffffff) == death.id;
  }

 private:
  bool outlasts_slow(const RunningEngagement& engagement, std::unique_lock<std::mutex>& held) const;
  Process(const Settings& settings, std::uint64_t nonce);
  int start();
  void help();
  void copy_pending(Picoseconds due = never_ps);
  void set_due(const QueuePair& pair, Picoseconds due, std::size_t& hint) noexcept;
  void pass_ports(Picoseconds now);
  std::int64_t progress_pending_ns();
  bool raise_events(const Events& events);
  void recover_from(const Events::Death& death);
  void forget(const Events::GoneBacking& gone);
  void reap();
  void count_pending();
  void abandon();
  static void watch_forks();

  const pid_t pid_;
  const Settings settings_;
  std::atomic<bool> keeps_lines_whole_{false};
  const std::uint64_t nonce_;
  const HostNumber host_ = read_host_number_slow();
  SegmentView view_;
  std::unique_ptr<Timing> timing_;
  // Set in a child of fork, by its only thread.  The process id alone is not enough: in nested
  // process-id namespaces parent and child may both be 1.
  bool abandoned_ = false;
  Process* predecessor_ = nullptr;  // the parent's object, in a child of fork: kept, never used
  unsigned contexts_count_ = 0;

  SpinLock pending_lock_;
  struct Pending {
    QueuePair* pair;
    // In virtual time: there is nothing to do before; 0: it has to be looked at.  Changed with the
    // send lock held as well, so that no later change of the requests is forgotten; but for 0,
    // which is right at any time.
    Picoseconds due;
  };
  std::vector<Pending> pending_;
  std::size_t bounces_count_ = 0;
  // Pending queue pairs and bounces together.  Relaxed: a poll that misses a new one finds it next
  // time, and the helper thread is woken anyway.
  std::atomic<std::uint32_t> pending_count_{0};
  std::vector<QueuePair*> pending_now_;  // scratch of those who try them, guarded by the mutex
  // When the first pending request is due, or earlier; 0: now.  A thread that tries them all first
  // sets never_ps (acquire), then copies the list, and afterwards notes what is left.  Times noted
  // before (release) are on that list, times noted later stay.  A poll between the two leaves
  // everything to that thread.
  std::atomic<Picoseconds> next_due_{0};
  // Set by kick_slow (release) before it wakes the helper thread, which takes it (acquire) and then
  // asks all clients to look.
  std::atomic<bool> kick_all_{false};
  // Set by look_slow() in the same way.
  std::atomic<bool> look_{false};
  struct Buried {
    std::uint32_t index;
    RunningEngagement engagement;
  };
  std::vector<Buried> buried_;

  detail::Descriptor wake_;
  // The descriptors that the helper thread polls.  The vector is a member and not a local variable
  // of the thread: in a child of fork() that thread does not exist, so a leak checker does not
  // search its stack and would report the vector's memory as lost.
  std::vector<pollfd> watched_;
  // Set by release() before it wakes the helper thread, which then ends.
  std::atomic<bool> stopping_{false};
  std::thread helper_;
};

}  // namespace tutti::verbs::soft
