// Completion channels.  A completion queue with a channel has a word in the segment that says
// whether its owner waits for an event (ArmingEntry); whoever stores a completion looks at it.  The
// owner's own threads raise the event themselves.  An initiator claims the word and calls the
// owner, whose helper thread answers; if the initiator dies in between, the helper thread raises
// the event all the same.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "verbs/soft/event_queue.hpp"
#include "verbs/soft/layout.hpp"

namespace tutti::verbs::soft {

class Segment;
struct CompletionQueue;

/// `refcnt`, the number of completion queues that use it, is guarded by Process::mutex.
struct CompletionChannel : ibv_comp_channel {
  EventQueue events;
};

/// True when the owner waits for this completion; the word then is `next`.  Called after the
/// completion was stored; see ArmingEntry.  `urgent`: solicited, or an error.
bool claim_arming(ArmingEntry& entry, bool urgent, Arming next) noexcept;

/// Called in the owner after it has stored a completion.  The lock of the queue is held.
void notify(CompletionQueue& queue, bool urgent) noexcept;

/// The completion queues that have a channel.
class Notifiers {
 public:
  /// Gives the queue its word; false when there is no memory.  Process::mutex is held, for this
  /// function, the next, and where it is said.
  bool add(CompletionQueue& queue, Segment& segment);
  void remove(CompletionQueue& queue);

  /// Raises the event of the queue whose word is at `offset`, if an initiator has claimed it.
  void answer(std::size_t offset) noexcept;
  /// Does so for all queues.  Process::mutex is held.
  void answer_all() noexcept;
  /// Raises events that a dead initiator owes: it may have stored a completion without looking at
  /// the word.  Process::mutex is held.
  void make_up_for(std::uint32_t process_id) noexcept;
  /// Flushes the receives of failed queue pairs, because a program may not poll before it gets
  /// their event; see CompletionQueue::flush_for_event.  True when something has to be tried again
  /// soon.  Process::mutex is held.
  bool flush(bool look) noexcept;

 private:
  std::mutex mutex_;                                // before CompletionQueue::lock
  std::map<std::size_t, CompletionQueue*> queues_;  // by the offset of their word
  // Words are not given back to the segment: an initiator that was stopped may still claim one.
  // The next queue then gets a useless event.
  std::vector<std::size_t> unused_;
};

ibv_comp_channel* create_completion_channel(ibv_context* context);
int destroy_completion_channel(ibv_comp_channel* channel);
int request_notification(ibv_cq* queue, int solicited_only) noexcept;
int get_completion_event(ibv_comp_channel* channel, ibv_cq** queue, void** queue_context);
void acknowledge_completion_events(ibv_cq* queue, unsigned count);

}  // namespace tutti::verbs::soft
