// Promise: a process has ended when its last thread has, whether or not anybody has waited for it,
// and not before: not when it is stopped, and not because another process has got its id.
#include "bootstrap/process.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

/// A child that runs `body`; killed and waited for at the end, unless that was done.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : id_(::fork()) {
    if (id_ == 0) {
      body();
      ::_exit(0);
    }
    EXPECT_GT(id_, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    reap();
  }
  pid_t id() const { return id_; }
  void send(int signal) const { EXPECT_EQ(::kill(id_, signal), 0); }
  void reap() {
    EXPECT_EQ(::waitpid(id_, nullptr, 0), id_);
    id_ = -1;
  }
  /// Until it has changed so: WEXITED or WSTOPPED; it stays to be waited for.
  void await(int change) const {
    siginfo_t information{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(id_), &information, change | WNOWAIT), 0);
  }

 private:
  pid_t id_;
};

void sleep_long() {
  std::this_thread::sleep_for(60s);
}

class Watching : public testing::TestWithParam<ProcessWatch::By> {
 protected:
  /// A watch of a child, which is known by its id alone.
  static ProcessWatch watch(const Child& child) {
    return ProcessWatch({.id = child.id()}, GetParam());
  }
};

TEST_P(Watching, this_process_has_not_ended) {
  ProcessWatch watch(this_process(), GetParam());
  EXPECT_EQ(watch.descriptor() >= 0, GetParam() == ProcessWatch::By::descriptor);
  EXPECT_FALSE(watch.has_ended());
}

TEST_P(Watching, a_stopped_process_has_not_ended_also_when_it_goes_on) {
  const Child child(sleep_long);
  ProcessWatch watching = watch(child);
  EXPECT_FALSE(watching.has_ended());
  child.send(SIGSTOP);
  child.await(WSTOPPED);
  EXPECT_FALSE(watching.has_ended());
  child.send(SIGCONT);
  EXPECT_FALSE(watching.has_ended());
}

TEST_P(Watching, a_killed_process_has_ended_before_anybody_waits_for_it) {
  Child child(sleep_long);
  ProcessWatch watching = watch(child);
  child.send(SIGKILL);
  child.await(WEXITED);
  EXPECT_TRUE(watching.has_ended());
  EXPECT_TRUE(watch(child).has_ended()) << "one that was a zombie when the watch began";
  const pid_t id = child.id();
  child.reap();
  EXPECT_TRUE(watching.has_ended());
  EXPECT_TRUE(ProcessWatch({.id = id}, GetParam()).has_ended()) << "one that was gone by then";
}

TEST_P(Watching, a_process_that_was_stopped_and_then_killed_has_ended) {
  const Child child(sleep_long);
  ProcessWatch watching = watch(child);
  child.send(SIGSTOP);
  child.await(WSTOPPED);
  child.send(SIGKILL);
  child.await(WEXITED);
  EXPECT_TRUE(watching.has_ended());
}

// A zombie to look at, while the process works on.
TEST_P(Watching, a_process_whose_first_thread_alone_has_ended_has_not) {
  const Child child([] {
    std::thread(sleep_long).detach();
    ::syscall(SYS_exit, 0);  // of this thread
  });
  ProcessWatch watching = watch(child);
  const auto end = std::chrono::steady_clock::now() + 300ms;
  while (std::chrono::steady_clock::now() < end) {
    ASSERT_FALSE(watching.has_ended());
    std::this_thread::sleep_for(10ms);
  }
}

TEST_P(Watching, the_process_that_has_got_the_id_of_another_is_not_that_one) {
  ProcessCard other = this_process();
  ASSERT_NE(other.started, 0u);
  other.started -= 1;
  EXPECT_TRUE(ProcessWatch(other, GetParam()).has_ended());
}

// There the same moment has another number.
TEST_P(Watching, starts_of_another_time_namespace_say_nothing) {
  ProcessCard other = this_process();
  other.started -= 1;
  other.clock_namespace += 1;
  EXPECT_FALSE(ProcessWatch(other, GetParam()).has_ended());
}

TEST_P(Watching, ids_that_name_no_process_say_nothing) {
  EXPECT_FALSE(ProcessWatch({}, GetParam()).has_ended());
  EXPECT_FALSE(ProcessWatch({.id = -1}, GetParam()).has_ended());
}

INSTANTIATE_TEST_SUITE_P(By, Watching,
                         testing::Values(ProcessWatch::By::descriptor, ProcessWatch::By::start),
                         [](const auto& by) {
                           return std::string(by.param == ProcessWatch::By::start ? "start"
                                                                                  : "descriptor");
                         });

TEST(ProcessWatches, a_process_is_watched_once) {
  ProcessWatches watches;
  const auto one = watches.of(this_process());
  EXPECT_EQ(watches.of(this_process()), one);
}

// A process may have 1024 descriptors as a rule, and there may be as many ranks on a host.
TEST(ProcessWatches, many_processes_are_watched_with_a_bounded_number_of_descriptors) {
  ProcessWatches watches;
  std::vector<std::shared_ptr<ProcessWatch>> all;
  std::size_t descriptors = 0;
  for (std::uint64_t one = 0; one < ProcessWatches::descriptors_max + 10; ++one) {
    // Another clock: the start is not looked at, and each card is another process to the watches.
    ProcessCard card = this_process();
    card.clock_namespace += 1;
    card.started = one;
    all.push_back(watches.of(card));
    descriptors += all.back()->descriptor() >= 0 ? 1 : 0;
    EXPECT_FALSE(all.back()->has_ended());
  }
  EXPECT_EQ(descriptors, ProcessWatches::descriptors_max);
}

}  // namespace
}  // namespace tutti::bootstrap
