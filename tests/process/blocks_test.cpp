// Promise: collectives of blocks, and scans, are right whatever shape the nodes have, for every
// root, for blocks of any sizes, whole, in chunks, read where they are, and in place (alltoall: of
// equal sizes); a rank with other sizes than the rest is an error on every rank.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include "support/device.hpp"
#include "support/jobs.hpp"
#include "support/node_shapes.hpp"
#include "support/operators.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;
using Bytes = std::vector<std::byte>;

struct Shape {
  std::uint32_t rank_count = 1;
  std::vector<std::uint32_t> ranks_per_node = {1};
  Placement placement = Placement::block;
};

/// Nothing, a little, what fits a line and does not, and what stays where its sender has it.
#if defined(__SANITIZE_THREAD__)
const std::vector<std::size_t> usual_sizes = {5000};
constexpr std::uint64_t calls = 3;  // both parities, and one of them again
constexpr std::uint32_t ranks_max = 4;
#else
constexpr std::uint64_t calls = 4;
constexpr std::uint32_t ranks_max = 8;
const std::vector<std::size_t> usual_sizes = {0, 1, 56, 57, 5000};
#endif

struct Task {
  Shape shape;
  std::size_t chunk_bytes = 0;
  std::size_t single_copy_bytes = SIZE_MAX;
  std::vector<std::size_t> sizes = usual_sizes;  // bytes of blocks, about
  Timeout delay = Timeout::zero();               // of each rank before each call, at most
  std::vector<std::uint32_t> per_round = {};     // which allgathers follow
};

/// What one rank has for another in a call.  Tests are hardly optimised, so that loops are plain.
struct Values {
  std::size_t from, to;
  std::uint64_t call;

  void write(std::byte* into, std::size_t bytes) const {
    const auto seed = static_cast<std::uint32_t>(from * 37 + to);
    for (std::size_t i = 0; i < bytes; ++i)
      into[i] = static_cast<std::byte>(test::input(seed, call, i) >> 8);
  }
  bool are_in(const std::byte* block, std::size_t bytes) const {
    Bytes expected(bytes + 1);  // no null pointer
    write(expected.data(), bytes);
    return std::memcmp(block, expected.data(), bytes) == 0;
  }
};

/// Sizes that differ by rank, 0 among them.
std::size_t uneven(std::size_t from, std::size_t to, std::size_t about) {
  return (from * 7 + to * 3) % 4 * about / 3;
}

/// The ranks of a run with what they run on.
struct Ranks {
  Communicator& communicator;
  const Task& task;
  std::mt19937 random;

  std::size_t self() const { return index_of(communicator.rank()); }
  std::size_t count() const { return communicator.rank_count(); }

  /// Runs `operation` again and again; `fill` before a call, `wrong` after it.
  int wrong_of(Operation operation, const std::function<void(std::uint64_t call)>& fill,
               const std::function<bool(std::uint64_t call)>& wrong) {
    int all = 0;
    const std::uint64_t last = test::device_is_soft() ? calls : 2;
    for (std::uint64_t call = 1; call <= last; ++call) {
      fill(call);
      if (task.delay > Timeout::zero())
        std::this_thread::sleep_for(task.delay * (random() % 100) / 100);
      if (operation.start() != Status::ok || operation.wait(30s) != Status::ok) return 1000;
      all += wrong(call) ? 1 : 0;
    }
    return all;
  }
};

/// Blocks side by side.
struct Buffer {
  BlockLayout layout;
  Bytes bytes;

  Buffer(std::size_t count, const std::function<std::size_t(std::size_t)>& size) {
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < count; ++rank) {
      layout.bytes.push_back(size(rank));
      layout.offsets.push_back(next);
      next += size(rank);
    }
    bytes.resize(next + 1);  // no null pointer
  }
  /// `whose` says for each rank what its block holds.
  void fill(const std::function<Values(std::size_t rank)>& whose) {
    for (std::size_t rank = 0; rank < layout.bytes.size(); ++rank)
      whose(rank).write(bytes.data() + layout.offsets[rank], layout.bytes[rank]);
  }
  void clear() { std::memset(bytes.data(), 0, bytes.size()); }
  bool differs(const std::function<Values(std::size_t rank)>& whose) const {
    for (std::size_t rank = 0; rank < layout.bytes.size(); ++rank)
      if (!whose(rank).are_in(bytes.data() + layout.offsets[rank], layout.bytes[rank])) return true;
    return false;
  }
};

int wrong_allgathers(Ranks& ranks, std::size_t bytes, bool uneven_sizes, bool in_place) {
  const std::size_t self = ranks.self();
  const auto size = [&](std::size_t rank) { return uneven_sizes ? uneven(rank, 0, bytes) : bytes; };
  Buffer target(ranks.count(), size);
  Bytes own(size(self) + 1);
  std::byte* const source =
      in_place ? target.bytes.data() + target.layout.offsets[self] : own.data();
  const auto make = [&] {
    if (uneven_sizes)
      return allgatherv(ranks.communicator,
                        {.source = source, .target = target.bytes.data(), .blocks = target.layout});
    return allgather(ranks.communicator,
                     {.source = source, .target = target.bytes.data(), .bytes = bytes});
  };
  return ranks.wrong_of(
      make(),
      [&](std::uint64_t call) {
        target.clear();
        Values{self, 0, call}.write(source, size(self));
      },
      [&](std::uint64_t call) {
        return target.differs([&](std::size_t rank) { return Values{rank, 0, call}; });
      });
}

