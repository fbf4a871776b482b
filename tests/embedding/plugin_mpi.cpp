// A plug-in whose ranks are those of MPI.
#include <tutti/mpi_exchange.hpp>
#include <tutti/tutti.hpp>

extern "C" __attribute__((visibility("default"))) int plugin_run() {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  tutti::Context context;
  const tutti::Communicator communicator(context, *exchange);
  return 0;
}
