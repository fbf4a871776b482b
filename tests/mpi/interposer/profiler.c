/* A tool: it counts the calls of MPI_Allreduce and MPI_Barrier, and passes them on. */
#include <mpi.h>
#include <string.h>

static unsigned long long allreduces, barriers;

int MPI_Allreduce(const void* source, void* target, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm communicator) {
  ++allreduces;
  return PMPI_Allreduce(source, target, count, type, op, communicator);
}

int MPI_Barrier(MPI_Comm communicator) {
  ++barriers;
  return PMPI_Barrier(communicator);
}

unsigned long long profiler_calls(const char* function);
unsigned long long profiler_calls(const char* function) {
  return strcmp(function, "MPI_Allreduce") == 0 ? allreduces : barriers;
}
