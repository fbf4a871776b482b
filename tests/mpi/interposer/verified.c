/* Calls of which tutti and MPI come to the same, although neither the order of operands nor what
 * lies between elements is the same; verify.sh runs it with TUTTI_MPI=verify.
 * verified unsteady: as well as some by an operator that never comes to the same. */
#include <complex.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "check.h"

enum { calls = 5 }; /* the first of which are left to MPI */
static int rank, ranks;

/* What is left of large numbers depends on the order of the sums. */
static void sums(int call) {
  const double numbers[] = {1e16, 1, -1e16};
  const int odd = call % 2;
  double mine[2] = {numbers[rank % 3], rank}, all[2];
  if (odd) memcpy(all, mine, sizeof all);
  MPI_Allreduce(odd ? MPI_IN_PLACE : mine, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  CHECK(all[1] == ranks * (ranks - 1) / 2, "%g", all[1]);
  float factors[16], product[16];
  for (int i = 0; i < 16; ++i) factors[i] = 1 + 0.137f * (float)(i * (rank + 1));
  MPI_Allreduce(factors, product, 16, MPI_FLOAT, MPI_PROD, MPI_COMM_WORLD);
  CHECK(product[0] == 1, "%g", (double)product[0]);
  long double long_mine[2] = {rank + 0.1L, -1}, long_all[2];
  MPI_Allreduce(long_mine, long_all, 2, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  CHECK(long_all[1] == -ranks, "%Lg", long_all[1]);
  double complex z = 1 + rank * (double complex)I, power;
  MPI_Allreduce(&z, &power, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
  double greatest[2] = {rank, NAN}, least[2];
  greatest[1] = rank == 0 ? 0.0 : -0.0; /* which of both is less, nobody says */
  MPI_Allreduce(greatest, least, 2, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  CHECK(least[0] == 0 && least[1] == 0, "%g %g", least[0], least[1]);
}

/* Elements with gaps. */
static void places(int call) {
  struct {
    double value;
    int index;
  } mine = {(rank + call) % ranks, rank}, least = {-1, -1};
  MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
  CHECK(least.value == 0 && (least.index + call) % ranks == 0, "%g at %d", least.value,
        least.index);
  struct {
    long double value;
    int index;
  } long_mine, longest;
  memset(&long_mine, 0x11 * rank, sizeof long_mine);
  long_mine.value = rank;
  long_mine.index = rank;
  MPI_Reduce(&long_mine, &longest, 1, MPI_LONG_DOUBLE_INT, MPI_MAXLOC, 0, MPI_COMM_WORLD);
  CHECK(rank != 0 || longest.index == ranks - 1, "%d", longest.index);
}

/* a -> b a + c of two maps, which does not commute. */
typedef struct {
  double b, c;
  float unused; /* and a gap behind it */
} map;
static void compose(void* left, void* right, int* count, MPI_Datatype* type) {
  (void)type;
  const map* first = left;
  map* second = right;
  for (int i = 0; i < *count; ++i) {
    second[i].c = second[i].b * first[i].c + second[i].c;
    second[i].b = second[i].b * first[i].b;
  }
}

static void add(void* left, void* right, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; ++i) ((double*)right)[i] += ((double*)left)[i];
}

static void users(void) {
  MPI_Op sum;
  MPI_Op_create(add, 1, &sum);
  double terms[16], total[16];
  for (int i = 0; i < 16; ++i) terms[i] = 0.1 * i * (rank + 1);
  MPI_Allreduce(terms, total, 16, MPI_DOUBLE, sum, MPI_COMM_WORLD);
  MPI_Op_free(&sum);
  MPI_Op op;
  MPI_Datatype type, resized;
  const int lengths[] = {2, 1};
  const MPI_Aint where[] = {offsetof(map, b), offsetof(map, unused)};
  const MPI_Datatype types[] = {MPI_DOUBLE, MPI_FLOAT};
  MPI_Type_create_struct(2, lengths, where, types, &type);
  MPI_Type_create_resized(type, 0, sizeof(map), &resized);
  MPI_Type_commit(&resized);
  MPI_Op_create(compose, 0, &op);
  map mine[3], all[3];
  memset(mine, 0x11 * rank, sizeof mine);
  for (int i = 0; i < 3; ++i) mine[i] = (map){1.1 + rank, rank + i / 3.0, 1};
  MPI_Reduce(mine, all, 3, resized, op, ranks - 1, MPI_COMM_WORLD);
  MPI_Op_free(&op);
  MPI_Type_free(&type);
  MPI_Type_free(&resized);
}

static void broadcasts(int call) {
  MPI_Datatype every_other;
  MPI_Type_vector(6, 1, 2, MPI_DOUBLE, &every_other);
  MPI_Type_commit(&every_other);
  const int root = ranks - 1;
  double spread[12], dense[6];
  for (int i = 0; i < 12; ++i) spread[i] = i % 2 == 0 && rank == root ? i : -1;
  for (int i = 0; i < 6; ++i) dense[i] = rank == root ? 2 * i : -1;
  const int spreads = (rank + call) % 2;
  if (spreads)
    MPI_Bcast(spread, 1, every_other, root, MPI_COMM_WORLD);
  else
    MPI_Bcast(dense, 6, MPI_DOUBLE, root, MPI_COMM_WORLD);
  for (int i = 0; i < 6; ++i) {
    const double got = spreads ? spread[2 * i] : dense[i];
    CHECK(got == 2 * i, "call %d, element %d: %g", call, i, got);
    CHECK(!spreads || spread[2 * i + 1] == -1, "a gap was written");
  }
  MPI_Type_free(&every_other);
}

static void reduces(int call) {
  const int root = 1 % ranks, in_place = rank == root && call % 2;
  int mine[5], all[5];
  for (int i = 0; i < 5; ++i) mine[i] = all[i] = rank + i;
  MPI_Reduce(in_place ? MPI_IN_PLACE : mine, rank == root ? all : NULL, 5, MPI_INT, MPI_SUM, root,
             MPI_COMM_WORLD);
  CHECK(rank != root || all[4] == 4 * ranks + ranks * (ranks - 1) / 2, "%d", all[4]);
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Adds how often it was called before. */
static void add_unsteadily(void* left, void* right, int* count, MPI_Datatype* type) {
  static int times = 1;
  (void)count;
  if (*type == MPI_INT)
    *(int*)right += *(int*)left + times++;
  else
    *(double*)right += *(double*)left + times++;
}
static void unsteady(void) {
  MPI_Op op;
  MPI_Op_create(add_unsteadily, 1, &op);
  MPI_Comm_set_name(MPI_COMM_WORLD, "everybody");
  int number = 1, sum;
  double real = 1, real_sum;
  for (int call = 0; call < calls; ++call) {
    MPI_Allreduce(&number, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Reduce(&real, &real_sum, 1, MPI_DOUBLE, op, 0, MPI_COMM_WORLD);
  }
  MPI_Op_free(&op);
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  rank = rank_in(MPI_COMM_WORLD);
  ranks = ranks_of(MPI_COMM_WORLD);
  for (int call = 0; call < calls; ++call) {
    sums(call);
    places(call);
    users();
    broadcasts(call);
    reduces(call);
  }
  if (argument_count > 1 && strcmp(arguments[1], "unsteady") == 0) unsteady();
  if (rank == 0) printf("sum %d\n", 5);
  MPI_Finalize();
  return 0;
}
