// Promise: blocks never overlap, start on cache lines, and come back whole.  What no block has been
// in takes no memory, unless the device locks memory.
#include "verbs/arena.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <tutti/status.hpp>
#include <vector>

#include "verbs/lock_limit.hpp"

namespace tutti::verbs {
namespace {

struct SoftArena {
  explicit SoftArena(std::size_t bytes)
      : port(open_port("soft0")),
        domain(port.driver().alloc_pd(port.device.get()), {&port.driver()}),
        arena(port, domain.get(), bytes) {}
  Port port;
  ProtectionDomainHandle domain;
  Arena arena;
};

TEST(Arena, blocks_are_disjoint_aligned_and_zeroed) {
  SoftArena soft(1 << 16);
  std::vector<std::pair<std::byte*, std::size_t>> blocks;
  std::mt19937 random(1);
  for (int step = 0; step < 2000; ++step) {
    if (!blocks.empty() && random() % 2 == 0) {
      const std::size_t victim = random() % blocks.size();
      soft.arena.release(blocks[victim].first);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    const std::size_t bytes = 1 + random() % 3000;
    std::byte* block = soft.arena.allocate(bytes);
    if (block == nullptr) continue;
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % Arena::alignment, 0u);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(block[i], std::byte{0});
    std::fill(block, block + bytes, std::byte{0xff});
    for (const auto& [other, size] : blocks)
      ASSERT_TRUE(block + bytes <= other || other + size <= block);
    blocks.emplace_back(block, bytes);
  }
  for (const auto& [block, size] : blocks) soft.arena.release(block);
  EXPECT_EQ(soft.arena.largest_gap(), soft.arena.size());
}

TEST(Arena, what_is_set_aside_does_not_count) {
  SoftArena soft(1 << 16);
  const std::byte* const aside = soft.arena.set_aside(1 << 14);
  EXPECT_EQ(soft.arena.size(), (1u << 16) - (1u << 14));
  EXPECT_EQ(soft.arena.largest_gap(), soft.arena.size());
  std::byte* const rest = soft.arena.allocate(soft.arena.size());
  ASSERT_NE(rest, nullptr);
  EXPECT_TRUE(rest >= aside + (1 << 14) || rest + soft.arena.size() <= aside);
  EXPECT_EQ(soft.arena.allocate(64), nullptr);
  soft.arena.release(rest);
  EXPECT_EQ(soft.arena.largest_gap(), soft.arena.size());
}

TEST(Arena, full_arena_says_so_instead_of_failing) {
  SoftArena soft(4096);
  EXPECT_NE(soft.arena.allocate(4096), nullptr);
  EXPECT_EQ(soft.arena.allocate(1), nullptr);
  EXPECT_EQ(soft.arena.largest_gap(), 0u);
}

constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// Bytes of the arena's file that have pages.
std::size_t held_bytes(const Arena& arena) {
  struct stat status {};
  EXPECT_EQ(::fstat(arena.descriptor(), &status), 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

TEST(Arena, pages_come_with_blocks) {
  SoftArena soft(64 * mebibyte);
  EXPECT_LT(held_bytes(soft.arena), mebibyte);
  std::byte* const first = soft.arena.allocate(2 * mebibyte);
  ASSERT_NE(first, nullptr);
  EXPECT_GE(held_bytes(soft.arena), 2 * mebibyte);
  EXPECT_LT(held_bytes(soft.arena), 3 * mebibyte);
  EXPECT_EQ(held_bytes(soft.arena), soft.arena.bytes_with_pages());
  soft.arena.release(first);
  const std::size_t held = held_bytes(soft.arena);
  ASSERT_NE(soft.arena.allocate(mebibyte), nullptr);
  EXPECT_EQ(held_bytes(soft.arena), held) << "where a block has been there are pages";
  ASSERT_NE(soft.arena.allocate(62 * mebibyte), nullptr);
  EXPECT_GE(held_bytes(soft.arena), 63 * mebibyte);
}

TEST(Arena, what_is_set_aside_has_pages_once_they_are_provided) {
  SoftArena soft(8 * mebibyte);
  std::byte* const aside = soft.arena.set_aside(4 * mebibyte);
  ASSERT_NE(soft.arena.allocate(4096), nullptr);  // behind it
  EXPECT_LT(held_bytes(soft.arena), mebibyte);
  soft.arena.provide(aside, 4 * mebibyte);
  EXPECT_GE(held_bytes(soft.arena), 4 * mebibyte);
  for (std::size_t at = 0; at < 4 * mebibyte; at += 4096) ASSERT_EQ(aside[at], std::byte{0});
}

TEST(Arena, a_block_that_gets_no_pages_is_an_error_and_no_loss) {
  SoftArena soft(4 * mebibyte);
  // A file in whose place the system gives no pages.
  const int descriptor = soft.arena.descriptor(), kept = ::dup(descriptor);
  const int zero = ::open("/dev/zero", O_RDWR | O_CLOEXEC);
  ASSERT_GE(::dup2(zero, descriptor), 0);
  EXPECT_THROW(soft.arena.allocate(2 * mebibyte), Error);
  EXPECT_EQ(soft.arena.largest_gap(), soft.arena.size());
  ASSERT_GE(::dup2(kept, descriptor), 0);
  EXPECT_NE(soft.arena.allocate(4 * mebibyte), nullptr);
  ::close(kept);
  ::close(zero);
}

// Linux 6.1 undoes an allocation when a signal comes; 6.18 does not, and this cannot fail there.
TEST(Arena, signals_do_not_keep_it_from_its_memory) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction former {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &former), 0);
  const itimerval often{.it_interval = {0, 2000}, .it_value = {0, 2000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  SoftArena soft(64 * mebibyte);
  EXPECT_NO_THROW(soft.arena.allocate(64 * mebibyte));
  const itimerval never{};
  EXPECT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  EXPECT_EQ(::sigaction(SIGALRM, &former, nullptr), 0);
}

TEST(Arena, impossible_size_is_refused_with_the_setting) {
  try {
    SoftArena soft(std::size_t{1} << 60);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("TUTTI_ARENA_BYTES"), std::string::npos);
  }
}

/// A device that locks memory: the software device under another table, whose registrations a test
/// can have refused.
struct LockingDevice {
  LockingDevice()
      : port(open_port("soft0")),
        domain(port.driver().alloc_pd(port.device.get()), {&port.driver()}) {
    port.description.driver = &table();
    asked_count = 0;
  }
  static const Driver& table() {
    static const Driver driver = [] {
      Driver made = soft_driver();
      made.reg_mr = [](ibv_pd* pd, void* address, std::size_t bytes, int access) -> ibv_mr* {
        ++asked_count;
        if (refusal == 0) return soft_driver().reg_mr(pd, address, bytes, access);
        errno = refusal;
        return nullptr;
      };
      return made;
    }();
    return driver;
  }
  std::string error_of_arena(std::size_t bytes) const {
    try {
      const Arena arena(port, domain.get(), bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::limit_exceeded);
      EXPECT_EQ(error.system_errno(), ENOMEM);
      return error.what();
    }
    return "no error";
  }

  static inline int asked_count = 0, refusal = 0;
  Port port;
  ProtectionDomainHandle domain;
};

/// A user without capabilities who may lock 1 MiB.
class SmallLimit {
 public:
  SmallLimit() {
    EXPECT_EQ(getrlimit(RLIMIT_MEMLOCK, &former_), 0);
    const rlimit small{.rlim_cur = 1 << 20, .rlim_max = former_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &small), 0);
    if (user_ == 0) {
      EXPECT_EQ(seteuid(65534), 0);
    }
  }
  ~SmallLimit() {
    EXPECT_EQ(seteuid(user_), 0);
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &former_), 0);
  }
  SmallLimit(const SmallLimit&) = delete;
  SmallLimit& operator=(const SmallLimit&) = delete;

