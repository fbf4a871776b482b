/* Allreduces of several sizes; prints a line if all results are right. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, right = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int count = 1; count <= 1 << 18; count *= 8) {
    double* const source = malloc(sizeof(double) * (size_t)count);
    double* const target = malloc(sizeof(double) * (size_t)count);
    for (int i = 0; i < count; ++i) source[i] = rank + i;
    for (int call = 0; call < 20; ++call)
      MPI_Allreduce(source, target, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) right &= target[i] == size * (size - 1) / 2 + (double)size * i;
    free(source);
    free(target);
  }
  int all = 0;
  MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks: %s\n", size, all ? "right" : "WRONG");
  MPI_Finalize();
  return !all;
}
