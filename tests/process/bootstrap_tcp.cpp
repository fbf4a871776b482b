// The TCP exchange between processes, some of which are killed or stopped.  The local exchange
// only starts the processes; the tests are about the news that they receive over TCP.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "support/shared.hpp"
#include "tcp_ranks.hpp"
#include "tutti/bootstrap.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

/// News of a death may take one second; this leaves room for a busy machine.  A rank that does not
/// receive them waits for twice as long.
constexpr Timeout busy = 5s;

/// What the test and its ranks both see.
struct Seen {
  std::atomic<std::uint32_t> ready{0};
  std::atomic<std::uint32_t> done{0};
  std::atomic<std::int64_t> signalled_at_ns{0};
};

class TcpProcesses : public ::testing::Test {
 protected:
  const test::Shared<Seen> memory;
  Seen& shared = *memory;

  /// Runs `body` in four processes with a TCP exchange each, and sends `signal` to the victim once
  /// all have met.  A body returns 0 for success; an Error becomes 90.
  std::vector<LocalResult> run(int signal, std::size_t victim,
                               const std::function<int(Exchange&)>& body) {
    const auto job = tcp_job(4);
    return run_local({.rank_count = 4,
                      .on_started =
                          [&](const std::vector<pid_t>& pids) {
                            if (!within(20s, [&] { return shared.ready == 4; })) return;
                            shared.signalled_at_ns = detail::MonotonicClock::read().count();
                            ::kill(pids[victim], signal);
                            if (signal != SIGSTOP) return;
                            EXPECT_TRUE(within(20s, [&] { return shared.done == 3; }));
                            ::kill(pids[victim], SIGCONT);
                          }},
                     [&](Exchange& local) {
                       try {
                         const auto exchange = tcp_exchange(job[index_of(local.self())]);
                         return body(*exchange);
                       } catch (const Error& error) {
                         std::fprintf(stderr, "rank %u: %s\n", index_of(local.self()),
                                      error.what());
                         return 90;
                       }
                     });
  }

  Timeout since_signal() const {
    return detail::MonotonicClock::read() - Timeout(shared.signalled_at_ns);
  }

  /// Waits until every survivor has seen what it should, so that no rank leaves before that.
  bool await_survivors() {
    ++shared.done;
    return within(10s, [&] { return shared.done == 3; });
  }

  int hear_of_death(Exchange& exchange, Rank victim) {
    if (!within(10s, [&] { return exchange.incident().kind != Incident::Kind::none; })) return 2;
    const Timeout took = since_signal();
    const Incident incident = exchange.incident();
    if (incident.kind != Incident::Kind::died || incident.rank != victim) return 3;
    if (took > busy) return 4;
    if (exchange.has_left(victim)) return 5;
    return await_survivors() ? 0 : 6;
  }
};

void expect_survivors(const std::vector<LocalResult>& results, std::size_t victim) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (rank == victim) {
      EXPECT_EQ(results[rank].signal, SIGKILL);
    } else {
      EXPECT_EQ(results[rank].exit_status, 0) << "rank " << rank;
      EXPECT_EQ(results[rank].signal, 0) << "rank " << rank;
    }
  }
}

// Protects: processes exchange data of any size over TCP.
TEST_F(TcpProcesses, allgather_crosses_processes) {
  const auto results = run(0, 0, [&](Exchange& exchange) {
    ++shared.ready;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 20}) {
      const std::vector<std::byte> mine(bytes, std::byte(index_of(exchange.self()) + 1));
      std::vector<std::byte> all(bytes * 4);
      exchange.allgather(mine, all, 20s);
      for (std::size_t position = 0; position < all.size(); ++position) {
        if (all[position] != std::byte(position / bytes + 1)) return 2;
      }
    }
    exchange.barrier(20s);
    return 0;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

// Protects: a killed process is known by its rank to idle ones within seconds.
TEST_F(TcpProcesses, a_killed_rank_is_heard_of_while_idle) {
  expect_survivors(run(SIGKILL, 2,
                       [&](Exchange& exchange) {
                         ++shared.ready;
                         return hear_of_death(exchange, Rank{2});
                       }),
                   2);
}

// Protects: the same for rank 0, whose hub dies with it.
TEST_F(TcpProcesses, a_killed_rank_zero_is_heard_of_while_idle) {
  expect_survivors(run(SIGKILL, 0,
                       [&](Exchange& exchange) {
                         ++shared.ready;
                         return hear_of_death(exchange, Rank{0});
                       }),
                   0);
}

// Protects: the others learn of a death also when rank 0, which relays, has left before; and rank
// 0's process is not held up any longer then.
TEST_F(TcpProcesses, a_killed_rank_is_heard_of_after_rank_zero_has_left) {
  const Timeout start = detail::MonotonicClock::read();
  expect_survivors(run(SIGKILL, 2,
                       [&](Exchange& exchange) {
                         if (exchange.self() == Rank{0}) {
                           ++shared.ready;
                           ++shared.done;
                           return 0;
                         }
                         if (!within(5s, [&] { return exchange.has_left(Rank{0}); })) return 1;
                         ++shared.ready;
                         return hear_of_death(exchange, Rank{2});
                       }),
                   2);
  EXPECT_LT(detail::MonotonicClock::read() - start, 15s);
}

// Protects: the others learn of a rank's death although a child that it has forked lives on.
TEST_F(TcpProcesses, a_forked_child_does_not_hide_a_death) {
  for (const std::uint32_t victim : {0u, 2u}) {
    shared.ready = 0;
    shared.done = 0;
    expect_survivors(run(SIGKILL, victim,
                         [&](Exchange& exchange) {
                           if (exchange.self() == Rank{victim} && ::fork() == 0) {
                             ::prctl(PR_SET_PDEATHSIG, 0);
                             (void)within(20s, [&] { return shared.done == 3; });
                             ::_exit(0);
                           }
                           ++shared.ready;
                           return hear_of_death(exchange, Rank{victim});
                         }),
                     victim);
  }
}

// Protects: a forked child has no part in its parent's exchange: it cannot speak through it, and
// may destroy it without a wait and without a goodbye in the parent's name.
TEST_F(TcpProcesses, a_forked_child_has_no_part_in_the_exchange) {
  const auto results = run(0, 0, [&](Exchange& exchange) {
    exchange.barrier(20s);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      const Timeout start = detail::MonotonicClock::read();
      try {
        exchange.barrier(20s);
        ::_exit(11);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) ::_exit(12);
      }
      exchange.announce({Incident::Kind::aborted, exchange.self()});
      if (exchange.incident().kind != Incident::Kind::none) ::_exit(13);
      exchange.~Exchange();
      ::_exit(detail::MonotonicClock::read() - start < 10s ? 0 : 14);
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    exchange.barrier(20s);
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      if (exchange.has_left(Rank{rank})) return 2;
    }
    if (exchange.incident().kind != Incident::Kind::none) return 3;
    exchange.barrier(20s);
    ++shared.ready;
    return 0;
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(results[rank].exit_status, 0) << "rank " << rank;
  }
}

