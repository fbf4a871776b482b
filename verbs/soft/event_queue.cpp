#include "verbs/soft/event_queue.hpp"

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

namespace tutti::verbs::soft {
namespace {

/// Takes one token without waiting; false when there is none, or the system cannot say so at once.
bool take_token(int tokens) {
  eventfd_t token = 0;
  const iovec data{&token, sizeof(token)};
  return ::preadv2(tokens, &data, 1, -1, RWF_NOWAIT) == sizeof(token);
}

}  // namespace

int EventQueue::open() {
  tokens_ = detail::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  return tokens_ ? 0 : errno;
}

void EventQueue::append(EventSource& source) {
  source.next = nullptr;
  assert((first_ == nullptr) == (last_ == nullptr));
  (last_ ? last_->next : first_) = &source;
  last_ = &source;
}

void EventQueue::unlink(const EventSource& source) {
  EventSource* before = nullptr;
  for (EventSource* place = first_; place; before = place, place = place->next) {
    if (place != &source) continue;
    (before ? before->next : first_) = place->next;
    if (last_ == place) last_ = before;
    return;
  }
}

void EventQueue::raise(EventSource& source, Event event) noexcept {
  assert(source.object != nullptr);
  assert(static_cast<std::size_t>(event) < event_kinds);
  const std::lock_guard guard(mutex_);
  ++source.unread[static_cast<std::size_t>(event)];
  if (source.unread_total++ == 0) append(source);
  // With the lock held: retire() relies on as many tokens as events.
  ::eventfd_write(tokens_.get(), 1);
}

int EventQueue::take(void*& object, Event& event) {
  for (;;) {
    eventfd_t token = 0;
    if (::read(tokens_.get(), &token, sizeof(token)) != sizeof(token)) return errno;
    const std::lock_guard guard(mutex_);
    EventSource* const source = first_;
    if (!source) continue;  // the object has been destroyed since, and its event with it
    const auto kind = std::find_if(source->unread.begin(), source->unread.end(),
                                   [](std::uint32_t count) { return count != 0; });
    assert(kind != source->unread.end());
    assert(source->unread_total > 0);
    --*kind;
    // Objects take turns.
    unlink(*source);
    if (--source->unread_total != 0) append(*source);
    ++source->unacknowledged;
    object = source->object;
    event = static_cast<Event>(kind - source->unread.begin());
    return 0;
  }
}

void EventQueue::acknowledge(EventSource& source, std::uint32_t count) {
  const std::lock_guard guard(mutex_);
  source.unacknowledged -= std::min(count, source.unacknowledged);
  // With the lock held: the waiting thread destroys the source, and perhaps this queue as well.
  acknowledged_.notify_all();
}

void EventQueue::retire(EventSource& source) {
  std::unique_lock guard(mutex_);
  unlink(source);
  // A token that is gone was taken by another thread, which finds no event for it and waits on.
  for (; source.unread_total != 0; --source.unread_total) (void)take_token(tokens_.get());
  source.unread = {};
  acknowledged_.wait(guard, [&] { return source.unacknowledged == 0; });
}

}  // namespace tutti::verbs::soft
