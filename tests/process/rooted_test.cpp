// Promise: broadcast and reduce are right for every root, whatever shape the nodes have; a rank
// runs ahead of another by two calls and no further; bits are those that were promised.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/device.hpp"
#include "support/jobs.hpp"
#include "support/node_shapes.hpp"
#include "support/operators.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

struct Shape {
  std::uint32_t rank_count = 1;
  std::vector<std::uint32_t> ranks_per_node = {1};
  Placement placement = Placement::block;
};

ContextOptions options_of(const Exchange& exchange, const Shape& shape,
                          std::size_t arena_bytes = 1u << 20) {
  ContextOptions options = test::on_test_device(exchange);
  options.arena_bytes = arena_bytes;
  options.ranks_per_node = shape.ranks_per_node;
  options.placement = shape.placement;
  return options;
}

bool run_once(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(30s) == Status::ok;
}

int wrong_broadcasts(Communicator& communicator, Rank root, std::size_t count, std::uint64_t calls,
                     Tree tree = Tree::automatic) {
  const std::uint32_t self = index_of(communicator.rank());
  std::vector<std::uint64_t> buffer(count);
  Operation operation = broadcast(communicator, {.buffer = buffer.data(),
                                                 .bytes = count * sizeof(std::uint64_t),
                                                 .root = root,
                                                 .element_bytes = sizeof(std::uint64_t),
                                                 .tree = tree});
  int wrong = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (std::size_t i = 0; i < count; ++i)
      buffer[i] = communicator.rank() == root ? test::input(self, call, i) : 0;
    if (!run_once(operation)) return 1000;
    for (std::size_t i = 0; i < count; ++i)
      wrong += buffer[i] != test::input(index_of(root), call, i) ? 1 : 0;
  }
  return wrong;
}

int wrong_reduces(Communicator& communicator, Rank root, const test::Job& job, std::size_t count,
                  std::uint64_t calls, bool in_place, Tree tree = Tree::automatic) {
  const std::uint32_t self = index_of(communicator.rank());
  const bool here = communicator.rank() == root;
  std::vector<std::uint64_t> source(count), result(here && !in_place ? count : 0);
  std::uint64_t* const target = in_place && here ? source.data() : result.data();
  Operation operation = reduce(communicator, {.source = source.data(),
                                              .target = target,
                                              .element_count = count,
                                              .reduction = job.reduction,
                                              .root = root,
                                              .tree = tree});
  int wrong = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (std::size_t i = 0; i < count; ++i) source[i] = test::input(self, call, i);
    if (!run_once(operation)) return 1000;
    for (std::size_t i = 0; i < count; ++i)
      if (here)
        wrong += target[i] != job.expected(communicator.rank_count(), call, i) ? 1 : 0;
      else
        wrong += source[i] != test::input(self, call, i) ? 1 : 0;
  }
  return wrong;
}

int wrong_of_root(Communicator& communicator, Rank root) {
  const std::size_t count = 1 + index_of(root) % 9;
  int wrong = wrong_broadcasts(communicator, root, count, 5);
  for (const test::Job& job : {test::sum_job(), test::ordered_job()})
    wrong += wrong_reduces(communicator, root, job, count, 5, index_of(root) % 2 == 1);
  return wrong;
}

int exercise(Exchange& exchange, const Shape& shape) {
  Context context(options_of(exchange, shape));
  Communicator communicator(context, exchange);
  int wrong = 0;
  for (std::uint32_t root = 0; root < shape.rank_count; ++root)
    wrong += wrong_of_root(communicator, Rank{root});
  return wrong;
}

void expect_right(const Shape& shape, test::Launch launch) {
  const auto results = launch({.rank_count = shape.rank_count},
                              [&](Exchange& exchange) { return exercise(exchange, shape); });
  EXPECT_EQ(codes_of(results), std::vector<int>(shape.rank_count)) << shape.rank_count << " ranks";
}

TEST(Rooted, is_right_for_every_root_over_the_device) {
  for (const std::uint32_t ranks :
       test::all_or_few<std::uint32_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 4, 8}))
    expect_right({.rank_count = ranks}, ranks % 2 == 0 ? run_local : run_local_threads);
}

