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
/// is there, EPERM if it is not allowed.  It does not notice that the id belongs to another process
/// by now: PeerProcess does.
int read_peer_memory(std::int32_t process, std::uint64_t from, std::byte* into,
                     std::size_t bytes) noexcept;

/// Likewise, of memory that its owner may be writing: what is read may be old in parts.  Ranks that
/// are threads read through the system, too.
int peek_peer_memory(std::int32_t process, std::uint64_t from, std::byte* into,
                     std::size_t bytes) noexcept;

/// Likewise, in two copies, first to the stack.  All functions here read so where the kernel would
/// copy slowly (tutti/detail/copy.hpp).
int peek_by_stack(std::int32_t process, std::uint64_t from, std::byte* into,
                  std::size_t bytes) noexcept;

/// A process of this node whose memory is read.  The system gives out ids again, so a reading also
/// reads, in the same system call and thus from the same memory, the nonce with which the process's
/// mapping begins.  It does not if a reading of the nonce began less than a millisecond before the
/// end: ids are given out in turn, and none comes back so soon.  One thread at a time.
struct PeerProcess {
  std::int32_t id = 0;
  std::uint64_t nonce_address = 0;  // there
  std::uint64_t nonce = 0;
  Timeout believed_until{0};  // by the monotonic clock

  /// As read_peer_memory(), and ESRCH if it is not that process's memory.
  int read(std::uint64_t from, std::byte* into, std::size_t bytes) noexcept;

 private:
  /// Reads the nonce.  0: it is that process, which is believed for some time from `now` on.
  int look(Timeout now) noexcept;
};

}  // namespace tutti::shm