int wrong_alltoalls(Ranks& ranks, std::size_t bytes, bool uneven_sizes, bool in_place) {
  const std::size_t self = ranks.self();
  Buffer source(ranks.count(),
                [&](std::size_t rank) { return uneven_sizes ? uneven(self, rank, bytes) : bytes; });
  Buffer target(ranks.count(),
                [&](std::size_t rank) { return uneven_sizes ? uneven(rank, self, bytes) : bytes; });
  const auto make = [&] {
    if (uneven_sizes)
      return alltoallv(ranks.communicator, {.source = source.bytes.data(),
                                            .source_blocks = source.layout,
                                            .target = target.bytes.data(),
                                            .target_blocks = target.layout});
    return alltoall(ranks.communicator,
                    {.source = in_place ? target.bytes.data() : source.bytes.data(),
                     .target = target.bytes.data(),
                     .bytes = bytes});
  };
  return ranks.wrong_of(
      make(),
      [&](std::uint64_t call) {
        (in_place ? target : source).fill([&](std::size_t rank) {
          return Values{self, rank, call};
        });
      },
      [&](std::uint64_t call) {
        return target.differs([&](std::size_t rank) { return Values{rank, self, call}; });
      });
}

int wrong_gathers(Ranks& ranks, std::size_t bytes, bool uneven_sizes, Rank root, bool in_place) {
  const std::size_t self = ranks.self();
  const bool here = ranks.communicator.rank() == root;
  const auto size = [&](std::size_t rank) { return uneven_sizes ? uneven(rank, 1, bytes) : bytes; };
  Buffer target(here ? ranks.count() : 0, size);
  Bytes own(size(self) + 1);
  std::byte* const source =
      here && in_place ? target.bytes.data() + target.layout.offsets[self] : own.data();
  const auto make = [&] {
    if (uneven_sizes)
      return gatherv(ranks.communicator, {.source = source,
                                          .bytes = size(self),
                                          .target = target.bytes.data(),
                                          .blocks = target.layout,
                                          .root = root});
    return gather(ranks.communicator, {.source = source,
                                       .target = here ? target.bytes.data() : nullptr,
                                       .bytes = bytes,
                                       .root = root});
  };
  return ranks.wrong_of(
      make(),
      [&](std::uint64_t call) {
        target.clear();
        Values{self, 0, call}.write(source, size(self));
      },
      [&](std::uint64_t call) {
        return target.differs([&](std::size_t rank) { return Values{rank, 0, call}; });
      });
}

int wrong_scatters(Ranks& ranks, std::size_t bytes, bool uneven_sizes, Rank root, bool in_place) {
  const std::size_t self = ranks.self();
  const bool here = ranks.communicator.rank() == root;
  const auto size = [&](std::size_t rank) { return uneven_sizes ? uneven(1, rank, bytes) : bytes; };
  Buffer source(here ? ranks.count() : 0, size);
  Bytes own(size(self) + 1);
  std::byte* const target =
      here && in_place ? source.bytes.data() + source.layout.offsets[self] : own.data();
  const auto make = [&] {
    if (uneven_sizes)
      return scatterv(ranks.communicator, {.source = source.bytes.data(),
                                           .blocks = source.layout,
                                           .target = target,
                                           .bytes = size(self),
                                           .root = root});
    return scatter(ranks.communicator, {.source = here ? source.bytes.data() : nullptr,
                                        .target = target,
                                        .bytes = bytes,
                                        .root = root});
  };
  return ranks.wrong_of(
      make(),
      [&](std::uint64_t call) {
        std::fill(own.begin(), own.end(), std::byte{0});
        source.fill([&](std::size_t rank) { return Values{self, rank, call}; });
      },
      [&](std::uint64_t call) {
        return !Values{index_of(root), self, call}.are_in(target, size(self));
      });
}

int wrong_reduce_scatters(Ranks& ranks, const test::Job& job, std::size_t about, bool in_place) {
  const std::size_t self = ranks.self();
  std::vector<std::size_t> counts, first{0};
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) {
    counts.push_back(uneven(rank, 2, about) / 8);
    first.push_back(first.back() + counts.back());
  }
  std::vector<std::uint64_t> source(first.back() + 1), own(counts[self] + 1);
  std::uint64_t* const target = in_place ? source.data() + first[self] : own.data();
  return ranks.wrong_of(
      reduce_scatter(ranks.communicator, {.source = source.data(),
                                          .target = target,
                                          .element_counts = counts,
                                          .reduction = job.reduction}),
      [&](std::uint64_t call) {
        for (std::size_t i = 0; i < source.size(); ++i)
          source[i] = test::input(static_cast<std::uint32_t>(self), call, i);
      },
      [&](std::uint64_t call) {
        bool wrong = false;
        for (std::size_t i = 0; i < counts[self]; ++i)
          wrong = wrong || target[i] != job.expected(static_cast<std::uint32_t>(ranks.count()),
                                                     call, first[self] + i);
        return wrong;
      });
}

int wrong_scans(Ranks& ranks, std::size_t elements, bool inclusive, bool in_place) {
  const test::Job job = test::ordered_job();
  const auto self = static_cast<std::uint32_t>(ranks.self());
  std::vector<std::uint64_t> source(elements + 1), own(elements + 1);
  std::uint64_t* const target = in_place ? source.data() : own.data();
  const ScanArguments arguments{.source = source.data(),
                                .target = target,
                                .element_count = elements,
                                .reduction = job.reduction};
  return ranks.wrong_of(
      inclusive ? scan(ranks.communicator, arguments) : exscan(ranks.communicator, arguments),
      [&](std::uint64_t call) {
        for (std::size_t i = 0; i < elements; ++i) source[i] = test::input(self, call, i);
      },
      [&](std::uint64_t call) {
        bool wrong = false;
        if (!inclusive && self == 0) return wrong;
        for (std::size_t i = 0; i < elements; ++i)
          wrong = wrong || target[i] != job.expected(inclusive ? self + 1 : self, call, i);
        return wrong;
      });
}

