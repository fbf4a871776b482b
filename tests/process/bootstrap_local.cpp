// Forked ranks of run_local(): how they end, and how the others learn of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include "support/shared.hpp"
#include "tcp_ranks.hpp"
#include "tutti/bootstrap.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

/// What the test and its ranks both see.
struct Seen {
  std::atomic<std::uint32_t> ready{0};
  std::atomic<std::uint32_t> heard{0};
  std::atomic<std::int64_t> killed_at_ns{0};
  std::atomic<std::int32_t> grandchild{0};
};

class LocalProcesses : public ::testing::Test {
 protected:
  const test::Shared<Seen> memory;
  Seen& shared = *memory;

  /// Kills one rank once all are ready.
  LocalOptions kill_when_ready(std::uint32_t rank_count, std::size_t victim) {
    return {.rank_count = rank_count, .on_started = [=, this](const std::vector<pid_t>& pids) {
              EXPECT_TRUE(within(10s, [&] { return shared.ready == rank_count; }));
              shared.killed_at_ns = detail::MonotonicClock::read().count();
              EXPECT_EQ(::kill(pids[victim], SIGKILL), 0);
              // The other ranks learn of the death while this function is still at work.
              EXPECT_TRUE(within(20s, [&] { return shared.heard == rank_count - 1; }));
            }};
  }

  Timeout since_kill() const {
    return detail::MonotonicClock::read() - Timeout(shared.killed_at_ns);
  }
};

// Protects: every rank's exit status comes back in rank order, and data crosses processes.
TEST_F(LocalProcesses, results_come_in_rank_order) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    const std::vector<std::byte> mine(100'000, std::byte(index_of(exchange.self())));
    std::vector<std::byte> all(mine.size() * 4);
    exchange.allgather(mine, all, 20s);
    exchange.barrier(20s);
    for (std::size_t position = 0; position < all.size(); ++position) {
      if (all[position] != std::byte(position / mine.size())) return 99;
    }
    return 10 + static_cast<int>(index_of(exchange.self()));
  });
  ASSERT_EQ(results.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(results[static_cast<std::size_t>(rank)].exit_status, 10 + rank);
    EXPECT_EQ(results[static_cast<std::size_t>(rank)].signal, 0);
  }
}

// Protects: a killed rank is known by number to ranks that are idle, within seconds.
TEST_F(LocalProcesses, a_killed_rank_is_heard_of_while_idle) {
  const auto results = run_local(kill_when_ready(3, 1), [&](Exchange& exchange) {
    ++shared.ready;
    if (!within(10s, [&] { return exchange.incident().kind != Incident::Kind::none; })) return 2;
    ++shared.heard;
    if (exchange.incident().kind != Incident::Kind::died) return 4;
    if (exchange.has_left(Rank{1})) return 5;
    return exchange.incident().rank == Rank{1} ? 0 : 6;
  });
  EXPECT_EQ(results[0].exit_status, 0);
  EXPECT_EQ(results[1].signal, SIGKILL);
  EXPECT_EQ(results[2].exit_status, 0);
}

// Protects: ranks that wait in a barrier for a killed rank give up, and say who it was.
TEST_F(LocalProcesses, a_killed_rank_ends_a_barrier) {
  const auto results = run_local(kill_when_ready(3, 2), [&](Exchange& exchange) {
    ++shared.ready;
    if (exchange.self() == Rank{2}) ::pause();
    try {
      exchange.barrier(30s);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::peer_failed) return 2;
      if (std::string(error.what()) != "barrier: rank 2 has died") return 3;
      ++shared.heard;
      return since_kill() < 10s ? 0 : 4;
    }
    return 5;
  });
  EXPECT_EQ(results[0].exit_status, 0);
  EXPECT_EQ(results[1].exit_status, 0);
}

// Protects: an exception is a status of 1 and an incident for the others.
TEST_F(LocalProcesses, an_exception_is_a_death) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) -> int {
    if (exchange.self() == Rank{0}) throw std::runtime_error("expected by this test");
    return within(10s, [&] { return exchange.incident().rank == Rank{0}; }) ? 0 : 2;
  });
  EXPECT_EQ(results[0].exit_status, 1);
  EXPECT_EQ(results[1].exit_status, 0);
}

