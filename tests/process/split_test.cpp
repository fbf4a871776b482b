// Promise: communicators split by color and key have the ranks they should in the order they
// should, work beside each other and beside the whole, and share its incidents.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <utility>

#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;
using test::launch;

ContextOptions options_for_test(const Exchange& exchange,
                                const std::vector<std::uint32_t>& ranks_per_node) {
  ContextOptions options = test::on_test_device(exchange);
  options.arena_bytes = 16u << 20;
  options.ranks_per_node = ranks_per_node;
  return options;
}

Status call(Operation& operation) {
  const Status status = operation.start();
  return status == Status::ok ? operation.wait(20s) : status;
}

/// What each rank of `part` says, by an allgather there.
std::vector<std::uint32_t> gathered(Communicator& part, std::uint32_t own) {
  std::vector<std::uint32_t> all(part.rank_count(), UINT32_MAX);
  Operation operation =
      allgather<std::uint32_t>(part, std::span<const std::uint32_t>(&own, 1), std::span(all));
  if (call(operation) != Status::ok) all.clear();
  return all;
}

/// The numbers in the whole of the ranks of `part`.
std::vector<std::uint32_t> numbers_of(Communicator& part, const Communicator& whole) {
  return gathered(part, index_of(whole.rank()));
}

/// Whether ranks of the part share nodes exactly where they do in the whole.
bool shares_nodes_alike(Communicator& part, const Communicator& whole) {
  const auto here = gathered(part, index_of(part.node()));
  const auto there = gathered(part, index_of(whole.node()));
  if (here.empty() || there.empty()) return false;
  for (std::size_t one = 0; one < here.size(); ++one)
    for (std::size_t other = 0; other < one; ++other)
      if ((here[one] == here[other]) != (there[one] == there[other])) return false;
  return true;
}

struct Shape {
  std::uint32_t rank_count;
  std::vector<std::uint32_t> ranks_per_node;
};

/// Ranks modulo `colors`, the last one first.
int split_backwards(Exchange& exchange, const Shape& shape, std::uint32_t colors) {
  Context context(options_for_test(exchange, shape.ranks_per_node));
  Communicator whole(context, exchange);
  const std::uint32_t self = index_of(whole.rank());
  std::optional<Communicator> part = whole.split(self % colors, -std::int64_t{self});
  if (!part) return 1;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t rank = self % colors; rank < shape.rank_count; rank += colors)
    expected.insert(expected.begin(), rank);
  if (numbers_of(*part, whole) != expected) return 2;
  if (expected[index_of(part->rank())] != self) return 3;
  if (!shares_nodes_alike(*part, whole)) return 8;

  // Operations of both communicators run at once, in several calls, also with payloads of several
  // chunks.
  for (const std::size_t count : {std::size_t{1}, std::size_t{40'000}}) {
    const std::vector<std::uint64_t> mine(count, self + 1);
    std::vector<std::uint64_t> of_part(count), of_whole(count);
    Operation within = allreduce<std::uint64_t>(*part, mine, of_part, sum);
    Operation across = allreduce<std::uint64_t>(whole, mine, of_whole, sum);
    std::uint64_t part_sum = 0;
    for (const std::uint32_t rank : expected) part_sum += rank + 1;
    const std::uint64_t whole_sum = shape.rank_count * (shape.rank_count + 1ull) / 2;
    for (int i = 0; i < 5; ++i) {
      if (within.start() != Status::ok || across.start() != Status::ok) return 4;
      if (across.wait(20s) != Status::ok || within.wait(20s) != Status::ok) return 5;
      if (std::count(of_part.begin(), of_part.end(), part_sum) != std::ptrdiff_t(count)) return 6;
      if (std::count(of_whole.begin(), of_whole.end(), whole_sum) != std::ptrdiff_t(count))
        return 7;
    }
  }
  return 0;
}

TEST(Split, by_color_in_the_order_of_the_key) {
  for (const std::uint32_t rank_count :
       test::all_or_sanitized<std::uint32_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 5, 8}))
    for (const std::uint32_t colors : {1u, 2u, 3u}) {
      const Shape shape{rank_count, {rank_count % 2 == 0 ? 1u : 3u}};
      const auto results = launch({.rank_count = rank_count}, [&](Exchange& exchange) {
        return split_backwards(exchange, shape, colors);
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(rank_count)) << rank_count << '/' << colors;
    }
}

