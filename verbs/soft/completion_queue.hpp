// A completion queue has one ring for what this process itself completes (sends, flushes), which is
// private, and it also polls the rings of the queue pairs that receive into it.  Into each of those
// one connected initiator writes.  An empty poll takes no lock and looks at one word of each ring,
// by way of its Watch: a locked instruction would wait until the caller's own last request has left
// its store buffer, which is the very time in which the answer travels.  Of many receivers only the
// first few are watched; the others are a Crowd, for all of which a poll looks at one word.  An
// exception is a queue smaller than what its queue pairs may have outstanding: each poll takes the
// lock and counts, so that an overrun is found.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "verbs/soft/crowd.hpp"
#include "verbs/soft/event_queue.hpp"
#include "verbs/soft/extended_poll.hpp"
#include "verbs/soft/handle_room.hpp"
#include "verbs/soft/layout.hpp"
#include "verbs/soft/spin_lock.hpp"
#include "verbs/soft/watch.hpp"

namespace tutti::verbs::soft {

class Process;
struct QueuePair;

/// A completion that this process wrote.  Polling it frees the slots that it stands for.
struct LocalCompletion {
  ibv_wc completion;
  QueuePair* pair;
  std::uint64_t retires;  // sends: the position after the request; receives: unused
  bool is_receive;
  bool solicited;
};

/// What a poll would find of one initiator's completions.
struct Unpolled {
  bool any = false;
  bool urgent = false;  // solicited, or an error
};

struct CompletionQueue : CompletionQueueHandle {
  explicit CompletionQueue(std::uint32_t entries);

  /// The number of receivers whose rings a poll looks at one by one.
  static constexpr std::size_t watched_max = 32;

  /// Makes room for one more receiver; false when the segment has no memory.  Takes the lock;
  /// Process::mutex is held.
  bool reserve_receiver(Process& process);
  /// Adds a receiver, for which reserve_receiver() has made room, or takes it away.  The lock is
  /// held.
  void add_receiver(QueuePair& pair) noexcept;
  void remove_receiver(QueuePair& pair) noexcept;
  /// Calls it with each receiver.  The lock is held.
  template <class Function>
  void for_each_receiver(Function&& function) const {
    assert(lock.is_held());
    for (QueuePair* const pair : receivers) function(*pair);
    for (QueuePair* const pair : crowd.members())
      if (pair != nullptr) function(*pair);
  }

  /// Adds a local completion.  The lock is held.
  void push(const LocalCompletion& added) noexcept;
  /// Forgets the queued completions of a queue pair that is reset or destroyed.
  void forget(const QueuePair& pair) noexcept;
  /// False when a poll would find nothing.  Takes no lock.
  bool has_news() const noexcept;
  /// The lock is held, for this function and the next.
  Unpolled unpolled_of(std::uint32_t process_id) const noexcept;
  /// Raises the event for receives that will be flushed.  They may have to wait until earlier
  /// completions are polled, and a program that waits for errors only does not poll those.  False
  /// when an initiator is still at work.
  bool announce_flush_of(QueuePair& pair) noexcept;
  /// Does what a poll does for failed queue pairs, for a program that waits for an event before it
  /// polls.  `look`: also if nobody has asked for attention yet.  False when an initiator is still
  /// at work.  Takes the lock.
  bool flush_for_event(bool look) noexcept;

  SpinLock lock;  // guards everything below, and the consumer's side of the receivers' rings
  std::vector<QueuePair*> receivers;  // those that are watched
  Watches watches;                    // one for each of them, and one for the crowd
  std::size_t next_source = 0;        // the source polled first, so that each gets its turn
  std::size_t crowds = 0;             // 1: the crowd is open
  // How many completions can be outstanding at once, and how many the queue holds (`cqe` is the
  // caller's).  Changed with the lock held; relaxed: without it they only say whether to take it.
  std::atomic<std::uint64_t> load{0};
  std::atomic<std::uint64_t> capacity;
  std::uint32_t users = 0;  // queue pairs, guarded by Process::mutex
  // Constant.  NULL and 0: the queue has no channel.
  ArmingEntry* arming = nullptr;
  std::size_t arming_offset = 0;
  EventSource completion_events;
  EventSource asynchronous_events;
  // Overrun: completions were lost.  Relaxed where the lock is not held: a later poll sees it.
  std::atomic<bool> failed{false};
  // Set by whoever moves a receiver to the error state, or posts a receive there; the next poll
  // then flushes.  Release and acquire: that poll must see the state.
  std::atomic<bool> attention{false};

  std::size_t local_mask;
  std::unique_ptr<LocalCompletion[]> local;
  // Changed in the same way as `load`.
  std::atomic<std::uint64_t> local_head{0};
  std::atomic<std::uint64_t> local_tail{0};

  Crowd crowd;  // the receivers that are not watched; guarded by the lock

  ExtendedPoll extended_poll;
};

/// Like ibv_resize_cq: EINVAL when more completions are outstanding than it is to hold.
int resize_completion_queue(ibv_cq* queue, int entries);

int poll_completion_queue(ibv_cq* queue, int count, ibv_wc* completions) noexcept;

}  // namespace tutti::verbs::soft
