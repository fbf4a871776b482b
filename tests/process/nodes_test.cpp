// Promise: whatever shape the nodes have, and wherever the ranks are placed, every collective is
// right; ranks of a node share memory, and the others use the device.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/neighbourhood.hpp"
#include "runtime/operation.hpp"
#include "support/adversarial.hpp"
#include "support/jobs.hpp"
#include "support/node_shapes.hpp"
#include "support/operators.hpp"
#include "support/process_memory.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of, test::compositions;

using Shape = std::vector<std::uint32_t>;  // ranks of each node

ContextOptions with_nodes(const Shape& shape, Placement placement) {
  ContextOptions options;
  options.device = "soft0";
  options.arena_bytes = 256u << 10;
  options.ranks_per_node = shape;
  options.placement = placement;
  return options;
}

std::uint32_t rank_count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), 0U);
}

std::string text_of(const Shape& shape) {
  std::string text;
  for (const std::uint32_t ranks : shape) text += (text.empty() ? "" : ",") + std::to_string(ranks);
  return text;
}

bool run_once(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(30s) == Status::ok;
}

/// `calls` calls with `count` elements, against what one process computes.
int wrong_results(Communicator& communicator, const test::Job& job, std::size_t count,
                  std::uint64_t calls, Across across = Across::automatic) {
  const std::uint32_t self = index_of(communicator.rank()), ranks = communicator.rank_count();
  std::vector<std::uint64_t> source(count), target(count);
  Operation operation = allreduce(communicator, {.source = source.data(),
                                                 .target = target.data(),
                                                 .element_count = count,
                                                 .reduction = job.reduction,
                                                 .across = across});
  int wrong = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (std::size_t i = 0; i < count; ++i) source[i] = test::input(self, call, i);
    if (!run_once(operation)) return 1000;
    for (std::size_t i = 0; i < count; ++i) wrong += target[i] != job.expected(ranks, call, i);
  }
  return wrong;
}

/// A broadcast, a reduce and an allgather in each of `calls` turns, of one root, in flight
/// together.
int wrong_of_the_others(
    Communicator& communicator, Rank root, std::uint64_t calls,
    const std::function<void()>& pause = [] {}) {
  constexpr std::size_t count = 3;
  const test::Job job = test::ordered_job();
  const std::uint32_t self = index_of(communicator.rank()), ranks = communicator.rank_count();
  const bool here = communicator.rank() == root;
  std::vector<std::uint64_t> told(count), source(count), target(count), all(count * ranks);
  std::vector<Operation> operations;
  operations.push_back(broadcast<std::uint64_t>(communicator, std::span(told), root));
  operations.push_back(reduce(communicator, {.source = source.data(),
                                             .target = target.data(),
                                             .element_count = count,
                                             .reduction = job.reduction,
                                             .root = root}));
  operations.push_back(allgather<std::uint64_t>(
      communicator, std::span<const std::uint64_t>(source), std::span(all)));
  int wrong = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (std::size_t i = 0; i < count; ++i) {
      source[i] = test::input(self, call, i);
      told[i] = here ? source[i] : 0;
    }
    pause();
    for (Operation& operation : operations)
      if (operation.start() != Status::ok) return 1000;
    for (Operation& operation : operations)
      if (operation.wait(30s) != Status::ok) return 2000;
    for (std::size_t i = 0; i < count; ++i) {
      wrong += told[i] != test::input(index_of(root), call, i);
      wrong += here && target[i] != job.expected(ranks, call, i);
      for (std::uint32_t rank = 0; rank < ranks; ++rank)
        wrong += all[rank * count + i] != test::input(rank, call, i);
    }
  }
  return wrong;
}

int exercise(Exchange& exchange, const Shape& shape, Placement placement) {
  Context context(with_nodes(shape, placement));
  Communicator communicator(context, exchange);
  if (communicator.node_count() != shape.size()) return 1;
  Operation meet = barrier(communicator);
  int wrong = 0;
  for (int call = 0; call < 3; ++call) wrong += run_once(meet) ? 0 : 1;
  for (const test::Job& job : {test::sum_job(), test::ordered_job()})
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{8}})
      wrong += wrong_results(communicator, job, count, 3);
  for (const Across across : {Across::leader, Across::lanes}) {
    wrong += wrong_results(communicator, test::sum_job(), 8, 2, across);
    if (placement == Placement::block)
      wrong += wrong_results(communicator, test::ordered_job(), 5, 2, across);
  }
  // Another root for every shape.
  const auto root = static_cast<std::uint32_t>(shape.size() * 5 + shape[0]);
  return wrong + wrong_of_the_others(communicator, Rank{root % communicator.rank_count()}, 3);
}

