// Promise: blocks never overlap, start on cache lines, and come back whole.
#include "verbs/arena.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <random>
#include <tutti/status.hpp>

namespace tutti::verbs {
namespace {

struct SoftArena {
  explicit SoftArena(std::size_t bytes)
      : port(open_port("soft0")),
        domain(port.driver().alloc_pd(port.device.get()), {&port.driver()}),
        arena(port, domain.get(), bytes) {}
  Port port;
  DomainHandle domain;
  Arena arena;
};

TEST(Arena, BlocksAreDisjointAlignedAndZeroed) {
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

TEST(Arena, FullArenaSaysSoInsteadOfFailing) {
  SoftArena soft(4096);
  EXPECT_NE(soft.arena.allocate(4096), nullptr);
  EXPECT_EQ(soft.arena.allocate(1), nullptr);
  EXPECT_EQ(soft.arena.largest_gap(), 0u);
}

// Linux 6.1 undoes an allocation when a signal comes; 6.18 does not, and this cannot fail there.
TEST(Arena, SignalsDoNotKeepItFromItsMemory) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction former {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &former), 0);
  const itimerval often{.it_interval = {0, 2000}, .it_value = {0, 2000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  EXPECT_NO_THROW(SoftArena(std::size_t{64} << 20));
  const itimerval never{};
  EXPECT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  EXPECT_EQ(::sigaction(SIGALRM, &former, nullptr), 0);
}

TEST(Arena, ImpossibleSizeIsRefusedWithTheSetting) {
  try {
    SoftArena soft(std::size_t{1} << 60);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("TUTTI_ARENA_BYTES"), std::string::npos);
  }
}

TEST(Arena, LockLimitIsCheckedForDevicesThatLock) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &old), 0);
  const rlimit small{.rlim_cur = 65536, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &small), 0);
  Port port;
  port.description.driver = &libibverbs_driver();
  const auto asked = [&] { check_lockable(port, 1 << 20); };
  if (geteuid() == 0) {
    EXPECT_NO_THROW(asked()) << "root may lock what it likes";
  } else {
    EXPECT_THROW(asked(), Error);
  }
  port.description.driver = &soft_driver();
  EXPECT_NO_THROW(asked()) << "the software device locks nothing";
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &old), 0);
}

TEST(Arena, ALimitOnFilesIsNamedAndNoSignal) {
  const Port port = open_port("soft0");
  const DomainHandle domain(port.driver().alloc_pd(port.device.get()), {&port.driver()});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string said;
  try {
    const Arena arena(port, domain.get(), 2 << 20);
  } catch (const Error& error) {
    said = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(said.find("RLIMIT_FSIZE"), std::string::npos) << said;
}

}  // namespace
}  // namespace tutti::verbs
