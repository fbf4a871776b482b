/* What libtutti-mpi has done so far in this process, for programs and tests that want to see it.
 * Programs do not link it; they look the function up: dlsym(RTLD_DEFAULT, "tutti_mpi_calls"). */
#ifndef TUTTI_MPI_COUNTERS_H
#define TUTTI_MPI_COUNTERS_H

#ifdef __cplusplus
extern "C" {
#endif

/* How many calls of a function ("MPI_Allreduce") tutti has done, and how many it has left to MPI.
 * Returns 0, or 1 if it takes no function of this name. */
__attribute__((visibility("default"))) int tutti_mpi_calls(const char* function,
                                                           unsigned long long* taken,
                                                           unsigned long long* passed);

#ifdef __cplusplus
}
#endif

#endif