void expect_right(const Shape& shape, Placement placement, test::Launch launch) {
  const auto results = launch({.rank_count = rank_count_of(shape)}, [&](Exchange& exchange) {
    return exercise(exchange, shape, placement);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(rank_count_of(shape)))
      << text_of(shape) << ", placement " << static_cast<int>(placement);
}

TEST(Nodes, every_shape_of_up_to_six_ranks_is_right) {
  for (std::uint32_t ranks = 1; ranks <= 6; ++ranks)
    for (const Shape& shape : compositions(ranks))
      expect_right(shape, Placement::block, run_local_threads);
}

void expect_every_shape_right(std::uint32_t ranks) {
  for (const Shape& shape : compositions(ranks))
    expect_right(shape, Placement::block, run_local_threads);
}

// These are tests of their own for CTest: the first one runs with the address sanitizer, too; the
// others take minutes and have the labels long and soak.
TEST(AllNodes, every_shape_of_seven_and_eight_ranks_is_right) {
  for (std::uint32_t ranks = 7; ranks <= 8; ++ranks) expect_every_shape_right(ranks);
}
TEST(AllNodes, every_shape_of_ten_ranks_is_right) {
  expect_every_shape_right(10);
}
TEST(AllNodes, every_shape_of_nine_eleven_and_twelve_ranks_is_right) {
  for (const std::uint32_t ranks : {9U, 11U, 12U}) expect_every_shape_right(ranks);
}

TEST(Nodes, sampled_shapes_and_placements_of_up_to_twelve_ranks_are_right) {
  std::mt19937 random(7);
  for (int sample = 0; sample < 12; ++sample) {
    const std::uint32_t ranks = 6 + static_cast<std::uint32_t>(random() % 7);
    const std::vector<Shape> shapes = compositions(ranks);
    expect_right(shapes[random() % shapes.size()], Placement{static_cast<std::uint8_t>(sample % 3)},
                 sample % 2 == 0 ? run_local : run_local_threads);
  }
}

/// The bits that rank 0 gets; empty if a rank gets others, or fails.
std::vector<std::uint64_t> bits_of_a_sum(const Shape& shape, Placement placement,
                                         Agreement agreement, Across across = Across::automatic) {
  constexpr std::size_t count = 40;
  const std::uint32_t ranks = rank_count_of(shape);
  std::vector<std::vector<std::uint64_t>> bits(ranks);
  const auto results = run_local_threads({.rank_count = ranks}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    Context context(with_nodes(shape, placement));
    Communicator communicator(context, exchange);
    std::vector<double> source(count), target(count);
    std::mt19937_64 random(self);
    for (std::size_t i = 0; i < count; ++i) source[i] = test::adversarial<double>(random, self, i);
    Operation operation = allreduce(
        communicator, {.source = source.data(),
                       .target = target.data(),
                       .element_count = count,
                       .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
                       .agreement = agreement,
                       .across = across});
    if (!run_once(operation)) return 1;
    for (const double value : target) bits[self].push_back(std::bit_cast<std::uint64_t>(value));
    return 0;
  });
  const bool fine = codes_of(results) == std::vector<int>(ranks);
  const bool alike =
      std::all_of(bits.begin(), bits.end(), [&](const auto& theirs) { return theirs == bits[0]; });
  return fine && alike ? bits[0] : std::vector<std::uint64_t>();
}

TEST(Nodes, reproducible_bits_depend_on_no_shape_and_no_placement) {
  for (const std::uint32_t ranks : {2U, 5U, 6U, 11U}) {
    const std::vector<Shape> shapes = compositions(ranks);
    const auto expected = bits_of_a_sum(shapes[0], Placement::block, Agreement::reproducible);
    ASSERT_FALSE(expected.empty()) << ranks;
    std::mt19937 random(ranks);
    for (int sample = 0; sample < 12; ++sample) {
      const Shape& shape = shapes[random() % shapes.size()];
      const Placement placement{static_cast<std::uint8_t>(sample % 3)};
      EXPECT_EQ(bits_of_a_sum(shape, placement, Agreement::reproducible), expected)
          << text_of(shape) << ", placement " << sample % 3;
    }
  }
}

