// Promise: what is read of another process is that process's, even if its id was given to another.
#include "shm/peer_memory.hpp"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

namespace tutti::shm {
namespace {

/// Forks a child that waits to be killed; with an id that it must get, or any.  -1 with errno.
pid_t fork_child(pid_t id = 0) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  if (id != 0) {
    arguments.set_tid = reinterpret_cast<std::uint64_t>(&id);
    arguments.set_tid_size = 1;
  }
  const auto child = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
  if (child != 0) return child;
  ::alarm(60);
  for (;;) ::pause();
}

void end_child(pid_t child) {
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

std::uint64_t word = 0x1234'5678;  // at the same address in a child

int read_word(PeerProcess& process, std::uint64_t& into) {
  return process.read(reinterpret_cast<std::uint64_t>(&word), reinterpret_cast<std::byte*>(&into),
                      sizeof into);
}

TEST(PeerMemory, of_another_process_is_read) {
  const pid_t child = fork_child();
  ASSERT_GT(child, 0);
  PeerProcess process(child);
  EXPECT_TRUE(process.is_known());
  std::uint64_t into = 0;
  EXPECT_EQ(read_word(process, into), 0);
  EXPECT_EQ(into, word);
  end_child(child);
  EXPECT_EQ(read_word(process, into), ESRCH);
}

TEST(PeerMemory, of_no_process_is_not_known) {
  EXPECT_FALSE(PeerProcess(0x7fff'fff0).is_known());
}

TEST(PeerMemory, of_a_process_that_got_the_id_of_another_is_refused) {
  const pid_t first = fork_child();
  ASSERT_GT(first, 0);
  PeerProcess process(first);
  std::uint64_t into = 0;
  ASSERT_EQ(read_word(process, into), 0);
  end_child(first);
  // Longer than an id is believed, and than a tick, in which both would have started.
  ::usleep(30'000);
  const pid_t second = fork_child(first);
  if (second < 0) GTEST_SKIP() << "may not choose an id: " << std::strerror(errno);
  ASSERT_EQ(second, first);
  EXPECT_EQ(read_peer_memory(second, reinterpret_cast<std::uint64_t>(&word),
                             reinterpret_cast<std::byte*>(&into), sizeof into),
            0);
  EXPECT_EQ(read_word(process, into), ESRCH);
  end_child(second);
}

}  // namespace
}  // namespace tutti::shm
