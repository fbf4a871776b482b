// Promise: a wait keeps its core or gives it away as its policy says, and is right in either case.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>
#include <tutti/tutti.hpp>

#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

/// How often this thread has slept so far.
long sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/// Rank 1 comes half a second late; returns a code of what is wrong with rank 0's waiting.
int wait_for_a_late_rank(Exchange& exchange, WaitPolicy policy, bool shall_sleep) {
  ContextOptions options = test::on_test_device(exchange);
  options.wait = policy;
  options.ranks_per_node = {2};
  Context context(options);
  Communicator communicator(context, exchange);
  Operation operation = barrier(communicator);
  if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 1;
  if (exchange.self() == Rank{1}) std::this_thread::sleep_for(500ms);
  const long before = sleeps();
  if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 2;
  if (exchange.self() == Rank{1}) return 0;
  // A nap is at most a millisecond, and an eighth of what has been waited for.
  return (sleeps() - before >= 50) == shall_sleep ? 0 : 3;
}

TEST(Wait, sleeps_or_does_not) {
  const std::pair<WaitPolicy, bool> cases[] = {{WaitPolicy::automatic, true},
                                               {WaitPolicy::spin, false},
                                               {WaitPolicy::yield, false},
                                               {WaitPolicy::block, true}};
  for (const auto& [policy, sleeps] : cases)
    EXPECT_EQ(codes_of(run_local({.rank_count = 2},
                                 [&, policy = policy, sleeps = sleeps](Exchange& exchange) {
                                   return wait_for_a_late_rank(exchange, policy, sleeps);
                                 })),
              (std::vector<int>{0, 0}))
        << static_cast<int>(policy);
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
    const long before = sleeps();
    if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
    // Both may lose their cores for a while, but not in most chunks.
    return sleeps() - before < 1000 ? 0 : 2;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

TEST(Wait, keeps_its_timeout_asleep) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    ContextOptions options = test::on_test_device(exchange);
    options.wait = WaitPolicy::block;
    Context context(options);
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator);
    if (exchange.self() == Rank{0}) {
      if (operation.start() != Status::ok) return 1;
      const auto begin = std::chrono::steady_clock::now();
      if (operation.wait(100ms) != Status::timed_out) return 2;
      if (std::chrono::steady_clock::now() - begin < 100ms) return 3;
      communicator.synchronize();
    } else {
      communicator.synchronize();
      if (operation.start() != Status::ok) return 1;
    }
    return operation.wait(10s) == Status::ok ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace tutti
