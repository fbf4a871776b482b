/* What opened.c opens in place of MPI. */
#include "check.h"

enum { calls = 10 };

void use_plug_in(void);
void use_plug_in(void) {
  MPI_Init(NULL, NULL);
  const int rank = rank_in(MPI_COMM_WORLD), ranks = ranks_of(MPI_COMM_WORLD);
  for (int call = 0; call < calls; ++call) {
    int mine = rank + call, sum = -1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == ranks * call + ranks * (ranks - 1) / 2, "%d", sum);
  }
  MPI_Finalize();
}