TEST(Rooted, is_right_for_every_root_inside_a_node) {
  for (std::uint32_t ranks = 2; ranks <= 9; ++ranks)
    expect_right({.rank_count = ranks, .ranks_per_node = {ranks}}, run_local_threads);
}

TEST(Rooted, is_right_for_sampled_shapes_and_placements) {
  expect_right({5, {3, 2}}, run_local);
  expect_right({7, {2}, Placement::cyclic}, run_local_threads);
  expect_right({9, {4, 1, 3}, Placement::random}, run_local_threads);
  expect_right({12, {3}, Placement::cyclic}, run_local_threads);
  expect_right({12, {1, 5}, Placement::block}, run_local_threads);
}

TEST(Rooted, is_right_along_every_tree) {
  const Shape shapes[] = {{7}, {13}, {8, {8}}, {12, {5}}, {9, {2}, Placement::cyclic}};
  for (const Shape& shape : shapes) {
    const auto results =
        run_local_threads({.rank_count = shape.rank_count}, [&](Exchange& exchange) {
          Context context(options_of(exchange, shape, 8u << 20));
          Communicator communicator(context, exchange);
          int wrong = 0;
          const Rank root{shape.rank_count / 3};
          for (const Tree tree : {Tree::knomial, Tree::binomial, Tree::fibonacci})
            for (const std::size_t count : {1u, 700u}) {
              wrong += wrong_broadcasts(communicator, root, count, 10, tree);
              for (const test::Job& job : {test::sum_job(), test::ordered_job()})
                wrong += wrong_reduces(communicator, root, job, count, 10, count == 1, tree);
            }
          return wrong;
        });
    EXPECT_EQ(codes_of(results), std::vector<int>(shape.rank_count)) << shape.rank_count;
  }
}

TEST(Rooted, trees_that_differ_across_ranks_are_refused) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context(options_of(exchange, {4}));
    Communicator communicator(context, exchange);
    std::uint64_t value = 0;
    try {
      (void)broadcast(communicator,
                      {.buffer = &value,
                       .bytes = sizeof value,
                       .tree = exchange.self() == Rank{2} ? Tree::binomial : Tree::fibonacci});
    } catch (const Error& error) {
      const std::string text = error.what();
      return error.code() == ErrorCode::mismatch && text.find("binomial_tree") != std::string::npos
                 ? 0
                 : 2;
    }
    return 1;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

