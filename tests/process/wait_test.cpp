// Promise: a wait keeps its core or gives it away as its policy says, and is right in either case.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <optional>
#include <thread>
#include <tutti/detail/cpu_set.hpp>
#include <tutti/tutti.hpp>

#include "runtime/communicator.hpp"
#include "runtime/context.hpp"
#include "support/device.hpp"
#include "support/jobs.hpp"

namespace {

/// A rank that blocks asks the side channel ten times a second, and sees then what should have
/// woken it.  While this is set, sleeps of this thread end by themselves only after this long, so
/// that a wake-up that gets lost cannot be missed.
thread_local bool sleeps_long = false;
constexpr timespec long_sleep{.tv_sec = 20, .tv_nsec = 0};
thread_local unsigned sleeps_ended = 0, sleeps_timed_out = 0;

}  // namespace

/// Takes the place of that of the C library in this program.
extern "C" int ppoll(pollfd* descriptors, nfds_t count, const timespec* timeout,
                     const sigset_t* signals) {
  using Real = int(pollfd*, nfds_t, const timespec*, const sigset_t*);
  static Real* const real = reinterpret_cast<Real*>(::dlsym(RTLD_NEXT, "ppoll"));
  if (!sleeps_long) return real(descriptors, count, timeout, signals);
  const int ready = real(descriptors, count, &long_sleep, signals);
  ++(ready == 0 ? sleeps_timed_out : sleeps_ended);
  return ready;
}

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

/// How often this thread has slept so far.
long times_slept() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

struct Lateness {
  WaitPolicy policy;
  std::uint32_t ranks_per_node = 2;
  bool share_a_cpu = false;
  std::chrono::milliseconds late = 500ms;
  long sleeps_min, sleeps_max;
};

/// Makes both ranks share the CPU on which the first of them may run, or leaves them as they are.
void bind_to_first_cpu() {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    return;
  }
}

/// Rank 1 comes late; returns a code of what is wrong with rank 0's waiting.
int wait_for_a_late_rank(Exchange& exchange, const Lateness& of) {
  if (of.share_a_cpu) bind_to_first_cpu();
  ContextOptions options = test::on_test_device(exchange);
  options.wait = of.policy;
  options.ranks_per_node = {of.ranks_per_node};
  Context context(options);
  Communicator communicator(context, exchange);
  Operation operation = barrier(communicator);
  if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 1;
  if (exchange.self() == Rank{1}) std::this_thread::sleep_for(of.late);
  const long before = times_slept();
  if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 2;
  if (exchange.self() == Rank{1}) return 0;
  const long slept = times_slept() - before;
  if (of.sleeps_min <= slept && slept <= of.sleeps_max) return 0;
  std::fprintf(stderr, "slept %ld times, expected %ld to %ld\n", slept, of.sleeps_min,
               of.sleeps_max);
  return 3;
}

void expect_waiting(const Lateness& of) {
  EXPECT_EQ(
      codes_of(run_local({.rank_count = 2},
                         [&](Exchange& exchange) { return wait_for_a_late_rank(exchange, of); })),
      (std::vector<int>{0, 0}))
      << "policy " << static_cast<int>(of.policy) << ", " << of.ranks_per_node << " ranks a node";
}

constexpr long any = 1'000'000;

TEST(Wait, spin_and_yield_do_not_sleep) {
  for (const WaitPolicy policy : {WaitPolicy::spin, WaitPolicy::yield})
    expect_waiting({.policy = policy, .sleeps_min = 0, .sleeps_max = 49});
}

TEST(Wait, automatic_sleeps_after_a_second_if_it_has_a_cpu_of_its_own) {
  if (detail::allowed_cpus().count() < 2) GTEST_SKIP() << "a CPU for each of two ranks is needed";
  // The side channel may make it sleep, which is asked ten times a second.
  expect_waiting({.policy = WaitPolicy::automatic, .sleeps_min = 0, .sleeps_max = 49});
  expect_waiting(
      {.policy = WaitPolicy::automatic, .late = 1500ms, .sleeps_min = 50, .sleeps_max = any});
}

TEST(Wait, automatic_sleeps_after_10_ms_if_it_shares_its_cpu) {
  expect_waiting(
      {.policy = WaitPolicy::automatic, .share_a_cpu = true, .sleeps_min = 50, .sleeps_max = any});
}

