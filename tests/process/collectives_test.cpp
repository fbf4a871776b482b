// Promise: every collective is right for every number of ranks and every vector, over the software
// device or those of DEVICES_UNDER_TEST, with ranks as processes; and with ranks as threads, which
// is what the sanitizers can see.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <tutti/tutti.hpp>

#include "support/allocations.hpp"
#include "support/device.hpp"
#include "support/operators.hpp"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

namespace tutti {
namespace {

using namespace std::chrono_literals;

enum class RanksAre { processes, threads };

class Collectives : public testing::TestWithParam<RanksAre> {
 protected:
  void SetUp() override {
    if (GetParam() == RanksAre::threads && !test::device_is_soft())
      GTEST_SKIP() << "a device sees no difference";
  }

  /// Runs `body` on every rank and expects 0 from all.
  void run(std::uint32_t rank_count, const std::function<int(Exchange&)>& body) {
    const auto launch = GetParam() == RanksAre::processes ? run_local : run_local_threads;
    const std::vector<LocalResult> results = launch({.rank_count = rank_count}, body);
    ASSERT_EQ(results.size(), rank_count);
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].signal, 0) << "rank " << rank;
      EXPECT_EQ(results[rank].exit_status, 0) << "rank " << rank;
    }
  }
};

/// Starts and waits; says which call went wrong.
bool complete(Operation& operation, std::uint64_t call) {
  Status status = operation.start();
  if (status == Status::ok) status = operation.wait(60s);
  if (status == Status::ok) return true;
  std::fprintf(stderr, "call %llu: %s: %s\n", static_cast<unsigned long long>(call),
               name_of(status), operation.describe().c_str());
  return false;
}

void delay(std::mt19937& random, unsigned delay_us_max) {
  if (delay_us_max > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(random() % delay_us_max));
}

struct Shape {
  std::vector<std::uint32_t> per_round = {};
  std::size_t element_count = 1;
  bool in_place = false;
  unsigned delay_us_max = 0;
  std::uint64_t calls = 4;
  Algorithm algorithm = Algorithm::automatic;
};

/// 0 if all calls of one allreduce are right.
int check_allreduce(Communicator& communicator, const test::Job& job, const Shape& shape) {
  const std::uint32_t self = index_of(communicator.rank());
  std::vector<std::uint64_t> source(shape.element_count), target(shape.element_count, 77);
  std::uint64_t* from = shape.in_place ? target.data() : source.data();
  Operation operation = allreduce(communicator, {.source = from,
                                                 .target = target.data(),
                                                 .element_count = shape.element_count,
                                                 .reduction = job.reduction,
                                                 .per_round = shape.per_round,
                                                 .algorithm = shape.algorithm});
  std::mt19937 random(self);
  for (std::uint64_t call = 1; call <= shape.calls; ++call) {
    for (std::size_t i = 0; i < shape.element_count; ++i) from[i] = test::input(self, call, i);
    delay(random, shape.delay_us_max);
    if (!complete(operation, call)) return 1;
    for (std::size_t i = 0; i < shape.element_count; ++i) {
      const std::uint64_t expected = job.expected(communicator.rank_count(), call, i);
      if (target[i] == expected) continue;
      std::fprintf(stderr, "%s: rank %u of %u, call %llu, element %zu: got %llx, expected %llx\n",
                   job.name, self, communicator.rank_count(), static_cast<unsigned long long>(call),
                   i, static_cast<unsigned long long>(target[i]),
                   static_cast<unsigned long long>(expected));
      return 1;
    }
  }
  return 0;
}

TEST_P(Collectives, allreduce_is_right_for_every_rank_count_and_minimal_vector) {
  const bool has_time = test::device_is_soft();
  const bool many = has_time && GetParam() == RanksAre::processes && !sanitized;
  const std::uint32_t largest = many ? 7 : 3;
  for (std::uint32_t rank_count = 1; rank_count <= (has_time ? 16u : 5u); ++rank_count)
    run(rank_count, [&](Exchange& exchange) {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      int wrong = 0;
      auto vectors = test::minimal_vectors(rank_count, largest);
      vectors.push_back({});  // the rule
      for (const auto& vector : vectors)
        for (const test::Job& job : {test::sum_job(), test::max_job(), test::ordered_job()})
          wrong += check_allreduce(communicator, job, {.per_round = vector, .calls = 3});
      return wrong;
    });
}

