// Promise: with TUTTI_TUNING=first_call, making an operation times a few schedules on memory of its
// own, in bounded time, and all ranks go on with the fastest; in virtual time it is no slower than
// the paper's best uniform n.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/cpu_set.hpp>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/first_call.hpp"
#include "support/device.hpp"
#include "verbs/soft/soft_clock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti {
namespace {

namespace soft = verbs::soft;
using namespace std::chrono_literals;

template <class T>
std::vector<T> gathered(Exchange& exchange, const T& mine) {
  std::vector<T> all(exchange.rank_count());
  exchange.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                     20s);
  return all;
}

bool complete(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(20s) == Status::ok;
}

/// The makespan of a call, in picoseconds.
std::int64_t virtual_time_of(Operation& operation, Communicator& communicator, Exchange& exchange) {
  if (!complete(operation) || !complete(operation)) return -1;
  communicator.synchronize();
  soft::enter_virtual_time();
  const bool done = complete(operation);
  const std::int64_t taken = soft::VirtualTime::joined()->now();
  soft::leave_virtual_time();
  const std::vector<std::int64_t> all = gathered(exchange, done ? taken : -1);
  return *std::max_element(all.begin(), all.end());
}

Operation make(Communicator& communicator, std::size_t elements, std::vector<std::uint64_t>& source,
               std::vector<std::uint64_t>& target,
               const std::vector<std::uint32_t>& per_round = {}) {
  if (elements == 0) return barrier(communicator, {.per_round = per_round});
  return allreduce(communicator,
                   {.source = source.data(),
                    .target = target.data(),
                    .element_count = elements,
                    .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                    .per_round = per_round});
}

bool is_alike(Exchange& exchange, const Operation& operation) {
  std::string text = operation.algorithm();
  for (const std::uint32_t n : operation.per_round()) text += " " + std::to_string(n);
  struct {
    char text[120] = {};
  } mine;
  std::strncpy(mine.text, text.c_str(), sizeof mine.text - 1);
  for (const auto& theirs : gathered(exchange, mine))
    if (std::strcmp(theirs.text, mine.text) != 0) return false;
  return true;
}

int in_virtual_time(Exchange& exchange, std::size_t elements) {
  Context context({.device = "soft0", .tuning = TuningMode::first_call});
  Communicator communicator(context, exchange);
  std::vector<std::uint64_t> source(elements, 1), target(elements);
  Operation timed = make(communicator, elements, source, target);
  if (timed.explanation().find("first call: of ") == std::string::npos) return 2;
  if (!is_alike(exchange, timed)) return 3;
  const std::int64_t taken = virtual_time_of(timed, communicator, exchange);
  std::int64_t best = INT64_MAX;
  for (std::uint32_t n = 1; n <= 7; ++n) {
    std::vector<std::uint32_t> per_round;
    for (std::uint32_t covered = 1; covered < exchange.rank_count(); covered *= n + 1)
      per_round.push_back(n);
    Operation uniform = make(communicator, elements, source, target, per_round);
    best = std::min(best, virtual_time_of(uniform, communicator, exchange));
  }
  if (taken <= 0 || best <= 0) return 4;
  if (taken > best && exchange.self() == Rank{0})
    std::fprintf(stderr, "%u ranks, %zu elements: %ld ps, and %ld with the best uniform n\n%s\n",
                 exchange.rank_count(), elements, static_cast<long>(taken), static_cast<long>(best),
                 timed.explanation().c_str());
  return taken <= best ? 0 : 5;
}

TEST(FirstCall, finds_the_best_n_in_virtual_time) {
  struct Case {
    const char* fabric;
    std::uint32_t ranks;
    std::size_t elements;
  };
  for (const auto& [fabric, ranks, elements] :
       {Case{"fdr", 9, 0}, Case{"qdr", 6, 1}, Case{"fdr", 13, 1}}) {
    ::setenv("TUTTI_SOFT_FABRIC", fabric, 1);
    soft::VirtualTime time(ranks);
    const std::size_t count = elements;
    const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
      time.join(index_of(exchange.self()));
      return in_virtual_time(exchange, count);
    });
    ::unsetenv("TUTTI_SOFT_FABRIC");
    for (const LocalResult& result : results)
      EXPECT_EQ(result.exit_status, 0) << fabric << ", " << ranks << " ranks";
  }
}

int on_nodes_of_several(Exchange& exchange, std::size_t elements) {
  std::int64_t times[2] = {};
  for (const TuningMode mode : {TuningMode::off, TuningMode::first_call}) {
    Context context({.device = "soft0", .ranks_per_node = {{3}}, .tuning = mode});
    Communicator communicator(context, exchange);
    std::vector<std::uint64_t> source(elements, 2), target(elements);
    Operation operation = make(communicator, elements, source, target);
    const bool is_timed = operation.explanation().find("first call: of ") != std::string::npos;
    if (is_timed != (mode == TuningMode::first_call)) return 2;
    if (!is_alike(exchange, operation)) return 3;
    std::int64_t& time = times[is_timed ? 1 : 0];
    time = virtual_time_of(operation, communicator, exchange);
    if (time <= 0 || target.back() != 2 * exchange.rank_count()) return 4;
  }
  return times[1] <= times[0] ? 0 : 5;
}

