/* A communicator with ranks of another job, who may have been started without tutti: its calls
 * pass. Each rank of the world starts the same program once more, and all meet. */
#include "check.h"

static void sums(MPI_Comm communicator) {
  for (int call = 0; call < 6; ++call) {
    double mine = 1, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, communicator);
    CHECK(all == ranks_of(communicator), "%g", all);
  }
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  MPI_Comm others, both;
  MPI_Comm_get_parent(&others);
  const int is_child = others != MPI_COMM_NULL;
  if (!is_child)
    MPI_Comm_spawn(arguments[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others,
                   MPI_ERRCODES_IGNORE);
  sums(MPI_COMM_WORLD);
  const unsigned long long taken = is_child ? 0 : calls_taken("MPI_Allreduce");
  CHECK(is_child || taken > 0, "nothing was taken");
  MPI_Intercomm_merge(others, is_child, &both);
  sums(both);
  CHECK(is_child || calls_taken("MPI_Allreduce") == taken, "a call was taken");
  MPI_Comm_free(&both);
  MPI_Comm_disconnect(&others);
  MPI_Finalize();
  return 0;
}
