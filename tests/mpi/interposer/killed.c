/* The last rank is killed amid calls that are taken; killed.sh looks at what becomes of the job. */
#include <signal.h>

#include "check.h"

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  const int rank = rank_in(MPI_COMM_WORLD), ranks = ranks_of(MPI_COMM_WORLD);
  for (int call = 0;; ++call) {
    double mine = rank, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (call == 1000 && rank == 0) {
      printf("taken: %s\n", calls_taken("MPI_Allreduce") > 900 ? "yes" : "no");
      fflush(stdout);
      MPI_Barrier(MPI_COMM_WORLD);
    } else if (call == 1000) {
      MPI_Barrier(MPI_COMM_WORLD);
    }
    if (call == 2000 && rank == ranks - 1) raise(SIGKILL);
  }
}