TEST(Nodes, leaders_and_lanes_give_all_ranks_the_same_bits) {
  std::mt19937 random(23);
  for (int sample = 0; sample < 24; ++sample) {
    const std::vector<Shape> shapes = compositions(3 + static_cast<std::uint32_t>(random() % 9));
    const Shape& shape = shapes[random() % shapes.size()];
    const Placement placement{static_cast<std::uint8_t>(sample % 3)};
    for (const Across across : {Across::leader, Across::lanes})
      EXPECT_FALSE(bits_of_a_sum(shape, placement, Agreement::identical, across).empty())
          << text_of(shape) << ", placement " << sample % 3;
  }
}

TEST(Nodes, a_leader_does_not_keep_rank_order_across_scattered_ranks) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context(with_nodes({2, 2}, Placement::cyclic));
    Communicator communicator(context, exchange);
    std::uint64_t source = 0, target = 0;
    try {
      (void)allreduce(communicator, {.source = &source,
                                     .target = &target,
                                     .element_count = 1,
                                     .reduction = test::ordered_job().reduction,
                                     .across = Across::leader});
    } catch (const Error& error) {
      const std::string text = error.what();
      return error.code() == ErrorCode::unsupported &&
                     text.find("do not follow each other") != std::string::npos
                 ? 0
                 : 1;
    }
    return 2;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

TEST(Nodes, only_leaders_are_connected_and_only_ranks_of_lanes) {
  const Shape shape{3, 2, 3};
  const auto results = run_local({.rank_count = 8}, [&](Exchange& exchange) {
    Context context(with_nodes(shape, Placement::block));
    Communicator communicator(context, exchange);
    const auto connections = [&] { return context.implementation().fabric.connections().count(); };
    const std::uint32_t self = index_of(exchange.self());
    const bool leads = self == 0 || self == 3 || self == 5;
    Operation meet = barrier(communicator);
    if (!run_once(meet) || connections() != (leads ? 2U : 0U)) return 1;
    if (wrong_results(communicator, test::sum_job(), 4, 10) != 0) return 2;  // the same ranks
    if (connections() != (leads ? 2U : 0U)) return 3;
    if (wrong_results(communicator, test::sum_job(), 4, 10, Across::lanes) != 0) return 4;
    const bool has_lane = leads || self == 1 || self == 4 || self == 6;
    return connections() == (has_lane ? 2U : 0U) ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(8));
}

TEST(Nodes, payloads_of_any_size_fit_their_slots) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    ContextOptions options = with_nodes({2, 1}, Placement::block);
    options.arena_bytes = 16u << 20;
    Context context(options);
    Communicator communicator(context, exchange);
    int wrong = 0;
    // On both sides of a line, of a page, and of what a device sends inline.
    for (const std::size_t count : {0u, 6u, 7u, 8u, 9u, 15u, 16u, 511u, 512u, 513u, 20000u})
      for (const Across across : {Across::automatic, Across::leader, Across::lanes})
        wrong += wrong_results(communicator, test::ordered_job(), count, 3, across);
    return wrong;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

/// Every collective in chunks of 4.5 KiB, which ranks of a node read where their neighbours have
/// them, and in chunks that are copied, on both sides of the edges of chunks.
int wrong_in_chunks(Exchange& exchange, const Shape& shape, Placement placement) {
  ContextOptions options = with_nodes(shape, placement);
  options.arena_bytes = 4u << 20;
  int wrong = 0;
  for (const std::size_t chunk : {std::size_t{4608}, std::size_t{512}}) {
    options.chunk_bytes = chunk;
    Context context(options);
    Communicator communicator(context, exchange);
    const std::size_t n = chunk / sizeof(std::uint64_t);
    std::mt19937 random(index_of(exchange.self()));
    for (const std::size_t count : {n - 1, n, n + 1, 3 * n + 1, 5 * n}) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      wrong += wrong_results(communicator, test::sum_job(), count, 3);
      wrong += wrong_results(communicator, test::sum_job(), count, 2, Across::lanes);
      wrong += wrong_results(communicator, test::sum_job(), count, 2, Across::flat);
      if (placement == Placement::block)
        wrong += wrong_results(communicator, test::ordered_job(), count, 2, Across::leader);
    }
  }
  return wrong;
}

