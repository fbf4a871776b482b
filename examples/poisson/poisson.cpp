// The solver on tutti alone: forks its ranks on this machine.  solvers.cpp and dot_products.cpp are
// the ones to read; poisson_mpi.cpp is the same under mpirun, and beside MPI.
#include <cstdio>
#include <exception>
#include <tutti/tutti.hpp>

#include "options.hpp"
#include "report.hpp"
#include "tutti_communication.hpp"

int main(int argc, char** argv) try {
  const auto options = poisson::parse(argc, argv, poisson::Launcher::none);
  if (!options) {
    std::fputs(poisson::usage(poisson::Launcher::none).c_str(), stdout);
    return 0;
  }
  const poisson::Matrix matrix = poisson::make_matrix(*options);
  const auto ranks =
      tutti::run_local({.rank_count = options->ranks}, [&](tutti::Exchange& exchange) {
        tutti::Context context;
        tutti::Communicator communicator(context, exchange);
        std::vector<std::unique_ptr<poisson::Communication>> communications;
        communications.push_back(poisson::tutti_communication(communicator));
        return poisson::solve_and_report(communications, *options, matrix);
      });
  for (const auto& rank : ranks)
    if (rank.signal != 0 || rank.exit_status != 0) return 1;
  return 0;
} catch (const poisson::UsageError& error) {
  std::fprintf(stderr, "poisson: %s\n", error.what());
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "poisson: %s\n", error.what());
  return 1;
}