TEST_P(Collectives, random_delays_and_places_change_nothing) {
  for (const std::uint32_t rank_count : {2u, 3u, 5u, 8u, 13u}) {
    if (rank_count > 8 && !test::device_is_soft()) break;
    run(rank_count, [&](Exchange& exchange) {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      int wrong = 0;
      for (const auto& vector : {std::vector<std::uint32_t>{3, 2, 1}, {1, 1, 1, 1}, {15}})
        for (const test::Job& job : {test::sum_job(), test::ordered_job()})
          wrong += check_allreduce(communicator, job,
                                   {.per_round = vector,
                                    .element_count = 3,
                                    .in_place = true,
                                    .delay_us_max = 300,
                                    .calls = test::times(20)});
      return wrong;
    });
  }
}

TEST_P(Collectives, every_size_from_nothing_to_64_kib_is_right) {
  for (const std::uint32_t rank_count : {1u, 2u, 5u})
    run(rank_count, [&](Exchange& exchange) {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      int wrong = 0;
      for (const std::size_t count : {0u, 1u, 2u, 7u, 27u, 28u, 63u, 64u, 65u, 511u, 8192u})
        for (const bool in_place : {false, true})
          for (const test::Job& job : {test::sum_job(), test::ordered_job()})
            wrong +=
                check_allreduce(communicator, job, {.element_count = count, .in_place = in_place});
      return wrong;
    });
}

/// Ranks share nodes there, and a rank may send and see what came for another one.
TEST_P(Collectives, the_ring_of_nodes_with_shared_notifications_is_right) {
  std::vector<SharedNotifications> modes = {SharedNotifications::automatic};
  if (test::device_is_soft()) modes.push_back(SharedNotifications::republished);  // elsewhere it is
  for (const SharedNotifications mode : modes)
    for (const std::vector<std::uint32_t>& nodes :
         {std::vector<std::uint32_t>{2, 2}, {1, 2}, {1, 1, 1}}) {
      std::uint32_t rank_count = 0;
      for (const std::uint32_t ranks : nodes) rank_count += ranks;
      run(rank_count, [&](Exchange& exchange) {
        ContextOptions options = test::on_test_device(exchange);
        options.ranks_per_node = nodes;
        options.shared_notifications = mode;
        Context context(options);
        Communicator communicator(context, exchange);
        int wrong = 0;
        for (const std::size_t count : {1u, 5003u})
          wrong += check_allreduce(communicator, test::sum_job(),
                                   {.element_count = count,
                                    .delay_us_max = 300,
                                    .calls = test::times(100),
                                    .algorithm = Algorithm::shared_ring});
        return wrong;
      });
    }
}

/// Where verbs promise no order, words would be polled in vain.
TEST_P(Collectives, words_are_refused_where_writes_are_placed_in_any_order) {
  if (test::device_is_soft()) GTEST_SKIP() << "which places them in order";
  run(2, [&](Exchange& exchange) {
    ContextOptions options = test::on_test_device(exchange);
    options.shared_notifications = SharedNotifications::words;
    Context context(options);
    Communicator communicator(context, exchange);
    try {
      (void)check_allreduce(communicator, test::sum_job(), {.algorithm = Algorithm::shared_ring});
    } catch (const Error& error) {
      return error.code() == ErrorCode::unsupported &&
                     std::string(error.what()).find("TUTTI_SHARED_NOTIFICATIONS=republished") !=
                         std::string::npos
                 ? 0
                 : 2;
    }
    return 1;
  });
}

TEST_P(Collectives, nobody_leaves_a_barrier_before_all_have_entered) {
  for (const std::uint32_t rank_count : {1u, 2u, 3u, 7u, 8u})
    run(rank_count, [&](Exchange& exchange) {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      Operation operation = barrier(communicator);
      std::mt19937 random(index_of(exchange.self()));
      constexpr std::size_t calls = 50;
      // CLOCK_MONOTONIC is one clock for all processes of the machine.
      std::array<std::int64_t, 2 * calls> times{};
      const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
      for (std::size_t call = 0; call < calls; ++call) {
        delay(random, 200);
        times[2 * call] = now();
        if (!complete(operation, call)) return 1;
        times[2 * call + 1] = now();
      }
      std::vector<std::int64_t> all(times.size() * rank_count);
      exchange.allgather(std::as_bytes(std::span(times)), std::as_writable_bytes(std::span(all)),
                         30s);
      for (std::size_t call = 0; call < calls; ++call)
        for (std::size_t a = 0; a < rank_count; ++a)
          for (std::size_t b = 0; b < rank_count; ++b)
            if (all[a * times.size() + 2 * call + 1] < all[b * times.size() + 2 * call]) return 1;
      return 0;
    });
}

