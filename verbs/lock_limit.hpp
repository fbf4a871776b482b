// How much memory this process may lock.  A device that reads and writes memory by itself needs the
// pages locked: the kernel counts those of all registrations and refuses a registration that
// exceeds RLIMIT_MEMLOCK with ENOMEM, unless the process has CAP_IPC_LOCK.  The software device
// locks none.
#pragma once

#include <cstddef>
#include <string>

#include "verbs/device.hpp"

namespace tutti::verbs {

struct LockLimit {
  std::size_t bytes = 0;   // RLIMIT_MEMLOCK; SIZE_MAX: unlimited
  std::size_t locked = 0;  // by the registrations so far
  bool is_exempt = false;  // has CAP_IPC_LOCK, which may have no effect in a user namespace

  bool allows(std::size_t more) const noexcept {
    return is_exempt || bytes == SIZE_MAX || (locked <= bytes && more <= bytes - locked);
  }
  /// "RLIMIT_MEMLOCK is 1048576 bytes, of which 4096 are locked"
  std::string text() const;
};

/// The limit of this process.  `status` is the file in which the kernel describes it; tests have
/// their own.
LockLimit lock_limit(const std::string& status = "/proc/self/status");

/// Whether the device of `port` accesses memory by itself.
bool locks_memory(const Port& port) noexcept;

/// What to add to the access flags of memory that gets pages after it was registered, before it is
/// used; nothing for a device that locks memory, which has to have them all.
int access_on_demand(const Port& port) noexcept;

/// Throws Error{limit_exceeded}, which says what to set, if the device of `port` needs to lock
/// `bytes` for `what` ("the arena") and this process may not.
void check_lockable(const Port& port, std::size_t bytes, const std::string& what);
/// Checks against a limit that is known, for a device that locks memory.
void check_lockable(const Port& port, std::size_t bytes, const std::string& what,
                    const LockLimit& limit);

/// Text to append to the error of a registration: the limit and what to do, if the limit may be the
/// cause; else nothing.
std::string explain_registration(const Port& port, int error);

/// Registers memory that is mapped here.  `what` it is, in the Error if the device refuses, which
/// names the limit and what to do where that may be the cause.
RegionHandle register_on(const Port& port, ibv_pd* domain, std::byte* memory, std::size_t bytes,
                         int access, const std::string& what);

}  // namespace tutti::verbs