 private:
  const uid_t user_ = geteuid();
  rlimit former_{};
};

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

const std::vector<std::string> remedies = {"ulimit -l", "limits.conf", "TUTTI_ARENA_BYTES"};

TEST(LockLimit, that_is_too_small_for_the_arena_is_named_before_the_device_is_asked) {
  const LockingDevice locking;
  const SmallLimit small;
  const std::string text = locking.error_of_arena(4 << 20);
  expect_parts(text, remedies);
  expect_parts(text,
               {"RLIMIT_MEMLOCK is 1048576 bytes", "soft0:1 needs 4198400 more for the arena"});
  EXPECT_EQ(LockingDevice::asked_count, 0);
  EXPECT_EQ(locking.error_of_arena(64 << 10), "no error");
  EXPECT_EQ(LockingDevice::asked_count, 1);
}

TEST(Arena, of_a_device_that_locks_memory_has_all_pages) {
  const LockingDevice locking;
  const Arena arena(locking.port, locking.domain.get(), 4 * mebibyte);
  EXPECT_GE(held_bytes(arena), 4 * mebibyte);
}

TEST(LockLimit, is_nothing_to_the_software_device) {
  const SmallLimit small;
  EXPECT_NO_THROW(SoftArena(4 << 20));
}

TEST(LockLimit, explains_what_the_device_refuses) {
  const LockingDevice locking;
  LockingDevice::refusal = ENOMEM;
  {
    const SmallLimit small;
    const std::string text = locking.error_of_arena(64 << 10);
    expect_parts(text, remedies);
    expect_parts(text, {"69632 bytes", "on soft0:1: Cannot allocate memory",
                        "RLIMIT_MEMLOCK is 1048576 bytes"});
  }
  EXPECT_EQ(explain_registration(locking.port, EINVAL), "") << "has nothing to do with it";
  EXPECT_EQ(explain_registration(open_port("soft0"), ENOMEM), "");
  LockingDevice::refusal = 0;
}

