// Promise: a context has no more connections than it may have, whatever operations are made and
// destroyed over whichever partners; connections that no live operation needs are closed for those
// that are needed, all results are right, and memory does not grow.
#include <gtest/gtest.h>

#include <malloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/context.hpp"
#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

ContextOptions with_connections(const Exchange& exchange, std::uint32_t most) {
  ContextOptions options = test::on_test_device(exchange);
  options.connections_max = most;
  options.per_round = {{1, 1, 1}};  // trees in which every rank has three partners at most
  return options;
}

bool runs(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(60s) == Status::ok;
}

verbs::Connections& connections_of(Context& context) {
  return context.implementation().fabric.connections();
}

/// Bytes of this process: of its heap, and of files in memory, which peers of the software device
/// see.
struct Memory {
  std::size_t heap = 0, shared = 0;

  static Memory now() {
    Memory memory{.heap = mallinfo2().uordblks, .shared = 0};
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      struct stat file {};
      std::error_code gone;
      const std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
      if (name.starts_with("/memfd:") && ::stat(entry.path().c_str(), &file) == 0)
        memory.shared += static_cast<std::size_t>(file.st_blocks) * 512;
    }
    return memory;
  }
};

/// Makes, runs and destroys broadcasts and reduces with random roots, so that partners change;
/// returns 0 if all is well.
int change_partners(Exchange& exchange, std::uint32_t most, int operations, bool measures) {
  Context context(with_connections(exchange, most));
  Communicator communicator(context, exchange);
  const std::uint32_t self = index_of(exchange.self()), ranks = exchange.rank_count();
  std::mt19937 random(7);  // the same on all ranks
  Memory settled;
  for (int made = 0; made < operations; ++made) {
    const Rank root{static_cast<std::uint32_t>(random() % ranks)};
    const std::uint64_t base = random();
    if (random() % 2 == 0) {
      std::uint64_t value = exchange.self() == root ? base : 0;
      Operation operation = broadcast<std::uint64_t>(communicator, {&value, 1}, root);
      if (!runs(operation) || value != base) return 1;
    } else {
      std::uint64_t source = base + self, target = 0;
      Operation operation =
          reduce<std::uint64_t>(communicator, std::span<const std::uint64_t>(&source, 1),
                                std::span(&target, 1), root, sum);
      if (!runs(operation)) return 2;
      if (exchange.self() == root && target != ranks * base + ranks * (ranks - 1) / 2) return 3;
    }
    if (connections_of(context).count() > most) return 4;
    if (made == operations / 4) settled = Memory::now();
  }
  if (connections_of(context).made() <= most) return 5;  // none was closed
  if (connections_of(context).completion_queues().all().size() != 1) return 6;
  const Memory after = Memory::now();
  std::printf("rank %u: %llu connections made; heap %zu and then %zu bytes, shared %zu and %zu\n",
              self, static_cast<unsigned long long>(connections_of(context).made()), settled.heap,
              after.heap, settled.shared, after.shared);
  std::fflush(stdout);
  if (!measures) return 0;
  // A word for each operation id so far, up to 65,535; and what the allocator keeps.
  const std::size_t heap_allowed = (64u << 10) + 2 * 8 * static_cast<std::size_t>(operations);
  // Numbers of queue pairs rest until all 8,192 were used, and have an entry of 256 bytes each; and
  // areas of data that bounce.
  const std::size_t shared_allowed =
      (256u << 10) + 256 * std::min<std::uint64_t>(connections_of(context).made(), 8192);
  return after.heap > settled.heap + heap_allowed || after.shared > settled.shared + shared_allowed
             ? 7
             : 0;
}