ContextOptions options_of(const Exchange& exchange, const Task& task,
                          std::size_t arena_bytes = 4u << 20) {
  ContextOptions options = test::on_test_device(exchange);
  options.arena_bytes = arena_bytes;
  options.ranks_per_node = task.shape.ranks_per_node;
  options.placement = task.shape.placement;
  options.chunk_bytes = task.chunk_bytes;
  options.single_copy_bytes = task.single_copy_bytes;
  if (!task.per_round.empty()) options.per_round = task.per_round;
  return options;
}

int exercise(Exchange& exchange, const Task& task) {
  Context context(options_of(exchange, task));
  Communicator communicator(context, exchange);
  Ranks ranks{communicator, task, std::mt19937(index_of(exchange.self()))};
  int wrong = 0;
  for (const std::size_t bytes : task.sizes)
    for (const bool in_place : {false, true}) {
      for (const bool uneven_sizes : {false, true}) {
        wrong += wrong_allgathers(ranks, bytes, uneven_sizes, in_place);
        wrong += wrong_alltoalls(ranks, bytes, uneven_sizes, in_place && !uneven_sizes);
        const Rank root{static_cast<std::uint32_t>(bytes + (in_place ? 1 : 0)) %
                        task.shape.rank_count};
        wrong += wrong_gathers(ranks, bytes, uneven_sizes, root, in_place);
        wrong += wrong_scatters(ranks, bytes, uneven_sizes, root, in_place);
      }
      for (const test::Job& job : {test::ordered_job(), test::sum_job()})
        wrong += wrong_reduce_scatters(ranks, job, bytes, in_place);
      wrong += wrong_scans(ranks, bytes / 8, true, in_place);
      wrong += wrong_scans(ranks, bytes / 8, false, in_place);
    }
  return std::min(wrong, 200);
}

void expect_right(const Task& task, test::Launch launch) {
  const auto results = launch({.rank_count = task.shape.rank_count},
                              [&](Exchange& exchange) { return exercise(exchange, task); });
  EXPECT_EQ(codes_of(results), std::vector<int>(task.shape.rank_count))
      << task.shape.rank_count << " ranks, " << task.shape.ranks_per_node.size()
      << " nodes, chunks " << task.chunk_bytes;
}

int on_defaults(Exchange& exchange, const std::function<int(Communicator&)>& body,
                std::optional<std::size_t> single_copy_bytes = {}) {
  ContextOptions options;
  options.single_copy_bytes = single_copy_bytes;
  options.device = test::device_of(exchange.self());
  options.arena_bytes = 2u << 20;
  Context context(options);
  Communicator communicator(context, exchange);
  return body(communicator);
}

TEST(Blocks, are_right_over_the_device) {
  if (!test::device_is_soft())
    for (const std::uint32_t ranks : {2u, 4u, 8u})
      expect_right(
          {.shape = {ranks},
           .sizes = ranks < 8 ? std::vector<std::size_t>{57, 65536} : std::vector<std::size_t>{57}},
          run_local);
  else
    for (std::uint32_t ranks = 1; ranks <= std::min(6u, ranks_max); ++ranks)
      expect_right({.shape = {ranks}}, ranks % 2 == 0 ? run_local : run_local_threads);
}

TEST(Blocks, are_right_inside_a_node) {
  for (std::uint32_t ranks = 2; ranks <= ranks_max; ranks += 2)
    expect_right({.shape = {ranks, {ranks}}}, run_local_threads);
}

/// Chunks are such that all ranks choose the same, and the smallest arena has room for them.
TEST(Blocks, of_a_node_fit_the_smallest_arena_of_its_ranks) {
  if (!test::device_is_soft()) GTEST_SKIP() << "about shared memory";
  const Task task{.shape = {3, {3}}, .single_copy_bytes = SIZE_MAX};
  for (const std::size_t arena_of_others : {1u << 20, 16u << 20}) {
    const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
      const bool is_first = exchange.self() == Rank{0};
      Context context(options_of(exchange, task, is_first ? 1u << 20 : arena_of_others));
      Communicator communicator(context, exchange);
      Ranks ranks{communicator, task, std::mt19937(index_of(exchange.self()))};
      return std::min(wrong_alltoalls(ranks, 1u << 20, false, false), 200);
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(3)) << arena_of_others;
  }
}

TEST(Blocks, are_right_for_shapes_and_placements) {
  if (!test::device_is_soft())
    return expect_right({.shape = {5, {3, 2}}, .sizes = {57, 5000}}, run_local);
  expect_right({.shape = {5, {3, 2}}}, run_local);
  expect_right({.shape = {7, {2}, Placement::cyclic}}, run_local_threads);
  expect_right({.shape = {9, {4, 1, 3}, Placement::random}, .sizes = {8, 5000}}, run_local_threads);
  expect_right({.shape = {12, {1, 5}}, .sizes = {8, 600}}, run_local_threads);
}

