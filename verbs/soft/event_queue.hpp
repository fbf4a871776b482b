// Events on their way to the program: those of a completion channel, or the asynchronous ones of a
// context.  An eventfd holds one token for each event, so that the program may wait for its
// descriptor by poll, with or without O_NONBLOCK.  The counts of events are kept in the objects
// that they concern, and the objects with events form a list.  So raising an event allocates
// nothing, and the events of an object vanish when it is destroyed.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tutti/detail/descriptor.hpp"

namespace tutti::verbs::soft {

enum class Event : std::uint8_t {
  completion,
  // The rest are asynchronous events.  Those of one object are delivered in this order.
  established,
  fatal,
  request_error,
  access_error,
  last_receive,
  drained,
  overrun,
  limit_reached,
};
inline constexpr std::size_t event_kinds = 9;
static_assert(static_cast<std::size_t>(Event::limit_reached) + 1 == event_kinds);

/// The part of an object that has events.  Guarded by the lock of the one queue that it is used
/// with.
struct EventSource {
  void* object = nullptr;
  std::array<std::uint32_t, event_kinds> unread{};
  std::uint32_t unread_total = 0;
  std::uint32_t unacknowledged = 0;
  EventSource* next = nullptr;  // on the list
};

/// Any thread may call any function.
class EventQueue {
 public:
  /// 0, or an errno value.
  int open();
  int descriptor() const { return tokens_.get(); }

  /// Never waits.
  void raise(EventSource& source, Event event) noexcept;
  /// Waits unless the descriptor is O_NONBLOCK.  0, EAGAIN or another errno value.
  int take(void*& object, Event& event);
  void acknowledge(EventSource& source, std::uint32_t count);
  /// Forgets the unread events of the source, and waits until all events taken are acknowledged.
  void retire(EventSource& source);

  void abandon() { tokens_ = detail::Descriptor(); }  // in a child of fork

 private:
  void append(EventSource& source);
  void unlink(const EventSource& source);

  detail::Descriptor tokens_;
  std::mutex mutex_;  // innermost; guards everything below, and the sources
  std::condition_variable acknowledged_;
  EventSource* first_ = nullptr;
  EventSource* last_ = nullptr;
};

}  // namespace tutti::verbs::soft
