// Promise: whoever stores a message ends the sleep of its reader, however the two meet; nothing
// else is written into the pipe, and a reader that has died does no harm.
#include "shm/sleeper.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <tutti/status.hpp>
#include <vector>

#include "shm/mailbox.hpp"

namespace tutti::shm {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

std::shared_ptr<detail::Mapping> memory(std::size_t bytes = 8192) {
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return std::make_shared<detail::Mapping>(address, bytes);
}

/// A word of the mapping behind its first page: a message.
SequenceWord* message_in(const detail::Mapping& mapping) {
  return reinterpret_cast<SequenceWord*>(mapping.data() + 4096);
}

/// Whether a byte is in the pipe; takes it.
bool has_byte(const Sleeper& sleeper) {
  char byte = 0;
  return ::read(sleeper.descriptor(), &byte, 1) == 1;
}

TEST(Sleeper, sleeps_for_the_time_if_nobody_wakes_it) {
  Sleeper sleeper(memory());
  const auto begin = SteadyClock::now();
  sleeper.lie_down();
  EXPECT_FALSE(sleeper.sleep(-1, 20ms));
  sleeper.get_up();
  EXPECT_GE(SteadyClock::now() - begin, 20ms);
}

// Protects: that a writer which is stopped before it has written its byte keeps no other one from
// waking the sleeper.
TEST(Sleeper, is_woken_by_every_writer_until_it_gets_up) {
  const auto mapping = memory();
  Sleeper sleeper(mapping);
  const Waker one(::getpid(), sleeper.descriptor(), mapping);
  const Waker other(::getpid(), sleeper.descriptor(), mapping);
  one.wake();
  EXPECT_FALSE(has_byte(sleeper)) << "nobody was asleep";
  sleeper.lie_down();
  one.wake();
  other.wake();
  EXPECT_TRUE(has_byte(sleeper));
  EXPECT_TRUE(has_byte(sleeper)) << "the second does not rely on the first";
  sleeper.get_up();
  other.wake();
  EXPECT_FALSE(has_byte(sleeper)) << "it is up";
  sleeper.lie_down();
  sleeper.get_up();
  one.wake();
  EXPECT_FALSE(has_byte(sleeper)) << "it had got up";
}

TEST(Sleeper, does_not_sleep_once_it_was_woken) {
  const auto mapping = memory();
  Sleeper sleeper(mapping);
  const Waker waker(::getpid(), sleeper.descriptor(), mapping);
  const auto begin = SteadyClock::now();
  sleeper.lie_down();
  waker.wake();
  EXPECT_FALSE(sleeper.sleep(-1, 20s));
  sleeper.get_up();
  EXPECT_LT(SteadyClock::now() - begin, 10s);
  EXPECT_FALSE(has_byte(sleeper)) << "the byte was taken";
}

TEST(Sleeper, says_whether_the_other_descriptor_can_be_read) {
  Sleeper sleeper(memory());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const detail::Descriptor reading(ends[0]), writing(ends[1]);
  sleeper.lie_down();
  EXPECT_FALSE(sleeper.sleep(reading.get(), 1ms));
  ASSERT_EQ(::write(writing.get(), "", 1), 1);
  EXPECT_TRUE(sleeper.sleep(reading.get(), 20s));
  sleeper.get_up();
}

TEST(Sleeper, needs_no_time_to_sleep_for_none) {
  Sleeper sleeper(memory());
  sleeper.lie_down();
  EXPECT_FALSE(sleeper.sleep(-1, 0ns));
  EXPECT_FALSE(sleeper.sleep(-1, -1ns));
  sleeper.get_up();
}

/// Two ranks that write to each other and sleep in between: a wake-up that gets lost costs ten
/// seconds.  What the message announces is read afterwards, so that ThreadSanitizer sees a race if
/// there is one.
TEST(Sleeper, loses_no_wake_up) {
  struct Rank {
    std::shared_ptr<detail::Mapping> mapping = memory();
    Sleeper sleeper{mapping};
    std::uint64_t payload = 0;  // written by the other rank
    unsigned sleeps = 0;
  } ranks[2];
  constexpr std::uint64_t messages = 20'000;
  bool lost = false;
  const auto run = [&](std::size_t self) {
    Rank& mine = ranks[self];
    Rank& theirs = ranks[1 - self];
    const Waker waker(::getpid(), theirs.sleeper.descriptor(), theirs.mapping);
    for (std::uint64_t message = 1; message <= messages; ++message) {
      const auto send = [&] {
        theirs.payload = message;
        announce(message_in(*theirs.mapping), message);
        waker.wake();
      };
      if (self == 0) send();
      // Sometimes awake for a moment, so that the two meet at different points.
      for (std::uint64_t polls = 0; polls < message % 7; ++polls)
        if (has_come(message_in(*mine.mapping), message)) break;
      while (!has_come(message_in(*mine.mapping), message)) {
        mine.sleeper.lie_down();
        if (!has_come(message_in(*mine.mapping), message)) {
          const auto begin = SteadyClock::now();
          (void)mine.sleeper.sleep(-1, 10s);
          ++mine.sleeps;
          if (SteadyClock::now() - begin >= 9s) lost = true;
        }
        mine.sleeper.get_up();
      }
      if (mine.payload != message) lost = true;
      if (self == 1) send();
      if (lost) break;
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_FALSE(lost);
  EXPECT_GT(ranks[0].sleeps + ranks[1].sleeps, 0u);
}

/// The sleeper lies down and looks at the same moment as the writer writes: it sees the message, or
/// the writer sees it asleep.  With plain stores and loads both would miss it now and then.
TEST(Sleeper, sees_the_message_or_is_seen_asleep) {
  const auto mapping = memory();
  Sleeper sleeper(mapping);
  constexpr std::uint64_t rounds = 100'000;
  std::atomic<std::uint64_t> ready[2]{}, done{0};
  const auto meet = [&](std::size_t self, std::uint64_t round) {
    ready[self].store(round);
    for (unsigned polls = 0; ready[1 - self].load() < round; ++polls)
      if (polls % 1024 == 1023) std::this_thread::yield();
  };
  // Each side is the first in some rounds.
  const auto pass_time = [](std::uint64_t steps) {
    for (std::atomic<std::uint64_t> step{0}; step.load(std::memory_order_relaxed) < steps;)
      step.store(step.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  };
  std::thread writer([&] {
    const Waker waker(::getpid(), sleeper.descriptor(), mapping);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      meet(1, round);
      pass_time(round % 61);
      announce(message_in(*mapping), round);
      waker.wake();
      done.store(round);
    }
  });
  unsigned missed = 0;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    meet(0, round);
    pass_time(round % 67);
    sleeper.lie_down();
    const bool seen = has_come(message_in(*mapping), round);
    while (done.load() < round) std::this_thread::yield();
    const bool woken = has_byte(sleeper);
    sleeper.get_up();
    if (!seen && !woken) ++missed;
  }
  writer.join();
  EXPECT_EQ(missed, 0u);
}

TEST(Sleeper, takes_an_alarm_once_and_is_woken_by_it) {
  const auto mapping = memory();
  Sleeper sleeper(mapping);
  const Waker waker(::getpid(), sleeper.descriptor(), mapping);
  EXPECT_FALSE(sleeper.takes_alarm());
  sleeper.lie_down();
  waker.wake();
  EXPECT_FALSE(sleeper.sleep(-1, 20s));
  EXPECT_FALSE(sleeper.takes_alarm()) << "a message is no alarm";
  waker.alarm();
  waker.alarm();
  EXPECT_FALSE(sleeper.sleep(-1, 20s));
  EXPECT_TRUE(sleeper.takes_alarm());
  EXPECT_FALSE(sleeper.takes_alarm());
  sleeper.get_up();
  waker.alarm();
  EXPECT_FALSE(has_byte(sleeper)) << "it was up";
  EXPECT_TRUE(sleeper.takes_alarm()) << "and looks before it sleeps again";
}

TEST(Wakers, share_one_pipe_until_nobody_holds_it) {
  const auto mapping = memory(), others = memory();
  Sleeper sleeper(mapping), other(others);
  Wakers wakers;
  const auto get = [&](std::uint64_t nonce) {
    return wakers.of(nonce, ::getpid(), (nonce == 1 ? sleeper : other).descriptor(),
                     nonce == 1 ? mapping : others);
  };
  auto first = get(1);
  auto again = get(1);
  const auto another = get(2);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, another);
  EXPECT_EQ(wakers.count(), 2u);
  sleeper.lie_down();
  again->wake();
  EXPECT_TRUE(has_byte(sleeper));
  first.reset();
  again.reset();
  EXPECT_EQ(wakers.count(), 1u) << "the pipe is closed with the last who holds it";
  get(1)->wake();
  EXPECT_TRUE(has_byte(sleeper)) << "and is opened again";
  EXPECT_THROW((void)wakers.of(3, ::getpid(), 1'000'000, mapping), Error);
  EXPECT_EQ(wakers.count(), 1u);
}

TEST(Wakers, raise_the_alarm_of_all_that_are_held) {
  const auto mapping = memory(), others = memory(), nobodys = memory();
  Sleeper sleeper(mapping), other(others), unheld(nobodys);
  Wakers wakers;
  const auto first = wakers.of(1, ::getpid(), sleeper.descriptor(), mapping);
  const auto another = wakers.of(2, ::getpid(), other.descriptor(), others);
  (void)wakers.of(3, ::getpid(), unheld.descriptor(), nobodys);
  wakers.alarm();
  EXPECT_TRUE(sleeper.takes_alarm());
  EXPECT_TRUE(other.takes_alarm());
  EXPECT_FALSE(unheld.takes_alarm());
}

TEST(Waker, outlives_a_sleeper_that_has_died) {
  const auto mapping = memory();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t dying = ::fork();
  if (dying == 0) {
    Sleeper sleeper(mapping);
    sleeper.lie_down();
    const int descriptor = sleeper.descriptor();
    if (::write(ready[1], &descriptor, sizeof descriptor) != sizeof descriptor) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  int descriptor = -1;
  ASSERT_EQ(::read(ready[0], &descriptor, sizeof descriptor), ssize_t{sizeof descriptor});
  const Waker waker(dying, descriptor, mapping);
  ASSERT_EQ(::kill(dying, SIGKILL), 0);
  ASSERT_EQ(::waitpid(dying, nullptr, 0), dying);
  waker.wake();  // SIGPIPE would end this process
  ::close(ready[0]);
  ::close(ready[1]);
}

std::string refusal(std::int32_t process, int descriptor) {
  try {
    const Waker waker(process, descriptor, memory());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    return error.what();
  }
  return "opened";
}

TEST(Waker, refuses_what_is_no_pipe_of_a_sleeper) {
  EXPECT_NE(refusal(::getpid(), 1'000'000).find("opening the pipe"), std::string::npos);
  const detail::Descriptor file(::memfd_create("no pipe", MFD_CLOEXEC));
  EXPECT_NE(refusal(::getpid(), file.get()).find("is another file"), std::string::npos);
}

TEST(Sleeper, says_what_to_do_if_there_are_no_descriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  const auto mapping = memory();
  // Sanitizers remember which types they have checked.
  EXPECT_NE(refusal(::getpid(), 1'000'000), "opened");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  // Looked at only when there are descriptors again: sanitizers need some to check an object.
  std::exception_ptr refused;
  try {
    const Sleeper sleeper(mapping);
  } catch (const Error&) {
    refused = std::current_exception();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(refused);
  std::string text;
  try {
    std::rethrow_exception(refused);
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("ulimit -n"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::shm
