/* What the programs under the interposer share.  They are compiled for either MPI, know nothing of
 * tutti, and run with libtutti-mpi preloaded; what it says of itself is looked up. */
#ifndef CHECK_H
#define CHECK_H

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* MPICH's MPI_STATUSES_IGNORE is an array without room, for GCC. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

#define CHECK(condition, ...)                                                   \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: %s is not so: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                             \
      fprintf(stderr, "\n");                                                    \
      MPI_Abort(MPI_COMM_WORLD, 1);                                             \
    }                                                                           \
  } while (0)

/* How many calls of `function` the interposer has taken, and left; ends the program if it is not
 * there. */
static inline unsigned long long calls_counted(const char* function, int is_taken) {
  unsigned long long taken = 0, passed = 0;
  int (*calls)(const char*, unsigned long long*, unsigned long long*) = NULL;
  *(void**)&calls = dlsym(RTLD_DEFAULT, "tutti_mpi_calls");
  CHECK(calls != NULL, "libtutti-mpi is not loaded");
  CHECK(calls(function, &taken, &passed) == 0, "%s is not known", function);
  return is_taken ? taken : passed;
}

static inline unsigned long long calls_taken(const char* function) {
  return calls_counted(function, 1);
}

static inline unsigned long long calls_passed(const char* function) {
  return calls_counted(function, 0);
}

static inline int rank_in(MPI_Comm communicator) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}

static inline int ranks_of(MPI_Comm communicator) {
  int count = 0;
  MPI_Comm_size(communicator, &count);
  return count;
}

#endif
