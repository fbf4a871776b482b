// Promise: what is read of another process is that process's, even if its id was given to another.
#include "shm/peer_memory.hpp"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "tutti/detail/clock.hpp"

namespace tutti::shm {
namespace {

// A child has them at the same addresses.
std::uint64_t nonce = 0x9e37'79b9'7f4a'7c15;
std::uint64_t word = 0x1234'5678;

PeerProcess peer(pid_t id) {
  return {.id = id, .nonce_address = reinterpret_cast<std::uint64_t>(&nonce), .nonce = nonce};
}

/// Forks a child that waits to be killed; with an id that it must get, or any.  -1 with errno.
pid_t fork_child(pid_t id = 0, std::uint64_t nonce_there = nonce) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  if (id != 0) {
    arguments.set_tid = reinterpret_cast<std::uint64_t>(&id);
    arguments.set_tid_size = 1;
  }
  const std::uint64_t before = std::exchange(nonce, nonce_there);
  const auto child = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
  if (child != 0) {
    nonce = before;
    return child;
  }
  ::alarm(60);
  for (;;) ::pause();
}

void end_child(pid_t child) {
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

int read_word(PeerProcess process, std::uint64_t& into) {
  return process.read(reinterpret_cast<std::uint64_t>(&word), reinterpret_cast<std::byte*>(&into),
                      sizeof into);
}

TEST(PeerMemory, of_another_process_is_read) {
  const pid_t child = fork_child();
  ASSERT_GT(child, 0);
  std::uint64_t into = 0;
  EXPECT_EQ(read_word(peer(child), into), 0);
  EXPECT_EQ(into, word);
  EXPECT_EQ(peer(child).read(reinterpret_cast<std::uint64_t>(&word), nullptr, 0), 0);
  end_child(child);
  EXPECT_EQ(read_word(peer(child), into), ESRCH);
}

// On some processors, memory at some distances is read by way of the stack, in several parts.
TEST(PeerMemory, is_read_exactly_at_every_distance) {
  constexpr std::size_t longest = (72 << 10) + 5, page = 4096;
  std::vector<std::byte> from(longest + page), into(longest + 2 * page);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 167 / 64);
  const pid_t child = fork_child();
  ASSERT_GT(child, 0);
  PeerProcess process = peer(child);
  // `base` is a multiple of a page away from the source, as if both began with a page.
  const auto apart =
      reinterpret_cast<std::uintptr_t>(from.data()) - reinterpret_cast<std::uintptr_t>(into.data());
  std::byte* const base = into.data() + apart % page;
  for (const std::size_t distance : {0u, 1u, 8u, 16u, 31u, 32u, 63u, 64u, 4080u, 4095u})
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1023}, std::size_t{1024},
                                    std::size_t{32 << 10}, std::size_t{(32 << 10) + 1}, longest}) {
      std::fill(into.begin(), into.end(), std::byte{0xee});
      std::byte* const target = base + distance;
      const auto expect_all = [&] {
        EXPECT_TRUE(
            std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes), target))
            << distance << " " << bytes;
      };
      const auto there = reinterpret_cast<std::uint64_t>(from.data());
      ASSERT_EQ(process.read(there, target, bytes), 0);
      expect_all();
      std::fill(target, target + bytes, std::byte{0xee});
      ASSERT_EQ(peek_by_stack(child, there, target, bytes), 0);
      expect_all();
      const auto is_other = [](std::byte value) { return value != std::byte{0xee}; };
      EXPECT_TRUE(std::none_of(into.data(), target, is_other)) << distance << " " << bytes;
      EXPECT_TRUE(std::none_of(target + bytes, into.data() + into.size(), is_other))
          << distance << " " << bytes;
    }
  process.believed_until = Timeout{0};
  const std::uint64_t right = std::exchange(process.nonce, 7);
  for (const std::size_t distance : {0u, 16u})
    EXPECT_EQ(process.read(reinterpret_cast<std::uint64_t>(from.data()), base + distance, longest),
              ESRCH)
        << distance;
  process.nonce = right;
  end_child(child);
  EXPECT_EQ(process.read(reinterpret_cast<std::uint64_t>(from.data()), base + 16, longest), ESRCH);
}

