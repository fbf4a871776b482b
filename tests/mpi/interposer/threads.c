/* With MPI_THREAD_MULTIPLE every call is MPI's, and counted; the level that the program asked for
 * is the one that it gets. */
#include <pthread.h>
#include <string.h>

#include "check.h"

enum { threads = 4, calls = 200 };
static MPI_Comm communicators[threads];

static void* call_often(void* which) {
  const MPI_Comm communicator = *(MPI_Comm*)which;
  for (int call = 0; call < calls; ++call) {
    int mine = rank_in(communicator) + call, sum = -1;
    const int ranks = ranks_of(communicator);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, communicator);
    CHECK(sum == ranks * call + ranks * (ranks - 1) / 2, "%d", sum);
    MPI_Barrier(communicator);
  }
  return NULL;
}

static void many_at_once(void) {
  pthread_t all[threads];
  for (int i = 0; i < threads; ++i) pthread_create(&all[i], NULL, call_often, &communicators[i]);
  for (int i = 0; i < threads; ++i) pthread_join(all[i], NULL);
  CHECK(calls_taken("MPI_Allreduce") == 0 && calls_taken("MPI_Barrier") == 0, "a call was taken");
  CHECK(calls_passed("MPI_Allreduce") == threads * calls, "%llu calls were counted",
        calls_passed("MPI_Allreduce"));
  CHECK(calls_passed("MPI_Barrier") == threads * calls, "%llu barriers were counted",
        calls_passed("MPI_Barrier"));
}

static void one_after_the_other(void) {
  for (int i = 0; i < threads; ++i) {
    pthread_t one;
    pthread_create(&one, NULL, call_often, &communicators[i / 2]);
    pthread_join(one, NULL);
  }
  CHECK(calls_taken("MPI_Allreduce") > threads * calls - 10, "%llu calls were taken",
        calls_taken("MPI_Allreduce"));
}

/* Before MPI is initialised, the launcher says it. */
static int is_rank_0(void) {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank == NULL) rank = getenv("PMI_RANK");
  return rank != NULL && strcmp(rank, "0") == 0;
}

/* One rank with threads is enough for all to pass. */
static void none_taken(void) {
  call_often(&communicators[0]);
  CHECK(calls_taken("MPI_Allreduce") == 0, "a call was taken");
}

int main(int argument_count, char** arguments) {
  CHECK(argument_count == 2, "%d arguments", argument_count);
  const int is_mixed = strcmp(arguments[1], "mixed") == 0;
  const int is_multiple = strcmp(arguments[1], "multiple") == 0 || (is_mixed && is_rank_0());
  const int level = is_multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  int provided = -1;
  MPI_Init_thread(&argument_count, &arguments, level, &provided);
  CHECK(provided == level, "MPI gives level %d", provided);
  for (int i = 0; i < threads; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &communicators[i]);
  if (is_mixed)
    none_taken();
  else if (is_multiple)
    many_at_once();
  else
    one_after_the_other();
  for (int i = 0; i < threads; ++i) MPI_Comm_free(&communicators[i]);
  MPI_Finalize();
  return 0;
}
