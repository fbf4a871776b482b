// Reads what another rank of the node has not shared: its users' buffers, by process_vm_readv.
// Linux allows that to the same user (or root) in the same namespace of process ids, unless the
// other process is not dumpable, Yama's ptrace_scope forbids it, or a container's filter of system
// calls refuses it.  So it is tried once before it is relied upon.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/timeout.hpp"

namespace tutti::shm {

/// Reads `bytes` at `from` in `process` (its id in the namespace of the caller; it may be the
/// caller itself) into `into`.  0, or an errno: ESRCH if the process is gone, EFAULT if no memory
/// is there, EPERM if it is not allowed.  It does not notice that another process has got the id
/// since: PeerProcess does.
int read_peer_memory(std::int32_t process, std::uint64_t from, std::byte* into,
                     std::size_t bytes) noexcept;

/// A process of this node whose memory is read.  It is known by its id and the time at which it was
/// started (/proc/ID/stat), since the system gives out ids again.  One thread at a time.
class PeerProcess {
 public:
  PeerProcess() = default;
  /// The process that has the id now.
  explicit PeerProcess(std::int32_t process) noexcept;

  /// Whether there was such a process, and its start can be seen.
  bool is_known() const noexcept { return started_ != 0; }

  /// As read_peer_memory(), and ESRCH if what was read may be another process's.
  int read(std::uint64_t from, std::byte* into, std::size_t bytes) noexcept;

 private:
  bool is_there() noexcept;

  std::int32_t process_ = 0;
  std::uint64_t started_ = 0;  // in the system's ticks since boot; 0: unknown
  Timeout believed_until_{0};
};

}  // namespace tutti::shm
