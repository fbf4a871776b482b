#include "bootstrap/readiness.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "bootstrap/socket.hpp"
#include "tutti/detail/check.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

namespace {

epoll_event event_of(std::uint32_t events, void* owner) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = owner;
  return event;
}

}  // namespace

Readiness::Readiness()
    : list_(UnsharedDescriptor::made_by([] { return ::epoll_create1(EPOLL_CLOEXEC); })), events_{} {
  if (!list_)
    throw Error(ErrorCode::system, std::string("epoll_create1: ") + std::strerror(errno), errno);
}

bool Readiness::add(int descriptor, void* owner) noexcept {
  epoll_event event = event_of(EPOLLIN, owner);
  return ::epoll_ctl(list_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

// Neither of these can fail for a descriptor that was added.

void Readiness::change(int descriptor, void* owner, std::uint32_t events) noexcept {
  epoll_event event = event_of(events, owner);
  const bool changed = ::epoll_ctl(list_.get(), EPOLL_CTL_MOD, descriptor, &event) == 0;
  detail::check(changed, "a descriptor that is changed has been added");
}

void Readiness::remove(int descriptor) noexcept {
  const bool removed = ::epoll_ctl(list_.get(), EPOLL_CTL_DEL, descriptor, nullptr) == 0;
  detail::check(removed, "a descriptor that is removed has been added");
}

std::span<const epoll_event> Readiness::wait(Timeout sleep) noexcept {
  const int ready = ::epoll_wait(list_.get(), events_.data(), static_cast<int>(events_.size()),
                                 poll_milliseconds(sleep));
  return std::span<const epoll_event>(events_).first(ready > 0 ? static_cast<std::size_t>(ready)
                                                               : std::size_t{0});
}

}  // namespace tutti::bootstrap