TEST(Rooted, payloads_of_any_size) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(options_of(exchange, {3, {2, 1}}, 16u << 20));
    Communicator communicator(context, exchange);
    int wrong = 0;
    for (const std::size_t count : test::all_or_few<std::size_t>(
             {0, 1, 6, 7, 8, 9, 63, 64, 65, 50000}, {0, 1, 7, 8, 64, 8192})) {
      wrong += wrong_broadcasts(communicator, Rank{1}, count, 4);
      wrong += wrong_reduces(communicator, Rank{2}, test::ordered_job(), count, 4, false);
    }
    return wrong;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(Rooted, chunks_are_right_on_both_sides_of_their_edges) {
  for (const Shape& shape : {Shape{3, {3}}, Shape{5, {3, 2}}, Shape{2, {1}}}) {
    const auto results =
        run_local_threads({.rank_count = shape.rank_count}, [&](Exchange& exchange) {
          ContextOptions options = options_of(exchange, shape, 2u << 20);
          options.chunk_bytes = 4608;
          Context context(options);
          Communicator communicator(context, exchange);
          constexpr std::size_t n = 4608 / sizeof(std::uint64_t);
          int wrong = 0;
          for (const std::size_t count : {n - 1, n, n + 1, 4 * n + 1, 50'000 + n})
            for (std::uint32_t root = 0; root < shape.rank_count; ++root) {
              wrong += wrong_broadcasts(communicator, Rank{root}, count, 3);
              wrong +=
                  wrong_reduces(communicator, Rank{root}, test::ordered_job(), count, 3, root == 1);
            }
          return wrong;
        });
    EXPECT_EQ(codes_of(results), std::vector<int>(shape.rank_count)) << shape.rank_count;
  }
}

/// All ranks choose chunks of the same length, for which the smallest arena has room.
TEST(Rooted, long_broadcasts_inside_a_node_fit_the_smallest_arena_of_its_ranks) {
  if (!test::device_is_soft()) GTEST_SKIP() << "about shared memory";
  for (const std::size_t arena_of_others : {1u << 20, 16u << 20}) {
    const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
      const bool is_first = exchange.self() == Rank{0};
      ContextOptions options =
          options_of(exchange, {3, {3}}, is_first ? 16u << 20 : arena_of_others);
      options.single_copy_bytes = SIZE_MAX;
      Context context(options);
      Communicator communicator(context, exchange);
      int wrong = 0;
      for (const std::uint32_t root : {0u, 2u})
        for (const std::size_t count : {200'001u, 280'000u})
          wrong += wrong_broadcasts(communicator, Rank{root}, count, 3);
      return std::min(wrong, 200);
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(3)) << arena_of_others;
  }
}

/// Long ones pass through the nodes piece after piece.
TEST(Rooted, long_payloads_are_right_along_a_chain) {
  for (const Shape& shape :
       test::all_or_few<Shape>({{4, {1}}, {7, {2}}, {6, {1, 3}, Placement::cyclic}}, {{4, {1}}})) {
    const auto results =
        run_local_threads({.rank_count = shape.rank_count}, [&](Exchange& exchange) {
          Context context(options_of(exchange, shape, 16u << 20));
          Communicator communicator(context, exchange);
          int wrong = 0;
          for (const std::size_t count :
               test::all_or_few<std::size_t>({32'768, 32'769, 50'001}, {32'769}))
            for (const Rank root : {Rank{0}, Rank{shape.rank_count - 2}}) {
              wrong += wrong_broadcasts(communicator, root, count, 3);
              wrong += wrong_reduces(communicator, root, test::sum_job(), count, 3, count % 2 == 1);
              wrong += wrong_reduces(communicator, root, test::ordered_job(), count, 3, false);
            }
          std::vector<std::uint64_t> buffer(32'768);
          // Perhaps in lanes, where ranks do not share CPUs.
          const auto is_chain = [](const Operation& operation) {
            return std::string(operation.algorithm()).ends_with("pipelined_chain");
          };
          if (!is_chain(broadcast<std::uint64_t>(communicator, std::span(buffer), Rank{1})))
            wrong += 100;
          std::vector<std::uint64_t> result(32'768);
          const Operation add =
              reduce<std::uint64_t>(communicator, std::span<const std::uint64_t>(buffer),
                                    std::span(result), Rank{1}, sum);
          if (!is_chain(add)) wrong += 1000;
          return wrong;
        });
    EXPECT_EQ(codes_of(results), std::vector<int>(shape.rank_count)) << shape.rank_count;
  }
}

// ---- Thresholds ---------------------------------------------------------------------------------

/// What a reduce of `job` over the ranks from the root on gives.
std::uint64_t expected_of(const test::Job& job, const std::vector<std::uint32_t>& ranks,
                          std::uint64_t call, std::size_t i) {
  std::uint64_t value = test::input(ranks[0], call, i);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    value = job.fold(value, test::input(ranks[rank], call, i));
  return value;
}

int wrong_partial_reduces(Communicator& communicator, Rank root, std::uint32_t participants,
                          const test::Job& job) {
  constexpr std::size_t count = 10, taken = 3;  // ceil(0.21 * 10)
  const std::uint32_t self = index_of(communicator.rank()), all = communicator.rank_count();
  std::vector<std::uint32_t> ranks;  // in rank order
  for (std::uint32_t i = 0; i < participants; ++i) ranks.push_back((index_of(root) + i) % all);
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::uint64_t> source(count), target(count);
  Operation operation =
      reduce(communicator, {.source = source.data(),
                            .target = target.data(),
                            .element_count = count,
                            .reduction = job.reduction,
                            .root = root,
                            .data_fraction = 0.21,
                            .rank_fraction = static_cast<double>(participants) / all});
  const Operation::Coverage coverage = operation.coverage();
  int wrong = coverage.element_count != taken || coverage.rank_count != participants ? 100 : 0;
  for (std::uint64_t call = 1; call <= 5; ++call) {
    for (std::size_t i = 0; i < count; ++i) source[i] = test::input(self, call, i);
    std::fill(target.begin(), target.end(), 7);
    if (!run_once(operation)) return 1000;
    for (std::size_t i = 0; i < count; ++i)
      wrong +=
          target[i] !=
                  (communicator.rank() == root && i < taken ? expected_of(job, ranks, call, i) : 7)
              ? 1
              : 0;
  }
  return wrong;
}

TEST(Thresholds, reduces_take_as_many_ranks_and_elements_as_were_asked_for) {
  for (const Shape& shape : {Shape{7, {1}}, Shape{7, {3, 2}, Placement::cyclic}, Shape{6, {6}}}) {
    const auto results =
        run_local_threads({.rank_count = shape.rank_count}, [&](Exchange& exchange) {
          Context context(options_of(exchange, shape));
          Communicator communicator(context, exchange);
          int wrong = 0;
          for (std::uint32_t root = 0; root < shape.rank_count; root += 2)
            for (std::uint32_t participants = 1; participants <= shape.rank_count; ++participants)
              for (const test::Job& job : {test::sum_job(), test::ordered_job()})
                wrong += wrong_partial_reduces(communicator, Rank{root}, participants, job);
          return std::min(wrong, 200);
        });
    EXPECT_EQ(codes_of(results), std::vector<int>(shape.rank_count)) << shape.rank_count;
  }
}

/// Any two roots of a shape may have different trees, so each root of each shape is run: whole
/// payloads, and reduces to which only some ranks contribute.
TEST(Rooted, is_right_for_every_root_on_every_shape_of_up_to_six_ranks) {
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint32_t ranks_max = 4;  // there it is about threads, and takes many times as long
#else
  constexpr std::uint32_t ranks_max = 6;
#endif
  for (std::uint32_t ranks = 1; ranks <= ranks_max; ++ranks)
    for (const std::vector<std::uint32_t>& nodes : test::compositions(ranks)) {
      const auto results = run_local_threads({.rank_count = ranks}, [&](Exchange& exchange) {
        Context context(options_of(exchange, {ranks, nodes}));
        Communicator communicator(context, exchange);
        int wrong = communicator.node_count() == nodes.size() ? 0 : 100;
        for (std::uint32_t root = 0; root < ranks; ++root) {
          wrong += wrong_of_root(communicator, Rank{root});
          wrong +=
              wrong_partial_reduces(communicator, Rank{root}, (ranks + 1) / 2, test::ordered_job());
        }
        return std::min(wrong, 200);
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(ranks))
          << ::testing::PrintToString(nodes) << " ranks per node";
    }
}

TEST(Thresholds, broadcasts_take_as_many_elements_as_were_asked_for) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(options_of(exchange, {3, {2, 1}}));
    Communicator communicator(context, exchange);
    const struct {
      double fraction;
      std::size_t elements;
    } cases[] = {{1.0, 100}, {0.07, 7}, {0.071, 8}, {0.29, 29}, {1e-9, 1}};
    for (const auto& one : cases) {
      std::vector<std::uint64_t> buffer(100, communicator.rank() == Rank{2} ? 5 : 0);
      Operation operation = broadcast(communicator, {.buffer = buffer.data(),
                                                     .bytes = buffer.size() * 8,
                                                     .root = Rank{2},
                                                     .data_fraction = one.fraction,
                                                     .element_bytes = 8});
      if (operation.coverage().element_count != one.elements) return 1;
      if (!run_once(operation)) return 2;
      if (communicator.rank() == Rank{2}) continue;
      for (std::size_t i = 0; i < buffer.size(); ++i)
        if (buffer[i] != (i < one.elements ? 5u : 0u)) return 3;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(Thresholds, fractions_outside_are_refused_by_name) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    Context context(options_of(exchange, {2, {2}}));
    Communicator communicator(context, exchange);
    std::uint64_t value = 0, result = 0;
    const auto refused = [](const std::string& word, const std::function<void()>& make) {
      try {
        make();
      } catch (const Error& error) {
        return error.code() == ErrorCode::invalid_argument &&
               std::string(error.what()).find(word) != std::string::npos;
      }
      return false;
    };
    for (const double fraction : {0.0, -0.5, 1.5, std::nan("")}) {
      const auto reduce_with = [&](double data, double ranks) {
        (void)reduce(communicator, {.source = &value,
                                    .target = &result,
                                    .element_count = 1,
                                    .reduction = test::sum_job().reduction,
                                    .data_fraction = data,
                                    .rank_fraction = ranks});
      };
      if (!refused("data_fraction", [&] { reduce_with(fraction, 1); })) return 1;
      if (!refused("rank_fraction", [&] { reduce_with(1, fraction); })) return 2;
      if (!refused("data_fraction", [&] {
            (void)broadcast(communicator,
                            {.buffer = &value, .bytes = 8, .data_fraction = fraction});
          }))
        return 3;
    }
    return refused("element_bytes 3",
                   [&] {
                     (void)broadcast(communicator,
                                     {.buffer = &value, .bytes = 8, .element_bytes = 3});
                   })
               ? 0
               : 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

/// A root that calls often while a leaf does nothing: it waits after two calls, and every value
/// arrives.
int run_ahead(Exchange& exchange, const std::vector<std::uint32_t>& ranks_per_node,
              const test::SharedCount& waiting) {
  Context context(options_of(exchange, {3, ranks_per_node}));
  Communicator communicator(context, exchange);
  const std::uint64_t calls = test::times(20'000);
  std::uint64_t buffer = 0;
  Operation operation = broadcast<std::uint64_t>(communicator, std::span(&buffer, 1), Rank{0});
  communicator.synchronize();
  if (exchange.self() == Rank{0}) {
    for (buffer = 1; buffer <= 2; ++buffer)
      if (!run_once(operation)) return 1;
    // The third call needs the leaf.
    if (operation.start() != Status::ok) return 2;
    if (operation.wait(50ms) != Status::timed_out) return 3;
    if (operation.describe().find("waiting for ranks") == std::string::npos) return 4;
    waiting.add();
    if (operation.wait(30s) != Status::ok) return 5;
    for (buffer = 4; buffer <= calls; ++buffer)
      if (!run_once(operation)) return 6;
    return 0;
  }
  if (exchange.self() == Rank{2} && !waiting.comes_to(1)) return 9;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    if (!run_once(operation)) return 7;
    if (buffer != call) return 8;
    if (exchange.self() == Rank{2} && call % (calls / 5) == 0) std::this_thread::sleep_for(20ms);
  }
  return 0;
}

TEST(Rooted, a_root_runs_ahead_by_two_calls_and_no_further) {
  for (const std::vector<std::uint32_t>& shape :
       {std::vector<std::uint32_t>{3}, std::vector<std::uint32_t>{1}}) {
    const test::SharedCount waiting;
    const auto results = run_local(
        {.rank_count = 3}, [&](Exchange& exchange) { return run_ahead(exchange, shape, waiting); });
    EXPECT_EQ(codes_of(results), std::vector<int>(3));
  }
}

TEST(Rooted, a_leaf_that_sends_runs_ahead_too) {
  const test::SharedCount waiting;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    Context context(options_of(exchange, {3, {2, 1}}));
    Communicator communicator(context, exchange);
    std::uint64_t source = 0, target = 0;
    Operation operation =
        reduce<std::uint64_t>(communicator, std::span<const std::uint64_t>(&source, 1),
                              std::span(&target, 1), Rank{1}, sum);
    communicator.synchronize();
    const bool root = exchange.self() == Rank{1};
    if (root && !waiting.comes_to(2)) return 5;
    for (std::uint64_t call = 1; call <= test::times(5000); ++call) {
      source = call * (index_of(exchange.self()) + 1);
      if (operation.start() != Status::ok) return 1;
      if (!root && call == 3) {
        // The others finish two calls while the root does nothing, and not the third.
        if (operation.wait(100ms) != Status::timed_out) return 4;
        waiting.add();
      }
      if (operation.wait(30s) != Status::ok) return 3;
      if (root && target != 6 * call) return 2;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

/// Operations come and go while their peers still read: no memory is used for two of them.
TEST(Rooted, operations_that_come_and_go_do_not_meet) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context(options_of(exchange, {4, {2, 2}}));
    Communicator communicator(context, exchange);
    std::mt19937 random(index_of(exchange.self()));
    int wrong = 0;
    for (std::uint32_t turn = 0; turn < test::times(60); ++turn) {
      if (random() % 4 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      wrong += wrong_broadcasts(communicator, Rank{turn % 4}, 1 + turn % 20, 3);
      wrong += wrong_reduces(communicator, Rank{turn % 4}, test::sum_job(), 3, 3, false);
    }
    return wrong;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

/// Less than the 8 s that an operation may take to get its memory back.
constexpr auto not_waited_out = 6s;

/// A root that is done with an operation goes on without waiting: a rank that still has to read may
/// need the root for something else first.
int destroys_early(Exchange& exchange, const std::vector<std::uint32_t>& ranks_per_node) {
  const auto begin = std::chrono::steady_clock::now();
  {
    Context context(options_of(exchange, {2, ranks_per_node}));
    Communicator communicator(context, exchange);
    const bool root = exchange.self() == Rank{0};
    std::uint64_t first = root ? 5 : 0, source = 1, all = 0;
    Operation both = allreduce<std::uint64_t>(
        communicator, std::span<const std::uint64_t>(&source, 1), std::span(&all, 1), sum);
    auto told = std::make_unique<Operation>(
        broadcast<std::uint64_t>(communicator, std::span(&first, 1), Rank{0}));
    if (both.start() != Status::ok) return 1;
    if (root) {
      if (!run_once(*told)) return 2;
      told.reset();
      if (both.wait(10s) != Status::ok) return 3;
    } else {
      if (both.wait(10s) != Status::ok) return 4;
      if (told->start() != Status::ok) return 5;  // and reads later
    }
    // The root comes here with nothing in flight, the other with a broadcast.
    Operation next = barrier(communicator);
    if (!root && told->wait(10s) != Status::ok) return 6;
    if (!root && first != 5) return 7;
    if (!run_once(next)) return 8;
  }
  return std::chrono::steady_clock::now() - begin < not_waited_out ? 0 : 9;
}

TEST(Rooted, destroying_an_operation_that_others_still_read_waits_for_nobody) {
  for (const std::vector<std::uint32_t>& shape :
       {std::vector<std::uint32_t>{2}, std::vector<std::uint32_t>{1}}) {
    const auto results = run_local(
        {.rank_count = 2}, [&](Exchange& exchange) { return destroys_early(exchange, shape); });
    EXPECT_EQ(codes_of(results), std::vector<int>(2));
  }
}

TEST(Rooted, a_death_ends_the_wait_for_who_has_not_read) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    const auto begin = std::chrono::steady_clock::now();
    {
      Context context(options_of(exchange, {2, {2}}));
      Communicator communicator(context, exchange);
      std::uint64_t value = 0;
      Operation told = broadcast<std::uint64_t>(communicator, std::span(&value, 1), Rank{0});
      communicator.synchronize();
      if (exchange.self() == Rank{1}) ::kill(::getpid(), SIGKILL);
      (void)run_once(told);
    }
    return std::chrono::steady_clock::now() - begin < not_waited_out ? 0 : 1;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 1000 + SIGKILL}));
}

TEST(Rooted, a_reproducible_reduce_has_the_bits_of_a_reproducible_allreduce) {
  for (const Shape& shape : {Shape{7, {1}}, Shape{7, {3, 4}}, Shape{7, {2}, Placement::cyclic}}) {
    const auto results = run_local_threads({.rank_count = 7}, [&](Exchange& exchange) {
      Context context(options_of(exchange, shape));
      Communicator communicator(context, exchange);
      std::mt19937_64 random(index_of(exchange.self()));
      std::vector<double> source(64), reduced(64), everywhere(64);
      for (double& value : source)
        value = std::ldexp(static_cast<double>(random()) - 9e18, static_cast<int>(random() % 60));
      Operation all = allreduce<double>(communicator, std::span<const double>(source),
                                        std::span(everywhere), sum, Agreement::reproducible);
      if (!run_once(all)) return 1;
      for (std::uint32_t root = 0; root < 7; ++root) {
        Operation one =
            reduce<double>(communicator, std::span<const double>(source), std::span(reduced),
                           Rank{root}, sum, Agreement::reproducible);
        if (!run_once(one)) return 2;
        if (exchange.self() == Rank{root} &&
            std::memcmp(reduced.data(), everywhere.data(), 64 * sizeof(double)) != 0)
          return 3;
      }
      return 0;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(7));
  }
}

TEST(Rooted, a_dead_rank_is_named_by_whoever_waits) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(options_of(exchange, {3, {3}}));
    Communicator communicator(context, exchange);
    std::uint64_t buffer = 0;
    Operation operation = broadcast<std::uint64_t>(communicator, std::span(&buffer, 1), Rank{0});
    for (int call = 0; call < 10; ++call)
      if (!run_once(operation)) return 1;
    communicator.synchronize();
    if (exchange.self() == Rank{2}) ::kill(::getpid(), SIGKILL);
    // Its root may finish two calls without it.
    Status status = Status::ok;
    for (int call = 0; call < 4 && status == Status::ok; ++call) {
      status = operation.start();
      if (status == Status::ok) status = operation.wait(10s);
    }
    if (status != Status::peer_failed) return 2;
    return communicator.failure().peer == Rank{2} ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 1000 + SIGKILL}));
}

std::string refusal(Communicator& communicator, const std::function<void(Communicator&)>& make) {
  try {
    make(communicator);
  } catch (const Error& error) {
    return error.what();
  }
  return "made";
}

TEST(Rooted, wrong_arguments_are_refused_on_every_rank) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    Context context(options_of(exchange, {2, {1}}));
    Communicator communicator(context, exchange);
    const std::uint32_t self = index_of(exchange.self());
    std::uint64_t word = 0;
    const auto has = [](const std::string& text, const char* part) {
      if (text.find(part) != std::string::npos) return true;
      std::fprintf(stderr, "\"%s\" in \"%s\"?\n", part, text.c_str());
      return false;
    };
    if (!has(refusal(communicator,
                     [&](Communicator& c) {
                       (void)broadcast(c, {.buffer = &word, .bytes = 8, .root = Rank{2}});
                     }),
             "root 2: expected a rank, 0 .. 1"))
      return 1;
    if (!has(refusal(communicator,
                     [&](Communicator& c) {
                       (void)broadcast(c, {.buffer = &word, .bytes = 8, .root = Rank{self}});
                     }),
             "with root 1"))
      return 2;
    if (!has(refusal(communicator,
                     [&](Communicator& c) {
                       (void)broadcast(c, {.buffer = &word, .bytes = 8 - self});
                     }),
             "different operations"))
      return 3;
    if (!has(refusal(communicator,
                     [&](Communicator& c) { (void)broadcast(c, {.buffer = nullptr, .bytes = 8}); }),
             "buffer is null"))
      return 4;
    const Reduction add = built_in_reduction(BuiltIn::sum, ElementType::uint64);
    if (!has(refusal(communicator,
                     [&](Communicator& c) {
                       (void)reduce(c, {.source = &word, .element_count = 1, .reduction = add});
                     }),
             "source or target is null"))
      return 5;
    return wrong_broadcasts(communicator, Rank{0}, 1, 10);  // and it is still usable
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

}  // namespace
}  // namespace tutti
