#include "shm/peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tutti/detail/clock.hpp"

namespace tutti::shm {
namespace {

constexpr Timeout belief = std::chrono::milliseconds(1);

iovec piece(std::uint64_t at, std::size_t bytes) noexcept {
  return {reinterpret_cast<void*>(at), bytes};
}

/// Whether to read by the program itself, for ranks that are threads: ThreadSanitizer sees no other
/// reads.
bool reads_by_itself([[maybe_unused]] std::int32_t process) noexcept {
#if defined(__SANITIZE_THREAD__)
  return process == ::getpid();
#else
  return false;
#endif
}

}  // namespace

int read_peer_memory(std::int32_t process, std::uint64_t from, std::byte* into,
                     std::size_t bytes) noexcept {
  assert(process > 0);
  if (reads_by_itself(process)) {
    if (bytes > 0) std::memcpy(into, reinterpret_cast<const std::byte*>(from), bytes);
    return 0;
  }
  return peek_peer_memory(process, from, into, bytes);
}

int peek_peer_memory(std::int32_t process, std::uint64_t from, std::byte* into,
                     std::size_t bytes) noexcept {
  while (bytes > 0) {
    const iovec here{into, bytes};
    const iovec there = piece(from, bytes);
    const ssize_t moved = ::process_vm_readv(process, &here, 1, &there, 1, 0);
    if (moved < 0) return errno;
    if (moved == 0) return EFAULT;
    into += moved;
    from += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return 0;
}

int PeerProcess::read(std::uint64_t from, std::byte* into, std::size_t bytes) noexcept {
  assert(id > 0);
  assert(nonce != 0);
  Timeout now = detail::MonotonicClock::read();
  if (now < believed_until) {
    const int error = read_peer_memory(id, from, into, bytes);
    now = detail::MonotonicClock::read();
    if (now < believed_until) return error;
    // This thread was stopped meanwhile, perhaps before it read.
  }
  std::uint64_t found = 0;
  if (reads_by_itself(id)) {
    std::memcpy(&found, reinterpret_cast<const std::byte*>(nonce_address), sizeof found);
    return found == nonce ? read_peer_memory(id, from, into, bytes) : ESRCH;
  }
  for (;;) {
    const std::array here{iovec{&found, sizeof found}, iovec{into, bytes}};
    const std::array there{piece(nonce_address, sizeof found), piece(from, bytes)};
    const ssize_t moved =
        ::process_vm_readv(id, here.data(), here.size(), there.data(), there.size(), 0);
    if (moved < 0) return errno == EFAULT ? ESRCH : errno;  // nothing where the nonce was
    if (moved < static_cast<ssize_t>(sizeof found) || found != nonce) return ESRCH;
    const std::size_t read = static_cast<std::size_t>(moved) - sizeof found;
    believed_until = now + belief;
    if (read == bytes) return 0;
    if (read == 0) return EFAULT;
    into += read;
    from += read;
    bytes -= read;
  }
}

}  // namespace tutti::shm
