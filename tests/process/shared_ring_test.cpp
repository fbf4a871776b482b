// Promise: Algorithm::shared_ring gives right results, of allreduce, allgather(v) and
// reduce_scatter, the same bits on all ranks, for every shape of nodes, count, type and operator;
// what cannot be done is refused with the reason; a late, a dead and a departed rank are named.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/jobs.hpp"
#include "support/ring_jobs.hpp"
#include "support/shared.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using namespace test;
using Clock = std::chrono::steady_clock;

/// Calls with pauses; 0: all results are right.
template <class T>
int check_calls(Communicator& communicator, std::size_t count, BuiltIn which, bool in_place,
                std::uint64_t calls, bool with_pauses) {
  std::vector<T> source(count), target(count);
  std::vector<T>& read = in_place ? target : source;
  Operation operation = allreduce(communicator, arguments_of(read, target, which));
  if (operation.algorithm() != "shared_ring") return 1;
  const std::uint32_t self = index_of(communicator.rank());
  std::mt19937 random(self);
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (std::size_t i = 0; i < count; ++i) read[i] = value_of<T>(self, call, i);
    if (with_pauses && random() % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
    if (operation.start() != Status::ok) return 2;
    if (with_pauses && random() % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
    if (operation.wait(30s) != Status::ok) return 3;
    if (!is_right(target, communicator.rank_count(), call, which)) return 4;
  }
  return 0;
}

int check_all(Exchange& exchange, const Shape& shape) {
  Context context = context_of(exchange, shape);
  Communicator communicator(context, exchange);
  const std::size_t chunks = shape.size() * *std::max_element(shape.begin(), shape.end());
  for (const std::size_t count :
       all_or_few<std::size_t>({0, 1, chunks - 1, chunks + 1, 5003}, {chunks + 1, 8192}))
    for (const bool in_place : {false, true}) {
      if (const int code =
              check_calls<double>(communicator, count, BuiltIn::sum, in_place, 5, false))
        return 10 + code;
      if (const int code =
              check_calls<std::int32_t>(communicator, count, BuiltIn::max, in_place, 5, false))
        return 20 + code;
    }
  if (const int code = check_calls<float>(communicator, 1000, BuiltIn::min, false, 3, false))
    return 30 + code;
  if (const int code = check_calls<std::uint64_t>(communicator, 300, BuiltIn::sum, true, 50, true))
    return 40 + code;
  return 0;
}

/// Blocks of one length, of different ones, some of them empty, and of none at all; in place or
/// not.
int check_halves(Communicator& communicator, std::size_t about, std::uint64_t calls) {
  using Kind = RingJob::Kind;
  std::mt19937 random(1);  // the same on all ranks
  std::vector<std::size_t> differing(communicator.rank_count());
  for (std::size_t& count : differing)
    count = random() % 3 == 0 ? 0 : static_cast<std::size_t>(random()) % about;
  std::vector<std::size_t> only_last(communicator.rank_count(), 0);
  only_last.back() = about;
  int code = 0;
  for (const Kind kind : {Kind::allgather, Kind::allgatherv, Kind::reduce_scatter})
    for (const std::vector<std::size_t>& counts :
         {std::vector<std::size_t>{about}, {0}, {1}, differing, only_last})
      for (const bool in_place : {false, true}) {
        ++code;
        if (kind == Kind::allgather && counts.size() > 1) continue;
        RingJob job(kind, communicator, counts, in_place);
        Operation operation = job.make(communicator);
        if (operation.algorithm() != "shared_ring") return code;
        for (std::uint64_t call = 1; call <= calls; ++call) {
          job.fill(call);
          if (!run_once(operation) || !job.is_right(call)) return code;
        }
      }
  return 0;
}

const std::vector<Shape> half_shapes = {{3},       {1, 1},    {1, 1, 1},    {2, 2},
                                        {3, 1, 2}, {2, 2, 2}, {1, 1, 1, 1}, {4, 4}};

/// `run` is run_local() or run_local_threads(); chunks of 256 bytes make many laps.
template <class Run>
void expect_halves_right(const std::vector<Shape>& some, Run&& run) {
  for (const Shape& shape : some)
    for (const std::size_t chunk_bytes : {0u, 256u})
      EXPECT_EQ(codes_of(run({.rank_count = ranks_of(shape)},
                             [&](Exchange& exchange) {
                               Context context =
                                   context_of(exchange, shape, 1u << 20, {}, chunk_bytes);
                               Communicator communicator(context, exchange);
                               return check_halves(communicator, 700, 4);
                             })),
                std::vector<int>(ranks_of(shape)))
          << text_of(shape) << ", chunks of " << chunk_bytes;
}

TEST(SharedRing, either_half_is_right_for_every_shape_and_blocks_of_any_lengths) {
  expect_halves_right(
      all_or_few<Shape>(half_shapes, {{1, 1}, {2, 2}, {4, 4}}),
      [](const LocalOptions& options, const auto& rank) { return run_local(options, rank); });
}

TEST(SharedRing, either_half_is_right_for_threads) {
  expect_halves_right({{3}, {2, 2}, {1, 2, 1}}, [](const LocalOptions& options, const auto& rank) {
    return run_local_threads(options, rank);
  });
}

const std::vector<Shape> shapes = {{1},    {4},       {1, 1},    {1, 1, 1}, {2, 2},
                                   {3, 3}, {2, 2, 2}, {3, 1, 2}, {4, 4}};

TEST(SharedRing, is_right_for_every_shape_count_type_and_operator) {
  for (const Shape& shape : all_or_few<Shape>(shapes, {{1, 1}, {2, 2}, {4, 4}})) {
    const auto results = run_local({.rank_count = ranks_of(shape)},
                                   [&](Exchange& exchange) { return check_all(exchange, shape); });
    EXPECT_EQ(codes_of(results), std::vector<int>(ranks_of(shape))) << text_of(shape);
  }
}

TEST(SharedRing, is_right_for_threads) {
  for (const Shape& shape : {Shape{3}, Shape{2, 2}, Shape{1, 2}, Shape{2, 2, 2}}) {
    const auto results =
        run_local_threads({.rank_count = ranks_of(shape)},
                          [&](Exchange& exchange) { return check_all(exchange, shape); });
    EXPECT_EQ(codes_of(results), std::vector<int>(ranks_of(shape))) << text_of(shape);
  }
}

TEST(SharedRing, is_right_where_nodes_are_not_runs_of_ranks) {
  const auto results = run_local({.rank_count = 5}, [](Exchange& exchange) {
    ContextOptions options;
    options.device = "soft0";
    options.arena_bytes = 4u << 20;
    options.ranks_per_node = {2};
    options.placement = Placement::cyclic;
    Context context(options);
    Communicator communicator(context, exchange);
    return check_calls<double>(communicator, 777, BuiltIn::sum, false, 20, true);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(5));
}

/// A chunk of 256 bytes makes laps of few of them: there are more laps than are in flight.
int check_laps(Exchange& exchange, const Shape& shape, SharedNotifications notifications) {
  Context context = context_of(exchange, shape, 1u << 20, notifications, 256);
  Communicator communicator(context, exchange);
  for (const bool in_place : {false, true})
    for (const std::size_t count : {1000u, 5003u}) {
      if (const int code =
              check_calls<double>(communicator, count, BuiltIn::sum, in_place, 10, true))
        return code;
      if (const int code =
              check_calls<std::int32_t>(communicator, count, BuiltIn::max, in_place, 10, false))
        return 10 + code;
    }
  return 0;
}

TEST(SharedRing, is_right_for_payloads_of_many_laps) {
  for (const auto notifications : {SharedNotifications::words, SharedNotifications::republished})
    for (const Shape& shape : {Shape{3}, Shape{1, 1}, Shape{2, 2}, Shape{3, 1, 2}})
      EXPECT_EQ(codes_of(run_local({.rank_count = ranks_of(shape)},
                                   [&](Exchange& exchange) {
                                     return check_laps(exchange, shape, notifications);
                                   })),
                std::vector<int>(ranks_of(shape)))
          << text_of(shape);
}

TEST(SharedRing, is_right_for_payloads_of_many_laps_for_threads) {
  for (const auto notifications : {SharedNotifications::words, SharedNotifications::republished})
    for (const Shape& shape : {Shape{3}, Shape{2, 2}, Shape{1, 2, 1}})
      EXPECT_EQ(codes_of(run_local_threads({.rank_count = ranks_of(shape)},
                                           [&](Exchange& exchange) {
                                             return check_laps(exchange, shape, notifications);
                                           })),
                std::vector<int>(ranks_of(shape)))
          << text_of(shape);
}

TEST(SharedRing, has_room_in_the_default_arena_for_long_payloads_of_16_ranks) {
  const auto results = run_local({.rank_count = 16}, [](Exchange& exchange) {
    ContextOptions options = on_test_device(exchange);
    options.arena_bytes = 16u << 20;
    options.ranks_per_node = {4};
    Context context(options);
    Communicator communicator(context, exchange);
    return check_calls<double>(communicator, 1u << 20, BuiltIn::sum, false, 2, false);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(16));
}

TEST(SharedRing, gives_all_ranks_the_same_bits) {
  const auto results = run_local({.rank_count = 5}, [](Exchange& exchange) {
    Context context = context_of(exchange, {3, 2});
    Communicator communicator(context, exchange);
    std::mt19937 random(index_of(communicator.rank()));
    std::vector<double> source(501), target(501);
    Operation operation = allreduce(communicator, arguments_of(source, target));
    std::vector<std::uint64_t> bits(501), least(501), most(501);
    Operation low = allreduce<std::uint64_t>(communicator, std::span<const std::uint64_t>(bits),
                                             std::span(least), min);
    Operation high = allreduce<std::uint64_t>(communicator, std::span<const std::uint64_t>(bits),
                                              std::span(most), max);
    for (int call = 0; call < 20; ++call) {
      for (double& value : source) value = 1.0 / static_cast<double>(random() + 1);
      if (!run_once(operation)) return 1;
      std::memcpy(bits.data(), target.data(), bits.size() * sizeof bits[0]);
      if (!run_once(low) || !run_once(high)) return 2;
      if (least != most) return 3;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(5));
}

/// The block lies in the arena of the first rank of a node, which may be done with it first.
int come_and_go(Exchange& exchange) {
  Context context = context_of(exchange, {2, 2}, 256u << 10);
  Communicator communicator(context, exchange);
  const std::uint32_t self = index_of(communicator.rank());
  for (std::uint64_t round = 1; round <= 60; ++round) {
    std::vector<std::uint64_t> source(2000), target(2000);
    auto operation =
        std::make_unique<Operation>(allreduce(communicator, arguments_of(source, target)));
    for (std::uint64_t call = round; call < round + 2; ++call) {
      for (std::size_t i = 0; i < source.size(); ++i)
        source[i] = value_of<std::uint64_t>(self, call, i);
      if (!run_once(*operation)) return 1;
      if (!is_right(target, 4, call, BuiltIn::sum)) return 2;
    }
    if ((self + round) % 2 == 0) std::this_thread::sleep_for(1ms);
    operation.reset();
  }
  return 0;
}

TEST(SharedRing, operations_come_and_go_in_any_order) {
  EXPECT_EQ(codes_of(run_local({.rank_count = 4}, come_and_go)), std::vector<int>(4));
}

TEST(SharedRing, operations_come_and_go_in_any_order_for_threads) {
  EXPECT_EQ(codes_of(run_local_threads({.rank_count = 4}, come_and_go)), std::vector<int>(4));
}

/// The text of the error by which making it is refused; empty: it is made.
std::string refusal_of(Communicator& communicator, const AllreduceArguments& arguments,
                       ErrorCode expected) {
  try {
    Operation operation = allreduce(communicator, arguments);
  } catch (const Error& error) {
    return error.code() == expected ? error.what() : std::string("another code: ") + error.what();
  }
  return {};
}

int check_republished(Exchange& exchange, const Shape& shape) {
  Context context = context_of(exchange, shape, 4u << 20, SharedNotifications::republished);
  Communicator communicator(context, exchange);
  for (const bool in_place : {false, true})
    if (const int code = check_calls<double>(communicator, 5003, BuiltIn::sum, in_place, 30, true))
      return code;
  return 0;
}

/// `run` is run_local() or run_local_threads().
template <class Run>
void expect_republished_right(Run&& run) {
  for (const Shape& shape : {Shape{2, 2}, Shape{3, 3}, Shape{3}, Shape{2, 1, 2}, Shape{1, 1, 1}})
    EXPECT_EQ(codes_of(run({.rank_count = ranks_of(shape)},
                           [&](Exchange& exchange) { return check_republished(exchange, shape); })),
              std::vector<int>(ranks_of(shape)))
        << text_of(shape);
}

TEST(Republished, is_right_for_every_shape) {
  expect_republished_right(
      [](const LocalOptions& options, const auto& rank) { return run_local(options, rank); });
}

TEST(Republished, is_right_for_threads) {
  expect_republished_right([](const LocalOptions& options, const auto& rank) {
    return run_local_threads(options, rank);
  });
}

/// Rank 1, to which all is sent that comes to its node, polls for something else, which it gets
/// from rank 2 once that has had its results.
TEST(Republished, polling_for_another_operation_is_enough) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context = context_of(exchange, {1, 2}, 4u << 20, SharedNotifications::republished);
    Communicator communicator(context, exchange);
    constexpr std::size_t operations_in_flight = 3;
    std::vector<double> source(1000, 1.0), targets[operations_in_flight];
    std::vector<Operation> operations;
    for (std::vector<double>& target : targets) {
      target.resize(1000);
      operations.push_back(allreduce(communicator, arguments_of(source, target)));
    }
    Operation other = barrier(communicator);
    const bool is_busy = exchange.self() == Rank{1};
    for (int call = 0; call < 20; ++call) {
      for (Operation& operation : operations)
        if (operation.start() != Status::ok) return 1;
      if (!is_busy)
        for (Operation& operation : operations)
          if (operation.wait(10s) != Status::ok) return 2;
      if (!run_once(other)) return 3;
      for (Operation& operation : operations)
        if (operation.wait(10s) != Status::ok) return 4;
      for (const std::vector<double>& target : targets)
        if (target != std::vector<double>(1000, 3.0)) return 5;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

/// The last chunk of rank 0, which leaves then, has come to rank 1, which does not poll for a
/// while.
TEST(Republished, a_rank_that_has_sent_all_and_left_is_not_missed) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context = context_of(exchange, {1, 2}, 4u << 20, SharedNotifications::republished);
    Communicator communicator(context, exchange);
    std::vector<double> source(1000, 1.0), target(1000);
    Operation operation = allreduce(communicator, arguments_of(source, target));
    if (!run_once(operation)) return 1;
    // Rank 0 completes its block, and sends it on, once rank 2 has contributed.
    if (exchange.self() == Rank{2}) std::this_thread::sleep_for(400ms);
    if (operation.start() != Status::ok) return 2;
    if (exchange.self() == Rank{1}) {
      for (const auto end = std::chrono::steady_clock::now() + 200ms;
           std::chrono::steady_clock::now() < end;)
        (void)operation.test();
      std::this_thread::sleep_for(1s);
    }
    if (operation.wait(10s) != Status::ok) return 3;
    return target == std::vector<double>(1000, 3.0) ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(Republished, all_ranks_or_none) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    Context context = context_of(
        exchange, {1, 1}, 1u << 20,
        exchange.self() == Rank{0} ? SharedNotifications::words : SharedNotifications::republished);
    try {
      Communicator communicator(context, exchange);
    } catch (const Error& error) {
      return error.code() == ErrorCode::mismatch &&
                     tells(error.what(), {"rank", "republished", "by words",
                                          "set TUTTI_SHARED_NOTIFICATIONS (or"})
                 ? 0
                 : 2;
    }
    return 1;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

/// Each holds 2 receives of the 192 that a connection promises.
TEST(Republished, too_many_operations_are_refused) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    Context context = context_of(exchange, {1, 1}, 4u << 20, SharedNotifications::republished);
    Communicator communicator(context, exchange);
    std::vector<double> source(10, 1.0), target(10);
    const AllreduceArguments arguments = arguments_of(source, target);
    std::vector<Operation> operations;
    for (int i = 0; i < 96; ++i) operations.push_back(allreduce(communicator, arguments));
    if (!tells(refusal_of(communicator, arguments, ErrorCode::limit_exceeded),
               {"254 receives", "192 can be promised and 192 are", "destroy some operations"}))
      return 1;
    for (Operation& operation : operations) {
      target.assign(10, 0.0);
      if (!run_once(operation) || target != std::vector<double>(10, 2.0)) return 2;
    }
    operations.pop_back();
    return refusal_of(communicator, arguments, ErrorCode::limit_exceeded).empty() ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

void subtract(const void* incoming, void* partial, std::size_t count, void*) noexcept {
  for (std::size_t i = 0; i < count; ++i)
    static_cast<double*>(partial)[i] =
        static_cast<const double*>(incoming)[i] - static_cast<double*>(partial)[i];
}

TEST(SharedRing, what_cannot_be_done_is_refused_by_all_ranks) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context = context_of(exchange, {2, 2}, 64u << 10);
    Communicator communicator(context, exchange);
    std::vector<double> source(100), target(100);
    const AllreduceArguments good = arguments_of(source, target);
    AllreduceArguments bad = good;
    bad.reduction = {.combine = subtract, .element_bytes = 8};
    if (!tells(refusal_of(communicator, bad, ErrorCode::unsupported),
               {"shared_ring", "does not commute"}))
      return 1;
    bad = good;
    bad.agreement = Agreement::reproducible;
    if (!tells(refusal_of(communicator, bad, ErrorCode::unsupported),
               {"shared_ring", "reproducible is asked for", "canonical_dissemination"}))
      return 2;
    bad = good;
    bad.per_round = {3};
    if (!tells(refusal_of(communicator, bad, ErrorCode::invalid_argument),
               {"per_round 3", "shared_ring", "leave per_round out"}))
      return 3;
    bad = good;
    bad.across = Across::lanes;
    if (!tells(refusal_of(communicator, bad, ErrorCode::unsupported),
               {"across lanes", "shared_ring"}))
      return 4;
    // 80,000 bytes, all in flight, do not fit into 64 KiB.
    std::vector<double> long_source(10000), long_target(10000);
    if (!tells(refusal_of(communicator, arguments_of(long_source, long_target),
                          ErrorCode::limit_exceeded),
               {exchange.self() == Rank{0} || exchange.self() == Rank{2}
                    ? "keeps 2 x 3 blocks of 13376 bytes, 2 x 3 + 3 laps of 26688 bytes"
                    : "keeps 3 laps of 26688 bytes",
                "the words of 3 x 8 chunks", "of 65536", "TUTTI_ARENA_BYTES"}))
      return 5;
    // Ranks that do not want the same.
    bad = good;
    if (exchange.self() == Rank{2}) bad.element_count = 99;
    if (!tells(refusal_of(communicator, bad, ErrorCode::mismatch), {"rank"})) return 6;
    bad = good;
    if (exchange.self() == Rank{1}) bad.algorithm = Algorithm::ring;
    if (!tells(refusal_of(communicator, bad, ErrorCode::mismatch), {"shared_ring", "ring"}))
      return 7;
    // None of this has spoiled anything.
    return check_calls<double>(communicator, 100, BuiltIn::sum, false, 10, false);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

/// The text of the error by which a job is refused; empty: it is made.
std::string refusal_of(RingJob& job, Communicator& communicator, ErrorCode expected,
                       Algorithm algorithm = Algorithm::shared_ring) {
  try {
    Operation operation = job.make(communicator, algorithm);
  } catch (const Error& error) {
    return error.code() == expected ? error.what() : std::string("another code: ") + error.what();
  }
  return {};
}

TEST(SharedRing, halves_that_cannot_be_are_refused_by_all_ranks) {
  using Kind = RingJob::Kind;
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context = context_of(exchange, {1}, 64u << 10);
    Communicator communicator(context, exchange);
    const std::uint32_t self = index_of(communicator.rank());
    int code = 0;
    for (const Kind kind : {Kind::allgather, Kind::allgatherv, Kind::reduce_scatter}) {
      code += 10;
      RingJob good(kind, communicator, {100}),
          other(kind, communicator, {99u + (self == 2 ? 1 : 0)}),
          large(kind, communicator, {100'000});
      if (!tells(refusal_of(other, communicator, ErrorCode::mismatch), {"rank"})) return code + 1;
      if (!tells(refusal_of(large, communicator, ErrorCode::limit_exceeded),
                 {"shared_ring keeps", "laps of", "of 65536", "TUTTI_ARENA_BYTES"}))
        return code + 2;
      for (const Algorithm algorithm : {Algorithm::ring, Algorithm::chunked_fold})
        if (!tells(refusal_of(good, communicator, ErrorCode::unsupported, algorithm),
                   {"is not offered; use automatic or shared_ring"}))
          return code + 3;
      if (!tells(refusal_of(good, communicator, ErrorCode::invalid_argument, Algorithm{99}),
                 {"algorithm 99 is none"}))
        return code + 4;
      // Ranks that do not want the same: none waits for another.
      if (!tells(refusal_of(good, communicator, ErrorCode::mismatch,
                            self == 1 ? Algorithm::automatic : Algorithm::shared_ring),
                 {"shared_ring"}))
        return code + 5;
      Operation operation = good.make(communicator);
      good.fill(1);
      if (!run_once(operation) || !good.is_right(1)) return code + 6;
    }
    std::vector<double> source(400), target(100);
    const auto refused = [&](const Reduction& reduction, Agreement agreement,
                             std::initializer_list<const char*> words) {
      try {
        Operation operation =
            reduce_scatter(communicator, {.source = source.data(),
                                          .target = target.data(),
                                          .element_counts = std::vector<std::size_t>(4, 100),
                                          .reduction = reduction,
                                          .agreement = agreement,
                                          .algorithm = Algorithm::shared_ring});
      } catch (const Error& error) {
        return error.code() == ErrorCode::unsupported && tells(error.what(), words);
      }
      return false;
    };
    if (!refused({.combine = subtract, .element_bytes = 8}, Agreement::identical,
                 {"reduce_scatter: algorithm shared_ring", "does not commute", "use automatic"}))
      return 1;
    if (!refused(built_in_reduction(BuiltIn::sum, ElementType::float64), Agreement::reproducible,
                 {"promises no more than identical", "use automatic"}))
      return 2;
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

TEST(SharedRing, barriers_do_not_take_it) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    Context context = context_of(exchange, {1, 1});
    Communicator communicator(context, exchange);
    try {
      Operation operation = barrier(communicator, {.algorithm = Algorithm::shared_ring});
    } catch (const Error& error) {
      return tells(error.what(), {"shared_ring", "not offered"}) ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

TEST(SharedRing, says_what_it_waits_for_and_goes_on_after_a_timeout) {
  const Shared<Board> board;
  const auto results = run_local({.rank_count = 4}, [&](Exchange& exchange) {
    Context context = context_of(exchange, {2, 2});
    Communicator communicator(context, exchange);
    std::vector<double> source(10, 1.0), target(10);
    Operation operation = allreduce(communicator, arguments_of(source, target));
    if (!tells(operation.describe(), {"not in flight"})) return 1;
    std::uint32_t barriers = 0;
    // Rank 3 is late: rank 2 misses its contribution, ranks 0 and 1 what their node sends.
    if (exchange.self() != Rank{3} && operation.start() != Status::ok) return 2;
    board->barrier(4, barriers);
    if (exchange.self() != Rank{3}) {
      if (operation.wait(100ms) != Status::timed_out) return 2;
      const std::string text = operation.describe();
      if (exchange.self() == Rank{2}) {
        if (!tells(text, {"call 1", "contributions of ranks 3"})) return 3;
      } else if (!tells(text, {"4 of 4 chunks", "from ranks 2, 3", "reduce_scatter (1,0)",
                               "allgather (0,1)"})) {
        return 4;
      }
    }
    board->barrier(4, barriers);
    if (exchange.self() == Rank{3} && operation.start() != Status::ok) return 5;
    if (operation.wait(30s) != Status::ok || target != std::vector<double>(10, 4.0)) return 6;
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

TEST(SharedRing, a_dead_rank_is_named) {
  for (const std::uint32_t victim : {0u, 3u}) {
    const auto results = run_local({.rank_count = 4}, [&](Exchange& exchange) {
      Context context = context_of(exchange, {2, 2});
      Communicator communicator(context, exchange);
      std::vector<double> source(1000), target(1000);
      Operation operation = allreduce(communicator, arguments_of(source, target));
      // The others may learn of the death in the call that the victim has just ended.
      bool goes_on = true;
      for (int call = 0; call < 50 && goes_on; ++call) goes_on = run_once(operation);
      if (goes_on && exchange.self() == Rank{victim}) ::kill(::getpid(), SIGKILL);
      if (goes_on && operation.start() == Status::ok && operation.wait(10s) != Status::peer_failed)
        return 2;
      return communicator.failure().status == Status::peer_failed &&
                     communicator.failure().peer == Rank{victim}
                 ? 0
                 : 3;
    });
    std::vector<int> expected(4);
    expected[victim] = 1000 + SIGKILL;
    EXPECT_EQ(codes_of(results), expected);
  }
}

TEST(SharedRing, a_dead_rank_is_named_whenever_it_dies) {
  std::mt19937 random(1);
  for (int repetition = 0; repetition < 10; ++repetition) {
    const auto victim = static_cast<std::uint32_t>(random() % 5);
    const auto results = run_local(
        {.rank_count = 5,
         .on_started =
             [&](const std::vector<pid_t>& processes) {
               std::this_thread::sleep_for(std::chrono::microseconds(60'000 + random() % 20'000));
               ::kill(processes[victim], SIGKILL);
             }},
        [&](Exchange& exchange) {
          try {
            Context context = context_of(exchange, {2, 3});
            Communicator communicator(context, exchange);
            std::vector<double> source(1000), target(1000);
            Operation operation = allreduce(communicator, arguments_of(source, target));
            const Clock::time_point begin = Clock::now();
            while (run_once(operation)) {
              if (Clock::now() - begin > 20s) return 1;
            }
            return communicator.failure().status == Status::peer_failed &&
                           communicator.failure().peer == Rank{victim}
                       ? 0
                       : 2;
          } catch (const Error&) {
            return 0;  // it died in the set-up
          }
        });
    std::vector<int> expected(5);
    expected[victim] = 1000 + SIGKILL;
    EXPECT_EQ(codes_of(results), expected) << "repetition " << repetition;
  }
}

/// A user's operator that ends its process, while that has a chunk in its hands.
struct DeadlySum {
  std::uint64_t combines_left;  // of this rank, in all calls; 0: for ever
  Board* board;

  static void combine(const void* incoming, void* partial, std::size_t count,
                      void* context) noexcept {
    auto& self = *static_cast<DeadlySum*>(context);
    if (self.combines_left != 0 && --self.combines_left == 0) {
      self.board->with_stop_ns[0] = Clock::now().time_since_epoch().count();
      ::kill(::getpid(), SIGKILL);
    }
    for (std::size_t i = 0; i < count; ++i)
      static_cast<double*>(partial)[i] += static_cast<const double*>(incoming)[i];
  }
};

TEST(SharedRing, a_rank_that_dies_with_a_chunk_in_its_hands_is_named_in_time) {
  std::mt19937 random(1);
  for (const auto mode : {SharedNotifications::words, SharedNotifications::republished})
    for (int repetition = 0; repetition < 8; ++repetition) {
      const auto victim = static_cast<std::uint32_t>(random() % 5);
      const std::uint64_t combines = 1 + random() % 40;
      const Shared<Board> board;
      const auto results = run_local({.rank_count = 5}, [&](Exchange& exchange) {
        Context context = context_of(exchange, {2, 3}, 4u << 20, mode);
        Communicator communicator(context, exchange);
        std::vector<double> source(1000, 1.0), target(1000);
        DeadlySum sum{exchange.self() == Rank{victim} ? combines : 0, &*board};
        AllreduceArguments arguments = arguments_of(source, target);
        arguments.reduction = {.combine = DeadlySum::combine,
                               .context = &sum,
                               .element_bytes = sizeof(double),
                               .properties = {.commutative = true}};
        Operation operation = allreduce(communicator, arguments);
        const Clock::time_point begin = Clock::now();
        while (run_once(operation))
          if (Clock::now() - begin > 20s) return 1;
        const std::int64_t found = Clock::now().time_since_epoch().count();
        if (communicator.failure().status != Status::peer_failed ||
            communicator.failure().peer != Rank{victim})
          return 2;
        return found - board->with_stop_ns[0] < std::chrono::nanoseconds(2s).count() ? 0 : 3;
      });
      std::vector<int> expected(5);
      expected[victim] = 1000 + SIGKILL;
      EXPECT_EQ(codes_of(results), expected) << "victim " << victim << ", combine " << combines;
    }
}

/// Does something once its rank has met the others a given number of times.
class InterruptedExchange final : public Exchange {
 public:
  explicit InterruptedExchange(Exchange& inner) : inner_(inner) {}
  void after(int meetings, std::function<void()> act) {
    meetings_left_ = meetings;
    act_ = std::move(act);
  }
  Rank self() const noexcept override { return inner_.self(); }
  std::uint32_t rank_count() const noexcept override { return inner_.rank_count(); }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> everybodys,
                 Timeout timeout) override {
    inner_.allgather(mine, everybodys, timeout);
    if (--meetings_left_ == 0) act_();
  }
  void barrier(Timeout timeout) override { inner_.barrier(timeout); }
  void announce(Incident incident) noexcept override { inner_.announce(incident); }
  Incident incident() noexcept override { return inner_.incident(); }
  bool has_left(Rank rank) noexcept override { return inner_.has_left(rank); }

 private:
  Exchange& inner_;
  int meetings_left_ = 0;
  std::function<void()> act_;
};

/// Where a first write needs the help of the other side, rank 0 cannot greet rank 1, which is
/// stopped.  Rank 1's memory may be written later; that of the others is free.
TEST(SharedRing, a_set_up_that_fails_in_its_greetings_costs_memory_only_where_one_may_still_come) {
  ASSERT_EQ(::setenv("TUTTI_SOFT_TRANSPORT", "shared", 1), 0);
  const Shared<Board> board;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& given) {
    const std::uint32_t self = index_of(given.self());
    InterruptedExchange exchange(given);
    ContextOptions options;
    options.device = "soft0";
    // Room for one block of (1 + 2) x 64 KiB and some words; rank 1 has it for two.
    options.arena_bytes = self == 1 ? 512u << 10 : 256u << 10;
    options.ranks_per_node = {1};
    options.setup_timeout = 6s;
    options.shared_notifications = SharedNotifications::words;
    Context context(options);
    Communicator communicator(context, exchange);
    board->process[self] = ::getpid();
    std::uint32_t barriers = 0;
    board->barrier(3, barriers);
    std::vector<double> source(8192, 1.0), target(8192);
    std::thread waker;
    exchange.after(7, [&] {  // cards, letters (2), verdicts, places, doors, verdicts of joining
      if (self == 1) {
        ::raise(SIGSTOP);
        return;
      }
      while (!is_stopped(board->process[1])) std::this_thread::sleep_for(1ms);
      if (self == 2)
        waker = std::thread([&] {
          std::this_thread::sleep_for(3500ms);
          ::kill(board->process[1], SIGCONT);
        });
    });
    const std::string refusal =
        refusal_of(communicator, arguments_of(source, target), ErrorCode::timed_out);
    if (waker.joinable()) waker.join();
    if (!tells(refusal, {"could not be written to within half of the set-up timeout"})) return 1;
    Operation operation = allreduce(communicator, arguments_of(source, target));
    if (!run_once(operation) || target != std::vector<double>(8192, 3.0)) return 2;
    return 0;
  });
  ::unsetenv("TUTTI_SOFT_TRANSPORT");
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(SharedRing, runs_in_parts_of_a_communicator_too) {
  const auto results = run_local({.rank_count = 6}, [](Exchange& exchange) {
    Context context = context_of(exchange, {3, 3});
    Communicator whole(context, exchange);
    // Nodes of 2 and 1 ranks, and of 1 and 2.
    std::optional<Communicator> part = whole.split(index_of(whole.rank()) % 2);
    if (!part) return 50;
    if (const int code = check_calls<double>(*part, 700, BuiltIn::sum, false, 20, true))
      return code;
    return check_calls<double>(whole, 700, BuiltIn::sum, false, 20, true);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(6));
}

TEST(SharedRing, a_rank_that_leaves_too_early_is_named) {
  const auto results = run_local({.rank_count = 4}, [&](Exchange& exchange) {
    Context context = context_of(exchange, {2, 2});
    Communicator communicator(context, exchange);
    std::vector<double> source(1000), target(1000);
    Operation operation = allreduce(communicator, arguments_of(source, target));
    if (!run_once(operation)) return 1;
    if (exchange.self() == Rank{3}) return 0;
    if (operation.start() != Status::ok) return 0;
    if (operation.wait(10s) != Status::peer_failed) return 2;
    return communicator.failure().peer == Rank{3} ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

/// Several ranks of a node receive chunks, and none of them can see which notifications the others
/// have not polled.
TEST(Republished, a_node_that_leaves_too_early_is_named) {
  using Kind = RingJob::Kind;
  for (const Kind kind : {Kind::allreduce, Kind::allgather, Kind::reduce_scatter})
    for (const Shape& shape : {Shape{2, 2}, Shape{1, 2}, Shape{2, 2, 2}}) {
      const std::uint32_t ranks = ranks_of(shape);
      const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
        Context context = context_of(exchange, shape, 4u << 20, SharedNotifications::republished);
        Communicator communicator(context, exchange);
        RingJob job(kind, communicator, {500});
        Operation operation = job.make(communicator);
        job.fill(1);
        if (!run_once(operation) || !job.is_right(1)) return 1;
        if (index_of(exchange.self()) < shape[0]) return 0;
        job.fill(2);
        if (operation.start() != Status::ok) return 2;
        if (operation.wait(20s) != Status::peer_failed) return 3;
        return index_of(communicator.failure().peer) < shape[0] ? 0 : 4;
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(ranks))
          << text_of(shape) << ", kind " << static_cast<int>(kind);
    }
}

/// A rank that waits in another operation polls the chunks that it receives for its node all the
/// same.
TEST(Republished, likewise_if_a_receiver_waits_for_something_else) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context = context_of(exchange, {2, 2}, 4u << 20, SharedNotifications::republished);
    Communicator communicator(context, exchange);
    RingJob job(RingJob::Kind::allreduce, communicator, {500});
    Operation operation = job.make(communicator);
    std::uint64_t number = 0;
    Operation other =
        broadcast(communicator, {.buffer = &number, .bytes = sizeof number, .root = Rank{2}});
    job.fill(1);
    if (!run_once(operation) || !job.is_right(1)) return 1;
    const std::uint32_t self = index_of(exchange.self());
    if (self < 2) return 0;
    job.fill(2);
    // Rank 3 waits for rank 2, which is still there.
    if (operation.start() != Status::ok) return 2;
    if (self == 3 && other.start() != Status::ok) return 2;
    if ((self == 3 ? other : operation).wait(20s) != Status::peer_failed) return 3;
    return index_of(communicator.failure().peer) < 2 ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

}  // namespace
}  // namespace tutti
