#include <mpi.h>

#include <cstdio>
#include <tutti/mpi_exchange.hpp>
#include <tutti/tutti.hpp>
#include <vector>

int main(int argument_count, char** arguments) {
  using namespace std::chrono_literals;
  MPI_Init(&argument_count, &arguments);  // MPI_THREAD_MULTIPLE if other threads call MPI
  bool right = true;
  {  // everything of tutti ends before MPI_Finalize
    const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
    tutti::Context context;  // device, registered memory
    tutti::Communicator communicator(context, *exchange);
    const std::vector<double> part(1000, 0.5);  // this rank's part of a long vector
    double mine = 0, whole = 0;
    auto dot = tutti::allreduce<double>(communicator, {&mine, 1}, {&whole, 1}, tutti::sum);
    for (int iteration = 0; iteration < 3 && right; ++iteration) {
      mine = 0;
      for (const double x : part) mine += x * x;
      right = dot.start() == tutti::Status::ok && dot.wait(5s) == tutti::Status::ok;
    }
    right = right && whole == 250.0 * communicator.rank_count();
    std::printf("rank %u: |x|^2 = %g\n", index_of(communicator.rank()), whole);
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