/// However many slots a plan has.
TEST(Nodes, large_payloads_fit_the_default_arena) {
  constexpr std::uint32_t ranks = 6;
  const auto results = run_local_threads({.rank_count = ranks}, [](Exchange& exchange) {
    ContextOptions options;
    options.device = "soft0";
    options.ranks_per_node = {1};
    Context context(options);
    Communicator communicator(context, exchange);
    std::vector<double> source((8u << 20) / sizeof(double) + 1, 1.0), target(source.size());
    for (const Algorithm algorithm :
         {Algorithm::two_partial, Algorithm::canonical_dissemination, Algorithm::chunked_fold,
          Algorithm::ring, Algorithm::circulant, Algorithm::canonical_halving}) {
      std::fill(target.begin(), target.end(), 0.0);
      Operation operation = allreduce(
          communicator, {.source = source.data(),
                         .target = target.data(),
                         .element_count = source.size(),
                         .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
                         .agreement = Agreement::relaxed,
                         .algorithm = algorithm});
      if (!run_once(operation)) return 1;
      if (std::count(target.begin(), target.end(), 1.0 * ranks) !=
          static_cast<std::ptrdiff_t>(target.size()))
        return 2;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(ranks));
}

TEST(Nodes, chunks_are_right_on_both_sides_of_their_edges) {
  for (const Shape& shape : {Shape{2}, Shape{5}, Shape{1, 1}, Shape{3, 1, 2}})
    for (const test::Launch launch : test::launches) {
      const auto results = launch({.rank_count = rank_count_of(shape)}, [&](Exchange& exchange) {
        return wrong_in_chunks(exchange, shape, Placement::block);
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(rank_count_of(shape))) << text_of(shape);
    }
}

/// From 4 KiB on the result of a part overwrites the contribution that it was made of, in the
/// memory of the rank that gets it, which must be done with by then.
TEST(Nodes, results_of_two_ranks_overwrite_what_they_were_made_of) {
  for (const test::Launch launch : test::launches) {
    const auto results = launch({.rank_count = 2}, [](Exchange& exchange) {
      ContextOptions options = with_nodes({2}, Placement::block);
      options.chunk_bytes = 6144;
      options.single_copy_bytes = SIZE_MAX;
      Context context(options);
      Communicator communicator(context, exchange);
      std::mt19937 random(index_of(exchange.self()));
      int wrong = 0;
      // A part of one rank of 4 KiB, or none, or both; two chunks, and six of them.
      for (const std::size_t count : {1022u, 1023u, 1024u, 1535u, 3000u, 9000u})
        for (const test::Job& job : {test::sum_job(), test::ordered_job()})
          for (int operation = 0; operation < 3; ++operation) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
            wrong += wrong_results(communicator, job, count, 5, Across::lanes);
          }
      return wrong;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(2));
  }
}

/// A rank that is done with an operation may still have its memory read: the next operation must
/// not get it.
TEST(Nodes, memory_that_a_neighbour_still_reads_is_not_used_again) {
  const auto results = run_local_threads({.rank_count = 2}, [](Exchange& exchange) {
    constexpr std::size_t count = 1024;
    ContextOptions options = with_nodes({2}, Placement::block);
    Context context(options);
    Communicator communicator(context, exchange);
    const std::uint32_t self = index_of(exchange.self());
    int wrong = 0;
    for (std::uint64_t turn = 1; turn <= 20; ++turn) {
      std::vector<std::uint64_t> source(count, self + turn), target(count), other(count, 77);
      const auto made = [&](std::vector<std::uint64_t>& from) {
        return allreduce(communicator,
                         {.source = from.data(),
                          .target = target.data(),
                          .element_count = count,
                          .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                          .algorithm = Algorithm::two_partial,  // one round
                          .across = Across::flat});
      };
      std::optional<Operation> first(made(source));
      if (self == 0) std::this_thread::sleep_for(1ms);  // what rank 1 sends is there
      if (first->start() != Status::ok) return 1000;
      if (self == 0) {
        if (first->wait(30s) != Status::ok) return 2000;
        first.reset();  // rank 1 has it in flight
        first.emplace(made(other));
      } else {
        Operation second = made(other);
        if (first->wait(30s) != Status::ok) return 3000;
        for (const std::uint64_t value : target) wrong += value != 2 * turn + 1;
        first.emplace(std::move(second));
      }
      if (!run_once(*first)) return 4000;
      for (const std::uint64_t value : target) wrong += value != 154;
    }
    return wrong;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

TEST(Nodes, ranks_of_this_host_are_found_to_be_one) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context({.device = "soft0", .arena_bytes = 256u << 10});
    Communicator communicator(context, exchange);
    if (communicator.node_count() != 1 || communicator.node() != Node{0}) return 1;
    if (!communicator.node_remark().empty()) return 2;
    return wrong_results(communicator, test::sum_job(), 1, 1000);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

TEST(Nodes, arenas_are_resident_where_they_are_used) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    constexpr std::size_t mebibyte = std::size_t{1} << 20;
    Context context({.device = "soft0", .arena_bytes = 64 * mebibyte});
    const auto resident = [] { return test::resident_bytes_of("memfd:tutti-arena"); };
    if (resident() == 0 || resident() >= mebibyte) return 1;
    Communicator communicator(context, exchange);
    // Two ranks measure in the rings of both, of 2 MiB each.
    if (resident() >= 6 * mebibyte) return 2;
    const int wrong = wrong_results(communicator, test::sum_job(), 10, 1000);
    if (wrong != 0) return 1000 + wrong;
    if (resident() >= 8 * mebibyte) return 3;
    return context.implementation().fabric.arena().bytes_with_pages() < 4 * mebibyte ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

TEST(Nodes, a_rank_whose_memory_is_out_of_reach_is_a_node_of_its_own_and_says_why) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may open everybody's memory";
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    if (exchange.self() == Rank{1}) ::prctl(PR_SET_DUMPABLE, 0);
    Context context({.device = "soft0", .arena_bytes = 256u << 10});
    Communicator communicator(context, exchange);
    // The others stay together.
    if (communicator.node_count() != 2) return 1;
    if (communicator.node() != Node{exchange.self() == Rank{1} ? 1U : 0U}) return 2;
    if (communicator.node_remark().find("with rank 1:") == std::string::npos) return 3;
    return wrong_results(communicator, test::sum_job(), 1, 100);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(Nodes, only_ranks_of_other_nodes_are_connected) {
  for (const Shape& shape : {Shape{3}, Shape{2, 1}, Shape{1, 1, 1}}) {
    const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
      Context context(with_nodes(shape, Placement::block));
      Communicator communicator(context, exchange);
      // Every rank sends to every other.
      Operation operation = barrier(communicator, {.per_round = {2}});
      if (!run_once(operation)) return 1;
      const std::uint32_t own =
          index_of(communicator.node()) < shape.size() ? shape[index_of(communicator.node())] : 0;
      return context.implementation().fabric.connections().count() == 3 - own ? 0 : 2;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(3)) << text_of(shape);
  }
}

TEST(Nodes, an_allgather_of_many_connects_few) {
  constexpr std::uint32_t count = 20;
  const auto results = run_local_threads({.rank_count = count}, [&](Exchange& exchange) {
    Context context(with_nodes({1}, Placement::block));
    Communicator communicator(context, exchange);
    const std::uint64_t source = 100 + index_of(exchange.self());
    std::vector<std::uint64_t> target(count);
    Operation operation = allgather(
        communicator, {.source = &source, .target = target.data(), .bytes = sizeof source});
    if (!run_once(operation)) return 1;
    for (std::uint32_t rank = 0; rank < count; ++rank)
      if (target[rank] != 100 + rank) return 2;
    // In two rounds, of 4 and 3 messages or the like, to as many ahead as there are behind.
    return context.implementation().fabric.connections().count() < count - 1 ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(count));
}

TEST(Nodes, whoever_most_cannot_map_is_apart) {
  using Matrix = std::vector<std::vector<bool>>;  // [mapper][owner]
  using Alone = std::vector<bool>;
  const bool o = false, x = true;
  EXPECT_EQ(runtime::apart({{o, o}, {o, o}}), (Alone{o, o}));
  EXPECT_EQ(runtime::apart(Matrix{{o, x, o}, {o, o, o}, {o, x, o}}), (Alone{o, x, o}));
  // Behind a namespace: neither side can map the other.
  EXPECT_EQ(runtime::apart(Matrix{{o, x, o}, {x, o, x}, {o, x, o}}), (Alone{o, x, o}));
  EXPECT_EQ(runtime::apart(Matrix{{o, x}, {x, o}}), (Alone{o, x}));
  EXPECT_EQ(runtime::apart(Matrix{{o, o, o, x}, {o, o, x, x}, {o, x, o, x}, {o, o, o, o}}),
            (Alone{o, o, x, x}));
}

TEST(Nodes, delays_and_stops_change_nothing) {
  const auto results = run_local(
      {.rank_count = 4,
       .on_started =
           [](const std::vector<pid_t>& processes) {
             std::mt19937 random(3);
             for (int stop = 0; stop < 40; ++stop) {
               const pid_t process = processes[random() % processes.size()];
               std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
               ::kill(process, SIGSTOP);
               std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
               ::kill(process, SIGCONT);
             }
           }},
      [](Exchange& exchange) {
        Context context(with_nodes({3, 1}, Placement::block));
        Communicator communicator(context, exchange);
        std::uint64_t source = 0, target = 0, wrong = 0;
        const test::Job job = test::ordered_job();
        Operation operation = allreduce(
            communicator,
            {.source = &source, .target = &target, .element_count = 1, .reduction = job.reduction});
        std::mt19937 random(index_of(exchange.self()));
        for (std::uint64_t call = 1; call <= 3000; ++call) {
          if (random() % 16 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
          source = test::input(index_of(exchange.self()), call, 0);
          if (!run_once(operation)) return 1;
          wrong += target != job.expected(4, call, 0);
        }
        if (wrong != 0) return 2;
        const auto pause = [&] {
          if (random() % 16 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        };
        for (std::uint32_t root = 0; root < 4; ++root)
          if (wrong_of_the_others(communicator, Rank{root}, 300, pause) != 0) return 3;
        return 0;
      });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

TEST(Nodes, a_dead_neighbour_is_named) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context({.device = "soft0", .arena_bytes = 256u << 10});
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator);
    for (int call = 0; call < 100; ++call)
      if (!run_once(operation)) return 1;
    if (exchange.self() == Rank{2}) ::kill(::getpid(), SIGKILL);
    if (operation.start() != Status::ok) return 0;  // it knows already
    if (operation.wait(10s) != Status::peer_failed) return 2;
    return communicator.failure().peer == Rank{2} ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 1000 + SIGKILL}));
}

TEST(Nodes, shapes_that_differ_across_ranks_are_refused) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    Context context(with_nodes({1 + index_of(exchange.self())}, Placement::block));
    try {
      Communicator communicator(context, exchange);
    } catch (const Error& error) {
      return error.code() == ErrorCode::mismatch &&
                     std::string(error.what()).find("TUTTI_RANKS_PER_NODE") != std::string::npos
                 ? 0
                 : 2;
    }
    return 1;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

struct DomainCase {
  Shape nodes, domains;
  Placement placement;
  const char* barrier;  // the schedules expected
  const char* allreduce;
};

const DomainCase domain_cases[] = {
    {{8}, {4}, Placement::block, "domains/dissemination", "domains/two_partial_dissemination"},
    {{7},
     {3, 1, 2},
     Placement::block,
     "domains/dissemination",
     "domains/two_partial_dissemination"},
    {{4, 5},
     {2},
     Placement::block,
     "domains/leader/dissemination",
     "domains/leader/two_partial_dissemination"},
    {{6, 3},
     {2},
     Placement::cyclic,
     "domains/leader/dissemination",
     "domains/leader/two_partial_dissemination"},
    {{4}, {1}, Placement::block, "dissemination", "two_partial_dissemination"},  // nothing to share
};

ContextOptions with_domains(const DomainCase& shape) {
  ContextOptions options = with_nodes(shape.nodes, shape.placement);
  options.arena_bytes = 4u << 20;
  options.ranks_per_domain = shape.domains;
  return options;
}

/// Calls after which a rank finds that another one has not entered.
int early_returns(Communicator& communicator, std::atomic<std::uint32_t>& entered) {
  Operation meet = barrier(communicator);
  std::mt19937 random(index_of(communicator.rank()));
  int early = 0;
  for (std::uint32_t call = 1; call <= 200; ++call) {
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    entered.fetch_add(1);
    if (!run_once(meet)) return 1000;
    early += entered.load() < call * communicator.rank_count() ? 1 : 0;
  }
  return early;
}

TEST(Domains, barriers_separate_and_sums_are_right) {
  for (const DomainCase& shape : domain_cases) {
    std::atomic<std::uint32_t> entered{0};
    const std::uint32_t ranks = rank_count_of(shape.nodes);
    const auto results = run_local_threads({.rank_count = ranks}, [&](Exchange& exchange) {
      Context context(with_domains(shape));
      Communicator communicator(context, exchange);
      if (barrier(communicator).algorithm() != shape.barrier) return 1;
      std::uint64_t one = 1, sum = 0;
      if (allreduce(communicator, {.source = &one,
                                   .target = &sum,
                                   .element_count = 1,
                                   .reduction = test::sum_job().reduction})
              .algorithm() != shape.allreduce)
        return 2;
      if (early_returns(communicator, entered) != 0) return 3;
      for (const test::Job& job : {test::sum_job(), test::ordered_job()})
        for (const std::size_t count : {0u, 1u, 7u, 8u, 700u, 2000u})
          if (wrong_results(communicator, job, count, 20) != 0) return 4;
      // Half of the ranks, whose domains are those of the shape again.
      std::optional<Communicator> half = communicator.split(index_of(exchange.self()) % 2);
      return wrong_results(*half, test::sum_job(), 3, 20) == 0 ? 0 : 5;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(ranks))
        << text_of(shape.nodes) << " by " << text_of(shape.domains);
  }
}

TEST(Domains, give_all_processes_the_same_bits) {
  constexpr std::uint32_t ranks = 6;
  const auto results = run_local({.rank_count = ranks}, [](Exchange& exchange) {
    Context context(with_domains({{6}, {3}, Placement::block, "", ""}));
    Communicator communicator(context, exchange);
    std::mt19937_64 random(index_of(exchange.self()));
    std::vector<double> source(40), target(40), all(40 * ranks);
    for (std::size_t i = 0; i < source.size(); ++i)
      source[i] = test::adversarial<double>(random, index_of(exchange.self()), i);
    Operation sum = allreduce<double>(communicator, std::span<const double>(source),
                                      std::span(target), tutti::sum);
    if (sum.algorithm() != "domains/recursive_multiplying" || !run_once(sum)) return 1;
    Operation tell =
        allgather<double>(communicator, std::span<const double>(target), std::span(all));
    if (!run_once(tell)) return 2;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (std::bit_cast<std::uint64_t>(all[i]) != std::bit_cast<std::uint64_t>(target[i % 40]))
        return 3;
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(ranks));
}

TEST(Domains, are_those_that_ranks_have_found) {
  const bootstrap::NodeMap node =
      bootstrap::imposed_node_map({.rank_count = 4, .ranks_per_node = {4}});
  std::vector<runtime::NeighbourCard> cards(4);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) cards[rank].domain = rank / 2 * 8;
  const std::vector<Node> two{Node{0}, Node{0}, Node{1}, Node{1}}, one(4, Node{0});
  EXPECT_EQ(runtime::domains_of(node, cards, runtime::context_settings({})), one)
      << "16 ranks and fewer";
  EXPECT_EQ(runtime::domains_of(node, cards, runtime::context_settings({.domains_above = 3})), two);
  EXPECT_EQ(
      runtime::domains_of(node, cards, runtime::context_settings({.domains_above = SIZE_MAX})),
      one);
  cards[3].domain = bootstrap::no_domain;
  EXPECT_EQ(runtime::domains_of(node, cards, runtime::context_settings({.domains_above = 3})), one);
}

TEST(Domains, shapes_that_differ_across_ranks_are_refused) {
  for (const bool of_limits : {false, true}) {
    const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
      ContextOptions options = with_nodes({2}, Placement::block);
      if (of_limits)
        options.domains_above = index_of(exchange.self());
      else
        options.ranks_per_domain = {1 + index_of(exchange.self())};
      Context context(options);
      try {
        Communicator communicator(context, exchange);
      } catch (const Error& error) {
        const std::string text = error.what();
        return error.code() == ErrorCode::mismatch &&
                       text.find("TUTTI_RANKS_PER_DOMAIN") != std::string::npos
                   ? 0
                   : 2;
      }
      return 1;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(2));
  }
}

TEST(Nodes, an_empty_node_is_refused) {
  EXPECT_THROW(Context(with_nodes({2, 0}, Placement::block)), Error);
}

}  // namespace
}  // namespace tutti
