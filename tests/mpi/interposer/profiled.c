/* A profiler above the interposer sees every call, and one below it those that are left to MPI; the
 * interposer counts each once. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <string.h>

#include "check.h"

enum { calls = 10, first_calls = 3 };

static unsigned long long seen(const char* function) {
  unsigned long long (*profiler_calls)(const char*) = NULL;
  *(void**)&profiler_calls = dlsym(RTLD_DEFAULT, "profiler_calls");
  CHECK(profiler_calls != NULL, "no profiler is loaded");
  return profiler_calls(function);
}

static void require(const char* function, int is_above) {
  CHECK(calls_taken(function) == calls - first_calls, "%llu of %s were taken",
        calls_taken(function), function);
  CHECK(calls_passed(function) == first_calls, "%llu of %s were left", calls_passed(function),
        function);
  CHECK(seen(function) == (is_above ? calls : first_calls), "the profiler saw %llu of %s",
        seen(function), function);
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  int (*first_allreduce)(void) = NULL;
  Dl_info of_first;
  *(void**)&first_allreduce = dlsym(RTLD_DEFAULT, "MPI_Allreduce");
  CHECK(dladdr(*(void**)&first_allreduce, &of_first) != 0, "nobody has MPI_Allreduce");
  const int is_above = strstr(of_first.dli_fname, "libtutti-mpi") == NULL;
  const int ranks = ranks_of(MPI_COMM_WORLD);
  for (int call = 0; call < calls; ++call) {
    int mine = rank_in(MPI_COMM_WORLD) + call, sum = -1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == ranks * call + ranks * (ranks - 1) / 2, "%d", sum);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  require("MPI_Allreduce", is_above);
  require("MPI_Barrier", is_above);
  if (rank_in(MPI_COMM_WORLD) == 0) printf("the profiler is %s\n", is_above ? "above" : "below");
  MPI_Finalize();
  return 0;
}
