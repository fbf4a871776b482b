// tutti-bench: how long collectives take, beside MPI and beside what bounds them.
// This file: from the command line to an exchange (forked ranks, tcp, MPI), and exit statuses.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <tutti/bootstrap.hpp>

#include "microbench/curves.hpp"
#include "microbench/launch.hpp"
#include "microbench/options.hpp"
#include "microbench/placement.hpp"
#include "microbench/session.hpp"
#include "microbench/summary.hpp"
#include "microbench/verbs_session.hpp"
#include "microbench/wake.hpp"
#include "runtime/settings.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::bench {
namespace {

constexpr const char* program = "tutti-bench";

int run_rank(const Options& options, const Launch& launch) {
  const Rank self = launch.exchange.self();
  // Ranks that were started separately have separate terminals.
  const bool separate = std::string_view(launch.bootstrap) == "tcp";
  return exit_status_of(program, self, self == Rank{0} || separate, [&] {
    if (!options.fabric.empty())
      ::setenv("TUTTI_SOFT_PLACE", fmt::format("{}", index_of(self)).c_str(), 1);
    return options.verbs_cases.empty() ? run_session(options, launch)
                                       : run_verbs_session(options, launch);
  });
}

int run_forked(const Options& options) {
  const detail::Mapping memory = probe_memory_for_children();
  std::optional<verbs::soft::VirtualTime> virtual_time;
  if (options.virtual_time)
    virtual_time.emplace(
        *options.local,
        nodes_in_virtual_time(*options.local, options.ranks_per_node, options.placement));
  const std::vector<LocalResult> results =
      run_local({.rank_count = *options.local}, [&](Exchange& exchange) {
        if (virtual_time) virtual_time->join(index_of(exchange.self()));
        return run_rank(options, {.bootstrap = "local",
                                  .exchange = exchange,
                                  .probe_memory = reinterpret_cast<ProbeMemory*>(memory.data())});
      });
  return exit_status_of(program, results);
}

int run_over_tcp(const Options& options) {
  if (options.against_mpi)
    throw Error(ErrorCode::invalid_argument,
                "--against=\"mpi\": expected a run under MPI, and TUTTI_RANK asks for the tcp "
                "bootstrap; unset TUTTI_RANK and use mpirun -n N tutti-bench ...");
  const auto exchange = tcp_exchange(TcpOptions::from_environment());
  return run_rank(options, {.bootstrap = "tcp", .exchange = *exchange});
}

int run_under_mpi(const Options& options) {
  const std::unique_ptr<MpiSide> mpi = start_mpi();
  const int status =
      run_rank(options, {.bootstrap = "mpi", .exchange = mpi->exchange(), .mpi = mpi.get()});
  // After a failure the other ranks may be stuck, and MPI_Finalize would wait for them for ever.  A
  // wrong result or value, however, is known to all ranks, and all of them come to the end.
  if (status == exit_failure) mpi->abort(status);
  return status;
}

int run_program(std::span<const char* const> arguments) {
  if (arguments.size() > 1 && std::string_view(arguments[1]) == "summary") {
    std::fputs(run_summary(arguments.subspan(1)).c_str(), stdout);
    return 0;
  }
  if (arguments.size() > 1 && std::string_view(arguments[1]) == "curves") {
    std::fputs(run_curves(arguments.subspan(1)).c_str(), stdout);
    return 0;
  }
  if (arguments.size() > 1 && std::string_view(arguments[1]) == "wake")
    return run_wake(parse_wake_options(arguments.subspan(1)));
  const Options options = parse_options(arguments);
  if (!options.help.empty()) {
    std::fputs(options.help.c_str(), stdout);
    return 0;
  }
  // A bad TUTTI_* variable is found once here instead of on every rank.
  static_cast<void>(runtime::context_settings({}));
  if (!options.fabric.empty()) ::setenv("TUTTI_SOFT_FABRIC", options.fabric.c_str(), 1);
  if (options.local) return run_forked(options);
  if (std::getenv("TUTTI_RANK") != nullptr) return run_over_tcp(options);
  return run_under_mpi(options);
}

}  // namespace
}  // namespace tutti::bench

int main(int argument_count, char** arguments) {
  using namespace tutti::bench;
  return exit_status_of(program, [&] {
    return run_program({arguments, static_cast<std::size_t>(argument_count)});
  });
}
