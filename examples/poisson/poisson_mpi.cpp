// The solver on the ranks of mpirun: on tutti, which MPI introduces to each other, on MPI itself,
// or on both by turns.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <tutti/tutti.hpp>

#include <tutti/mpi_exchange.hpp>
#include "mpi_communication.hpp"
#include "options.hpp"
#include "report.hpp"
#include "tutti_communication.hpp"

namespace {

/// Everything of tutti ends before MPI_Finalize.
int solve(const poisson::Options& options, const poisson::Matrix& matrix) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  tutti::Context context;
  tutti::Communicator communicator(context, *exchange);
  std::vector<std::unique_ptr<poisson::Communication>> communications;
  for (const std::string& name : options.communications)
    communications.push_back(name == "tutti" ? poisson::tutti_communication(communicator)
                                             : poisson::mpi_communication(MPI_COMM_WORLD));
  return poisson::solve_and_report(communications, options, matrix);
}

/// Returns the exit status.  All ranks make the same mistakes, and rank 0 speaks of them.
int run(int argc, char** argv, bool here) try {
  const auto options = poisson::parse(argc, argv, poisson::Launcher::mpirun);
  if (!options) {
    if (here) std::fputs(poisson::usage(poisson::Launcher::mpirun).c_str(), stdout);
    return 0;
  }
  return solve(*options, poisson::make_matrix(*options));
} catch (const poisson::UsageError& error) {
  if (here) std::fprintf(stderr, "poisson_mpi: %s\n", error.what());
  return 2;
} catch (const std::exception& error) {
  // Other ranks may be waiting for this one.
  std::fprintf(stderr, "poisson_mpi: %s\n", error.what());
  MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int status = run(argc, argv, rank == 0);
  MPI_Finalize();
  return status;
}