/// It wakes up when something comes and to ask the side channel, ten times a second; naps would be
/// hundreds.
TEST(Wait, block_sleeps_until_something_comes) {
  for (const std::uint32_t ranks_per_node : {1u, 2u})
    for (const bool share_a_cpu : {false, true})
      expect_waiting({.policy = WaitPolicy::block,
                      .ranks_per_node = ranks_per_node,
                      .share_a_cpu = share_a_cpu,
                      .sleeps_min = 3,
                      .sleeps_max = 60});
}

/// Where messages are lines in memory, which come without a completion, it naps.
TEST(Wait, block_naps_for_what_cannot_wake_it) {
  if (!test::device_is_soft() || getenv("TUTTI_SOFT_TRANSPORT") != nullptr)
    GTEST_SKIP() << "needs a device that keeps lines whole";
  EXPECT_EQ(codes_of(run_local({.rank_count = 2},
                               [&](Exchange& exchange) {
                                 setenv("TUTTI_NOTIFY", "flag", 1);
                                 return wait_for_a_late_rank(exchange, {.policy = WaitPolicy::block,
                                                                        .ranks_per_node = 1,
                                                                        .sleeps_min = 100,
                                                                        .sleeps_max = any});
                               })),
            (std::vector<int>{0, 0}));
}

/// Makes the sleeps of this thread long, and counts them, as long as it exists.
class LongSleeps {
 public:
  LongSleeps() {
    sleeps_ended = 0;
    sleeps_timed_out = 0;
    sleeps_long = true;
  }
  ~LongSleeps() { sleeps_long = false; }
  LongSleeps(const LongSleeps&) = delete;
  LongSleeps& operator=(const LongSleeps&) = delete;
};

/// With sanitizers, which look for something else, each wake-up takes longer.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t sleepers_calls = 500;
#else
constexpr std::uint32_t sleepers_calls = 2000;
#endif

/// Ranks wait in different ways, in a node, between nodes, and both at once; each answer must wake
/// whoever sleeps.  A wake-up that gets lost costs 20 s, and is counted.
int answer_sleepers(Exchange& exchange, std::uint32_t ranks_per_node) {
  ContextOptions options = test::on_test_device(exchange);
  const std::uint32_t self = index_of(exchange.self());
  options.wait = self == 1 ? WaitPolicy::automatic : WaitPolicy::block;
  options.ranks_per_node = {ranks_per_node};
  Context context(options);
  Communicator communicator(context, exchange);
  std::uint64_t mine = 0, all = 0;
  Operation operation = allreduce<std::uint64_t>(
      communicator, std::span<const std::uint64_t>(&mine, 1), std::span(&all, 1), sum);
  const LongSleeps sleeps;
  const std::uint64_t calls = test::times(sleepers_calls);
  for (std::uint64_t call = 0; call < calls; ++call) {
    // One rank after the other lets the others fall asleep, or wakes them as they do.
    if (call % exchange.rank_count() == self)
      std::this_thread::sleep_for(std::chrono::microseconds(call % 256));
    mine = call + self;
    if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
    const std::uint64_t count = exchange.rank_count();
    if (all != call * count + count * (count - 1) / 2) return 2;
    if (sleeps_timed_out != 0) {
      std::fprintf(stderr, "a wake-up was lost in call %llu\n",
                   static_cast<unsigned long long>(call));
      return 3;
    }
  }
  // How often depends on what else the CPUs do.
  if (self == 1 || sleeps_ended > 0) return 0;
  std::fprintf(stderr, "slept in %u of %llu calls\n", sleeps_ended,
               static_cast<unsigned long long>(calls));
  return 4;
}

TEST(Wait, every_message_wakes_a_rank_that_blocks) {
  for (const std::uint32_t ranks_per_node : {1u, 2u, 4u}) {
    EXPECT_EQ(codes_of(run_local(
                  {.rank_count = 4},
                  [&](Exchange& exchange) { return answer_sleepers(exchange, ranks_per_node); })),
              std::vector<int>(4))
        << ranks_per_node << " ranks a node";
  }
}

/// Ranks that are threads wake each other, too; ThreadSanitizer sees their memory.
TEST(Wait, every_message_wakes_a_rank_that_blocks_for_threads) {
  for (const std::uint32_t ranks_per_node : {2u, 4u}) {
    EXPECT_EQ(codes_of(run_local_threads(
                  {.rank_count = 4},
                  [&](Exchange& exchange) { return answer_sleepers(exchange, ranks_per_node); })),
              std::vector<int>(4))
        << ranks_per_node << " ranks a node";
  }
}