TEST(ConnectionsOfContext, do_not_grow_with_operations_over_changing_partners) {
  const int operations = static_cast<int>(test::times(300));
  const auto results = run_local({.rank_count = 8}, [&](Exchange& exchange) {
    return change_partners(exchange, 4, operations, true);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(8));
}

TEST(LongConnections, ten_thousand_operations) {
  const auto results = run_local({.rank_count = 8}, [](Exchange& exchange) {
    return change_partners(exchange, 4, 10'000, true);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(8));
}

TEST(ConnectionsOfContext, change_between_threads) {
  const auto results = run_local_threads({.rank_count = 6}, [](Exchange& exchange) {
    return change_partners(exchange, 3, 60, false);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(6));
}

/// What making it says; empty if it can be made.
template <class Make>
std::string refusal(Make&& make) try {
  (void)make();
  return "";
} catch (const Error& error) {
  return std::string(error.code() == ErrorCode::limit_exceeded ? "" : "another code: ") +
         error.what();
}

TEST(ConnectionsOfContext, that_live_operations_need_are_not_closed_and_the_numbers_are_told) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context(with_connections(exchange, 2));
    Communicator communicator(context, exchange);
    const std::uint32_t self = index_of(exchange.self());
    std::uint64_t value = 0;
    const auto from = [&](std::uint32_t root) {
      return broadcast(
          communicator,
          {.buffer = &value, .bytes = sizeof value, .root = Rank{root}, .tree = Tree::binomial});
    };
    const auto is_right = [&](Operation& operation, std::uint32_t root) {
      value = self == root ? 5 + root : 0;
      return runs(operation) && value == 5 + root;
    };
    {
      Operation first = from(0);
      if (!is_right(first, 0)) return 1;
      const std::uint64_t before = connections_of(context).made();
      for (int i = 0; i < 2; ++i) {
        const std::string refused = refusal([&] { return from(1); });
        for (const char* const word : {"0 can be closed", "at most 2 (TUTTI_CONNECTIONS_MAX"})
          if (refused.find(word) == std::string::npos) {
            std::fprintf(stderr, "rank %u: %s\n", self, refused.c_str());
            return 2;
          }
      }
      if (connections_of(context).count() > before) return 3;
      if (!is_right(first, 0)) return 4;
    }
    Operation second = from(1);
    return is_right(second, 1) ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

// Two live trees leave room on all ranks but rank 2 for one whose root that is.
TEST(ConnectionsOfContext, that_one_rank_has_no_room_for_is_told_to_all_with_the_advice) {
  const auto results = run_local({.rank_count = 5}, [](Exchange& exchange) {
    Context context(with_connections(exchange, 3));
    Communicator communicator(context, exchange);
    const std::uint32_t self = index_of(exchange.self());
    std::uint64_t value = 0;
    const auto from = [&](std::uint32_t root) {
      return broadcast(
          communicator,
          {.buffer = &value, .bytes = sizeof value, .root = Rank{root}, .tree = Tree::binomial});
    };
    const Operation first = from(0), second = from(1);
    const std::string refused = refusal([&] { return from(2); });
    const bool is_of_another_rank = refused.rfind("rank 2: ", 0) == 0;
    for (const char* const word : {"has 3 connections", "at most 3", "destroy operations",
                                   "fewer messages per round", "connects fewer ranks"})
      if (refused.find(word) == std::string::npos || is_of_another_rank != (self != 2)) {
        std::fprintf(stderr, "rank %u: %s\n", self, refused.c_str());
        return 1;
      }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(5));
}

// Rank 1 is in the set-up of an operation with rank 0 already when rank 0 closes the connection
// that rank 1 counts on.
TEST(ConnectionsOfContext, which_one_end_has_closed_meanwhile_are_made_anew) {
  const std::uint16_t with_1 = test::free_port(), with_2 = test::free_port();
  const test::SharedCount waiting;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    Context context(with_connections(exchange, 1));
    std::vector<std::unique_ptr<Exchange>> pairs;
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (const std::uint32_t other : {1u, 2u})
      if (self == 0 || self == other) {
        pairs.push_back(test::meet_over_tcp(self == 0 ? 0 : 1, 2, other == 1 ? with_1 : with_2));
        communicators.push_back(std::make_unique<Communicator>(context, *pairs.back()));
      }
    const auto adds = [&](Communicator& pair) {
      std::uint64_t source = 1 + index_of(pair.rank()), target = 0;
      Operation operation = allreduce<std::uint64_t>(
          pair, std::span<const std::uint64_t>(&source, 1), {&target, 1}, sum);
      for (int call = 0; call < 5; ++call)
        if (!runs(operation) || target != 3) return false;
      return true;
    };
    for (std::uint32_t turn = 1; turn <= 3; ++turn) {
      if (self != 2 && !adds(*communicators.front())) return 1;
      if (self == 1) waiting.add();
      if (self == 0) {
        if (!waiting.comes_to(turn)) return 2;
        std::this_thread::sleep_for(100ms);  // until rank 1 waits in the next set-up
      }
      if (self != 1 && !adds(*communicators.back())) return 3;
      if (self != 2 && !adds(*communicators.front())) return 4;
    }
    return connections_of(context).count() == 1 ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

}  // namespace
}  // namespace tutti
