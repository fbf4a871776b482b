// Promise: what is written into the memory of another process, which was opened once, gets into
// that program's memory or nowhere, whoever has its process id, or whatever it executes, by then.
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <thread>
#include <tutti/detail/descriptor.hpp>

#include "verbs/soft/memory.hpp"

namespace tutti::verbs::soft {
namespace {

// A child has them at the same addresses.
std::uint64_t words[4] = {1, 2, 3, 4};

/// Forks a child that waits to be killed, or executes a program that does; with an id that it must
/// get, or any.  -1 with errno.
pid_t fork_child(pid_t id = 0, bool executes = false) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  if (id != 0) {
    arguments.set_tid = reinterpret_cast<std::uint64_t>(&id);
    arguments.set_tid_size = 1;
  }
  const auto child = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
  if (child != 0) return child;
  ::alarm(60);
  if (executes) {
    ::usleep(50'000);
    ::execl("/bin/sleep", "sleep", "60", nullptr);
  }
  for (;;) ::pause();
}

void end_child(pid_t child) {
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

Pieces pieces_of(void* data, std::size_t bytes) {
  Pieces pieces;
  pieces.add(data, bytes);
  return pieces;
}

int write_word(int memory, std::uint64_t value) {
  return copy_to_process(memory, pieces_of(&value, sizeof value), pieces_of(&words, sizeof value));
}

TEST(ProcessMemory, is_written_and_read_piece_by_piece) {
  const pid_t child = fork_child();
  ASSERT_GT(child, 0);
  const detail::Descriptor memory(open_memory_of(child));
  if (!memory) GTEST_SKIP() << "not allowed here: " << std::strerror(errno);
  std::uint64_t from[] = {5, 6, 7}, into[4] = {};
  Pieces there;
  there.add(&words[0], 4);  // half a word, then all after it
  there.add(reinterpret_cast<std::byte*>(&words) + 4, 20);
  Pieces here;
  here.add(&from[0], 3);
  here.add(reinterpret_cast<std::byte*>(&from) + 3, 21);
  EXPECT_EQ(copy_to_process(memory.get(), here, there), 0);
  EXPECT_EQ(copy_from_process(memory.get(), pieces_of(&words, 32), pieces_of(&into, 32)), 0);
  const std::uint64_t expected[] = {5, 6, 7, 4};
  EXPECT_EQ(std::memcmp(into, expected, sizeof into), 0);
  EXPECT_EQ(copy_to_process(memory.get(), here, pieces_of(nullptr, 24)), EFAULT);
  EXPECT_EQ(words[0], 1u) << "this process's own";
  end_child(child);
  EXPECT_EQ(write_word(memory.get(), 9), ESRCH);
}

TEST(ProcessMemory, of_a_process_that_got_the_id_of_another_is_not_written) {
  const pid_t first = fork_child();
  ASSERT_GT(first, 0);
  const detail::Descriptor memory(open_memory_of(first));
  if (!memory) GTEST_SKIP() << "not allowed here: " << std::strerror(errno);
  EXPECT_EQ(write_word(memory.get(), 9), 0);
  end_child(first);
  const pid_t second = fork_child(first);
  if (second < 0) GTEST_SKIP() << "may not choose an id: " << std::strerror(errno);
  ASSERT_EQ(second, first);
  EXPECT_EQ(write_word(memory.get(), 9), ESRCH);
  const detail::Descriptor other(open_memory_of(second));
  std::uint64_t into = 0;
  EXPECT_EQ(copy_from_process(other.get(), pieces_of(&words, 8), pieces_of(&into, 8)), 0);
  EXPECT_EQ(into, 1u);
  end_child(second);
}

TEST(ProcessMemory, of_a_program_that_was_replaced_is_not_written) {
  const pid_t child = fork_child(0, true);
  ASSERT_GT(child, 0);
  const detail::Descriptor memory(open_memory_of(child));
  if (!memory) GTEST_SKIP() << "not allowed here: " << std::strerror(errno);
  EXPECT_EQ(write_word(memory.get(), 9), 0);
  int error = 0;
  for (int count = 0; error == 0 && count < 1000; ++count) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    error = write_word(memory.get(), 9);
  }
  EXPECT_EQ(error, ESRCH);
  EXPECT_EQ(::kill(child, 0), 0) << "the process is still there";
  end_child(child);
}

}  // namespace
}  // namespace tutti::verbs::soft
