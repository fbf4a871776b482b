// A plug-in: a shared library that embeds tutti, throws what tutti throws, and exports one
// function.
#include <cstdint>
#include <tutti/tutti.hpp>
#include <vector>

extern "C" __attribute__((visibility("default"))) int plugin_run() {
  const auto results = tutti::run_local({.rank_count = 2}, [](tutti::Exchange& exchange) {
    try {
      tutti::Context context;
      tutti::Communicator communicator(context, exchange);
      const std::vector<std::int64_t> mine{1};
      std::vector<std::int64_t> all{0};
      auto sum =
          tutti::allreduce<std::int64_t>(communicator, std::span(mine), std::span(all), tutti::sum);
      if (sum.start() != tutti::Status::ok) return 1;
      return sum.wait(std::chrono::seconds(10)) == tutti::Status::ok && all[0] == 2 ? 0 : 2;
    } catch (const tutti::Error&) {
      return 3;
    }
  });
  return results[0].exit_status + results[1].exit_status;
}
