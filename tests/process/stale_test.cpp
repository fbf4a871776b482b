// Promise: stale-synchronous allreduces hold one whole contribution of every rank, of the last
// slack + 1 calls, over the device and in shared memory, for payloads that are copied and that stay
// in place; a late rank holds up nobody within the slack; with slack 0 they are allreduces.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

struct Task {
  std::vector<std::uint32_t> ranks_per_node;
  std::uint32_t slack = 1;
  std::size_t groups = 2;  // of one element for each rank
  std::uint64_t calls = 300;
  Timeout delay = 300us;  // at most, of each rank before some calls
};

Context context_of(const Exchange& exchange, const std::vector<std::uint32_t>& ranks_per_node) {
  ContextOptions options = test::on_test_device(exchange);
  options.arena_bytes = 8u << 20;
  options.ranks_per_node = ranks_per_node;
  return Context(options);
}

/// 0: everything is right.
int run(Exchange& exchange, const Task& task) {
  Context context = context_of(exchange, task.ranks_per_node);
  Communicator communicator(context, exchange);
  const std::size_t ranks = communicator.rank_count(), self = index_of(communicator.rank());
  std::vector<std::uint64_t> source(ranks * task.groups), target(source.size());
  Operation operation = allreduce_ssp<std::uint64_t>(
      communicator, std::span<const std::uint64_t>(source), std::span(target), sum, task.slack);
  std::mt19937 random(static_cast<std::uint32_t>(self));
  for (std::uint64_t call = 1; call <= task.calls; ++call) {
    for (std::size_t i = self; i < source.size(); i += ranks) source[i] = call;
    if (random() % 8 == 0) std::this_thread::sleep_for(task.delay * (random() % 100) / 100);
    if (operation.start() != Status::ok || operation.wait(30s) != Status::ok) return 1;
    std::uint64_t oldest = call;
    for (std::size_t i = 0; i < target.size(); ++i) {
      if (target[i] != target[i % ranks]) return 2;  // torn
      if (target[i] > call || target[i] == 0 || target[i] + task.slack < call) return 3;
      oldest = std::min(oldest, target[i]);
    }
    if (target[self] != call) return 4;
    if (operation.staleness() != call - oldest) return 5;
  }
  return 0;
}

void expect_right(std::uint32_t rank_count, const Task& task) {
  const auto results = run_local({.rank_count = rank_count},
                                 [&](Exchange& exchange) { return run(exchange, task); });
  EXPECT_EQ(codes_of(results), std::vector<int>(rank_count))
      << rank_count << " ranks, slack " << task.slack;
}

TEST(Stale, is_right_over_the_device) {
  for (const std::uint32_t slack : {0u, 1u, 3u})
    for (const std::uint32_t ranks : test::all_or_few<std::uint32_t>({1u, 2u, 5u}, {2u, 4u, 8u}))
      expect_right(ranks, {{1}, slack, 2, test::times(300)});
}

TEST(Stale, is_right_inside_a_node_and_across) {
  for (const std::uint32_t slack : {0u, 1u, 3u}) {
    expect_right(4, {{4}, slack});
    expect_right(5, {{3, 2}, slack});
  }
}

TEST(Stale, is_right_where_payloads_stay_in_place) {
  if (test::device_is_soft()) expect_right(3, {{3}, 2, 1000, 100});
  expect_right(4, {{2}, 2, 1000, test::times(100)});
  if (!test::device_is_soft()) expect_right(4, {{1}, 1, 2048, test::times(100)});  // 64 KiB
}

TEST(Stale, is_right_for_threads) {
  const Task task{{3}, 2, 600, 60};
  const auto results =
      run_local_threads({.rank_count = 3}, [&](Exchange& exchange) { return run(exchange, task); });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

/// Each element of a result says from which call its contribution is: torn ones and too old ones
/// would be seen.
TEST(LongStale, a_million_results_are_whole) {
  constexpr std::uint64_t calls = 62'500;  // of 4 ranks, for each of 4
  expect_right(4, {{1}, 1, 2, calls, 50us});
  expect_right(4, {{4}, 2, 40, calls, 50us});
  expect_right(4, {{2, 2}, 7, 5, calls, 50us});
  expect_right(4, {{3, 1}, 3, 300, calls, 50us});
}

/// Rank 0 does nothing until the others have got through `slack` calls, and no further.
TEST(Stale, a_late_rank_holds_up_nobody_within_the_slack) {
  constexpr std::uint32_t slack = 4;
  const test::SharedCount waiting;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    Context context = context_of(exchange, {3});
    Communicator communicator(context, exchange);
    double source = 1, target = 0;
    Operation operation = allreduce_ssp<double>(communicator, std::span<const double>(&source, 1),
                                                std::span(&target, 1), sum, slack);
    const auto call = [&] {
      return operation.start() == Status::ok && operation.wait(30s) == Status::ok;
    };
    if (!call()) return 1;
    communicator.synchronize();
    const bool late = exchange.self() == Rank{0};
    if (late && !waiting.comes_to(2)) return 3;
    for (std::uint32_t i = 0; i < slack; ++i)
      if (!call()) return 2;
    if (!late) {
      if (operation.staleness() == 0) return 4;
      if (operation.start() != Status::ok || operation.wait(100ms) != Status::timed_out) return 6;
      waiting.add();
      if (operation.wait(30s) != Status::ok) return 5;
    }
    for (std::uint32_t i = late ? 0 : 1; i < slack + 2; ++i)
      if (!call()) return 5;
    return target == 3 ? 0 : 7;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(Stale, what_cannot_be_is_refused_by_name) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context = context_of(exchange, {1});
    Communicator communicator(context, exchange);
    std::vector<double> values(100'000);
    const auto refusal = [&](const AllreduceSspArguments& arguments) {
      try {
        (void)allreduce_ssp(communicator, arguments);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    AllreduceSspArguments arguments{
        .source = values.data(),
        .target = values.data(),
        .element_count = values.size(),
        .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
        .slack = 50};
    if (refusal(arguments).find("less slack than 50") == std::string::npos) return 1;
    arguments.slack = UINT32_MAX;
    if (refusal(arguments).find("slack 4294967295: expected at most") == std::string::npos)
      return 2;
    arguments.slack = index_of(exchange.self());
    arguments.element_count = 1;
    if (refusal(arguments).find("give counts, slack") == std::string::npos) return 3;
    arguments.slack = 200;  // more receives than a queue pair has
    if (refusal(arguments).find("slack 200: too many") == std::string::npos) return 5;
    arguments.slack = 1;
    arguments.reduction.properties.commutative = false;
    if (refusal(arguments).find("does not commute") == std::string::npos) return 4;
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

}  // namespace
}  // namespace tutti
