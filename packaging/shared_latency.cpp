// Prints the latency of an allreduce of 8 bytes between two ranks, in nanoseconds: of the least of
// 50 blocks, which is the one that the machine disturbed least.  For shared_latency.sh.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <tutti/tutti.hpp>

int main() {
  const auto ranks = tutti::run_local({.rank_count = 2}, [](tutti::Exchange& exchange) {
    using namespace std::chrono_literals;
    using Clock = std::chrono::steady_clock;
    constexpr int blocks = 50;
    constexpr int calls = 20000;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(index_of(exchange.self()), &cpus);
    if (::sched_setaffinity(0, sizeof cpus, &cpus) != 0) return 1;
    tutti::Context context;
    tutti::Communicator communicator(context, exchange);
    double mine = 1;
    double whole = 0;
    auto sum = tutti::allreduce<double>(communicator, {&mine, 1}, {&whole, 1}, tutti::sum);
    double best = 1e9;
    for (int block = 0; block <= blocks; ++block) {
      const auto begin = Clock::now();
      for (int call = 0; call < calls; ++call)
        if (sum.start() != tutti::Status::ok || sum.wait(10s) != tutti::Status::ok) return 1;
      const std::chrono::duration<double, std::nano> time = Clock::now() - begin;
      if (block > 0) best = std::min(best, time.count() / calls);  // the first warms up
    }
    if (index_of(exchange.self()) == 0) std::printf("%.3f\n", best);
    std::fflush(stdout);
    return whole == 2 ? 0 : 1;
  });
  return ranks[0].exit_status | ranks[1].exit_status | ranks[0].signal | ranks[1].signal;
}
