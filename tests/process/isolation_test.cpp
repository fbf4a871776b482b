// Promise: communicators of one context fail apart from each other; a rank that only makes progress
// learns of a death, too; objects that are destroyed in the wrong order are found; and a forked
// child cannot use what its parent has made.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
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

TEST(Isolation, a_death_fails_only_the_communicators_of_the_dead) {
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

TEST(Isolation, a_context_that_is_torn_down_in_good_order_fails_nobody) {
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

TEST(Isolation, a_message_for_an_aborted_operation_reaches_no_later_one) {
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

TEST(Progress, hears_of_a_death_too) {
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

TEST(Order, a_communicator_that_goes_before_its_operation_is_found) {
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

TEST(Order, a_context_that_goes_before_its_communicator_is_found) {
  EXPECT_EQ(codes_of(run_local({.rank_count = 1},
                               [&](Exchange& exchange) {
                                 std::optional<Context> context(test::on_test_device(exchange));
                                 const Communicator communicator(*context, exchange);
                                 context.reset();
                                 return 0;
                               })),
            (std::vector<int>{1000 + SIGABRT}));
}

/// Runs `body` in a forked child of this rank.  Returns what it returns, 1000 + a signal that ended
/// it, or 999 if it hangs.
int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body());
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return 998;
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? 999 : 1000 + WTERMSIG(status);
  return WEXITSTATUS(status);
}

bool is_forked_child(const std::string& text) {
  if (text.find("this is a forked child") != std::string::npos) return true;
  std::fprintf(stderr, "not about a forked child: %s\n", text.c_str());
  return false;
}

/// Whether `make` throws the error of a forked child.
template <class F>
bool is_refused(F&& make) {
  try {
    make();
  } catch (const Error& error) {
    return error.code() == ErrorCode::invalid_argument && is_forked_child(error.what());
  }
  std::fprintf(stderr, "not refused\n");
  return false;
}

constexpr std::size_t values_of_fork = 6000;  // more than one chunk below

/// What one rank has, and how it adds.
struct Adder {
  Adder(Exchange& given, bool shares_memory) : exchange(given) {
    ContextOptions options = test::on_test_device(given);
    options.chunk_bytes = 16u << 10;
    if (shares_memory) options.ranks_per_node = {given.rank_count()};
    context.emplace(options);
    communicator.emplace(*context, given);
    segment.emplace(communicator->allocate(4096, Scope::node));
    part = communicator->split(0);
    operation.emplace(make(*communicator));
    of_part.emplace(make(*part));
  }

  Operation make(Communicator& ranks) {
    return allreduce<std::int64_t>(ranks, std::span<const std::int64_t>(mine), std::span(all), sum);
  }

  /// Begins a sum whose result differs from all earlier ones.
  Status start(Operation& one) {
    ++call;
    for (std::size_t i = 0; i < mine.size(); ++i)
      mine[i] = call * 1000 + static_cast<std::int64_t>(i) + index_of(exchange.self());
    return one.start();
  }
  bool finish(Operation& one) {
    if (const Status status = one.wait(10s); status != Status::ok) {
      std::fprintf(stderr, "%s\n", one.describe().c_str());
      return false;
    }
    const auto ranks = static_cast<std::int64_t>(exchange.rank_count());
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] != ranks * (call * 1000 + static_cast<std::int64_t>(i)) + ranks * (ranks - 1) / 2)
        return false;
    return true;
  }
  bool add(Operation& one) { return start(one) == Status::ok && finish(one); }

  void destroy() {
    of_part.reset();
    operation.reset();
    segment.reset();
    part.reset();
    communicator.reset();
    context.reset();
  }

  Exchange& exchange;
  std::vector<std::int64_t> mine = std::vector<std::int64_t>(values_of_fork), all = mine;
  std::int64_t call = 0;
  std::optional<Context> context;
  std::optional<Communicator> communicator, part;
  std::optional<Segment> segment;
  std::optional<Operation> operation, of_part;
};

/// Everything that a forked child could do with what it inherits, the data path first.
int use_all(Adder& adder) {
  Operation& operation = *adder.operation;
  if (operation.in_flight() || operation.wait(1s) != Status::aborted) return 10;
  if (operation.start() != Status::aborted || operation.test() != Status::aborted) return 11;
  if (operation.start(adder.mine.data(), adder.all.data()) != Status::aborted) return 12;
  if (operation.wait(1s) != Status::aborted || operation.in_flight()) return 13;
  if (!is_forked_child(operation.describe())) return 14;
  if (adder.add(*adder.of_part) || !is_forked_child(adder.of_part->describe())) return 15;
  Communicator& communicator = *adder.communicator;
  if (communicator.progress() != Status::aborted) return 16;
  if (!is_forked_child(communicator.failure().text)) return 17;
  communicator.abort();
  if (!is_refused([&] { (void)adder.make(communicator); })) return 18;
  if (!is_refused([&] { (void)adder.make(*adder.part); })) return 19;
  if (!is_refused([&] { (void)communicator.split(0); })) return 20;
  if (!is_refused([&] { (void)communicator.allocate(64); })) return 21;
  if (!is_refused([&] { communicator.synchronize(); })) return 22;
  if (!is_refused([&] { const Communicator other(*adder.context, adder.exchange); })) return 23;
  if (adder.context->device_name().empty() || communicator.rank() != adder.exchange.self())
    return 24;
  adder.exchange.announce({Incident::Kind::aborted, adder.exchange.self()});
  if (!is_refused([&] { adder.exchange.barrier(1s); })) return 25;
  adder.destroy();
  return 0;
}

/// The uses above, each as the first thing that a child does.
std::vector<std::function<int(Adder&)>> uses_of_child() {
  std::vector<std::function<int(Adder&)>> uses{use_all};
  uses.emplace_back([](Adder& adder) {
    adder.destroy();
    return 0;
  });
  uses.emplace_back(
      [](Adder& adder) { return adder.operation->start() == Status::aborted ? 0 : 30; });
  uses.emplace_back(
      [](Adder& adder) { return is_forked_child(adder.communicator->failure().text) ? 0 : 31; });
  uses.emplace_back([](Adder& adder) {
    adder.communicator->abort();
    return adder.operation->test() == Status::aborted ? 0 : 32;
  });
  uses.emplace_back([](Adder& adder) {
    *adder.operation = adder.of_part ? std::move(*adder.of_part) : std::move(*adder.operation);
    *adder.part = std::move(*adder.communicator);
    return is_refused([&] { adder.exchange.barrier(1s); }) ? 0 : 33;
  });
  return uses;
}

class Fork : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, Fork, testing::Values(true, false), [](const auto& one) {
  return one.param ? std::string("SharedMemory") : std::string("Device");
});

