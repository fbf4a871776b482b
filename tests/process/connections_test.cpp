// Promise: a context has no more connections than it may have, whatever operations are made and
// destroyed over whichever partners; connections that no live operation needs are closed for those
// that are needed, all results are right, and memory does not grow.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/context.hpp"
#include "support/device.hpp"
#include "support/jobs.hpp"
#include "support/process_memory.hpp"

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

struct PortsOfPairs {
  std::uint16_t with_rank_1 = test::free_port(), with_rank_2 = test::free_port();
};

/// Rank 0 has one communicator with rank 1 and another with rank 2.  Ranks 1 and 2 have no others.
class Pairs {
 public:
  Pairs(Context& context, std::uint32_t self, const PortsOfPairs& ports) {
    if (self != 2) meet(context, self, ports.with_rank_1);
    if (self != 1) meet(context, self, ports.with_rank_2);
  }
  Communicator& with_rank_1() const { return *communicators_.front(); }
  Communicator& with_rank_2() const { return *communicators_.back(); }

 private:
  void meet(Context& context, std::uint32_t self, std::uint16_t port) {
    exchanges_.push_back(test::meet_over_tcp(self == 0 ? 0 : 1, 2, port));
    communicators_.push_back(std::make_unique<Communicator>(context, *exchanges_.back()));
  }

