/* A few calls of each kind, whose numbers table.sh knows.
 * few_calls [ARGUMENT]: hidden has MPI and does not call it, unsigned asks for what MPIs do wrong,
 * fails returns 5, passes sees that tutti has done nothing, others makes calls of all other kinds
 * instead. */
#include <string.h>

#include "check.h"

static double data[400000];

static void numbers_without_sign(void) {
  MPI_Comm_set_name(MPI_COMM_WORLD, "everybody");
  for (int call = 0; call < 6; ++call) {
    const long mine = rank_in(MPI_COMM_WORLD) == 0 ? -5 : call;
    long least[3] = {0}, all[3] = {7, mine, 7};
    MPI_Allreduce(all, least, 3, MPI_UNSIGNED_LONG, MPI_MIN, MPI_COMM_WORLD);
  }
}

static void others(void) {
  const MPI_Comm world = MPI_COMM_WORLD;
  double mine[80] = {0}, all[80];
  const int counts[] = {1, 2}, places[] = {0, 1}; /* of two ranks */
  const int few[] = {1, 1}, many[] = {40, 40}, apart[] = {0, 40};
  const int rank = rank_in(world);
  for (int call = 0; call < 5; ++call) {
    MPI_Scan(mine, all, 2, MPI_DOUBLE, MPI_SUM, world);
    MPI_Exscan(mine, all, 2, MPI_DOUBLE, MPI_SUM, world);
    MPI_Allgather(mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, world);
    MPI_Allgatherv(mine, counts[rank], MPI_DOUBLE, all, counts, places, MPI_DOUBLE, world);
    MPI_Alltoall(mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, world);
    MPI_Gather(mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, 0, world);
    MPI_Gatherv(mine, counts[rank], MPI_DOUBLE, all, counts, places, MPI_DOUBLE, 0, world);
    MPI_Scatter(mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, 0, world);
    MPI_Scatterv(mine, counts, places, MPI_DOUBLE, all, counts[rank], MPI_DOUBLE, 0, world);
    const int* const lengths = call < 4 ? few : many;
    MPI_Alltoallv(mine, lengths, apart, MPI_DOUBLE, all, lengths, apart, MPI_DOUBLE, world);
    MPI_Reduce_scatter(mine, all, counts, MPI_DOUBLE, MPI_SUM, world);
    MPI_Reduce_scatter_block(mine, all, 2, MPI_DOUBLE, MPI_SUM, world);
    MPI_Request requests[4];
    MPI_Iallreduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, world, &requests[0]);
    MPI_Ireduce(mine, all + 2, 2, MPI_DOUBLE, MPI_SUM, 0, world, &requests[1]);
    MPI_Ibcast(all + 4, 2, MPI_DOUBLE, 0, world, &requests[2]);
    MPI_Ibarrier(world, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  }
}

int main(int argument_count, char** arguments) {
  const char* const what = argument_count > 1 ? arguments[1] : "";
  if (strcmp(what, "hidden") == 0) return MPI_VERSION == 0;
  MPI_Init(&argument_count, &arguments);
  if (strcmp(what, "unsigned") == 0) numbers_without_sign();
  if (strcmp(what, "others") == 0) {
    others();
    MPI_Finalize();
    return 0;
  }
  double sum = 0;
  const int rank = rank_in(MPI_COMM_WORLD), ranks = ranks_of(MPI_COMM_WORLD);
  for (int call = 0; call < 5; ++call) {
    double mine[2] = {rank, call};
    MPI_Allreduce(mine, data, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(data[0] == ranks * (ranks - 1) / 2 && data[1] == ranks * call, "%g %g", data[0], data[1]);
    sum += data[0];
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Allreduce(MPI_IN_PLACE, data, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, data, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
  MPI_Bcast(data, 400000, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (strcmp(what, "passes") == 0)
    CHECK(calls_taken("MPI_Allreduce") + calls_taken("MPI_Barrier") == 0, "tutti does it");
  if (rank == 0) printf("sum %g\n", sum);
  MPI_Finalize();
  return strcmp(what, "fails") == 0 ? 5 : 0;
}
