// Promise: partials that are elsewhere in each chunk hold what was sent until all have read it,
// whichever operations share the ring, whoever is late, and whatever is destroyed meanwhile.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/device.hpp"
#include "support/jobs.hpp"
#include "support/operators.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;
using Words = std::vector<std::uint64_t>;

ContextOptions options_of(const Exchange& exchange) {
  ContextOptions options = test::on_test_device(exchange);
  options.arena_bytes = 16u << 20;  // with a ring besides it
  options.ranks_per_node = {exchange.rank_count()};
  options.single_copy_bytes = SIZE_MAX;
  return options;
}

bool run_once(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(60s) == Status::ok;
}

/// An operation with its buffers.
struct Case {
  Words source, target;
  std::optional<Operation> operation = {};
  std::function<std::uint64_t(std::uint64_t call, std::size_t element)> expected = {};

  void fill(std::uint32_t self, std::uint64_t call) {
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = test::input(self, call, i);
    std::fill(target.begin(), target.end(), 0);
  }
  int wrong(std::uint64_t call) const {
    int count = 0;
    for (std::size_t i = 0; expected && i < target.size(); ++i)
      count += target[i] != expected(call, i) ? 1 : 0;
    return count;
  }
};

/// All kinds of messages that are staged, of so many words each.
std::vector<std::unique_ptr<Case>> cases_of(Communicator& ranks, std::size_t count) {
  const std::uint32_t self = index_of(ranks.rank()), all = ranks.rank_count();
  const std::size_t bytes = count * sizeof(std::uint64_t);
  const Reduction sum = built_in_reduction(BuiltIn::sum, ElementType::uint64);
  std::vector<std::unique_ptr<Case>> cases;
  const auto add = [&](std::size_t source, std::size_t target) -> Case& {
    cases.push_back(std::make_unique<Case>(Case{.source = Words(source), .target = Words(target)}));
    return *cases.back();
  };
  for (std::uint32_t root = 0; root < all; ++root) {
    {
      Case& one = add(0, count);
      one.operation.emplace(
          broadcast(ranks, {.buffer = one.target.data(), .bytes = bytes, .root = Rank{root}}));
      one.expected = [=](std::uint64_t call, std::size_t i) { return test::input(root, call, i); };
    }
    for (const test::Job& job : {test::sum_job(), test::ordered_job()}) {
      Case& one = add(count, self == root ? count : 0);
      one.operation.emplace(reduce(ranks, {.source = one.source.data(),
                                           .target = one.target.data(),
                                           .element_count = count,
                                           .reduction = job.reduction,
                                           .root = Rank{root}}));
      one.expected = [=](std::uint64_t call, std::size_t i) { return job.expected(all, call, i); };
    }
    {
      Case& one = add(count, self == root ? count : 0);
      one.operation.emplace(reduce(ranks, {.source = one.source.data(),
                                           .target = one.target.data(),
                                           .element_count = count,
                                           .reduction = sum,
                                           .root = Rank{root}}));
      one.expected = [=](std::uint64_t call, std::size_t i) {
        std::uint64_t of_all = 0;
        for (std::uint32_t rank = 0; rank < all; ++rank) of_all += test::input(rank, call, i);
        return of_all;
      };
    }
    Case& one = add(count, self == root ? count * all : 0);
    one.operation.emplace(gather(ranks, {.source = one.source.data(),
                                         .target = one.target.data(),
                                         .bytes = bytes,
                                         .root = Rank{root}}));
    one.expected = [=](std::uint64_t call, std::size_t i) {
      return test::input(static_cast<std::uint32_t>(i / count), call, i % count);
    };
  }
  Case& gathered = add(count, count * all);
  gathered.operation.emplace(allgather(
      ranks, {.source = gathered.source.data(), .target = gathered.target.data(), .bytes = bytes}));
  gathered.expected = [=](std::uint64_t call, std::size_t i) {
    return test::input(static_cast<std::uint32_t>(i / count), call, i % count);
  };
  Case& swapped = add(count * all, count * all);
  swapped.operation.emplace(alltoall(
      ranks, {.source = swapped.source.data(), .target = swapped.target.data(), .bytes = bytes}));
  swapped.expected = [=](std::uint64_t call, std::size_t i) {
    return test::input(static_cast<std::uint32_t>(i / count), call, self * count + i % count);
  };
  return cases;
}

/// Calls enough that the ring is tried, and goes round.
int wrong_in_turns(Exchange& exchange, std::size_t count, std::uint64_t calls) {
  Context context(options_of(exchange));
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank());
  const auto cases = cases_of(ranks, count);
  int wrong = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (const auto& one : cases) {
      one->fill(self, call);
      if (one->source.empty())  // a broadcast: from the root's buffer
        for (std::size_t i = 0; i < one->target.size(); ++i)
          if (one->expected(call, i) == test::input(self, call, i))
            one->target[i] = test::input(self, call, i);
      if (!run_once(*one->operation)) return 1000;
    }
    for (const auto& one : cases) wrong += one->wrong(call);
  }
  return wrong;
}