TEST(FirstCall, is_no_slower_than_the_model_where_nodes_have_several_ranks) {
  for (const std::size_t elements : {1u, 2048u}) {
    ::setenv("TUTTI_SOFT_FABRIC", "fdr", 1);
    const std::vector<std::uint32_t> node_of = {0, 0, 0, 1, 1, 1, 2, 2, 2};
    soft::VirtualTime time(9, node_of);
    const auto results = run_local({.rank_count = 9}, [&](Exchange& exchange) {
      time.join(index_of(exchange.self()));
      return on_nodes_of_several(exchange, elements);
    });
    ::unsetenv("TUTTI_SOFT_FABRIC");
    for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0) << elements;
  }
}

/// Binds each of two ranks to a CPU of its own, without which the model decides alone.
bool bind(std::size_t self) {
  const std::vector<unsigned> cpus = detail::allowed_cpus().list();
  if (cpus.size() < 2) return false;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus[self], &one);
  return ::sched_setaffinity(0, sizeof one, &one) == 0;
}

constexpr int skipped = 77;

int in_real_time(Exchange& exchange) {
  if (!bind(index_of(exchange.self()))) return skipped;
  ContextOptions options = test::on_test_device(exchange);
  options.tuning = TuningMode::first_call;
  Context context(options);
  Communicator communicator(context, exchange);
  constexpr std::size_t elements = 300;
  std::vector<std::uint64_t> source(elements, 7), target(elements, 9);
  const Timeout before = detail::now();
  Operation first = make(communicator, elements, source, target);
  const Timeout taken = detail::now() - before;
  for (std::size_t i = 0; i < elements; ++i)
    if (source[i] != 7 || target[i] != 9) return 2;
  if (first.explanation().find("first call: ") == std::string::npos) return 3;
    // One more schedule may be begun, and the last operation is made besides.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr auto besides = 2s;
#else
  constexpr auto besides = 150ms;
#endif
  if (taken > runtime::first_call_time_max + besides) return 4;
  if (!is_alike(exchange, first)) return 5;
  if (!complete(first)) return 6;
  for (const std::uint64_t value : target)
    if (value != 14) return 7;
  // An equal request is known, and takes no more time than others do.
  Operation second = make(communicator, elements, source, target);
  if (second.explanation() != first.explanation()) return 8;
  if (second.algorithm() != first.algorithm() || second.per_round() != first.per_round()) return 9;
  Operation every[] = {
      barrier(communicator), broadcast(communicator, {.buffer = target.data(), .bytes = 2400}),
      allgather<std::uint64_t>(communicator, std::span(source).first(150), std::span(target))};
  for (Operation& one : every)
    if (!is_alike(exchange, one) || !complete(one)) return 10;
  return 0;
}

TEST(FirstCall, leaves_buffers_alone_ends_in_time_and_is_remembered) {
  const auto results = run_local({.rank_count = 2}, in_real_time);
  if (results[0].exit_status == skipped) GTEST_SKIP() << "there are fewer than two CPUs";
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

TEST(FirstCall, refuses_different_arguments_as_ever) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    if (!bind(index_of(exchange.self()))) return skipped;
    ContextOptions options = test::on_test_device(exchange);
    options.tuning = TuningMode::first_call;
    Context context(options);
    Communicator communicator(context, exchange);
    std::vector<std::uint64_t> source(9, 1), target(9);
    Operation same = make(communicator, 8, source, target);
    try {  // 8 elements are known, 9 are not
      Operation other = make(communicator, 8 + index_of(exchange.self()), source, target);
      return 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::mismatch) return 2;
    }
    return complete(same) && target[7] == 2 ? 0 : 3;
  });
  if (results[0].exit_status == skipped) GTEST_SKIP() << "there are fewer than two CPUs";
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

TEST(FirstCall, is_left_to_the_model_where_ranks_share_cpus_and_where_it_is_said_how) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    if (!bind(0)) return skipped;
    ContextOptions options = test::on_test_device(exchange);
    options.tuning = TuningMode::first_call;
    Context context(options);
    Communicator communicator(context, exchange);
    std::vector<std::uint64_t> source(8, 1), target(8);
    Operation operation = make(communicator, 8, source, target);
    if (operation.explanation().find("first call") != std::string::npos) return 1;
    return complete(operation) ? 0 : 2;
  });
  if (results[0].exit_status == skipped) GTEST_SKIP() << "there are fewer than two CPUs";
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

TEST(ChoiceOfATuner, holds_until_it_is_taken_back) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    std::vector<std::uint64_t> source(8, 1), target(8);
    const auto made = [&] { return make(communicator, 8, source, target); };
    const std::vector<std::uint32_t> usual = made().per_round();
    runtime::choose_only(communicator, "two_partial_dissemination with 1,1 a round");
    Operation asked = made();
    if (asked.per_round() != std::vector<std::uint32_t>{1, 1}) return 1;
    if (!complete(asked) || target[0] != 3) return 2;
    runtime::choose_only(communicator, "no such schedule");
    try {
      (void)made();
      return 3;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) return 4;
    }
    runtime::choose_only(communicator, "");
    return made().per_round() == usual ? 0 : 5;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

}  // namespace
}  // namespace tutti