TEST(Split, of_threads_on_nodes) {
  for (const Shape& shape : {Shape{8, {8}}, Shape{7, {2}}, Shape{6, {1, 4}}, Shape{5, {1}}}) {
    const auto results =
        run_local_threads({.rank_count = shape.rank_count},
                          [&](Exchange& exchange) { return split_backwards(exchange, shape, 2); });
    EXPECT_EQ(codes_of(results), std::vector<int>(shape.rank_count)) << shape.rank_count;
  }
}

TEST(Split, equal_keys_keep_the_order_and_no_color_gets_nothing) {
  const auto results = launch({.rank_count = 5}, [&](Exchange& exchange) {
    Context context(options_for_test(exchange, {2}));
    Communicator whole(context, exchange);
    const bool is_left_out = whole.rank() == Rank{1} || whole.rank() == Rank{4};
    std::optional<Communicator> part =
        whole.split(is_left_out ? std::nullopt : std::optional(UINT32_MAX));
    if (part.has_value() == is_left_out) return 1;
    if (part && numbers_of(*part, whole) != std::vector<std::uint32_t>{0, 2, 3}) return 2;
    Operation together = barrier(whole);
    return call(together) == Status::ok ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(5));
}

TEST(Split, parts_of_parts_and_parts_that_never_wait_for_each_other) {
  const auto results = launch({.rank_count = 8}, [&](Exchange& exchange) {
    Context context(options_for_test(exchange, {3}));
    Communicator whole(context, exchange);
    const std::uint32_t self = index_of(whole.rank());
    std::optional<Communicator> half = whole.split(self / 4);
    // One half does much while the other one does nothing.
    if (self >= 4) {
      for (int i = 0; i < 3; ++i) {
        std::optional<Communicator> pair = half->split(self / 2);
        std::uint64_t mine = self, both = 0;
        Operation operation = allreduce<std::uint64_t>(
            *pair, std::span<const std::uint64_t>(&mine, 1), std::span(&both, 1), sum);
        if (call(operation) != Status::ok || both != self / 2 * 4 + 1) return 1;
      }
    }
    Operation together = barrier(whole);
    return call(together) == Status::ok ? 0 : 2;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(8));
}

TEST(Split, over_tcp) {
  const std::uint16_t port = test::free_port();
  const auto results = launch({.rank_count = 5}, [&](Exchange& exchange) {
    const auto tcp = test::meet_over_tcp(index_of(exchange.self()), 5, port);
    return split_backwards(*tcp, {5, {2}}, 2);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(5));
}

/// Whether `make` is refused by a mismatch whose text has all of `words`.
bool is_mismatch(const std::function<void()>& make, const std::vector<std::string>& words) {
  try {
    make();
  } catch (const Error& error) {
    const std::string text = error.what();
    if (error.code() == ErrorCode::mismatch &&
        std::all_of(words.begin(), words.end(),
                    [&](const std::string& word) { return text.find(word) != std::string::npos; }))
      return true;
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  return false;
}

/// One rank makes an operation, the others something else, or the other way round.
int operate_beside_other_calls(Exchange& exchange) {
  Context context(options_for_test(exchange, {1}));
  Communicator whole(context, exchange);
  const std::function<void()> operate = [&] { (void)barrier(whole); };
  const std::vector<std::pair<std::string, std::function<void()>>> others{
      {"split", [&] { (void)whole.split(0u); }},
      {"synchronize", [&] { whole.synchronize(); }},
      {"allocate", [&] { (void)whole.allocate(64); }}};
  const bool differs = whole.rank() == Rank{1};
  for (const auto& [name, other] : others) {
    const std::string text = "ranks make different calls: rank";
    if (!is_mismatch(differs ? operate : other, {text, name, "rank 1 calls barrier"})) return 1;
    if (!is_mismatch(differs ? other : operate, {text, "barrier", "rank 1 calls " + name}))
      return 2;
  }
  Operation after = barrier(whole);
  return call(after) == Status::ok ? 0 : 3;
}

TEST(Split, and_other_calls_beside_an_operation_are_named_on_all_ranks) {
  EXPECT_EQ(codes_of(launch({.rank_count = 3}, operate_beside_other_calls)), std::vector<int>(3));
  const std::uint16_t port = test::free_port();
  const auto over_tcp = launch({.rank_count = 3}, [&](Exchange& exchange) {
    const auto tcp = test::meet_over_tcp(index_of(exchange.self()), 3, port);
    return operate_beside_other_calls(*tcp);
  });
  EXPECT_EQ(codes_of(over_tcp), std::vector<int>(3));
}

TEST(Split, who_asks_for_another_operation_in_a_part_is_named) {
  const auto results = launch({.rank_count = 4}, [&](Exchange& exchange) {
    Context context(options_for_test(exchange, {1}));
    Communicator whole(context, exchange);
    std::optional<Communicator> part = whole.split(index_of(whole.rank()) % 2);
    std::vector<double> memory(whole.rank() == Rank{3} ? 5 : 4);
    bool is_refused = false;
    try {
      Operation operation = allreduce<double>(*part, memory, memory, sum);
      if (call(operation) != Status::ok) return 1;
    } catch (const Error& error) {
      is_refused = error.code() == ErrorCode::mismatch &&
                   std::strstr(error.what(), "rank 1 for allreduce") != nullptr;
      if (!is_refused) std::fprintf(stderr, "%s\n", error.what());
    }
    if (is_refused != (index_of(whole.rank()) % 2 == 1)) return 2;
    Operation after = barrier(*part);  // and the part is still usable
    return call(after) == Status::ok ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

// Protects: ranks of the other parts, which agree, hear of it at once instead of waiting for the
// set-up timeout, and the whole stays usable.
TEST(Split, different_plans_within_one_part_are_told_in_all_parts) {
  const auto results = launch({.rank_count = 6}, [](Exchange& exchange) {
    ContextOptions options = options_for_test(exchange, {1});
    if (exchange.self() == Rank{5}) options.per_round = {1, 1};
    Context context(options);
    Communicator whole(context, exchange);
    const auto begin = std::chrono::steady_clock::now();
    try {
      (void)whole.split(index_of(whole.rank()) / 3);
      return 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::mismatch ||
          std::strstr(error.what(), "ranks have different plans for split") == nullptr) {
        std::fprintf(stderr, "rank %u: %s\n", index_of(whole.rank()), error.what());
        return 2;
      }
    }
    if (std::chrono::steady_clock::now() - begin > 10s) return 3;
    Operation after = barrier(whole, {.per_round = {5}});
    return call(after) == Status::ok ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(6));
}

TEST(Split, a_death_is_heard_in_every_part_by_name) {
  const auto results = run_local({.rank_count = 4}, [&](Exchange& exchange) {
    Context context(options_for_test(exchange, {1}));
    Communicator whole(context, exchange);
    const std::uint32_t self = index_of(whole.rank());
    std::optional<Communicator> part = whole.split(self / 2);
    Operation operation = barrier(*part);
    if (self == 3) {
      std::this_thread::sleep_for(300ms);
      kill(getpid(), SIGKILL);
    }
    Status status = Status::ok;
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (status == Status::ok && std::chrono::steady_clock::now() < end) status = call(operation);
    if (status != Status::peer_failed) return 1;
    // Rank 3 is rank 1 of its own part, and nobody in the other one.
    return part->failure().peer == (self == 2 ? Rank{1} : no_rank) ? 0 : 2;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 0, 1000 + SIGKILL}));
}

TEST(Split, who_does_not_come_is_named_in_time) {
  const auto results = launch({.rank_count = 3}, [&](Exchange& exchange) {
    ContextOptions options = options_for_test(exchange, {1});
    options.setup_timeout = test::patiently(3s);
    Context context(options);
    Communicator whole(context, exchange);
    std::optional<Communicator> part = whole.split(0);
    if (whole.rank() == Rank{2}) {  // makes progress, and no operation
      const auto end = std::chrono::steady_clock::now() + 60s;
      while (whole.progress() == Status::ok)
        if (std::chrono::steady_clock::now() > end) return 1;
      return 0;
    }
    try {
      (void)barrier(*part);
    } catch (const Error& error) {
      const bool is_late =
          error.code() == ErrorCode::timed_out && std::strstr(error.what(), "ranks 2") != nullptr;
      // One of the two ranks that wait is the first to give up; the other is told.
      const bool is_told = error.code() == ErrorCode::peer_failed;
      if (!is_late && !is_told) std::fprintf(stderr, "%s\n", error.what());
      return is_late || is_told ? 0 : 2;
    }
    return 3;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(Split, of_a_communicator_that_has_failed_is_refused) {
  const auto results = launch({.rank_count = 2}, [&](Exchange& exchange) {
    Context context(options_for_test(exchange, {1}));
    Communicator whole(context, exchange);
    whole.abort();
    try {
      (void)whole.split(0);
    } catch (const Error& error) {
      return error.code() == ErrorCode::peer_failed ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

}  // namespace
}  // namespace tutti