// Protects: ranks that wait in a barrier for a killed one give up within seconds and name it.
TEST_F(TcpProcesses, a_killed_rank_ends_a_barrier) {
  for (const std::uint32_t victim : {0u, 3u}) {
    shared.ready = 0;
    shared.done = 0;
    expect_survivors(run(SIGKILL, victim,
                         [&](Exchange& exchange) {
                           ++shared.ready;
                           if (exchange.self() == Rank{victim}) ::pause();
                           try {
                             exchange.barrier(10s);
                             return 2;
                           } catch (const Error& error) {
                             if (error.code() != ErrorCode::peer_failed) return 3;
                             if (std::string(error.what()) !=
                                 "barrier: rank " + std::to_string(victim) + " has died") {
                               return 4;
                             }
                           }
                           if (since_signal() > busy) return 5;
                           return await_survivors() ? 0 : 6;
                         }),
                     victim);
  }
}

// Protects: a stopped rank is late, not dead: the deadline holds, names it, and nothing is
// announced.  If rank 0 is stopped, the error of ranks that wait is that the relay does not answer.
TEST_F(TcpProcesses, a_stopped_rank_is_late_and_named) {
  for (const std::uint32_t victim : {0u, 1u}) {
    shared.ready = 0;
    shared.done = 0;
    const auto results = run(SIGSTOP, victim, [&](Exchange& exchange) {
      ++shared.ready;
      if (exchange.self() == Rank{victim}) {
        return within(20s, [&] { return shared.done == 3; }) ? 0 : 7;
      }
      if (!within(5s, [&] { return shared.signalled_at_ns != 0; })) return 1;
      std::this_thread::sleep_for(50ms);
      const Timeout start = detail::MonotonicClock::read();
      try {
        exchange.barrier(300ms);
        return 2;
      } catch (const Error& error) {
        const std::string expected =
            victim == 0 ? "barrier: rank 0, which relays, did not answer within 300 ms"
                        : "barrier: rank 1 did not come within 300 ms";
        if (error.code() != ErrorCode::timed_out || error.what() != expected) return 3;
      }
      if (detail::MonotonicClock::read() - start > 300ms + busy) return 4;
      if (exchange.incident().kind != Incident::Kind::none) return 5;
      return await_survivors() ? 0 : 6;
    });
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].exit_status, 0) << "rank " << rank << ", stopped " << victim;
    }
  }
}

// Protects: a process that leaves and ends is no incident, and one that ends without is.
TEST_F(TcpProcesses, ending_without_leaving_is_a_death) {
  const auto results = run(0, 0, [&](Exchange& exchange) {
    ++shared.ready;
    exchange.barrier(20s);
    if (exchange.self() == Rank{1}) return 0;
    if (!within(10s, [&] { return exchange.has_left(Rank{1}); })) return 2;
    std::this_thread::sleep_for(50ms);
    if (exchange.incident().kind != Incident::Kind::none) return 3;
    ++shared.done;
    if (!within(10s, [&] { return shared.done >= 3; })) return 4;
    if (exchange.self() == Rank{3}) ::_exit(0);
    if (!within(10s, [&] { return exchange.incident().rank == Rank{3}; })) return 5;
    ++shared.done;
    return within(10s, [&] { return shared.done == 5; }) ? 0 : 6;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

}  // namespace
}  // namespace tutti::bootstrap