TEST(Staging, operations_that_share_the_ring_are_right) {
  for (const std::uint32_t ranks : {2u, 3u, 5u})
    for (const std::size_t count :
         test::all_or_sanitized<std::size_t>({2048, 3 * 8192 + 1}, {2048, 8192 + 1})) {
      const auto results = (ranks == 2 ? run_local : run_local_threads)(
          {.rank_count = ranks},
          [&](Exchange& exchange) { return wrong_in_turns(exchange, count, 120 / ranks); });
      EXPECT_EQ(codes_of(results), std::vector<int>(ranks)) << ranks << " ranks, " << count;
    }
}

/// Rank 1 reads what rank 0 has sent only after rank 0 has gone round the ring, and has destroyed
/// the operation.
int wrong_after_a_round(Exchange& exchange, bool is_destroyed) {
  constexpr std::size_t count = 8192;
  Context context(options_of(exchange));
  Communicator ranks(context, exchange);
  const bool sends = index_of(ranks.rank()) == 0;
  Words buffer(count), other(count);
  std::optional<Operation> kept(broadcast(ranks, {.buffer = buffer.data(), .bytes = 8 * count}));
  Operation passes = broadcast(ranks, {.buffer = other.data(), .bytes = 8 * count});
  int wrong = 0;
  std::uint64_t call = 0;
  const auto fill = [&](Words& words, std::uint64_t of_call) {
    for (std::size_t i = 0; i < count; ++i) words[i] = sends ? test::input(0, of_call, i) : 0;
  };
  const auto compare = [&](const Words& words, std::uint64_t of_call) {
    for (std::size_t i = 0; i < count; ++i) wrong += words[i] != test::input(0, of_call, i);
  };
  for (; call < 12; ++call) {  // until the ring is tried
    fill(buffer, call);
    if (!run_once(*kept)) return 1000;
    compare(buffer, call);
  }
  fill(buffer, 777);
  if (sends && !run_once(*kept)) return 2000;  // runs ahead
  if (sends && is_destroyed) kept.reset();
  for (call = 100; call < 200; ++call) {
    fill(other, call);
    if (!run_once(passes)) return 3000;
    compare(other, call);
  }
  if (!sends) {
    if (!run_once(*kept)) return 4000;
    compare(buffer, 777);
  }
  for (call = 200; call < 300; ++call) {
    fill(other, call);
    if (!run_once(passes)) return 5000;
    compare(other, call);
  }
  return wrong;
}

TEST(Staging, what_is_not_read_stays_while_others_go_round) {
  for (const bool is_destroyed : {false, true})
    for (const auto launch : {run_local, run_local_threads}) {
      const auto results = launch({.rank_count = 2}, [&](Exchange& exchange) {
        return wrong_after_a_round(exchange, is_destroyed);
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(2)) << is_destroyed;
    }
}

/// The others have a reduce in flight, and go round the ring, before the last rank starts it.
int wrong_while_in_flight(Exchange& exchange) {
  constexpr std::size_t count = 8192;
  Context context(options_of(exchange));
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank()), last = ranks.rank_count() - 1;
  const test::Job job = test::sum_job();
  Words source(count), target(count);
  Operation slow = reduce(ranks, {.source = source.data(),
                                  .target = target.data(),
                                  .element_count = count,
                                  .reduction = job.reduction});
  std::vector<Words> passed(last, Words(count));
  std::vector<Operation> passes;
  for (std::uint32_t root = 0; root < last; ++root)
    passes.push_back(
        broadcast(ranks, {.buffer = passed[root].data(), .bytes = 8 * count, .root = Rank{root}}));
  int wrong = 0;
  for (std::uint64_t call = 1; call <= 30; ++call) {
    for (std::size_t i = 0; i < count; ++i) source[i] = test::input(self, call, i);
    std::fill(target.begin(), target.end(), 0);
    if (self != last && slow.start() != Status::ok) return 1000;
    for (std::uint64_t turn = 0; turn < 40; ++turn)
      for (std::uint32_t root = 0; root < last; ++root) {
        if (self == root) std::fill(passed[root].begin(), passed[root].end(), turn);
        if (!run_once(passes[root])) return 2000;
        wrong += passed[root].front() != turn || passed[root].back() != turn;
      }
    if (self == last && slow.start() != Status::ok) return 3000;
    if (slow.wait(60s) != Status::ok) return 4000;
    for (std::size_t i = 0; self == 0 && i < count; ++i)
      wrong += target[i] != job.expected(ranks.rank_count(), call, i);
  }
  return wrong;
}

