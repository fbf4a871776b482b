#include "microbench/wake.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <tutti/bootstrap.hpp>
#include <tutti/collectives.hpp>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/names.hpp>
#include <utility>

#include "microbench/command_line.hpp"
#include "microbench/launch.hpp"
#include "microbench/placement.hpp"
#include "microbench/statistics.hpp"
#include "microbench/subject.hpp"
#include "microbench/together.hpp"
#include "microbench/words.hpp"
#include "runtime/settings.hpp"

namespace tutti::bench {
namespace {

constexpr std::size_t warmup = 3;

/// CPU time of this process so far, with that of the device's threads.
Timeout cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Timeout(time.tv_nsec);
}

void sleep_for(Timeout time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec wanted{.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()};
  ::nanosleep(&wanted, nullptr);
}

double microseconds(Timeout time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

void run(Operation& operation, const char* what) {
  if (operation.start() == Status::ok && operation.wait(call_timeout) == Status::ok) return;
  throw RunFailed(fmt::format("{}: {}", what, operation.describe()));
}

/// What one rank has found of a row.
struct Findings {
  std::vector<double> latencies_us;  // by call, of a rank that waits
  std::vector<double> starts_us;     // by call, of rank 0
  double cpu_share = 0;
};

Findings measure_row(Exchange& exchange, const WakeOptions& options, WaitPolicy policy,
                     std::uint32_t away_us, std::string& about) {
  ContextOptions wanted;
  wanted.wait = policy;
  if (!options.ranks_per_node.empty()) wanted.ranks_per_node = options.ranks_per_node;
  std::unique_ptr<Context> context;
  together(exchange, [&] { context = std::make_unique<Context>(wanted); });
  Communicator communicator(*context, exchange);
  about = fmt::format("{} ranks on {} nodes, device {}", communicator.rank_count(),
                      communicator.node_count(), context->device_name());
  std::int64_t called_at = 0;  // what is broadcast
  Operation call = broadcast(communicator, {.buffer = &called_at, .bytes = sizeof called_at});
  Operation meeting = barrier(communicator);
  const bool is_root = exchange.self() == Rank{0};
  Findings found;
  Timeout waited{0}, worked{0};
  for (std::size_t i = 0; i < warmup + options.iterations; ++i) {
    run(meeting, "meeting");
    const Timeout begin = detail::MonotonicClock::read();
    const Timeout cpu_begin = cpu_time();
    if (is_root) {
      sleep_for(std::chrono::microseconds(away_us));
      const Timeout called = detail::MonotonicClock::read();
      called_at = called.count();
      const Status status = call.start();
      const Timeout started = detail::MonotonicClock::read();
      if (status != Status::ok || call.wait(call_timeout) != Status::ok)
        throw RunFailed("wake: " + call.describe());
      if (i >= warmup) found.starts_us.push_back(microseconds(started - called));
      continue;
    }
    run(call, "wake");
    const Timeout end = detail::MonotonicClock::read();
    if (i < warmup) continue;
    found.latencies_us.push_back(microseconds(end - Timeout(called_at)));
    worked += cpu_time() - cpu_begin;
    waited += end - begin;
  }
  run(meeting, "meeting");
  if (waited > Timeout::zero())
    found.cpu_share = static_cast<double>(worked.count()) / static_cast<double>(waited.count());
  return found;
}

/// Brings together what the ranks have found.  Collective.
WakeRow gather_row(Exchange& exchange, Findings&& found, std::size_t calls) {
  WakeRow row;
  const bool is_root = exchange.self() == Rank{0};
  std::vector<double> slowest;
  found.latencies_us.resize(calls);
  for (const double mine : found.latencies_us)
    slowest.push_back(largest(gather(exchange, is_root ? 0.0 : mine)));
  row.latency_us = median(slowest);
  row.latency_p99_us = percentile(slowest, 99);
  double shares = 0;
  for (const double share : gather(exchange, found.cpu_share)) shares += share;
  row.cpu_share = shares / (exchange.rank_count() - 1);
  row.start_us = median(found.starts_us);
  return row;
}

int run_rank(Exchange& exchange, const WakeOptions& options) {
  const Placement placement = place_ranks(exchange, options.bind);
  std::vector<WakeRow> rows;
  std::string about;
  for (const std::uint32_t away_us : options.away_us)
    for (const WaitPolicy policy : options.policies) {
      WakeRow row = gather_row(exchange, measure_row(exchange, options, policy, away_us, about),
                               options.iterations);
      row.policy = policy;
      row.away_us = away_us;
      rows.push_back(row);
    }
  if (exchange.self() == Rank{0})
    std::fputs(wake_table(rows, fmt::format("{}; bound: {}", about, placement.binding)).c_str(),
               stdout);
  return 0;
}

}  // namespace

WakeOptions parse_wake_options(std::span<const char* const> arguments) {
  WakeOptions options;
  std::optional<std::string> local, ranks_per_node, policies, away, iterations;
  std::string bind = "auto";
  CommandLine line("tutti-bench wake",
                   "Prints how long ranks that wait take to notice that rank 0 has come, and what "
                   "their waiting costs, for each way of TUTTI_WAIT.");
  line.add("--local", local,
           fmt::format("fork that many ranks on this machine; default {}", options.local));
  line.add("--ranks-per-node", ranks_per_node,
           "imposed node shape, e.g. 2 or 3,1,2; 1: all messages go through the device; default: "
           "the ranks of a host are a node");
  line.add("--wait", policies, "some of spin,automatic,yield,block; default: all");
  line.add("--away-us", away,
           fmt::format("microseconds for which rank 0 is away before each call, a row for each; "
                       "default {}",
                       fmt::join(options.away_us, ",")));
  line.add("--iterations", iterations,
           fmt::format("calls of each row; default {}", options.iterations));
  line.add("--bind", bind, "auto or none: bind ranks to distinct cores; default auto");
  if (const std::optional<std::string> help = line.parse(arguments)) {
    options.help = *help;
    return options;
  }
  if (local) options.local = parse_number<std::uint32_t>("--local", *local, 2, 1024);
  if (ranks_per_node)
    options.ranks_per_node = runtime::parse_ranks_per_node(*ranks_per_node, "--ranks-per-node");
  if (policies) {
    const std::vector<WaitPolicy> every_policy = std::exchange(options.policies, {});
    for (const std::string& word : split(*policies))
      options.policies.push_back(parse_name(every_policy, "--wait", word));
  }
  if (away) {
    options.away_us.clear();
    for (const std::string& word : split(*away))
      options.away_us.push_back(parse_number<std::uint32_t>("--away-us", word, 0, 10'000'000));
  }
  if (iterations)
    options.iterations = parse_number<std::size_t>("--iterations", *iterations, 1, 1'000'000);
  if (bind != "auto" && bind != "none") refuse("--bind", bind, "auto or none");
  options.bind = bind == "auto";
  return options;
}

std::string wake_table(std::span<const WakeRow> rows, const std::string& about) {
  std::string text =
      fmt::format("{}\n\n{:>10}  {:<10} {:>14} {:>10} {:>18} {:>14}\n", about, "away us", "wait",
                  "wake-up us", "p99", "CPU s / s waited", "start() us");
  for (const WakeRow& row : rows)
    text += fmt::format("{:>10}  {:<10} {:>14.2f} {:>10.2f} {:>18.4f} {:>14.2f}\n", row.away_us,
                        name_of(row.policy), row.latency_us, row.latency_p99_us, row.cpu_share,
                        row.start_us);
  return text +
         "\nwake-up: from the begin of rank 0's call to the end of the last rank's wait(), the "
         "broadcast of 8 bytes included.\nCPU s / s waited: CPU time of the process, with the "
         "threads of its device, while it waits.\nstart(): at rank 0, which wakes.\n";
}

int run_wake(const WakeOptions& options) {
  if (!options.help.empty()) {
    std::fputs(options.help.c_str(), stdout);
    return 0;
  }
  static_cast<void>(runtime::context_settings({}));  // a bad TUTTI_* variable is found once here
  const std::vector<LocalResult> results =
      run_local({.rank_count = options.local}, [&](Exchange& exchange) {
        return exit_status_of("tutti-bench", exchange.self(), exchange.self() == Rank{0},
                              [&] { return run_rank(exchange, options); });
      });
  return exit_status_of("tutti-bench", results);
}

}  // namespace tutti::bench