TEST(Blocks, are_gathered_and_scattered_by_every_root_on_every_shape_of_up_to_six_ranks) {
  for (std::uint32_t count = 1; count <= std::min(6u, ranks_max); ++count)
    for (const std::vector<std::uint32_t>& nodes : test::compositions(count)) {
      const Task task{.shape = {count, nodes}};
      const auto results = run_local_threads({.rank_count = count}, [&](Exchange& exchange) {
        Context context(options_of(exchange, task));
        Communicator communicator(context, exchange);
        Ranks ranks{communicator, task, std::mt19937(index_of(exchange.self()))};
        int wrong = communicator.node_count() == nodes.size() ? 0 : 100;
        for (std::uint32_t root = 0; root < count; ++root)
          for (const bool uneven_sizes : {false, true}) {
            wrong += wrong_gathers(ranks, 57, uneven_sizes, Rank{root}, uneven_sizes);
            wrong += wrong_scatters(ranks, 57, uneven_sizes, Rank{root}, uneven_sizes);
          }
        return std::min(wrong, 200);
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(count))
          << ::testing::PrintToString(nodes) << " ranks per node";
    }
}

TEST(Blocks, are_passed_on_rightly) {
  expect_right({.shape = {11}, .sizes = {8, 5000}}, run_local_threads);
  expect_right({.shape = {6}, .per_round = {2, 1}}, run_local);
  expect_right({.shape = {10, {2}}, .sizes = {56, 5000}, .per_round = {1, 1, 1}},
               run_local_threads);
  expect_right({.shape = {9, {3}, Placement::cyclic},
                .chunk_bytes = 4608,
                .sizes = {4609},
                .per_round = {1, 1, 1}},
               run_local_threads);
  expect_right({.shape = {7}, .sizes = {8, 6000}, .delay = 2ms, .per_round = {1, 1, 1}},
               run_local_threads);
}

TEST(Blocks, small_ones_of_a_node_go_together) {
  const Task task{.shape = {9, {3}}, .sizes = {0, 8, 1000}, .delay = 1ms};
  expect_right(task, run_local);
  expect_right({.shape = {12, {5, 4, 3}}, .sizes = {8}}, run_local_threads);
  expect_right({.shape = {10, {4}, Placement::random}, .sizes = {1, 200, 1024}}, run_local_threads);
  const auto results = run_local({.rank_count = 9}, [](Exchange& exchange) {
    ContextOptions options;
    options.device = "soft0";
    options.arena_bytes = 8u << 20;
    options.ranks_per_node = {3};
    Context context(options);
    Communicator communicator(context, exchange);
    Bytes source(9 * 2000), target(9 * 2000);
    const auto names = [&](std::size_t bytes) {
      return gather(communicator,
                    {.source = source.data(), .target = target.data(), .bytes = bytes})
                 .algorithm() +
             " " +
             scatter(communicator, {.source = source.data(),
                                    .target = target.data(),
                                    .bytes = bytes,
                                    .root = Rank{8}})
                 .algorithm();
    };
    // Prices say so: among 3 nodes of 3 ranks on FDR up to 256 bytes and more, but not to 1 KiB.
    for (const std::size_t bytes : {8u, 200u, 256u})
      if (names(bytes) != "node_gather node_scatter") return 1;
    for (const std::size_t bytes : {1000u, 1025u})
      if (names(bytes) != "direct direct") return 2;
    const auto swapped = [&](std::size_t bytes) {
      return alltoall(communicator,
                      {.source = source.data(), .target = target.data(), .bytes = bytes})
          .algorithm();
    };
    if (swapped(0) != "node_alltoall" || swapped(8) != "node_alltoall") return 5;
    if (swapped(1025) != "direct") return 6;
    const auto prefix = [&](ElementType type) {
      return scan(communicator, {.source = source.data(),
                                 .target = target.data(),
                                 .element_count = 4,
                                 .reduction = built_in_reduction(BuiltIn::sum, type)})
          .algorithm();
    };
    if (prefix(ElementType::int64) != "node_doubling") return 3;
    return prefix(ElementType::float64) == "doubling" ? 0 : 4;  // whose bits would differ
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(9));
}

/// Where the root would be connected with more than 31 others; with windows that are answered.
int exercise_many(Exchange& exchange, const Task& task) {
  Context context(options_of(exchange, task));
  Communicator communicator(context, exchange);
  Ranks ranks{communicator, task, std::mt19937(index_of(exchange.self()))};
  Bytes block(2000), blocks(ranks.count() * block.size());
  const Operation named = gather(
      communicator, {.source = block.data(), .target = blocks.data(), .bytes = block.size()});
  if (named.algorithm() != "tree_gather") return 201;
  int wrong = 0;
  for (const std::size_t bytes : task.sizes)
    for (const bool uneven_sizes : {false, true}) {
      const bool in_place = uneven_sizes;
      const Rank root{static_cast<std::uint32_t>(bytes + (in_place ? 1 : 0)) %
                      task.shape.rank_count};
      wrong += wrong_gathers(ranks, bytes, uneven_sizes, root, in_place);
      wrong += wrong_scatters(ranks, bytes, uneven_sizes, root, in_place);
    }
  return std::min(wrong, 200);
}

TEST(Blocks, of_many_nodes_are_passed_on) {
  const auto expect = [](const Task& task, test::Launch launch) {
    const auto results = launch({.rank_count = task.shape.rank_count},
                                [&](Exchange& exchange) { return exercise_many(exchange, task); });
    EXPECT_EQ(codes_of(results), std::vector<int>(task.shape.rank_count))
        << task.shape.rank_count << " ranks, chunks " << task.chunk_bytes;
  };
  expect({.shape = {34}, .sizes = {3000}}, run_local_threads);
#if !defined(__SANITIZE_THREAD__)
  expect({.shape = {34}, .sizes = {0, 5, 3000}}, run_local);
  expect({.shape = {40, {1, 1, 1, 2}, Placement::random}, .chunk_bytes = 4608, .sizes = {9001}},
         run_local_threads);
  expect({.shape = {34}, .sizes = {8}, .delay = 5ms}, run_local);
#endif
}

/// Over nodes of two ranks, and over ranks alone.
TEST(Blocks, are_added_up_along_skips) {
  const auto expect = [](const Task& task, const char* algorithm) {
    const auto results =
        run_local_threads({.rank_count = task.shape.rank_count}, [&](Exchange& exchange) {
          Context context(options_of(exchange, task));
          Communicator communicator(context, exchange);
          Ranks ranks{communicator, task, std::mt19937(index_of(exchange.self()))};
          std::vector<std::int64_t> source(8192), target(8192);
          const std::string name =
              reduce_scatter(communicator,
                             {.source = source.data(),
                              .target = target.data(),
                              .element_counts = std::vector<std::size_t>(ranks.count(), 9),
                              .reduction = built_in_reduction(BuiltIn::sum, ElementType::int64)})
                  .algorithm();
          if (name != algorithm) return 201;
          int wrong = 0;
          for (const std::size_t bytes : task.sizes)
            for (const bool in_place : {false, true})
              wrong += wrong_reduce_scatters(ranks, test::sum_job(), bytes, in_place);
          if (ranks.count() <= 32) return std::min(wrong, 200);
          Operation all = allreduce<std::int64_t>(
              communicator, std::span<const std::int64_t>(source), std::span(target), sum);
          if (all.algorithm() != "circulant") return 202;
          std::iota(source.begin(), source.end(), index_of(communicator.rank()));
          if (all.start() != Status::ok || all.wait(30s) != Status::ok) return 203;
          const auto n = static_cast<std::int64_t>(ranks.count());
          for (std::size_t i = 0; i < target.size(); ++i)
            wrong += target[i] == n * static_cast<std::int64_t>(i) + n * (n - 1) / 2 ? 0 : 1;
          return std::min(wrong, 200);
        });
    EXPECT_EQ(codes_of(results), std::vector<int>(task.shape.rank_count)) << algorithm;
  };
  expect({.shape = {20, {2}}, .chunk_bytes = 4608, .sizes = {0, 9, 9001}}, "node_circulant");
  expect({.shape = {34}, .sizes = {3000}}, "circulant");
}

/// As many ranks as it takes where ranks share CPUs; blocks of 1 KiB are too long to be copied.
TEST(Blocks, small_ones_of_an_alltoall_go_together_between_nodes) {
#if defined(__SANITIZE_THREAD__)
  const Task task{.shape = {9, {3}}, .sizes = {8}};
#else
  const Task task{.shape = {20, {4}, Placement::cyclic}, .sizes = {0, 1, 8, 1024, 1025}};
#endif
  const auto results =
      run_local_threads({.rank_count = task.shape.rank_count}, [&](Exchange& exchange) {
        Context context(options_of(exchange, task));
        Communicator communicator(context, exchange);
        Ranks ranks{communicator, task, std::mt19937(index_of(exchange.self()))};
        Bytes source(task.shape.rank_count * 1025), target(source.size());
        int wrong = 0;
        for (const std::size_t bytes : task.sizes) {
          const std::string name =
              alltoall(communicator,
                       {.source = source.data(), .target = target.data(), .bytes = bytes})
                  .algorithm();
          if (task.shape.rank_count == 20 && (name == "node_alltoall") != (bytes <= 8)) return 199;
          for (const bool in_place : {false, true})
            wrong += wrong_alltoalls(ranks, bytes, false, in_place);
        }
        return std::min(wrong, 198);
      });
  EXPECT_EQ(codes_of(results), std::vector<int>(task.shape.rank_count));
}

TEST(Blocks, small_ones_of_an_alltoall_go_through_other_ranks) {
#if defined(__SANITIZE_THREAD__)
  const Task task{.shape = {16}, .sizes = {8}};
#else
  const Task task{.shape = {20}, .sizes = {0, 1, 8, 63, 1025}};
#endif
  const auto results =
      run_local_threads({.rank_count = task.shape.rank_count}, [&](Exchange& exchange) {
        Context context(options_of(exchange, task));
        Communicator communicator(context, exchange);
        Ranks ranks{communicator, task, std::mt19937(index_of(exchange.self()))};
        Bytes source(task.shape.rank_count * 1025), target(source.size());
        int wrong = 0;
        for (const std::size_t bytes : task.sizes) {
          const std::string name =
              alltoall(communicator,
                       {.source = source.data(), .target = target.data(), .bytes = bytes})
                  .algorithm();
          if (bytes <= 8 && name != "bruck_alltoall") return 199;
          if (bytes > 1024 && name != "direct") return 199;
          for (const bool in_place : {false, true})
            wrong += wrong_alltoalls(ranks, bytes, false, in_place);
        }
        return std::min(wrong, 198);
      });
  EXPECT_EQ(codes_of(results), std::vector<int>(task.shape.rank_count));
}

/// Blocks of which some are so long that they are passed on in pieces; in reverse order, with gaps.
int exercise_long_ones(Exchange& exchange, const Task& task, bool in_place) {
  Context context(options_of(exchange, task, 8u << 20));
  Communicator communicator(context, exchange);
  Ranks ranks{communicator, task, std::mt19937(index_of(exchange.self()))};
  BlockLayout layout{.bytes = task.sizes, .offsets = std::vector<std::size_t>(task.sizes.size())};
  std::size_t end = 0;
  for (std::size_t rank = task.sizes.size(); rank-- > 0; end += task.sizes[rank] + 3)
    layout.offsets[rank] = end;
  const std::size_t self = ranks.self();
  Bytes target(end), expected(end), own(task.sizes[self] + 1);
  std::byte* const source = in_place ? target.data() + layout.offsets[self] : own.data();
  Operation operation =
      allgatherv(communicator, {.source = source, .target = target.data(), .blocks = layout});
  if (operation.algorithm() != (ranks.count() < 8 ? "ring_allgather" : "two_tree_allgather"))
    return 2000;
  return ranks.wrong_of(
      std::move(operation),
      [&](std::uint64_t call) {
        std::fill(target.begin(), target.end(), std::byte{1});
        expected = target;
        for (std::size_t from = 0; from < task.sizes.size(); ++from)
          Values{from, 0, call}.write(expected.data() + layout.offsets[from], task.sizes[from]);
        Values{self, 0, call}.write(source, task.sizes[self]);
      },
      [&](std::uint64_t) {
        return std::memcmp(target.data(), expected.data(), target.size()) != 0;
      });
}

TEST(Blocks, long_ones_are_passed_on_in_pieces) {
  const auto expect = [](const Task& task, test::Launch launch) {
    for (const bool in_place : {false, true}) {
      const auto results = launch({.rank_count = task.shape.rank_count}, [&](Exchange& exchange) {
        return std::min(exercise_long_ones(exchange, task, in_place), 200);
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(task.shape.rank_count))
          << task.shape.rank_count << " ranks, chunks " << task.chunk_bytes;
    }
  };
  expect({.shape = {4}, .sizes = {70'001, 0, 5, 0}}, run_local);
  expect({.shape = {4}, .sizes = {0, 20'000, 5, 60'000}, .delay = 2ms}, run_local_threads);
  // A chunk of this size is asked for, but the pieces would not fit.
  expect({.shape = {4}, .chunk_bytes = 256 << 10, .sizes = {70'001, 0, 5, 0}}, run_local_threads);
  expect({.shape = {3}, .chunk_bytes = 1000, .sizes = {0, 70'000, 1}}, run_local_threads);
  expect({.shape = {6, {2}}, .sizes = {1, 0, 60'000, 20'000, 0, 0}}, run_local_threads);
  expect({.shape = {6, {2}, Placement::cyclic}, .sizes = {90'000, 0, 8, 0, 0, 0}, .delay = 2ms},
         run_local);
  // Down two trees.
  expect({.shape = {9}, .sizes = {0, 5, 0, 300'001, 0, 1, 0, 0, 0}}, run_local_threads);
  std::vector<std::size_t> sizes(16);
  sizes[5] = 90'000;
  expect({.shape = {16, {2}, Placement::cyclic}, .sizes = sizes, .delay = 2ms}, run_local_threads);
}

TEST(Blocks, are_read_where_they_are) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    const auto body = [](Communicator& communicator) {
      Bytes source(20'000), target(20'000);
      const auto taken = [&](std::size_t bytes) {
        return alltoall(communicator,
                        {.source = source.data(), .target = target.data(), .bytes = bytes})
            .algorithm();
      };
      if (taken(8191) != "direct" || taken(8192) != "single_copy") return 1;
      // In place, they are copied.
      return alltoall(communicator,
                      {.source = source.data(), .target = source.data(), .bytes = 9000})
                         .algorithm() == "direct"
                 ? 0
                 : 2;
    };
    return on_defaults(exchange, body, 4096);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

TEST(Blocks, are_right_where_they_are_read_where_they_are) {
  for (std::uint32_t ranks = 2; ranks <= 5; ++ranks)
    expect_right({.shape = {ranks, {ranks}}, .single_copy_bytes = 1},
                 ranks % 2 == 0 ? run_local : run_local_threads);
}

TEST(Blocks, are_right_in_chunks) {
  constexpr std::size_t chunk = 4608;
  for (const std::size_t single_copy_bytes : {std::size_t{1}, std::size_t{SIZE_MAX}})
    for (const Shape& shape : {Shape{3, {3}}, Shape{4, {3, 1}}, Shape{2, {1}}})
      expect_right({.shape = shape,
                    .chunk_bytes = chunk,
                    .single_copy_bytes = single_copy_bytes,
                    .sizes = {chunk - 1, chunk, chunk + 1, 3 * chunk + 1}},
                   run_local_threads);
}

TEST(Blocks, are_right_with_delays) {
  for (const std::size_t single_copy_bytes : {std::size_t{1}, std::size_t{SIZE_MAX}})
    expect_right({.shape = {4, {4}},
                  .single_copy_bytes = single_copy_bytes,
                  .sizes = {8, 6000},
                  .delay = 2ms},
                 run_local_threads);
  expect_right({.shape = {5, {2, 3}}, .sizes = {8, 6000}, .delay = 2ms}, run_local);
}

// ---- Promises of a kind -------------------------------------------------------------------------

TEST(Blocks, are_right_while_a_rank_is_stopped) {
  const auto stop_some = [](const std::vector<pid_t>& ranks) {
    for (const auto pause : {50ms, 1000ms})
      for (const std::size_t victim : {std::size_t{1}, std::size_t{3}}) {
        std::this_thread::sleep_for(50ms);
        ::kill(ranks[victim], SIGSTOP);
        std::this_thread::sleep_for(pause);
        ::kill(ranks[victim], SIGCONT);
      }
  };
  for (const std::vector<std::uint32_t>& nodes : {std::vector<std::uint32_t>{3, 2}, {5}}) {
    const Task task{.shape = {5, nodes}};
    const auto results = run_local({.rank_count = 5, .on_started = stop_some},
                                   [&](Exchange& exchange) { return exercise(exchange, task); });
    EXPECT_EQ(codes_of(results), std::vector<int>(5)) << nodes.size() << " nodes";
  }
}

TEST(Blocks, typed_forms_count_elements) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    return on_defaults(exchange, [](Communicator& communicator) {
      const auto self = static_cast<int>(index_of(communicator.rank()));
      const std::vector<int> one{10 + self}, three{self, self + 10, self + 20};
      std::vector<int> all(3), swapped(3), own(1), sum_of_block(1), prefix(1), uneven_target(6);
      const std::vector<std::size_t> counts{1, 2, 3};
      const std::vector<int> mine(static_cast<std::size_t>(self) + 1, self);
      std::vector<Operation> operations;
      operations.push_back(allgather<int>(communicator, std::span<const int>(one), std::span(all)));
      operations.push_back(
          alltoall<int>(communicator, std::span<const int>(three), std::span(swapped)));
      operations.push_back(
          scatter<int>(communicator, std::span<const int>(three), std::span(own), Rank{2}));
      operations.push_back(reduce_scatter<int>(communicator, std::span<const int>(three),
                                               std::span(sum_of_block), sum));
      operations.push_back(
          scan<int>(communicator, std::span<const int>(one), std::span(prefix), sum));
      operations.push_back(allgatherv<int>(communicator, std::span<const int>(mine),
                                           std::span(uneven_target), counts));
      std::vector<int> gathered(3), triangle(3);
      operations.push_back(
          gather<int>(communicator, std::span<const int>(one), std::span(gathered), Rank{1}));
      const std::vector<std::size_t> same(3, std::size_t{index_of(communicator.rank())});
      const std::vector<std::size_t> each_its_own{0, 1, 2};  // rank q sends q elements to everybody
      const std::vector<int> sent(3 * same[0], self);
      operations.push_back(alltoallv<int>(communicator, std::span<const int>(sent), same,
                                          std::span(triangle), each_its_own));
      for (Operation& operation : operations)
        if (operation.start() != Status::ok) return 1;
      for (Operation& operation : operations)
        if (operation.wait(10s) != Status::ok) return 2;
      if (triangle != std::vector<int>{1, 2, 2}) return 9;
      if (self == 1 && gathered != all) return 10;
      if (all != std::vector<int>{10, 11, 12}) return 3;
      if (swapped != std::vector<int>{10 * self, 10 * self + 1, 10 * self + 2}) return 4;
      if (own[0] != 2 + 10 * self) return 5;
      if (sum_of_block[0] != 3 + 30 * self) return 6;
      if (prefix[0] != (self + 1) * 10 + self * (self + 1) / 2) return 7;
      return uneven_target == std::vector<int>{0, 1, 1, 2, 2, 2} ? 0 : 8;
    });
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

/// 5 ranks fold their parts, 35 halve them: cubes of 32, 2 and 1.
TEST(Blocks, reduce_scatters_have_the_bits_of_reproducible_allreduces) {
  const auto expect = [](std::uint32_t rank_count, test::Launch launch,
                         const std::string& algorithm) {
    const auto results = launch({.rank_count = rank_count}, [&](Exchange& exchange) {
      Context context(options_of(exchange, {.shape = {rank_count}}, 16u << 20));
      Communicator communicator(context, exchange);
      constexpr std::size_t each = 300;
      std::vector<double> source(rank_count * each), whole(rank_count * each), block(each);
      for (std::size_t i = 0; i < source.size(); ++i)
        source[i] = 1.0 / static_cast<double>(i * 7 + index_of(communicator.rank()) + 1);
      Operation all = allreduce<double>(communicator, std::span<const double>(source),
                                        std::span(whole), sum, Agreement::reproducible);
      Operation own = reduce_scatter<double>(communicator, std::span<const double>(source),
                                             std::span(block), sum, Agreement::reproducible);
      AllreduceArguments arguments{
          .source = source.data(),
          .target = source.data(),
          .element_count = source.size(),
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
          .agreement = Agreement::reproducible,
          .algorithm = Algorithm::canonical_dissemination};
      Operation reference = allreduce(communicator, arguments);
      if (all.algorithm() != algorithm || own.algorithm() != algorithm) return 4;
      for (int call = 0; call < 3; ++call) {
        std::fill(block.begin(), block.end(), 0.0);
        std::fill(whole.begin(), whole.end(), 0.0);
        if (all.start() != Status::ok || own.start() != Status::ok) return 1;
        if (all.wait(30s) != Status::ok || own.wait(30s) != Status::ok) return 2;
        if (std::memcmp(block.data(), whole.data() + index_of(communicator.rank()) * each,
                        each * sizeof(double)) != 0)
          return 3;
      }
      if (reference.start() != Status::ok || reference.wait(30s) != Status::ok) return 5;
      return source == whole ? 0 : 6;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(rank_count)) << algorithm;
  };
#if !defined(__SANITIZE_THREAD__)
  expect(5, run_local, "chunked_fold");
#endif
  expect(35, run_local_threads, "canonical_halving");
}

// ---- Bad input ----------------------------------------------------------------------------------

/// Every rank throws an Error with this code whose text has all of `words`, and goes on.
void expect_refused(ErrorCode code, const std::vector<std::string>& words,
                    const std::function<void(Communicator&)>& make) {
  const auto results = run_local_threads({.rank_count = 3}, [&](Exchange& exchange) {
    return on_defaults(exchange, [&](Communicator& communicator) {
      try {
        make(communicator);
      } catch (const Error& error) {
        int wrong = error.code() == code ? 0 : 1;
        for (const std::string& word : words)
          if (std::strstr(error.what(), word.c_str()) == nullptr) wrong = 1;
        if (wrong != 0) std::fprintf(stderr, "%s\n", error.what());
        Operation after = barrier(communicator);
        if (after.start() != Status::ok || after.wait(10s) != Status::ok) return 2;
        return wrong;
      }
      return 3;
    });
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3)) << (words.empty() ? "" : words[0]);
}

TEST(Blocks, wrong_ones_are_refused_by_name) {
  std::vector<std::byte> from(1000), to(1000);
  const auto layout = [](std::vector<std::size_t> bytes, std::vector<std::size_t> offsets = {}) {
    return BlockLayout{std::move(bytes), std::move(offsets)};
  };
  const auto allgatherv_of = [&](const BlockLayout& blocks) {
    return [&, blocks](Communicator& communicator) {
      (void)allgatherv(communicator,
                       {.source = from.data(), .target = to.data(), .blocks = blocks});
    };
  };
  expect_refused(ErrorCode::invalid_argument, {"allgatherv", "2 block sizes", "3 ranks"},
                 allgatherv_of(layout({8, 8})));
  expect_refused(ErrorCode::invalid_argument, {"allgatherv", "2 offsets"},
                 allgatherv_of(layout({8, 8, 8}, {0, 8})));
  expect_refused(ErrorCode::invalid_argument, {"ranks 0 and 2 overlap"},
                 allgatherv_of(layout({8, 8, 8}, {0, 20, 7})));
  expect_refused(ErrorCode::invalid_argument, {"block 1", "does not fit"},
                 allgatherv_of(layout({8, SIZE_MAX, 8})));
  // A negative number that was made unsigned.
  expect_refused(ErrorCode::invalid_argument, {"block 2", "does not fit"},
                 allgatherv_of(layout({8, 8, 8}, {0, 8, static_cast<std::size_t>(-8)})));
  expect_refused(ErrorCode::mismatch, {"rank 1 has a block of 16 bytes", "takes to have 8"},
                 [&](Communicator& communicator) {
                   const std::size_t own = communicator.rank() == Rank{1} ? 16 : 8;
                   allgatherv_of(layout({8, own, 8}))(communicator);
                 });
  expect_refused(ErrorCode::mismatch, {"alltoallv", "rank 2 has a block of 5 bytes"},
                 [&](Communicator& communicator) {
                   const std::size_t first = communicator.rank() == Rank{2} ? 5 : 4;
                   (void)alltoallv(communicator, {.source = from.data(),
                                                  .source_blocks = layout({first, 4, 4}),
                                                  .target = to.data(),
                                                  .target_blocks = layout({4, 4, 4})});
                 });
  expect_refused(ErrorCode::mismatch, {"gatherv", "rank 0 has a block of 9 bytes"},
                 [&](Communicator& communicator) {
                   (void)gatherv(communicator, {.source = from.data(),
                                                .bytes = 9,
                                                .target = to.data(),
                                                .blocks = layout({8, 9, 9}),
                                                .root = Rank{1}});
                 });
  expect_refused(ErrorCode::invalid_argument, {"scatter", "root 3", "0 .. 2"},
                 [&](Communicator& communicator) {
                   (void)scatter(
                       communicator,
                       {.source = from.data(), .target = to.data(), .bytes = 8, .root = Rank{3}});
                 });
  expect_refused(ErrorCode::invalid_argument, {"alltoall", "block 0 of the source overlaps"},
                 [&](Communicator& communicator) {
                   (void)alltoall(communicator,
                                  {.source = to.data() + 4, .target = to.data(), .bytes = 8});
                 });
  expect_refused(
      ErrorCode::invalid_argument, {"allgather", "null"}, [&](Communicator& communicator) {
        (void)allgather(communicator, {.source = nullptr, .target = to.data(), .bytes = 8});
      });
  expect_refused(ErrorCode::mismatch, {"allgather", "24", "different operations"},
                 [&](Communicator& communicator) {
                   (void)allgather(communicator,
                                   {.source = from.data(),
                                    .target = to.data(),
                                    .bytes = communicator.rank() == Rank{0} ? std::size_t{24} : 8});
                 });
  expect_refused(ErrorCode::mismatch, {"allgatherv", "barrier", "different operations"},
                 [&](Communicator& communicator) {
                   if (communicator.rank() == Rank{0})
                     (void)barrier(communicator);
                   else
                     allgatherv_of(layout({8, 8, 8}))(communicator);
                 });
  expect_refused(ErrorCode::invalid_argument, {"allgather", "7 elements for 3 blocks of 2"},
                 [&](Communicator& communicator) {
                   std::vector<int> all(communicator.rank() == Rank{2} ? 7 : 6), two(2);
                   (void)allgather<int>(communicator, std::span<const int>(two), std::span(all));
                 });
  expect_refused(ErrorCode::invalid_argument, {"allreduce", "differ in size"},
                 [&](Communicator& communicator) {
                   std::vector<int> all(communicator.rank() == Rank{2} ? 3 : 2), two(2);
                   (void)allreduce<int>(communicator, std::span<const int>(two), std::span(all),
                                        sum);
                 });
  expect_refused(ErrorCode::invalid_argument, {"reduce_scatter", "1 block sizes"},
                 [&](Communicator& communicator) {
                   (void)reduce_scatter(communicator, {.source = from.data(),
                                                       .target = to.data(),
                                                       .element_counts = {4},
                                                       .reduction = built_in_reduction(
                                                           BuiltIn::sum, ElementType::int32)});
                 });
  // One rank alone is wrong; the others are told.
  expect_refused(ErrorCode::invalid_argument, {"allgatherv", "block 2", "leaves a buffer of 4"},
                 [&](Communicator& communicator) {
                   std::vector<int> small(communicator.rank() == Rank{1} ? 4 : 5), one(2);
                   const std::vector<std::size_t> counts{1, 2, 2};
                   (void)allgatherv<int>(
                       communicator,
                       std::span<const int>(one).first(counts[index_of(communicator.rank())]),
                       std::span(small), counts);
                 });
}

}  // namespace
}  // namespace tutti