TEST(LockLimit, counts_what_is_locked_and_who_is_exempt) {
  const std::string name = "lock_limit_test." + std::to_string(::getpid());
  std::ofstream(name) << "Name:\tx\nVmPin:\t     512 kB\nCapEff:\t0000000000004000\n";
  LockLimit limit = lock_limit(name);
  std::remove(name.c_str());
  EXPECT_EQ(limit.locked, 512u << 10);
  EXPECT_TRUE(limit.is_exempt);
  limit.bytes = 1 << 20;
  EXPECT_TRUE(limit.allows(SIZE_MAX));
  limit.is_exempt = false;
  EXPECT_TRUE(limit.allows(512 << 10));
  EXPECT_FALSE(limit.allows((512 << 10) + 1));
  const LockingDevice locking;
  try {
    check_lockable(locking.port, 1 << 20, "a segment", limit);
    FAIL();
  } catch (const Error& error) {
    expect_parts(error.what(),
                 {"1048576 bytes, of which 524288 are locked", "1048576 more for a segment"});
  }
  limit.bytes = SIZE_MAX;
  EXPECT_TRUE(limit.allows(SIZE_MAX));
  std::ofstream(name) << "CapEff:\t0000000000000000\n";
  EXPECT_FALSE(lock_limit(name).is_exempt);
  std::remove(name.c_str());
  EXPECT_TRUE(lock_limit("/nowhere").is_exempt) << "where it is not said, the registration decides";
}

TEST(Arena, has_room_besides_what_was_asked_for) {
  const Port port = open_port("soft0");
  const ProtectionDomainHandle domain(port.driver().alloc_pd(port.device.get()), {&port.driver()});
  Arena arena(port, domain.get(), 64 << 10, 32 << 10);
  EXPECT_NE(arena.set_aside(32 << 10), nullptr);
  EXPECT_EQ(arena.largest_gap(), std::size_t{64} << 10);
}

TEST(Arena, a_limit_on_files_is_named_and_no_signal) {
  const Port port = open_port("soft0");
  const ProtectionDomainHandle domain(port.driver().alloc_pd(port.device.get()), {&port.driver()});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string said;
  try {
    const Arena arena(port, domain.get(), 2'000'000, 1 << 20);
  } catch (const Error& error) {
    said = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  // The size that was asked for, whatever is added to it.
  for (const char* const word : {"TUTTI_ARENA_BYTES=2000000 (and 1048576", "RLIMIT_FSIZE"})
    EXPECT_NE(said.find(word), std::string::npos) << "no \"" << word << "\" in: " << said;
}

}  // namespace
}  // namespace tutti::verbs
