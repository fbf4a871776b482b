// Reading what another rank of the node has not shared: its users' buffers, by process_vm_readv.
// Linux allows that to the same user (or root) in the same namespace of process ids, unless the
// other process is not dumpable, Yama's ptrace_scope asks for more, or a container's filter of
// system calls refuses it; so it is tried once before it is relied upon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::shm {

/// `bytes` at `from` in `process` (its id in the namespace of the caller; also the own one) into
/// `into`.  0, or an errno: ESRCH if the process is gone, EFAULT if nothing is there, EPERM if it
/// is not allowed.
int read_peer_memory(std::int32_t process, std::uint64_t from, std::byte* into,
                     std::size_t bytes) noexcept;

}  // namespace tutti::shm