// Protects: whatever a forked child does with objects of its parent, the error says that it is a
// forked child, and its parent's results, also of a call in flight, stay right.
TEST_P(Fork, a_child_is_refused_and_its_parent_goes_on) {
  for (const std::uint32_t rank_count : {2u, 3u}) {
    const auto results = run_local({.rank_count = rank_count}, [&](Exchange& exchange) {
      Adder adder(exchange, GetParam());
      for (int i = 0; i < 3; ++i)
        if (!adder.add(*adder.operation) || !adder.add(*adder.of_part)) return 1;
      for (const auto& use : uses_of_child()) {
        if (const int code = in_child([&] { return use(adder); }); code != 0) return code;
        if (!adder.add(*adder.operation) || !adder.add(*adder.of_part)) return 2;
        // The child is made, uses everything and ends while the parent's call is in flight.
        if (adder.start(*adder.operation) != Status::ok) return 3;
        if (index_of(exchange.self()) == 0)
          if (const int code = in_child([&] { return use(adder); }); code != 0) return 1 + code;
        if (!adder.finish(*adder.operation)) return 4;
      }
      const Operation later = adder.make(*adder.communicator);
      adder.communicator->synchronize();
      return adder.communicator->failure().status == Status::ok ? 0 : 5;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(rank_count));
  }
}

// Protects: a child that outlives its parent does not hide that the parent is gone, and a child of
// a child is as much a stranger as the child.
TEST_P(Fork, a_grandchild_is_refused_too) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Adder adder(exchange, GetParam());
    if (const int code = in_child([&] { return in_child([&] { return use_all(adder); }); });
        code != 0)
      return code;
    return adder.add(*adder.operation) ? 0 : 1;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

// Protects: a child that ends by exit(), with all objects still there, harms no other process.
TEST_P(Fork, a_child_that_exits_harms_nobody) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Adder adder(exchange, GetParam());
    const int code = in_child([&]() -> int {
#if defined(__SANITIZE_ADDRESS__)
      std::quick_exit(0);  // the check for leaks would look for the threads of the parent
#else
      std::exit(0);
#endif
    });
    if (code != 0) return code;
    return adder.add(*adder.operation) ? 0 : 1;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace tutti