  std::vector<std::unique_ptr<Exchange>> exchanges_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// Makes, runs and destroys broadcasts and reduces with random roots, so that partners change;
/// returns 0 if all is well.
int change_partners(Exchange& exchange, std::uint32_t most, int operations, bool measures) {
  Context context(with_connections(exchange, most));
  Communicator communicator(context, exchange);
  const std::uint32_t self = index_of(exchange.self()), ranks = exchange.rank_count();
  std::mt19937 random(7);  // the same on all ranks
  test::ProcessMemory settled;
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
    if (made == operations / 4) settled = test::ProcessMemory::now();
  }
  if (connections_of(context).made() <= most) return 5;  // none was closed
  if (connections_of(context).completion_queues().all().size() != 1) return 6;
  const test::ProcessMemory after = test::ProcessMemory::now();
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
  const PortsOfPairs ports;
  const test::SharedCount waiting;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    Context context(with_connections(exchange, 1));
    const Pairs pairs(context, self, ports);
    const auto adds = [&](Communicator& pair) {
      std::uint64_t source = 1 + index_of(pair.rank()), target = 0;
      Operation operation = allreduce<std::uint64_t>(
          pair, std::span<const std::uint64_t>(&source, 1), {&target, 1}, sum);
      for (int call = 0; call < 5; ++call)
        if (!runs(operation) || target != 3) return false;
      return true;
    };
    for (std::uint32_t turn = 1; turn <= 3; ++turn) {
      if (self != 2 && !adds(pairs.with_rank_1())) return 1;
      if (self == 1) waiting.add();
      if (self == 0) {
        if (!waiting.comes_to(turn)) return 2;
        std::this_thread::sleep_for(100ms);  // until rank 1 waits in the next set-up
      }
      if (self != 1 && !adds(pairs.with_rank_2())) return 3;
      if (self != 2 && !adds(pairs.with_rank_1())) return 4;
    }
    return connections_of(context).count() == 1 ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

// Rank 3 is in the set-up of an operation of a part of all ranks, which exchanges by messages, when
// rank 0 closes the connection that rank 3 counts on: rank 3 polls that meanwhile.  Its operation
// has to use the connection that is made instead, also where rank 3 may have no more.
TEST(ConnectionsOfContext, that_a_peer_closes_while_a_part_of_the_ranks_sets_up_are_made_anew) {
  constexpr std::uint32_t members = 8, other = 3;
  struct Case {
    std::uint32_t most;
    Notify notify;
  };
  for (const auto& [most, notify] :
       {Case{members - 1, Notify::immediate}, Case{members + 2, Notify::immediate},
        Case{members - 1, Notify::flag}}) {
    if (notify == Notify::flag && !test::device_is_soft()) continue;
    const std::uint16_t port = test::free_port();
    const test::SharedCount waiting;
    const auto results =
        run_local({.rank_count = members + 1}, [&, most = most, how = notify](Exchange& exchange) {
          const std::uint32_t self = index_of(exchange.self());
          ContextOptions options = with_connections(exchange, self == 0 ? members - 1 : most);
          options.setup_timeout = 10s;
          options.notify = how;
          Context context(options);
          Communicator whole(context, exchange);
          // The exchange of the part connects ranks whose distance is a power of two, and stays.
          std::optional<Communicator> part =
              whole.split(self < members ? std::optional<std::uint32_t>(0) : std::nullopt, 0);
          std::unique_ptr<Exchange> meeting;
          std::optional<Communicator> pair;
          if (self == 0 || self == members) {
            meeting = test::meet_over_tcp(self == 0 ? 0 : 1, 2, port);
            pair.emplace(context, *meeting);
          }
          std::uint64_t source = 1, target = 0;
          const auto sum_of = [&](Communicator& communicator) {
            return allreduce(communicator,
                             {.source = &source,
                              .target = &target,
                              .element_count = 1,
                              .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                              .per_round = {communicator.rank_count() - 1}});
          };
          const auto is_right = [&](Operation&& operation, std::uint32_t ranks) {
            for (int call = 0; call < 5; ++call)
              if (!runs(operation) || target != ranks) return false;
            return true;
          };
          if (self == members) return is_right(sum_of(*pair), 2) ? 0 : 1;
          if (!is_right(sum_of(*part), members)) return 2;
          if (self == other) waiting.add();
          if (self == 0) {
            if (!waiting.comes_to(1)) return 3;
            std::this_thread::sleep_for(100ms);  // until rank 3 waits in the next set-up
            if (!is_right(sum_of(*pair), 2)) return 4;
          }
          Operation operation = sum_of(*part);
          if (self == 0 || self == other) {
            verbs::Connections& connections = connections_of(context);
            const std::uint64_t process = part->implementation().process_of[other - self];
            if (!connections.has(process)) return 5;
            if (connections[connections.to(process)].users != 1) return 6;
          }
          if (connections_of(context).count() > most) return 7;
          return is_right(std::move(operation), members) ? 0 : 8;
        });
    EXPECT_EQ(codes_of(results), std::vector<int>(members + 1))
        << "at most " << most << ", by " << (notify == Notify::flag ? "flag" : "immediate");
  }
}

// Rank 1 still has an operation over the connection that rank 0 closes while rank 1 is in the
// set-up of another one.
TEST(ConnectionsOfContext, that_a_live_operation_at_one_end_has_used_make_room_for_new_ones) {
  const PortsOfPairs ports;
  const test::SharedCount waiting;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    ContextOptions options = with_connections(exchange, 1);
    options.setup_timeout = 10s;
    Context context(options);
    const Pairs pairs(context, self, ports);
    std::uint64_t source = 1 + self, target = 0;
    const auto sum_of = [&](Communicator& pair) {
      return allreduce<std::uint64_t>(pair, std::span<const std::uint64_t>(&source, 1),
                                      {&target, 1}, sum);
    };
    const auto is_right = [&](Operation& operation, std::uint64_t expected) {
      for (int call = 0; call < 5; ++call)
        if (!runs(operation) || target != expected) return false;
      return true;
    };
    std::optional<Operation> kept;
    if (self != 2) {
      kept.emplace(sum_of(pairs.with_rank_1()));
      if (!is_right(*kept, 3)) return 1;
    }
    if (self == 1) waiting.add();
    if (self == 0) {
      kept.reset();
      if (!waiting.comes_to(1)) return 2;
      std::this_thread::sleep_for(100ms);  // until rank 1 waits in the next set-up
    }
    if (self != 1) {
      Operation operation = sum_of(pairs.with_rank_2());
      if (!is_right(operation, 4)) return 3;
    }
    if (self == 2) return 0;
    Operation operation = sum_of(pairs.with_rank_1());
    if (!is_right(operation, 3)) return 4;
    kept.reset();
    if (!is_right(operation, 3)) return 5;
    return connections_of(context).count() == 1 ? 0 : 6;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

// Rank 1 calls a shared ring once more than rank 0, which has ended it and closed its connection.
TEST(ConnectionsOfContext, that_a_peer_has_closed_fail_who_calls_a_shared_ring_too_often) {
  for (const SharedNotifications how :
       {SharedNotifications::automatic, SharedNotifications::republished}) {
    const PortsOfPairs ports;
    const test::SharedCount closed, done;
    const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
      const std::uint32_t self = index_of(exchange.self());
      ContextOptions options = with_connections(exchange, 1);
      options.shared_notifications = how;
      Context context(options);
      const Pairs pairs(context, self, ports);
      std::vector<std::uint64_t> source(100, 1 + self), target(100);
      const auto sum_of = [&](Communicator& pair) {
        return allreduce(pair, {.source = source.data(),
                                .target = target.data(),
                                .element_count = source.size(),
                                .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                                .algorithm = Algorithm::shared_ring});
      };
      if (self != 2) {
        Communicator& pair = pairs.with_rank_1();
        Operation operation = sum_of(pair);
        if (!runs(operation) || target.back() != 3) return 1;
        if (self == 1) {
          if (!closed.comes_to(1)) return 2;
          for (int i = 0; i < 100; ++i) (void)pair.progress();
          if (operation.start() != Status::ok) return 3;
          const Status status = operation.wait(20s);
          done.add();
          if (status != Status::transport_failed) {
            std::fprintf(stderr, "%s: %s\n", name_of(status), operation.describe().c_str());
            return 4;
          }
          return std::string(pair.failure().text).find("has ended the operation") !=
                         std::string::npos
                     ? 0
                     : 5;
        }
      }
      Operation operation = sum_of(pairs.with_rank_2());
      if (!runs(operation) || target.back() != 4) return 6;
      if (self == 2) return 0;
      if (connections_of(context).count() != 1) return 7;
      closed.add();
      return done.comes_to(1) ? 0 : 8;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(3));
  }
}

// Ranks 0 and 1 are done with an operation that has failed, and neither knows what the other has
// sent.
TEST(ConnectionsOfContext, over_which_an_operation_has_failed_are_told_in_a_refusal) {
  const PortsOfPairs ports;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    Context context(with_connections(exchange, 1));
    const Pairs pairs(context, self, ports);
    if (self != 2) {
      Communicator& pair = pairs.with_rank_1();
      Operation operation = barrier(pair);
      if (!runs(operation)) return 1;
      pair.synchronize();
      if (self == 0) pair.abort();
      if (self == 1)
        return operation.start() == Status::ok && operation.wait(60s) == Status::aborted ? 0 : 3;
    }
    const std::string refused = refusal([&] { return barrier(pairs.with_rank_2()); });
    for (const char* const word : {"0 can be closed and 1 are lost", "make another context"})
      if (refused.find(word) == std::string::npos) {
        std::fprintf(stderr, "rank %u: %s\n", self, refused.c_str());
        return 2;
      }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

}  // namespace
}  // namespace tutti
