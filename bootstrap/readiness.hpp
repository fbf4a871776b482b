// The descriptors that one thread waits for, in a list that the kernel keeps (epoll).  So a turn of
// that thread takes as long as what is ready, however many strangers are connected and silent.
// A descriptor is taken off the list before it is closed: a child of fork that still has a copy of
// it would otherwise keep it there, with an owner that may be gone.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

#include "bootstrap/unshared_descriptor.hpp"
#include "tutti/timeout.hpp"

namespace tutti::bootstrap {

class Readiness {
 public:
  /// Throws Error{system}.
  Readiness();

  /// Adds a descriptor, which is ready when it can be read.  `owner` is in `data.ptr` of its
  /// events.  False and errno: the kernel has no room for it.
  bool add(int descriptor, void* owner) noexcept;
  /// `events`: EPOLLIN, EPOLLOUT, both or 0.
  void change(int descriptor, void* owner, std::uint32_t events) noexcept;
  void remove(int descriptor) noexcept;

  /// Returns once one is ready, or after `sleep`.  The result is valid until the next call.  It has
  /// at most 64 entries: if more are ready, the others come first the next time.
  std::span<const epoll_event> wait(Timeout sleep) noexcept;

  /// A descriptor that can be read when one in the list is ready: a thread can wait for it and for
  /// others by poll().
  int descriptor() const noexcept { return list_.get(); }

 private:
  UnsharedDescriptor list_;
  std::array<epoll_event, 64> events_;
};

}  // namespace tutti::bootstrap
