#include "verbs/soft/completion_queue.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <mutex>

#include "verbs/soft/asynchronous.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/layout.hpp"
#include "verbs/soft/limits.hpp"
#include "verbs/soft/notification.hpp"
#include "verbs/soft/process.hpp"
#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/receive_queue.hpp"

namespace tutti::verbs::soft {
namespace {

Completion& head_of(const QueuePair& pair) {
  return pair.ring[pair.ring_head & pair.ring_mask];
}

bool is_ready(const QueuePair& pair) {
  // Acquire: the entry, and the data that the initiator wrote before it.
  return head_of(pair).sequence.load(std::memory_order_acquire) == pair.ring_head + 1;
}

void fail_queue(CompletionQueue& queue) {
  queue.failed.store(true, std::memory_order_relaxed);
  raise_overrun(queue);
  // Not every program reads asynchronous events.
  std::fprintf(stderr, "tutti: completion queue overrun: more than %d completions outstanding\n",
               queue.cqe);
}

std::uint64_t outstanding_count(const CompletionQueue& queue) {
  std::uint64_t outstanding = queue.local_tail.load(std::memory_order_relaxed) -
                              queue.local_head.load(std::memory_order_relaxed);
  queue.for_each_receiver([&](const QueuePair& pair) {
    // Relaxed: a completion just being written counts at the next poll.  It may even have been
    // polled already, because it is counted after it is stored.
    const std::uint64_t produced = pair.entry.produced.load(std::memory_order_relaxed);
    if (produced > pair.ring_head) outstanding += produced - pair.ring_head;
  });
  return outstanding;
}

/// Whether its users may have more outstanding than the queue holds, so that it must be counted.
bool can_overrun(const CompletionQueue& queue) {
  return queue.load.load(std::memory_order_relaxed) >
         queue.capacity.load(std::memory_order_relaxed);
}

bool is_overrun(const CompletionQueue& queue) {
  return outstanding_count(queue) > queue.capacity.load(std::memory_order_relaxed);
}

/// Takes one entry from the ring of `pair`; false when it was no completion for the caller.
bool take_remote(CompletionQueue& queue, QueuePair& pair, ibv_wc& completion) {
  const Completion& entry = head_of(pair);
  const bool is_event = entry.is_event != 0;
  if (!is_event) {
    completion = {};
    completion.wr_id = entry.wr_id;
    completion.status = static_cast<ibv_wc_status>(entry.status);
    completion.opcode = static_cast<ibv_wc_opcode>(entry.opcode);
    completion.byte_len = entry.bytes;
    completion.imm_data = entry.immediate;
    completion.qp_num = pair.qp_num;
    completion.src_qp = entry.source;
    completion.wc_flags = entry.flags;
    ++pair.completed;
    // Release: post_receive, the next user of the slot, must not overtake this.
    if (!pair.srq)
      pair.released.store(pair.released.load(std::memory_order_relaxed) + 1,
                          std::memory_order_release);
  } else {
    queue.attention.store(true, std::memory_order_release);
    // In virtual time the requests behind the failed one end now, not when they are due.
    if (pair.timing) pair.process.look_at_all();
  }
  ++pair.ring_head;
  pair.watch_ring();
  // Release: the initiator may overwrite what has been read.
  pair.entry.consumed.store(pair.ring_head, std::memory_order_release);
  return !is_event;
}

int take_remotes(CompletionQueue& queue, QueuePair& pair, int count, ibv_wc* completions) {
  int polled = 0;
  while (polled < count && is_ready(pair)) polled += take_remote(queue, pair, completions[polled]);
  return polled;
}

/// Looks at those members of the crowd alone that are marked, in turn.  Not inlined: polls without
/// a crowd would save registers for it.
[[gnu::noinline]] int take_from_crowd(CompletionQueue& queue, int count, ibv_wc* completions) {
  assert(count > 0);
  Crowd& crowd = queue.crowd;
  crowd.collect();
  int polled = 0;
  for (std::size_t left = crowd.expected_count(); left > 0 && polled < count; --left) {
    const std::uint32_t seat = crowd.next();
    polled += take_remotes(queue, *crowd.members()[seat], count - polled, completions + polled);
    // With room for more, the ring was found empty.  Whoever stores a completion after that look
    // marks it after the marks were collected.
    if (polled < count) crowd.settle(seat);
  }
  crowd.keep_expected();
  return polled;
}

void take_local(const LocalCompletion& entry, ibv_wc& completion) {
  assert(entry.pair != nullptr);
  completion = entry.completion;
  if (entry.is_receive) {
    entry.pair->released.store(entry.pair->released.load(std::memory_order_relaxed) + 1,
                               std::memory_order_release);
  } else {
    assert(entry.retires > entry.pair->retired.load(std::memory_order_relaxed));
    entry.pair->retired.store(entry.retires, std::memory_order_release);
  }
}

int take_locals(CompletionQueue& queue, int count, ibv_wc* completions) {
  const std::uint64_t tail = queue.local_tail.load(std::memory_order_relaxed);
  std::uint64_t head = queue.local_head.load(std::memory_order_relaxed);
  int polled = 0;
  for (; polled < count && head != tail; ++head)
    take_local(queue.local[head & queue.local_mask], completions[polled++]);
  // An empty ring begins anew, so that memory that was never needed stays untouched.  A poll
  // without the lock that sees one store and not the other only takes the lock in vain.
  if (head == tail) queue.local_tail.store(head = 0, std::memory_order_relaxed);
  queue.local_head.store(head, std::memory_order_relaxed);
  return polled;
}

/// Completes the receives that were never taken.  False when an initiator is still at work.
bool flush_receives(CompletionQueue& queue, QueuePair& pair) {
  assert(queue.lock.is_held());
  // The receives of a shared queue stay there.
  if (pair.srq || pair.status().state() != IBV_QPS_ERR) return true;
  // See QueuePairEntry::engaged for the initiator's half: once it is gone nothing is added.
  if (pair.entry.engaged.load(std::memory_order_seq_cst) != 0) return false;
  if (is_ready(pair)) return false;  // to be polled first
  const std::lock_guard guard(pair.receive_lock);
  for (; pair.completed < pair.posted; ++pair.completed) {
    const ReceiveSlot& slot =
        slot_at(pair.process.view(), pair.entry.receive_offset, pair.entry.receive_slots,
                pair.entry.receive_stride_bytes, pair.completed);
    LocalCompletion flushed{};
    flushed.completion.wr_id = slot.wr_id.load(std::memory_order_relaxed);
    flushed.completion.status = IBV_WC_WR_FLUSH_ERR;
    flushed.completion.opcode = IBV_WC_RECV;
    flushed.completion.qp_num = pair.qp_num;
    flushed.pair = &pair;
    flushed.is_receive = true;
    queue.push(flushed);
  }
  return true;
}

void flush_receivers(CompletionQueue& queue) {
  // The exchange is a full barrier before the loop.  Whoever moves a receiver to the error state
  // does that first and then asks for attention.  Either this exchange takes the request and the
  // loop sees the state, or the request comes after it and stays for the next poll.  A plain store
  // could take effect after the loop has looked, and overwrite the request.
  queue.attention.exchange(false, std::memory_order_seq_cst);
  bool finished = true;
  queue.for_each_receiver([&](QueuePair& pair) { finished &= flush_receives(queue, pair); });
  if (!finished) queue.attention.store(true, std::memory_order_relaxed);
}

}  // namespace

CompletionQueue::CompletionQueue(std::uint32_t entries)
    : CompletionQueueHandle{},
      capacity(entries),
      local_mask(std::bit_ceil(entries) - 1),
      local(std::make_unique_for_overwrite<LocalCompletion[]>(local_mask + 1)) {
  assert(entries >= 1);
  assert(entries <= completions_max);
  assert(std::has_single_bit(local_mask + 1));
  cqe = static_cast<int>(entries);
  completion_events.object = asynchronous_events.object = this;
}

void CompletionQueue::push(const LocalCompletion& added) noexcept {
  assert(lock.is_held());
  assert(added.pair != nullptr);
  const std::uint64_t tail = local_tail.load(std::memory_order_relaxed);
  if (tail - local_head.load(std::memory_order_relaxed) >=
      capacity.load(std::memory_order_relaxed)) {
    if (!failed.load(std::memory_order_relaxed)) fail_queue(*this);
    return;
  }
  local[tail & local_mask] = added;
  local_tail.store(tail + 1, std::memory_order_relaxed);
  if (arming) [[unlikely]]
    notify(*this, added.solicited || added.completion.status != IBV_WC_SUCCESS);
}

void CompletionQueue::forget(const QueuePair& pair) noexcept {
  assert(lock.is_held());
  // The other entries move together, so that those forgotten do not take the room of new ones.
  const std::uint64_t tail = local_tail.load(std::memory_order_relaxed);
  std::uint64_t kept = local_head.load(std::memory_order_relaxed);
  for (std::uint64_t position = kept; position != tail; ++position) {
    const LocalCompletion& entry = local[position & local_mask];
    if (entry.pair != &pair) local[kept++ & local_mask] = entry;
  }
  assert(kept <= tail);
  local_tail.store(kept, std::memory_order_relaxed);
}

bool CompletionQueue::reserve_receiver(Process& process) {
  // The number of receivers changes with the mutex held.
  const bool is_watched = receivers.size() < watched_max;
  {
    const std::lock_guard guard(lock);
    if (receivers.size() == receivers.capacity()) receivers.reserve(2 * receivers.size() + 1);
    assert(receivers.size() < receivers.capacity());
    watches.reserve();
    if (!is_watched) crowd.reserve();
  }
  if (is_watched || crowd.is_open()) return true;
  const std::size_t offset = process.crowd_entries.take(process.segment);
  if (offset == 0) return false;
  const std::lock_guard guard(lock);
  crowd.open(*process.view().at<CrowdEntry>(offset), offset, watches.take());
  crowds = 1;
  return true;
}

void CompletionQueue::add_receiver(QueuePair& pair) noexcept {
  assert(lock.is_held());
  const bool is_watched = receivers.size() < watched_max;
  if (is_watched) {
    assert(receivers.size() < receivers.capacity());
    receivers.push_back(&pair);
    pair.watch = &watches.take();
  } else {
    pair.crowd_seat = crowd.add(pair);
    pair.watch = &pair.unwatched;
  }
  // Plain: no initiator looks before the status says RTR.
  pair.entry.crowd_offset = is_watched ? 0 : crowd.offset();
  pair.entry.crowd_group = is_watched ? 0 : Crowd::group_of(pair.crowd_seat);
  pair.watch_ring();
}

void CompletionQueue::remove_receiver(QueuePair& pair) noexcept {
  assert(lock.is_held());
  if (pair.crowd_seat == QueuePair::no_seat)
    std::erase(receivers, &pair);
  else
    crowd.remove(pair.crowd_seat);
  pair.watch->sequence.store(nullptr, std::memory_order_release);
}

bool CompletionQueue::has_news() const noexcept {
  return watches.any_ready() ||
         local_head.load(std::memory_order_relaxed) != local_tail.load(std::memory_order_relaxed) ||
         attention.load(std::memory_order_relaxed) || failed.load(std::memory_order_relaxed) ||
         can_overrun(*this);
}

Unpolled CompletionQueue::unpolled_of(std::uint32_t process_id) const noexcept {
  assert(lock.is_held());
  assert(process_id < process_ids_max);
  Unpolled found;
  for_each_receiver([&](const QueuePair& pair) {
    if (process_id_of(pair.status().destination()) != process_id) return;
    for (std::uint64_t position = pair.ring_head;; ++position) {
      const Completion& entry = pair.ring[position & pair.ring_mask];
      if (entry.sequence.load(std::memory_order_acquire) != position + 1) break;
      if (entry.is_event != 0) break;  // see flush_for_event()
      found.any = true;
      found.urgent |= entry.is_urgent != 0;
    }
  });
  return found;
}

bool CompletionQueue::announce_flush_of(QueuePair& pair) noexcept {
  assert(lock.is_held());
  if (pair.srq || pair.status().state() != IBV_QPS_ERR) return true;
  if (pair.entry.engaged.load(std::memory_order_seq_cst) != 0) return false;
  if (!is_ready(pair)) return true;  // no completion comes before the flushed ones
  const std::lock_guard guard(pair.receive_lock);
  // One event for each of them; receives that initiators have taken complete by themselves.
  const std::uint64_t known =
      std::max(pair.announced, pair.entry.produced.load(std::memory_order_relaxed));
  if (pair.posted <= known) return true;
  pair.announced = pair.posted;
  notify(*this, true);
  return true;
}

bool CompletionQueue::flush_for_event(bool look) noexcept {
  if (!look && !attention.load(std::memory_order_relaxed)) return true;
  const std::lock_guard guard(lock);
  ibv_wc nothing;
  for_each_receiver([&](QueuePair& pair) {
    if (is_ready(pair) && head_of(pair).is_event != 0) (void)take_remote(*this, pair, nothing);
  });
  if (attention.load(std::memory_order_acquire)) flush_receivers(*this);
  bool finished = true;
  for_each_receiver([&](QueuePair& pair) { finished &= announce_flush_of(pair); });
  return finished;
}

int resize_completion_queue(ibv_cq* handle, int entries) {
  Process& process = process_of(handle->context);
  if (process.inherited() || entries < 1 || entries > static_cast<int>(completions_max))
    return EINVAL;
  auto& queue = *static_cast<CompletionQueue*>(handle);
  const auto capacity = static_cast<std::uint64_t>(entries);
  const std::size_t mask = std::bit_ceil(capacity) - 1;
  // Allocated before the lock and freed after it, because polls spin meanwhile.
  auto ring = std::make_unique_for_overwrite<LocalCompletion[]>(mask + 1);
  const std::lock_guard control_guard(process.mutex);
  const std::lock_guard guard(queue.lock);
  if (outstanding_count(queue) > capacity) return EINVAL;
  // The positions stay, so that a poll without the lock finds as many completions as before.
  const std::uint64_t tail = queue.local_tail.load(std::memory_order_relaxed);
  assert(tail - queue.local_head.load(std::memory_order_relaxed) <= capacity);
  for (std::uint64_t position = queue.local_head.load(std::memory_order_relaxed); position != tail;
       ++position)
    ring[position & mask] = queue.local[position & queue.local_mask];
  queue.local.swap(ring);
  queue.local_mask = mask;
  queue.capacity.store(capacity, std::memory_order_relaxed);
  queue.cqe = entries;
  return 0;
}

namespace {

int poll(CompletionQueue& queue, int count, ibv_wc* completions) noexcept {
  if (!queue.has_news()) return 0;
  const std::lock_guard guard(queue.lock);
  if (queue.failed.load(std::memory_order_relaxed)) [[unlikely]]
    return -1;
  // Only a queue smaller than what its users may have outstanding can be overrun; a queue pair's
  // load is added before it can complete anything, and taken away after its completions are
  // forgotten.
  if (can_overrun(queue) && is_overrun(queue)) [[unlikely]] {
    fail_queue(queue);
    return -1;
  }
  // The sources take turns, and the queue's own ring is the last of them, after the crowd: a source
  // that was polled is not the first next time, however many completions it has.
  int polled = 0;
  const std::size_t receivers = queue.receivers.size();
  const std::size_t own = receivers + queue.crowds;
  for (std::size_t tries = 0; tries <= own && polled < count; ++tries) {
    const std::size_t source = queue.next_source > own ? 0 : queue.next_source;
    queue.next_source = source + 1;
    if (source < receivers) {
      polled += take_remotes(queue, *queue.receivers[source], count - polled, completions + polled);
      continue;
    }
    if (source != own) {
      polled += take_from_crowd(queue, count - polled, completions + polled);
      continue;
    }
    if (queue.attention.load(std::memory_order_acquire)) [[unlikely]] {
      flush_receivers(queue);
      if (queue.failed.load(std::memory_order_relaxed)) return -1;
    }
    polled += take_locals(queue, count - polled, completions + polled);
  }
  return polled;
}

/// In an emulated network requests that are due are delivered first.  In virtual time polls are
/// what makes time go on.
int poll_timed(Process& process, CompletionQueue& queue, int count, ibv_wc* completions) noexcept {
  Timing& timing = *process.timing();
  if (!timing.is_virtual()) {
    timing.announce_all();
    if (!timing.is_never_virtual() || process.may_be_due()) process.progress_pending_slow();
    return poll(queue, count, completions);
  }
  timing.deliver(process);
  const int polled = poll(queue, count, completions);
  if (polled == 0)
    timing.idle(process);
  else
    timing.charge_receives(process,
                           static_cast<int>(std::count_if(
                               completions, completions + std::max(polled, 0),
                               [](const ibv_wc& one) { return (one.opcode & IBV_WC_RECV) != 0; })));
  return polled;
}

}  // namespace

int poll_completion_queue(ibv_cq* handle, int count, ibv_wc* completions) noexcept {
  auto& queue = *static_cast<CompletionQueue*>(handle);
  Process& process = process_of(queue.context);
  if (process.datagrams.has_news()) process.poll_datagrams_slow();
  if (process.has_pending()) [[unlikely]] {
    if (process.timing()) return poll_timed(process, queue, count, completions);
    process.progress_pending_slow();
  }
  return poll(queue, count, completions);
}

}  // namespace tutti::verbs::soft
