// Promise: by TUTTI_NOTIFY=flag, messages of at most 56 bytes between nodes are lines that are
// polled in memory and take no receive, larger ones are not, both give the results they always
// give, and a device or a rank that does not fit is refused by name.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

ContextOptions with_flags(std::vector<std::uint32_t> ranks_per_node = {1}) {
  ContextOptions options;
  options.device = "soft0";
  options.arena_bytes = 4u << 20;
  options.ranks_per_node = std::move(ranks_per_node);
  options.notify = Notify::flag;
  return options;
}

bool runs(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(30s) == Status::ok;
}

/// Runs allreduces of `count` elements until something is wrong; returns 0 if nothing is.
int reduce(Communicator& communicator, std::size_t count, Notify expected, int calls) {
  std::vector<std::uint64_t> source(count), target(count);
  Operation operation = allreduce<std::uint64_t>(
      communicator, std::span<const std::uint64_t>(source), std::span(target), sum);
  if (operation.notify() != expected) return 1;
  const std::uint64_t ranks = communicator.rank_count(), self = index_of(communicator.rank());
  for (int call = 0; call < calls; ++call) {
    for (std::size_t i = 0; i < count; ++i) source[i] = self + i + static_cast<std::uint64_t>(call);
    if (!runs(operation)) return 2;
    for (std::size_t i = 0; i < count; ++i)
      if (target[i] != ranks * (ranks - 1) / 2 + ranks * (i + static_cast<std::uint64_t>(call)))
        return 3;
  }
  return 0;
}

TEST(Flags, are_for_messages_that_fit_into_a_line) {
  for (const std::uint32_t ranks : {2u, 3u, 5u}) {
    const auto results = run_local({.rank_count = ranks}, [](Exchange& exchange) {
      Context context(with_flags());
      Communicator communicator(context, exchange);
      for (const std::size_t count : {1u, 6u, 7u})
        if (const int wrong = reduce(communicator, count, Notify::flag, 300)) return wrong;
      for (const std::size_t count : {8u, 1000u})
        if (const int wrong = reduce(communicator, count, Notify::immediate, 100))
          return 10 + wrong;
      return 0;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(ranks));
  }
}

/// Credits of a broadcast whose payload is too large for a line, and payloads that are not.
TEST(Flags, of_one_way_collectives_hold_back_who_is_ahead) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(with_flags());
    Communicator communicator(context, exchange);
    const Rank root{1};
    for (const std::size_t count : {1u, 7u, 8u, 500u}) {
      std::vector<std::uint64_t> buffer(count);
      Operation operation = broadcast<std::uint64_t>(communicator, std::span(buffer), root);
      if (operation.notify() != Notify::flag) return 1;
      for (std::uint64_t call = 1; call <= 500; ++call) {
        if (exchange.self() == root) std::iota(buffer.begin(), buffer.end(), call);
        if (!runs(operation)) return 2;
        for (std::size_t i = 0; i < count; ++i)
          if (buffer[i] != call + i) return 3;
      }
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(Flags, inside_a_node_there_are_none) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context(with_flags({4}));
    Communicator communicator(context, exchange);
    if (const int wrong = reduce(communicator, 1, Notify::immediate, 100)) return wrong;
    Context across(with_flags({2}));
    Communicator two_nodes(across, exchange);
    Operation meeting = barrier(two_nodes, {.across = Across::flat});
    if (meeting.notify() != Notify::flag) return 4;
    for (int call = 0; call < 300; ++call)
      if (!runs(meeting)) return 5;
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

/// With immediates, 200 are refused: a queue pair has 254 receives, and each takes two.
TEST(Flags, take_no_receives) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    Context context(with_flags());
    Communicator communicator(context, exchange);
    std::vector<Operation> live;
    for (int i = 0; i < 200; ++i) live.push_back(barrier(communicator));
    for (int call = 0; call < 3; ++call) {
      for (Operation& operation : live)
        if (operation.start() != Status::ok) return 1;
      for (Operation& operation : live)
        if (operation.wait(30s) != Status::ok) return 2;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

/// Blocks of the arena come back under new operations again and again.
TEST(Flags, operations_that_come_and_go_do_not_meet) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(with_flags());
    Communicator communicator(context, exchange);
    for (int i = 0; i < 60; ++i) {
      if (const int wrong =
              reduce(communicator, 1 + static_cast<std::size_t>(i) % 7, Notify::flag, i % 4))
        return wrong;
      Operation meeting = barrier(communicator);
      for (int call = 0; call < i % 3; ++call)
        if (!runs(meeting)) return 4;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

/// A wait for a flag that does not come names who is missing, and goes on.
TEST(Flags, a_timeout_names_the_missing) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(with_flags());
    Communicator communicator(context, exchange);
    Operation meeting = barrier(communicator, {.per_round = {2}});
    if (exchange.self() != Rank{1}) {
      if (meeting.start() != Status::ok || meeting.wait(200ms) != Status::timed_out) return 1;
      const std::string text = meeting.describe();
      if (text.find("waiting for ranks 1") == std::string::npos) return 2;
    }
    communicator.synchronize();
    if (exchange.self() == Rank{1} && meeting.start() != Status::ok) return 3;
    return meeting.wait(30s) == Status::ok ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

std::string refusal(const std::function<void()>& make, ErrorCode code) {
  try {
    make();
  } catch (const Error& error) {
    return error.code() == code ? error.what() : "another code: " + std::string(error.what());
  }
  return "no error";
}

TEST(Flags, ranks_that_disagree_are_told) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    ContextOptions options = with_flags();
    if (exchange.self() == Rank{2}) options.notify = Notify::immediate;
    Context context(options);
    const std::string text =
        refusal([&] { const Communicator communicator(context, exchange); }, ErrorCode::mismatch);
    const char* expected = exchange.self() == Rank{2}
                               ? "rank 0 notifies by flag, this rank by immediate"
                               : "rank 2 notifies by immediate, this rank by flag";
    if (text.find(expected) == std::string::npos) return 1;
    return text.find("TUTTI_NOTIFY") == std::string::npos ? 2 : 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(Flags, ways_that_tear_lines_are_refused) {
  for (const char* transport : {"cma", "bounce"}) {
    const auto results = run_local({.rank_count = 1}, [&](Exchange&) {
      setenv("TUTTI_SOFT_TRANSPORT", transport, 1);
      const std::string text =
          refusal([] { const Context context(with_flags()); }, ErrorCode::unsupported);
      for (const char* word :
           {"TUTTI_NOTIFY=flag", "soft0:1 does not promise", transport, "use immediate"})
        if (text.find(word) == std::string::npos) {
          std::fprintf(stderr, "%s\n", text.c_str());
          return 1;
        }
      ContextOptions others = with_flags();
      others.notify = Notify::immediate;
      const Context context(others);
      return 0;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(1));
  }
}

}  // namespace
}  // namespace tutti