/// The words of the ring, which the ranks of a node share, wake nobody: ranks that block nap.
TEST(Wait, block_naps_along_the_shared_ring) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    ContextOptions options = test::on_test_device(exchange);
    options.wait = WaitPolicy::block;
    options.ranks_per_node = {2};
    Context context(options);
    Communicator communicator(context, exchange);
    const std::uint64_t self = index_of(exchange.self());
    std::vector<std::uint64_t> mine(1 << 12), all(mine.size());
    Operation operation =
        allreduce(communicator, {.source = mine.data(),
                                 .target = all.data(),
                                 .element_count = mine.size(),
                                 .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                                 .algorithm = Algorithm::shared_ring});
    const LongSleeps sleeps;
    long slept = 0;
    for (std::uint64_t call = 0; call < 40; ++call) {
      std::iota(mine.begin(), mine.end(), call * self);
      if (call % exchange.rank_count() == self) std::this_thread::sleep_for(10ms);
      const long before = times_slept();
      if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
      slept += times_slept() - before;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i] != 4 * i + 6 * call) return 2;
    }
    if (sleeps_ended + sleeps_timed_out != 0) return 3;  // it would not be woken
    return slept > 40 ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

/// A rank that gives up wakes those of its node, which do not wait until they ask by themselves.
TEST(Wait, an_abort_ends_the_sleeps_of_its_node) {
  const test::SharedCount asleep;
  const auto results = run_local({.rank_count = 4}, [&](Exchange& exchange) {
    const LongSleeps sleeps;
    ContextOptions options = test::on_test_device(exchange);
    options.wait = WaitPolicy::block;
    options.ranks_per_node = {4};
    Context context(options);
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator);
    if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
    if (exchange.self() == Rank{2}) {
      if (!asleep.comes_to(3)) return 2;
      std::this_thread::sleep_for(100ms);
      communicator.abort();
      return 0;
    }
    if (operation.start() != Status::ok) return 3;
    asleep.add();
    if (operation.wait(60s) != Status::aborted || communicator.failure().peer != Rank{2}) return 4;
    return sleeps_ended > 0 && sleeps_timed_out == 0 ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

/// Ranks of its node that sleep for the whole communicator are woken, too, if a part of it fails to
/// which they do not belong.
TEST(Wait, a_failure_of_a_part_ends_the_sleeps_of_the_whole) {
  const test::SharedCount asleep;
  const auto results = run_local({.rank_count = 4}, [&](Exchange& exchange) {
    const LongSleeps sleeps;
    ContextOptions options = test::on_test_device(exchange);
    options.wait = WaitPolicy::block;
    options.ranks_per_node = {4};
    Context context(options);
    Communicator whole(context, exchange);
    std::optional<Communicator> part = whole.split(exchange.self() == Rank{2} ? 1 : 0, 0);
    Operation operation = barrier(whole);
    if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
    if (exchange.self() == Rank{2}) {
      if (!asleep.comes_to(3)) return 2;
      std::this_thread::sleep_for(100ms);
      part->abort();
      return 0;
    }
    if (operation.start() != Status::ok) return 3;
    asleep.add();
    if (operation.wait(60s) != Status::aborted || whole.failure().peer != Rank{2}) return 4;
    return sleeps_ended > 0 && sleeps_timed_out == 0 ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

/// An alarm that ends a sleep for one communicator may be for another one of the context.
TEST(Wait, an_alarm_is_heard_by_all_communicators) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    ContextOptions options = test::on_test_device(exchange);
    options.wait = WaitPolicy::block;
    options.ranks_per_node = {2};
    Context context(options);
    Communicator whole(context, exchange);
    std::optional<Communicator> part = whole.split(0, 0);
    Operation operation = barrier(whole);
    whole.synchronize();
    if (exchange.self() == Rank{1}) part->implementation().neighbours.mappings[0].waker->alarm();
    whole.synchronize();
    if (operation.start() != Status::ok) return 1;
    if (exchange.self() == Rank{0}) {
      Context::Implementation& inside = context.implementation();
      runtime::Liveness& watched = whole.implementation().liveness;
      runtime::Liveness& other = part->implementation().liveness;
      const Timeout now = inside.clock.now();
      watched.check(now);
      other.check(now);
      if (other.next_check() <= now) return 2;
      inside.sleep(watched, now, 10ms);
      if (watched.next_check() > now || other.next_check() > now) return 3;
    }
    return operation.wait(60s) == Status::ok ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

/// A failure is met between a rank's look at its liveness and its sleep.
TEST(Wait, a_failure_met_on_the_way_to_sleep_is_acted_on_at_once) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    const LongSleeps sleeps;
    ContextOptions options = test::on_test_device(exchange);
    options.wait = WaitPolicy::block;
    options.ranks_per_node = {1};
    Context context(options);
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator);
    if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
    communicator.synchronize();
    if (exchange.self() == Rank{1}) {
      communicator.synchronize();
      return 0;
    }
    if (operation.start() != Status::ok) return 2;
    Context::Implementation& inside = context.implementation();
    Communicator::Implementation& ranks = communicator.implementation();
    std::this_thread::sleep_for(20ms);
    while (inside.progress() > 0) {  // the completions of its own sends would keep it awake
    }
    const Timeout now = inside.clock.now();
    ranks.liveness.check(now);
    ranks.liveness.suspect({.process = ranks.process_of[1], .what = "fails by this test"}, Rank{1});
    const unsigned before = sleeps_ended + sleeps_timed_out;
    inside.sleep(ranks.liveness, now, 60s);
    if (sleeps_ended + sleeps_timed_out != before) return 3;
    sleeps_long = false;  // an explanation is waited for, and asked for often
    communicator.synchronize();
    return operation.wait(60s) < Status::ok && communicator.failure().peer == Rank{1} ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

/// Three of four ranks block when the fourth is killed: all name it within two seconds.
TEST(Wait, a_death_ends_a_sleep) {
  for (const std::uint32_t ranks_per_node : {1u, 2u, 4u}) {
    const test::SharedCount asleep;
    const auto results =
        run_local({.rank_count = 4,
                   .on_started =
                       [&](const std::vector<pid_t>& processes) {
                         EXPECT_TRUE(asleep.comes_to(4));
                         std::this_thread::sleep_for(200ms);
                         kill(processes[2], SIGKILL);
                       }},
                  [&](Exchange& exchange) {
                    ContextOptions options = test::on_test_device(exchange);
                    options.wait = WaitPolicy::block;
                    options.ranks_per_node = {ranks_per_node};
                    Context context(options);
                    Communicator communicator(context, exchange);
                    Operation operation = barrier(communicator);
                    if (operation.start() != Status::ok || operation.wait(10s) != Status::ok)
                      return 1;
                    communicator.synchronize();
                    asleep.add();
                    if (exchange.self() == Rank{2}) std::this_thread::sleep_for(60s);
                    if (operation.start() != Status::ok) return 2;
                    const auto begin = std::chrono::steady_clock::now();
                    const Status status = operation.wait(30s);
                    if (status != Status::peer_failed || communicator.failure().peer != Rank{2})
                      return 3;
                    const auto took = std::chrono::steady_clock::now() - begin;
                    return took < 200ms + test::patiently(2s) ? 0 : 4;
                  });
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(results[rank].signal, rank == 2 ? SIGKILL : 0) << rank;
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(results[rank].exit_status, 0) << rank << ", " << ranks_per_node;
  }
}

/// A large payload that takes its time comes in pieces, and none of them is waited for for long.
TEST(Wait, does_not_sleep_while_there_is_progress) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    ContextOptions options = test::on_test_device(exchange);
    options.ranks_per_node = {2};
    options.single_copy_bytes = SIZE_MAX;
    options.chunk_bytes = 16u << 10;
    Context context(options);
    Communicator communicator(context, exchange);
    std::vector<double> memory(8u << 20);  // 4096 chunks, some 50 ms
    Operation operation = allreduce<double>(communicator, memory, memory, sum);
    const long before = times_slept();
    if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
    // Both may lose their cores for a while, but not in most chunks.
    return times_slept() - before < 1000 ? 0 : 2;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

TEST(Wait, keeps_its_timeout_asleep) {
  for (const std::uint32_t ranks_per_node : {1u, 2u}) {
    const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
      ContextOptions options = test::on_test_device(exchange);
      options.wait = WaitPolicy::block;
      options.ranks_per_node = {ranks_per_node};
      Context context(options);
      Communicator communicator(context, exchange);
      Operation operation = barrier(communicator);
      if (exchange.self() == Rank{0}) {
        if (operation.start() != Status::ok) return 1;
        for (const std::chrono::nanoseconds timeout : {100'000'000ns, 250'300'000ns, 300'000ns}) {
          const auto begin = std::chrono::steady_clock::now();
          if (operation.wait(timeout) != Status::timed_out) return 2;
          const auto took = std::chrono::steady_clock::now() - begin;
          if (took < timeout) return 3;
          if (took > timeout + test::patiently(500ms)) return 4;
        }
        communicator.synchronize();
      } else {
        communicator.synchronize();
        if (operation.start() != Status::ok) return 1;
      }
      return operation.wait(10s) == Status::ok ? 0 : 5;
    });
    EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0})) << ranks_per_node << " ranks a node";
  }
}

}  // namespace
}  // namespace tutti
