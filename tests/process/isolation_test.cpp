// Promise: communicators of one context fail apart from each other, whoever only makes progress
// hears of a death too, and objects that go in the wrong order are found.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>
#include <tutti/tutti.hpp>

#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

/// As if somebody killed this rank while the others use what has just been made.
void die_soon() {
  std::this_thread::sleep_for(300ms);
  kill(getpid(), SIGKILL);
}

Status call(Operation& operation) {
  const Status status = operation.start();
  return status == Status::ok ? operation.wait(10s) : status;
}

/// Three processes; `left` joins the first two, `right` the first (as rank 0) and the last.
struct Pair {
  std::unique_ptr<Exchange> left, right;
};
Pair meet_pairwise(std::uint32_t self, std::uint16_t left_port, std::uint16_t right_port) {
  Pair pair;
  if (self < 2) pair.left = test::meet_over_tcp(self, 2, left_port);
  if (self != 1) pair.right = test::meet_over_tcp(self / 2, 2, right_port);
  return pair;
}

TEST(Isolation, ADeathFailsOnlyTheCommunicatorsOfTheDead) {
  const std::uint16_t left_port = test::free_port(), right_port = test::free_port();
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    const Pair pair = meet_pairwise(self, left_port, right_port);
    Context context(test::on_test_device(exchange));
    std::optional<Communicator> left, right;
    if (pair.left) left.emplace(context, *pair.left);
    if (pair.right) right.emplace(context, *pair.right);
    std::optional<Operation> left_barrier, right_barrier;
    if (left) left_barrier.emplace(barrier(*left));
    if (right) right_barrier.emplace(barrier(*right));
    if (self == 1) die_soon();
    const auto end = std::chrono::steady_clock::now() + 30s;
    if (left) {
      Status status = Status::ok;
      while (status == Status::ok && std::chrono::steady_clock::now() < end)
        status = call(*left_barrier);
      if (status != Status::peer_failed || left->failure().peer != Rank{1}) return 1;
    }
    for (int i = 0; i < 100; ++i)
      if (call(*right_barrier) != Status::ok) return 2;
    return 0;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 1000 + SIGKILL, 0}));
}

TEST(Isolation, AContextThatIsTornDownInGoodOrderFailsNobody) {
  const std::uint16_t left_port = test::free_port(), right_port = test::free_port();
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    const Pair pair = meet_pairwise(self, left_port, right_port);
    std::optional<Context> context(test::on_test_device(exchange));
    if (self == 1) {
      {
        Communicator left(*context, *pair.left);
        Operation operation = barrier(left);
        if (call(operation) != Status::ok) return 1;
      }
      context.reset();  // its queue pairs are gone while its exchange still stands
      std::this_thread::sleep_for(1500ms);
      return 0;
    }
    Communicator right(*context, *pair.right);
    Operation right_barrier = barrier(right);
    if (self == 0) {
      Communicator left(*context, *pair.left);
      Operation operation = barrier(left);
      if (call(operation) != Status::ok) return 1;
      std::this_thread::sleep_for(300ms);
      // Goes with sends towards the queue pair that is gone.
    }
    for (int i = 0; i < 100; ++i)
      if (call(right_barrier) != Status::ok) return 2;
    return 0;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 0}));
}

TEST(Isolation, AMessageForAnAbortedOperationReachesNoLaterOne) {
  const std::uint16_t port = test::free_port();
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    const auto other = test::meet_over_tcp(self, 2, port);
    Context context(test::on_test_device(exchange));
    Communicator lasting(context, *other);
    {
      Communicator brief(context, exchange);
      Operation operation = barrier(brief);
      brief.synchronize();
      if (self == 1) {
        if (call(operation) != Status::aborted) return 1;
      } else {
        std::this_thread::sleep_for(200ms);
        brief.abort();
      }
    }
    std::int64_t mine = self + 1, sum_of_all = -1;
    Operation operation = allreduce<std::int64_t>(lasting, std::span<const std::int64_t>(&mine, 1),
                                                  std::span(&sum_of_all, 1), sum);
    if (self == 1) std::this_thread::sleep_for(200ms);
    if (call(operation) != Status::ok) return 2;
    return sum_of_all == 3 ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

TEST(Progress, HearsOfADeathToo) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator);
    if (exchange.self() == Rank{1}) die_soon();
    if (operation.start() != Status::ok) return 1;
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (communicator.progress() == Status::ok)
      if (std::chrono::steady_clock::now() > end) return 2;
    return operation.in_flight() ? 3 : 0;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 1000 + SIGKILL}));
}

TEST(Order, ACommunicatorThatGoesBeforeItsOperationIsFound) {
  EXPECT_EQ(codes_of(run_local({.rank_count = 1},
                               [&](Exchange& exchange) {
                                 Context context(test::on_test_device(exchange));
                                 std::optional<Communicator> communicator;
                                 communicator.emplace(context, exchange);
                                 const Operation operation = barrier(*communicator);
                                 communicator.reset();
                                 return 0;
                               })),
            (std::vector<int>{1000 + SIGABRT}));
}

TEST(Order, AContextThatGoesBeforeItsCommunicatorIsFound) {
  EXPECT_EQ(codes_of(run_local({.rank_count = 1},
                               [&](Exchange& exchange) {
                                 std::optional<Context> context(test::on_test_device(exchange));
                                 const Communicator communicator(*context, exchange);
                                 context.reset();
                                 return 0;
                               })),
            (std::vector<int>{1000 + SIGABRT}));
}

}  // namespace
}  // namespace tutti
