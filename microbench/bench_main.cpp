// tutti-bench: how long collectives take, beside MPI and beside what bounds them.
// This file: from the command line to what it asks for.
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <tutti/status.hpp>

#include "microbench/curves.hpp"
#include "microbench/launch.hpp"
#include "microbench/options.hpp"
#include "microbench/run_ranks.hpp"
#include "microbench/session.hpp"
#include "microbench/summary.hpp"
#include "microbench/verbs_session.hpp"
#include "microbench/wake.hpp"

namespace tutti::bench {
namespace {

constexpr const char* program = "tutti-bench";

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
  if (options.against_mpi && !options.local && std::getenv("TUTTI_RANK") != nullptr)
    throw Error(ErrorCode::invalid_argument,
                "--against=\"mpi\": expected a run under MPI, and TUTTI_RANK asks for the tcp "
                "bootstrap; unset TUTTI_RANK and use mpirun -n N tutti-bench ...");
  return run_ranks(program, options, exit_failure, [&](const Launch& launch) {
    return options.verbs_cases.empty() ? run_session(options, launch)
                                       : run_verbs_session(options, launch);
  });
}

}  // namespace
}  // namespace tutti::bench

int main(int argument_count, char** arguments) {
  using namespace tutti::bench;
  return exit_status_of(program, [&] {
    return run_program({arguments, static_cast<std::size_t>(argument_count)});
  });
}