TEST(PeerMemory, that_ends_within_a_payload_is_a_fault_at_every_distance) {
  constexpr std::size_t page = 4096, pages = 12;
  auto* const memory = static_cast<std::byte*>(::mmap(
      nullptr, (pages + 1) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(memory), MAP_FAILED);
  ASSERT_EQ(::mprotect(memory + pages * page, page, PROT_NONE), 0);
  const pid_t child = fork_child();
  ASSERT_GT(child, 0);
  std::vector<std::byte> into((pages + 2) * page);
  std::byte* const base =
      into.data() + (page - reinterpret_cast<std::uintptr_t>(into.data()) % page) % page;
  for (const std::size_t distance : {0u, 16u, 64u})
    EXPECT_EQ(peer(child).read(reinterpret_cast<std::uint64_t>(memory), base + distance,
                               pages * page + 8),
              EFAULT)
        << distance;
  end_child(child);
  ::munmap(memory, (pages + 1) * page);
}

TEST(PeerMemory, of_a_process_with_another_nonce_is_refused) {
  const pid_t child = fork_child(0, 7);
  ASSERT_GT(child, 0);
  std::uint64_t into = 0;
  EXPECT_EQ(read_word(peer(child), into), ESRCH);
  PeerProcess elsewhere = peer(child);
  elsewhere.nonce_address = 64;  // nothing is there
  EXPECT_EQ(read_word(elsewhere, into), ESRCH);
  end_child(child);
}

TEST(PeerMemory, is_looked_at_again_after_a_millisecond) {
  const pid_t child = fork_child();
  ASSERT_GT(child, 0);
  PeerProcess process = peer(child);
  std::uint64_t into = 0;
  const auto from = reinterpret_cast<std::uint64_t>(&word);
  ASSERT_EQ(process.read(from, reinterpret_cast<std::byte*>(&into), sizeof into), 0);
  process.nonce = 7;
  ::usleep(2000);
  EXPECT_EQ(process.read(from, reinterpret_cast<std::byte*>(&into), sizeof into), ESRCH);
  end_child(child);
}

/// The nonce is read again after a reading that ended late, as of a thread that was stopped.
TEST(PeerMemory, is_looked_at_again_if_the_reading_ends_late) {
  constexpr std::size_t bytes = std::size_t{64} << 20;  // reading takes some milliseconds
  void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const pid_t child = fork_child();
  ASSERT_GT(child, 0);
  PeerProcess process = peer(child);
  process.nonce = 7;
  const auto from = reinterpret_cast<std::uint64_t>(pages);
  std::vector<std::byte> into(bytes);
  process.believed_until = detail::MonotonicClock::read() + std::chrono::milliseconds(1);
  EXPECT_EQ(process.read(from, into.data(), bytes), ESRCH);
  end_child(child);
  EXPECT_EQ(::munmap(pages, bytes), 0);
}

TEST(PeerMemory, of_a_process_that_got_the_id_of_another_is_refused) {
  const pid_t first = fork_child();
  ASSERT_GT(first, 0);
  end_child(first);
  const pid_t second = fork_child(first, 7);
  if (second < 0) GTEST_SKIP() << "may not choose an id: " << std::strerror(errno);
  ASSERT_EQ(second, first);
  std::uint64_t into = 0;
  EXPECT_EQ(read_peer_memory(second, reinterpret_cast<std::uint64_t>(&word),
                             reinterpret_cast<std::byte*>(&into), sizeof into),
            0);
  EXPECT_EQ(read_word(peer(first), into), ESRCH);
  end_child(second);
}

/// The system stops before a page that cannot be read, and says how far it got.
TEST(PeerMemory, that_is_not_there_is_refused) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const pages =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(pages) + page, page, PROT_NONE), 0);
  const pid_t child = fork_child();
  ASSERT_GT(child, 0);
  const auto from = reinterpret_cast<std::uint64_t>(pages);
  std::vector<std::byte> into(2 * page);
  EXPECT_EQ(peer(child).read(from, into.data(), page), 0);
  EXPECT_EQ(peer(child).read(from, into.data(), 2 * page), EFAULT);
  EXPECT_EQ(peer(child).read(from + page, into.data(), page), EFAULT);
  end_child(child);
  EXPECT_EQ(::munmap(pages, 2 * page), 0);
}

}  // namespace
}  // namespace tutti::shm
