#include "microbench/run_ranks.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <tutti/bootstrap.hpp>

#include "microbench/launch.hpp"
#include "microbench/mpi_side.hpp"
#include "microbench/placement.hpp"
#include "runtime/settings.hpp"
#include "verbs/soft/shared_ports.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::bench {
namespace {

class Ranks {
 public:
  Ranks(const char* program, const RankOptions& options, int failure,
        const std::function<int(const Launch&)>& run)
      : program_(program), options_(options), failure_(failure), run_(run) {}

  int forked() const {
    std::optional<verbs::soft::VirtualTime> virtual_time;
    std::optional<verbs::soft::SharedPorts> ports;
    if (options_.virtual_time)
      virtual_time.emplace(*options_.local, nodes_of_ranks(options_));
    else if (!options_.fabric.empty())
      ports.emplace(*options_.local, nodes_of_ranks(options_));
    const std::vector<LocalResult> results =
        run_local({.rank_count = *options_.local}, [&](Exchange& exchange) {
          if (virtual_time) virtual_time->join(index_of(exchange.self()));
          if (ports) ports->join(index_of(exchange.self()));
          return one({.bootstrap = "local", .exchange = exchange});
        });
    return exit_status_of(program_, results, failure_);
  }

  int over_tcp() const {
    const auto exchange = tcp_exchange(TcpOptions::from_environment());
    return one({.bootstrap = "tcp", .exchange = *exchange});
  }

  int under_mpi() const {
    const std::unique_ptr<MpiSide> mpi = start_mpi();
    return one({.bootstrap = "mpi", .exchange = mpi->exchange(), .mpi = mpi.get()});
  }

 private:
  int one(const Launch& launch) const {
    const Rank self = launch.exchange.self();
    // Ranks that were started separately have separate terminals.
    const bool separate = std::string_view(launch.bootstrap) == "tcp";
    bool has_failed = true;
    const int status = exit_status_of(program_, self, self == Rank{0} || separate, [&] {
      if (!options_.fabric.empty())
        ::setenv("TUTTI_SOFT_PLACE", fmt::format("{}", index_of(self)).c_str(), 1);
      const int result = run_(launch);
      has_failed = false;
      return result;
    });
    if (!has_failed || status != exit_failure) return status;
    // After a failure the other ranks may be stuck, and MPI_Finalize would wait for them for ever.
    // What a run returns, however, all ranks know, and all of them come to the end.
    if (launch.mpi != nullptr) launch.mpi->abort(failure_);
    return failure_;
  }

  const char* const program_;
  const RankOptions& options_;
  const int failure_;
  const std::function<int(const Launch&)>& run_;
};

}  // namespace

int run_ranks(const char* program, const RankOptions& options, int failure,
              const std::function<int(const Launch&)>& run) {
  // A bad TUTTI_* variable is found once here instead of on every rank.
  static_cast<void>(runtime::context_settings({}));
  if (!options.fabric.empty()) ::setenv("TUTTI_SOFT_FABRIC", options.fabric.c_str(), 1);
  const Ranks ranks(program, options, failure, run);
  if (options.local) return ranks.forked();
  if (std::getenv("TUTTI_RANK") != nullptr) return ranks.over_tcp();
  return ranks.under_mpi();
}

}  // namespace tutti::bench
