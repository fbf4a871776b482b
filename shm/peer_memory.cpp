#include "shm/peer_memory.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tutti/detail/clock.hpp"
#include "tutti/detail/descriptor.hpp"

namespace tutti::shm {
namespace {

/// Ids are given out in turn, 32,768 of them at least: none comes back within so short a time.
constexpr Timeout belief = std::chrono::milliseconds(5);

/// When the process was started, in ticks since boot; 0: there is none, or it cannot be seen.
std::uint64_t start_of(std::int32_t process) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", process);
  const detail::Descriptor file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  const ssize_t length = file ? ::read(file.get(), text.data(), text.size()) : 0;
  std::string_view rest(text.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  // The name, which may contain anything, ends with the last parenthesis; 20 fields later
  // (proc(5)).
  const std::size_t name_end = rest.rfind(')');
  if (name_end == std::string_view::npos) return 0;
  rest.remove_prefix(name_end + 1);
  for (int field = 0; field < 20; ++field) {
    const std::size_t blank = rest.find(' ');
    if (blank == std::string_view::npos) return 0;
    rest.remove_prefix(blank + 1);
  }
  std::uint64_t ticks = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), ticks);
  return ticks;
}

}  // namespace

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

PeerProcess::PeerProcess(std::int32_t process) noexcept
    : process_(process), started_(start_of(process)) {}

int PeerProcess::read(std::uint64_t from, std::byte* into, std::size_t bytes) noexcept {
  assert(is_known());
  const int error = read_peer_memory(process_, from, into, bytes);
  // Looked at after the read: a process that is still there has been there meanwhile.
  return error == 0 && !is_there() ? ESRCH : error;
}

bool PeerProcess::is_there() noexcept {
  const Timeout now = detail::MonotonicClock::read();
  if (now < believed_until_) return true;
  if (start_of(process_) != started_) return false;
  believed_until_ = now + belief;
  return true;
}

}  // namespace tutti::shm