TEST_P(Collectives, split_phase_operations_overlap_and_progress_together) {
  run(4, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    const std::uint64_t self = index_of(exchange.self());
    std::array<std::uint64_t, 2> results{};
    const std::array<std::uint64_t, 2> sources{self, 10 * self};
    const auto make = [&](std::size_t i) {
      return allreduce<std::uint64_t>(communicator, std::span(&sources[i], 1),
                                      std::span(&results[i], 1), sum);
    };
    Operation first = make(0), second = make(1), meet = barrier(communicator);
    for (std::uint32_t call = 0; call < test::times(200); ++call) {
      results = {};
      // Each rank starts them in another order: arrivals of one are seen while another is driven.
      Operation* order[] = {&first, &second, &meet};
      std::rotate(order, order + self % 3, order + 3);
      for (Operation* operation : order)
        if (operation->start() != Status::ok) return 1;
      while (order[0]->test() == Status::in_progress) std::this_thread::yield();
      for (Operation* operation : order)
        if (operation->wait(30s) != Status::ok) return 1;
      if (results[0] != 6 || results[1] != 60) return 1;
    }
    return 0;
  });
}

TEST_P(Collectives, other_buffers_of_the_same_shape_may_be_given_at_start) {
  run(3, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    std::uint64_t unused = 0;
    Operation operation = allreduce<std::uint64_t>(
        communicator, std::span<const std::uint64_t>(&unused, 1), std::span(&unused, 1), sum);
    const std::uint64_t source = 5;
    std::uint64_t target = 0;
    if (operation.start(&source, &target) != Status::ok) return 1;
    if (operation.wait(30s) != Status::ok) return 1;
    return target == 15 && unused == 0 ? 0 : 1;
  });
}

TEST_P(Collectives, timeout_names_the_missing_rank_and_waiting_resumes) {
  run(2, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator);
    if (exchange.self() == Rank{1}) {
      communicator.synchronize();
      return complete(operation, 1) ? 0 : 1;
    }
    if (operation.start() != Status::ok) return 1;
    const auto begin = std::chrono::steady_clock::now();
    if (operation.wait(50ms) != Status::timed_out) return 2;
    if (std::chrono::steady_clock::now() - begin > 20s) return 3;
    if (operation.describe().find("waiting for ranks 1") == std::string::npos) return 4;
    if (operation.wait(0ns) != Status::timed_out) return 5;
    if (communicator.failure().status != Status::ok) return 6;
    communicator.synchronize();
    return operation.wait(30s) == Status::ok ? 0 : 7;
  });
}

TEST_P(Collectives, operations_come_and_go_without_using_up_the_arena) {
  run(3, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    int wrong = 0;
    for (std::uint32_t i = 0; i < test::times(60); ++i)
      wrong += check_allreduce(communicator, test::sum_job(), {.element_count = 20000, .calls = 2});
    return wrong;
  });
}

TEST_P(Collectives, steady_state_allocates_nothing) {
  if (!test::allocations_are_counted) GTEST_SKIP() << "sanitizers replace the allocator";
  run(2, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    std::uint64_t source = 1, target = 0;
    Operation operation = allreduce<std::uint64_t>(
        communicator, std::span<const std::uint64_t>(&source, 1), std::span(&target, 1), sum);
    for (std::uint64_t call = 0; call < test::times(1000); ++call)
      if (!complete(operation, call)) return 1;
    communicator.synchronize();
    const std::uint64_t before = test::allocation_count();
    if (before == 0) return 2;  // nothing is counted
    for (std::uint64_t call = 0; call < test::times(20000); ++call)
      if (!complete(operation, call)) return 1;
    const std::uint64_t allocations = test::allocation_count() - before;
    communicator.synchronize();  // a rank that leaves is news, not steady state
    if (allocations == 0) return 0;
    std::fprintf(stderr, "%llu allocations\n", static_cast<unsigned long long>(allocations));
    return 1;
  });
}

// ThreadSanitizer sees nothing across processes.
#ifdef __SANITIZE_THREAD__
const auto kinds_of_ranks = testing::Values(RanksAre::threads);
#else
const auto kinds_of_ranks = testing::Values(RanksAre::processes, RanksAre::threads);
#endif

INSTANTIATE_TEST_SUITE_P(RanksAre, Collectives, kinds_of_ranks, [](const auto& parameter) {
  return parameter.param == RanksAre::processes ? "processes" : "threads";
});

}  // namespace
}  // namespace tutti