TEST(Staging, partials_in_flight_stay_while_others_go_round) {
  const auto results = run_local_threads({.rank_count = 4}, wrong_while_in_flight);
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

/// Several allreduces in flight, each of which has one target for all ranks; by an operator of the
/// library and by a user's that keeps the order, from the same source and from another in each
/// call.
int wrong_in_a_target_of_the_node(Exchange& exchange, std::size_t count) {
  Context context(options_of(exchange));
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank());
  const Segment node = ranks.allocate(4 * count * sizeof(std::uint64_t), Scope::node);
  const std::span<std::uint64_t> memory = node.as<std::uint64_t>();
  const Reduction sum = built_in_reduction(BuiltIn::sum, ElementType::uint64);
  const test::Job ordered = test::ordered_job();
  struct Call {
    std::array<Words, 2> sources;
    std::span<std::uint64_t> target;
    bool moves, is_ordered;
    std::optional<Operation> operation = {};
    Words& source(std::uint64_t call) { return sources[moves ? call % 2 : 0]; }
  };
  std::vector<Call> calls;
  for (std::size_t i = 0; i < 4; ++i) {
    const bool is_ordered = i >= 2;
    Call& one = calls.emplace_back(Call{.sources = {Words(count), Words(count)},
                                        .target = memory.subspan(i * count, count),
                                        .moves = i % 2 == 1,
                                        .is_ordered = is_ordered});
    one.operation.emplace(allreduce(ranks, {.source = one.source(0).data(),
                                            .target = one.target.data(),
                                            .element_count = count,
                                            .reduction = is_ordered ? ordered.reduction : sum}));
    if (!one.operation->algorithm().ends_with("_shared_target")) return 1000;
  }
  int wrong = 0;
  for (std::uint64_t call = 1; call <= 60; ++call) {
    for (Call& one : calls)
      for (std::size_t i = 0; i < count; ++i) one.source(call)[i] = test::input(self, call, i);
    for (Call& one : calls)
      if (one.operation->start(one.source(call).data(), one.target.data()) != Status::ok)
        return 2000;
    for (Call& one : calls)
      if (one.operation->wait(60s) != Status::ok) return 3000;
    for (const Call& one : calls)
      for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t expected = 0;
        for (std::uint32_t rank = 0; rank < ranks.rank_count(); ++rank)
          expected += test::input(rank, call, i);
        if (one.is_ordered) expected = ordered.expected(ranks.rank_count(), call, i);
        wrong += one.target[i] != expected ? 1 : 0;
      }
  }
  return wrong;
}

/// Sums of doubles that are rounded, in a target of the node and beside it in a target each.
int other_bits_in_a_target_of_the_node(Exchange& exchange) {
  constexpr std::size_t count = 3 * 8192 + 1;
  Context context(options_of(exchange));
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank());
  const Segment node = ranks.allocate(count * sizeof(double), Scope::node);
  std::vector<double> source(count), own(count);
  Operation shared =
      allreduce(ranks, {.source = source.data(),
                        .target = node.as<double>().data(),
                        .element_count = count,
                        .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)});
  Operation apart =
      allreduce(ranks, {.source = source.data(),
                        .target = own.data(),
                        .element_count = count,
                        .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)});
  int wrong = 0;
  for (std::uint64_t call = 1; call <= 30; ++call) {
    for (std::size_t i = 0; i < count; ++i)
      source[i] = 1.0 / static_cast<double>(1 + test::input(self, call, i) % 1000003);
    if (shared.start() != Status::ok || apart.start() != Status::ok) return 1000;
    if (shared.wait(60s) != Status::ok || apart.wait(60s) != Status::ok) return 2000;
    if (std::memcmp(own.data(), node.as<double>().data(), count * sizeof(double)) != 0) ++wrong;
  }
  return wrong;
}

TEST(Staging, results_in_a_target_of_the_node_have_the_same_bits) {
  const auto results = run_local({.rank_count = 2}, other_bits_in_a_target_of_the_node);
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

TEST(Staging, results_in_a_target_of_the_node_are_right) {
  for (const std::uint32_t ranks : {2u, 3u})
    for (const std::size_t count : {std::size_t{4 * 2048}, std::size_t{3 * 8192 + 1}}) {
      const auto results = (ranks == 2 ? run_local : run_local_threads)(
          {.rank_count = ranks},
          [&](Exchange& exchange) { return wrong_in_a_target_of_the_node(exchange, count); });
      EXPECT_EQ(codes_of(results), std::vector<int>(ranks)) << ranks << " ranks, " << count;
    }
}

}  // namespace
}  // namespace tutti
