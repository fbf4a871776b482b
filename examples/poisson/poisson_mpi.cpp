// The solver on the ranks of mpirun: on tutti, which MPI introduces to each other, on MPI itself,
// on MPI's calls as libtutti-mpi does them, or on several of these by turns.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <tutti/tutti.hpp>

#include <tutti/mpi_exchange.hpp>
#include "mpi_communication.hpp"
#include "options.hpp"
#include "report.hpp"
#include "tutti_communication.hpp"

namespace {

/// What a program has that calls tutti.
struct Tutti {
  std::unique_ptr<tutti::Exchange> exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  tutti::Context context;
  tutti::Communicator communicator{context, *exchange};
};

/// Everything of tutti ends before MPI_Finalize.
int solve(const poisson::Options& options, const poisson::Matrix& matrix) {
  std::optional<Tutti> tutti;
  std::vector<std::unique_ptr<poisson::Communication>> communications;
  for (const std::string& name : options.communications) {
    if (name == "tutti")
      communications.push_back(poisson::tutti_communication(tutti.emplace().communicator));
    else if (name == "mpi")
      communications.push_back(poisson::mpi_communication(MPI_COMM_WORLD));
    else
      communications.push_back(poisson::preloaded_communication(MPI_COMM_WORLD));
  }
  const int status = poisson::solve_and_report(communications, options, matrix);
  if (options.communications.back() == "preloaded" && communications.front()->rank() == 0)
    for (const char* function : {"MPI_Allreduce", "MPI_Iallreduce"}) {
      unsigned long long taken = 0, passed = 0;
      if (poisson::interposer_calls()(function, &taken, &passed) == 0)
        std::printf("preloaded: of %llu calls of %s, tutti took %llu\n", taken + passed, function,
                    taken);
    }
  return status;
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
