/* A kernel as HPCG has it, which knows nothing of tutti: conjugate gradient with a symmetric
 * Gauss-Seidel sweep as preconditioner (each rank sweeps its own points), for the 27-point stencil
 * on a box of points that is cut into layers.  Each iteration has three MPI_Allreduce of one number
 * and an exchange of layers between neighbours.  Norms of the residual go to stdout. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { width = 12, depth = 6, layer = width * width, points = layer * depth, iterations_max = 60 };

static int rank, ranks;

/* Vectors have a layer of the lower neighbour's before them, one of the upper one's after them. */
typedef double vector[points + 2 * layer];
static vector x, right, residual, z, p, ap;

static void exchange_layers(double* values) {
  MPI_Request requests[4];
  int count = 0;
  if (rank > 0) {
    MPI_Irecv(values, layer, MPI_DOUBLE, rank - 1, 0, MPI_COMM_WORLD, &requests[count++]);
    MPI_Isend(values + layer, layer, MPI_DOUBLE, rank - 1, 0, MPI_COMM_WORLD, &requests[count++]);
  }
  if (rank < ranks - 1) {
    MPI_Irecv(values + layer + points, layer, MPI_DOUBLE, rank + 1, 0, MPI_COMM_WORLD,
              &requests[count++]);
    MPI_Isend(values + points, layer, MPI_DOUBLE, rank + 1, 0, MPI_COMM_WORLD, &requests[count++]);
  }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

/* The matrix has 26 on its diagonal, and -1 for each neighbour of a point. */
static double sum_of_neighbours(const double* values, int point) {
  const int i = point % width, j = point / width % width, k = point / layer;
  double sum = 0;
  for (int dk = -1; dk <= 1; ++dk) {
    if ((rank == 0 && k + dk < 0) || (rank == ranks - 1 && k + dk >= depth)) continue;
    for (int dj = -1; dj <= 1; ++dj)
      for (int di = -1; di <= 1; ++di) {
        if (i + di < 0 || i + di >= width || j + dj < 0 || j + dj >= width) continue;
        if (di == 0 && dj == 0 && dk == 0) continue;
        sum += values[layer + point + di + dj * width + dk * layer];
      }
  }
  return sum;
}

static void multiply(double* values, double* products) {
  exchange_layers(values);
  for (int point = 0; point < points; ++point)
    products[layer + point] = 26 * values[layer + point] - sum_of_neighbours(values, point);
}

/* One sweep forth and one back, from zero; what other ranks have counts as zero. */
static void precondition(const double* of, double* to) {
  for (int i = 0; i < points + 2 * layer; ++i) to[i] = 0;
  for (int point = 0; point < points; ++point)
    to[layer + point] = (of[layer + point] + sum_of_neighbours(to, point)) / 26;
  for (int point = points - 1; point >= 0; --point)
    to[layer + point] = (of[layer + point] + sum_of_neighbours(to, point)) / 26;
}

static double dot_product(const double* left, const double* other) {
  double mine = 0, all = 0;
  for (int i = layer; i < layer + points; ++i) mine += left[i] * other[i];
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  /* The solution is all ones. */
  for (int i = layer; i < layer + points; ++i) p[i] = 1;
  multiply(p, right);
  for (int i = layer; i < layer + points; ++i) residual[i] = right[i];
  double rz = 0, norm = sqrt(dot_product(residual, residual));
  const double first = norm;
  int iteration = 0;
  for (; iteration < iterations_max && norm > 1e-9 * first; ++iteration) {
    precondition(residual, z);
    const double before = rz;
    rz = dot_product(residual, z);
    const double beta = iteration == 0 ? 0 : rz / before;
    for (int i = layer; i < layer + points; ++i) p[i] = z[i] + beta * p[i];
    multiply(p, ap);
    const double alpha = rz / dot_product(p, ap);
    for (int i = layer; i < layer + points; ++i) {
      x[i] += alpha * p[i];
      residual[i] -= alpha * ap[i];
    }
    norm = sqrt(dot_product(residual, residual));
    if (rank == 0) printf("%3d residual %.10e\n", iteration + 1, norm / first);
  }
  double error = 0, greatest = 0;
  for (int i = layer; i < layer + points; ++i) error = fmax(error, fabs(x[i] - 1));
  MPI_Reduce(&error, &greatest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("%s after %d iterations\n", greatest < 1e-6 ? "solved" : "wrong", iteration);
  MPI_Finalize();
  return rank == 0 && greatest >= 1e-6;
}
