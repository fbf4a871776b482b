#include "shm/peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tutti/detail/clock.hpp"
#include "tutti/detail/copy.hpp"

namespace tutti::shm {
namespace {

constexpr Timeout belief = std::chrono::milliseconds(1);

iovec piece(std::uint64_t at, std::size_t bytes) noexcept {
  return {reinterpret_cast<void*>(at), bytes};
}

/// Whether to read by way of the stack: `rep movsb`, by which the kernel copies, would be slow.
bool reads_by_stack(std::uint64_t from, const std::byte* into, std::size_t bytes) noexcept {
  constexpr std::size_t bytes_min = 1024;
  return bytes >= bytes_min && detail::repeats_slowly(reinterpret_cast<std::uintptr_t>(into), from);
}

/// Returns 0 or an errno.
int read_directly(std::int32_t process, std::uint64_t from, std::byte* into,
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
    detail::copy_memory(into, reinterpret_cast<const std::byte*>(from), bytes);
    return 0;
  }
  return peek_peer_memory(process, from, into, bytes);
}

int peek_peer_memory(std::int32_t process, std::uint64_t from, std::byte* into,
                     std::size_t bytes) noexcept {
  return reads_by_stack(from, into, bytes) ? peek_by_stack(process, from, into, bytes)
                                           : read_directly(process, from, into, bytes);
}

// The place on the stack is at a distance from `from` that the kernel copies quickly, and
// copy_memory() is quick for every distance.
int peek_by_stack(std::int32_t process, std::uint64_t from, std::byte* into,
                  std::size_t bytes) noexcept {
  constexpr std::size_t room = 16 << 10;  // a multiple of a page, so that the distance stays
  constexpr std::size_t beside = 32;
  alignas(64) std::array<std::byte, room + beside> stack;
  const bool is_slow =
      detail::is_slow_distance(reinterpret_cast<std::uintptr_t>(stack.data()), from);
  std::byte* const place = stack.data() + (is_slow ? beside : 0);
  while (bytes > 0) {
    const std::size_t now = std::min(bytes, room);
    if (const int error = read_directly(process, from, place, now); error != 0) return error;
    detail::copy_memory(into, place, now);
    into += now;
    from += now;
    bytes -= now;
  }
  return 0;
}

int PeerProcess::read(std::uint64_t from, std::byte* into, std::size_t bytes) noexcept {
  assert(id > 0);
  assert(nonce != 0);
  const Timeout now = detail::MonotonicClock::read();
  if (now < believed_until || reads_by_stack(from, into, bytes)) {
    const int error = read_peer_memory(id, from, into, bytes);
    if (detail::MonotonicClock::read() < believed_until) return error;
    // If the nonce is still there, no other process has had the id meanwhile.
    const int other = look(now);
    return other != 0 ? other : error;
  }
  if (reads_by_itself(id)) {
    const int error = look(now);
    return error != 0 ? error : read_peer_memory(id, from, into, bytes);
  }
  std::uint64_t found = 0;
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

int PeerProcess::look(Timeout now) noexcept {
  std::uint64_t found = 0;
  const int error =
      read_peer_memory(id, nonce_address, reinterpret_cast<std::byte*>(&found), sizeof found);
  if (error != 0) return error == EFAULT ? ESRCH : error;  // nothing where the nonce was
  if (found != nonce) return ESRCH;
  believed_until = now + belief;
  return 0;
}

}  // namespace tutti::shm
