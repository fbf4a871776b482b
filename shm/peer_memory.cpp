#include "shm/peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>
#include <cassert>
#include <cerrno>
#include <cstring>

namespace tutti::shm {

int read_peer_memory(std::int32_t process, std::uint64_t from, std::byte* into,
                     std::size_t bytes) noexcept {
  assert(process > 0);
#if defined(__SANITIZE_THREAD__)
  // For ranks that are threads: ThreadSanitizer sees only reads by the program itself.
  if (process == ::getpid()) {
    if (bytes > 0) std::memcpy(into, reinterpret_cast<const std::byte*>(from), bytes);
    return 0;
  }
#endif
  while (bytes > 0) {
    const iovec here{into, bytes};
    const iovec there{reinterpret_cast<void*>(from), bytes};
    const ssize_t moved = ::process_vm_readv(process, &here, 1, &there, 1, 0);
    if (moved < 0) return errno;
    if (moved == 0) return EFAULT;
    into += moved;
    from += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return 0;
}

}  // namespace tutti::shm