// Protects: a rank that ends its process without leaving has died, whatever its status.
TEST_F(LocalProcesses, ending_without_leaving_is_a_death) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    if (exchange.self() == Rank{0}) ::_exit(0);
    return within(10s, [&] { return exchange.incident().kind == Incident::Kind::died; }) ? 0 : 2;
  });
  EXPECT_EQ(results[1].exit_status, 0);
}

// Protects: a rank that has left and then ends is no incident.
TEST_F(LocalProcesses, leaving_is_not_a_death) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    if (exchange.self() == Rank{0}) return 0;
    if (!within(5s, [&] { return exchange.has_left(Rank{0}); })) return 2;
    std::this_thread::sleep_for(100ms);  // its process ends meanwhile
    return exchange.incident().kind == Incident::Kind::none ? 0 : 3;
  });
  EXPECT_EQ(results[1].exit_status, 0);
}

// Protects: the others learn of a rank's death although a child that it has forked lives on.
TEST_F(LocalProcesses, a_forked_child_does_not_hide_a_death) {
  const auto results = run_local(kill_when_ready(2, 1), [&](Exchange& exchange) {
    if (exchange.self() == Rank{1} && ::fork() == 0) {
      (void)within(30s, [&] { return shared.grandchild != 0; });
      ::_exit(0);
    }
    ++shared.ready;
    const bool heard = within(10s, [&] { return exchange.incident().rank == Rank{1}; });
    shared.grandchild = 1;
    ++shared.heard;
    return heard ? 0 : 2;
  });
  EXPECT_EQ(results[0].exit_status, 0);
  EXPECT_EQ(results[1].signal, SIGKILL);
}

// Protects: a forked child that comes to the end of the body, or throws, neither leaves nor dies in
// its parent's name.
TEST_F(LocalProcesses, a_forked_child_does_not_end_for_its_rank) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) -> int {
    exchange.barrier(10s);
    if (exchange.self() == Rank{1}) {
      const pid_t returning = ::fork();
      if (returning == 0) return 0;
      const pid_t throwing = ::fork();
      if (throwing == 0) throw std::runtime_error("expected by this test");
      if (::waitpid(returning, nullptr, 0) != returning) return 2;
      if (::waitpid(throwing, nullptr, 0) != throwing) return 3;
    }
    exchange.barrier(10s);
    const bool quiet =
        !exchange.has_left(Rank{1}) && exchange.incident().kind == Incident::Kind::none;
    exchange.barrier(10s);
    return quiet ? 0 : 4;
  });
  EXPECT_EQ(results[0].exit_status, 0);
  EXPECT_EQ(results[1].exit_status, 0);
}

// Protects: what on_started throws comes out, and no rank survives it.
TEST_F(LocalProcesses, a_failing_start_leaves_nobody_behind) {
  std::vector<pid_t> ranks;
  EXPECT_THROW((void)run_local({.rank_count = 2,
                                .on_started =
                                    [&](const std::vector<pid_t>& pids) {
                                      ranks = pids;
                                      throw std::runtime_error("expected by this test");
                                    }},
                               [](Exchange&) { return ::pause(); }),
               std::runtime_error);
  ASSERT_EQ(ranks.size(), 2u);
  for (const pid_t pid : ranks) {
    EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1);  // reaped already
  }
}

// Protects: ranks die with their parent, so that a killed job leaves nothing behind.
TEST_F(LocalProcesses, ranks_die_with_their_parent) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans become children of this test
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    (void)run_local({.rank_count = 1}, [&](Exchange&) {
      shared.grandchild = ::getpid();
      for (;;) ::pause();
      return 0;
    });
    ::_exit(0);
  }
  ASSERT_TRUE(within(10s, [&] { return shared.grandchild != 0; }));
  ::kill(parent, SIGKILL);
  EXPECT_EQ(::waitpid(parent, nullptr, 0), parent);
  int status = 0;
  EXPECT_TRUE(within(
      5s, [&] { return ::waitpid(shared.grandchild, &status, WNOHANG) == shared.grandchild; }));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// Protects: without the ends of children nothing could be promised, so that is refused.
TEST_F(LocalProcesses, ignored_child_signals_are_refused) {
  struct sigaction ignore {};
  struct sigaction previous {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGCHLD, &ignore, &previous);
  EXPECT_THROW((void)run_local({.rank_count = 1}, [](Exchange&) { return 0; }), Error);
  ::sigaction(SIGCHLD, &previous, nullptr);
}

}  // namespace
}  // namespace tutti::bootstrap
