#include "verbs/soft/notification.hpp"

#include <cassert>
#include <cerrno>

#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/guarded.hpp"
#include "verbs/soft/segment.hpp"

namespace tutti::verbs::soft {
namespace {

CompletionChannel& channel_of(ibv_comp_channel* channel) {
  return *static_cast<CompletionChannel*>(channel);
}

void raise(CompletionQueue& queue) noexcept {
  assert(queue.channel != nullptr);
  channel_of(queue.channel).events.raise(queue.completion_events, Event::completion);
}

/// Raises the event that an initiator has claimed, once.
void answer_claim(CompletionQueue& queue) noexcept {
  Arming claimed = Arming::claimed;
  // Acquire: the completion is there.
  if (queue.arming->state.compare_exchange_strong(claimed, Arming::idle, std::memory_order_acq_rel,
                                                  std::memory_order_relaxed))
    raise(queue);
}

}  // namespace

bool claim_arming(ArmingEntry& entry, bool urgent, Arming next) noexcept {
  assert(next == Arming::idle || next == Arming::claimed);
  Arming seen = entry.state.load(std::memory_order_relaxed);
  for (;;) {
    const bool is_due = seen == Arming::any || (seen == Arming::solicited && urgent);
    // The word is exchanged in any case, even if the value stays the same: see ArmingEntry.
    if (entry.state.compare_exchange_weak(seen, is_due ? next : seen, std::memory_order_acq_rel,
                                          std::memory_order_relaxed))
      return is_due;
  }
}

void notify(CompletionQueue& queue, bool urgent) noexcept {
  assert(queue.arming != nullptr);
  assert(queue.lock.is_held());
  if (claim_arming(*queue.arming, urgent, Arming::idle)) raise(queue);
}

// --- The queues ---------------------------------------------------------------------------------

bool Notifiers::add(CompletionQueue& queue, Segment& segment) {
  assert(queue.arming == nullptr);
  // First everything that may lack memory: room for all words, and for the queue under its word.
  const std::lock_guard guard(mutex_);
  if (unused_.capacity() <= unused_.size() + queues_.size())
    unused_.reserve(2 * (unused_.size() + queues_.size()) + 1);
  if (unused_.empty()) {
    const std::size_t made = segment.allocate(sizeof(ArmingEntry));
    if (made == 0) return false;
    unused_.push_back(made);
  }
  const std::size_t offset = unused_.back();
  queues_.emplace(offset, &queue);
  unused_.pop_back();
  assert(offset % line_bytes == 0);
  queue.arming = segment.view().at<ArmingEntry>(offset);
  queue.arming->state.store(Arming::idle, std::memory_order_relaxed);
  queue.arming_offset = offset;
  return true;
}

void Notifiers::remove(CompletionQueue& queue) {
  assert(queue.arming_offset != 0);
  assert(unused_.size() < unused_.capacity());  // a destruction needs no memory
  unused_.push_back(queue.arming_offset);
  const std::lock_guard guard(mutex_);
  queues_.erase(queue.arming_offset);
}

void Notifiers::answer(std::size_t offset) noexcept {
  const std::lock_guard guard(mutex_);
  // The queue may be gone, or the number may be wrong.
  if (const auto place = queues_.find(offset); place != queues_.end()) answer_claim(*place->second);
}

void Notifiers::answer_all() noexcept {
  for (const auto& [offset, queue] : queues_) answer_claim(*queue);
}

void Notifiers::make_up_for(std::uint32_t process_id) noexcept {
  for (const auto& [offset, queue] : queues_) {
    const std::lock_guard guard(queue->lock);
    // The event is useless if the completion was there before the word was armed, but none is
    // worse.
    if (const Unpolled unpolled = queue->unpolled_of(process_id); unpolled.any)
      notify(*queue, unpolled.urgent);
  }
}

bool Notifiers::flush(bool look) noexcept {
  bool again = false;
  for (const auto& [offset, queue] : queues_) again |= !queue->flush_for_event(look);
  return again;
}

// --- Verbs --------------------------------------------------------------------------------------

ibv_comp_channel* create_completion_channel(ibv_context* context) {
  Process& process = process_of(context);
  if (process.inherited()) return refuse(EINVAL);
  auto channel = std::make_unique<CompletionChannel>();
  if (const int error = channel->events.open()) return refuse(error);
  channel->context = context;
  channel->fd = channel->events.descriptor();
  channel->refcnt = 0;
  const std::lock_guard guard(process.mutex);
  process.channels.push_back(channel.get());
  add_object(context);
  return channel.release();
}

int destroy_completion_channel(ibv_comp_channel* handle) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return EINVAL;
  const std::lock_guard guard(process.mutex);
  if (handle->refcnt != 0) return EBUSY;
  CompletionChannel* const channel = &channel_of(handle);
  std::erase(process.channels, channel);
  remove_object(channel->context);
  delete channel;
  return 0;
}

int request_notification(ibv_cq* handle, int solicited_only) noexcept {
  auto& queue = *static_cast<CompletionQueue*>(handle);
  if (!queue.arming) return 0;  // an adapter does the same: the event goes nowhere
  const Arming wanted = solicited_only != 0 ? Arming::solicited : Arming::any;
  Arming seen = queue.arming->state.load(std::memory_order_relaxed);
  // Acquire and release: this is the owner's half of ArmingEntry.  An owner that waits for any
  // completion already goes on doing so.
  while (!queue.arming->state.compare_exchange_weak(seen, seen == Arming::any ? seen : wanted,
                                                    std::memory_order_acq_rel,
                                                    std::memory_order_relaxed)) {
  }
  // A program that waits for an event does not poll.  A datagram that comes by a ring meanwhile
  // becomes a completion only when the helper thread looks.
  if (Process& process = process_of(queue.context); process.datagrams.has_rings()) {
    const std::lock_guard guard(process.mutex);
    process.datagrams.want_calls();
  }
  // The call that comes for the event of the former request will find nothing to do.
  if (seen == Arming::claimed) raise(queue);
  return 0;
}

int get_completion_event(ibv_comp_channel* channel, ibv_cq** queue, void** queue_context) {
  void* object = nullptr;
  Event event{};
  const int error = process_of(channel->context).inherited()
                        ? EINVAL
                        : channel_of(channel).events.take(object, event);
  if (error != 0) {
    errno = error;
    return -1;
  }
  *queue = static_cast<CompletionQueue*>(object);
  *queue_context = (*queue)->cq_context;
  return 0;
}

void acknowledge_completion_events(ibv_cq* handle, unsigned count) {
  auto& queue = *static_cast<CompletionQueue*>(handle);
  if (queue.channel && !process_of(queue.context).inherited())
    channel_of(queue.channel).events.acknowledge(queue.completion_events, count);
}

}  // namespace tutti::verbs::soft
