// tutti-bench wake: how long a rank that waits takes to notice that its partner has come, and what
// its waiting costs, for each WaitPolicy.  The ranks are forked on this machine, because the clock
// of one rank is read on another.
//
//   rank 0    |------- away -------|t0 start()                    t0 is what it broadcasts
//   others    wait() ...  CPU time? ...        |t1                t1 - t0: wake-up latency
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tutti/communicator.hpp>
#include <vector>

namespace tutti::bench {

struct WakeOptions {
  std::uint32_t local = 2;
  std::vector<std::uint32_t> ranks_per_node;  // empty: found, or imposed by the environment
  std::vector<WaitPolicy> policies = {WaitPolicy::spin, WaitPolicy::automatic, WaitPolicy::yield,
                                      WaitPolicy::block};
  std::vector<std::uint32_t> away_us = {1000, 30'000};
  std::size_t iterations = 100;
  bool bind = true;
  std::string help;  // not empty: print this and end
};

/// `arguments` begins with "wake".  Throws Error{invalid_argument} in one line.
WakeOptions parse_wake_options(std::span<const char* const> arguments);

/// What a row of the table says.
struct WakeRow {
  WaitPolicy policy = WaitPolicy::automatic;
  std::uint32_t away_us = 0;
  double latency_us = 0;      // median over the calls; of a call, the last rank's
  double latency_p99_us = 0;  // likewise
  double cpu_share = 0;       // CPU seconds per second waited: mean of the ranks that wait
  double start_us = 0;        // median of what start() takes at rank 0, which wakes
};

std::string wake_table(std::span<const WakeRow> rows, const std::string& about);

/// Forks the ranks, measures, and prints the table.  Returns the exit status.
int run_wake(const WakeOptions& options);

}  // namespace tutti::bench
