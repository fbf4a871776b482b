/* Barriers, allreduces, broadcasts and reduces, of predefined types, users' types and operators, in
 * place and not, on parts of the world, first left to MPI and then taken: the results are right. */
#include <complex.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "composition.h"

enum { calls = 7 }; /* the first of which are left to MPI */
static MPI_Comm communicator;
static int rank, ranks;

/* Each rank contributes rank + i + salt as element i; sums are known. */
#define SUMS_OF(type, handle)                                                                   \
  do {                                                                                          \
    for (int call = 0; call < calls; ++call) {                                                  \
      type mine[65], all[65];                                                                   \
      const int count = counts[which];                                                          \
      for (int i = 0; i < count; ++i) mine[i] = (type)(rank + i % 7 + call);                    \
      memset(all, 0x55, sizeof all);                                                            \
      const int in_place = call % 2;                                                            \
      if (in_place) memcpy(all, mine, sizeof all);                                              \
      MPI_Allreduce(in_place ? MPI_IN_PLACE : mine, all, count, handle, MPI_SUM, communicator); \
      for (int i = 0; i < count; ++i)                                                           \
        CHECK(all[i] == (type)(ranks * (i % 7 + call) + ranks * (ranks - 1) / 2),               \
              #handle ", call %d, element %d of %d", call, i, count);                           \
      MPI_Allreduce(mine, all, count, handle, MPI_MAX, communicator);                           \
      for (int i = 0; i < count; ++i)                                                           \
        CHECK(all[i] == (type)(ranks - 1 + i % 7 + call), #handle ", greatest, call %d", call); \
    }                                                                                           \
  } while (0)

static void sums(void) {
  static const int counts[] = {1, 3, 8, 65};
  for (int which = 0; which < 4; ++which) {
    SUMS_OF(double, MPI_DOUBLE);
    SUMS_OF(float, MPI_FLOAT);
    SUMS_OF(int, MPI_INT);
    SUMS_OF(long, MPI_LONG);
    SUMS_OF(uint64_t, MPI_UINT64_T);
    SUMS_OF(short, MPI_SHORT);
    SUMS_OF(unsigned char, MPI_UNSIGNED_CHAR);
    SUMS_OF(long double, MPI_LONG_DOUBLE);
  }
}

/* Unsigned and signed numbers differ in what is least.  Open MPI 4.1 and MPICH 4.0 compare unsigned
 * long as if it had a sign, so only what is taken is looked at. */
static void signs(void) {
  for (int call = 0; call < calls; ++call) {
    long least = 0, mine = rank == 0 ? -5 : rank;
    unsigned long least_unsigned = 0, mine_unsigned = (unsigned long)mine;
    MPI_Allreduce(&mine, &least, 1, MPI_LONG, MPI_MIN, communicator);
    MPI_Allreduce(&mine_unsigned, &least_unsigned, 1, MPI_UNSIGNED_LONG, MPI_MIN, communicator);
    CHECK(least == -5, "%ld", least);
    CHECK(call <= 3 || least_unsigned == (ranks > 1 ? 1 : mine_unsigned), "call %d: %lu", call,
          least_unsigned);
  }
}

static void other_operators(void) {
  for (int call = 0; call < calls; ++call) {
    struct {
      double value;
      int index;
    } mine = {(rank * 5 + call) % ranks, rank}, least = {-1, -1};
    MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, communicator);
    CHECK(least.value <= mine.value && (5 * least.index + call) % ranks == (int)least.value,
          "%g at %d", least.value, least.index);
    const double complex z = 1 + rank * (double complex)I;
    double complex sum = 0, product = 0, expected = 1;
    MPI_Allreduce(&z, &sum, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, communicator);
    CHECK(creal(sum) == ranks && cimag(sum) == ranks * (ranks - 1) / 2, "%g", cimag(sum));
    MPI_Allreduce(&z, &product, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, communicator);
    for (int i = 0; i < ranks; ++i) expected *= 1 + i * (double complex)I;
    CHECK(cabs(product - expected) <= 1e-12 * cabs(expected), "%g", creal(product));
    int bits = 1 << rank, all = 0, odd = rank % 2, exclusive = -1;
    MPI_Allreduce(&bits, &all, 1, MPI_INT, MPI_BOR, communicator);
    CHECK(all == (1 << ranks) - 1, "%d", all);
    MPI_Allreduce(&odd, &exclusive, 1, MPI_INT, MPI_LXOR, communicator);
    CHECK(exclusive == ranks / 2 % 2, "%d", exclusive);
  }
}

static void users_operators(void) {
  for (int call = 0; call < calls; ++call) {
    /* Operators and types of each call are new ones. */
    MPI_Op op;
    MPI_Datatype type = type_of_maps();
    MPI_Op_create(compose, 0, &op);
    map mine[3], all[3];
    fill_gaps(all, 3);
    for (int i = 0; i < 3; ++i) mine[i] = (map){rank + 2, rank + i, 1};
    MPI_Allreduce(mine, all, 3, type, op, communicator);
    for (int i = 0; i < 3; ++i) {
      map expected = {2, i, 1};
      for (int r = 1; r < ranks; ++r) {
        expected.c = (r + 2) * expected.c + r + i;
        expected.b *= r + 2;
      }
      check_map(&all[i], &expected, "allreduce");
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
  }
}

/* Ranks describe one payload of six doubles in different ways. */
static void broadcasts(void) {
  MPI_Datatype every_other;
  MPI_Type_vector(6, 1, 2, MPI_DOUBLE, &every_other);
  MPI_Type_commit(&every_other);
  for (int root = 0; root < ranks; ++root)
    for (int call = 0; call < calls; ++call) {
      double spread[12], dense[6];
      for (int i = 0; i < 12; ++i) spread[i] = -1;
      for (int i = 0; i < 6; ++i) dense[i] = -1;
      const int spreads = (rank + call) % 2;
      if (rank == root)
        for (int i = 0; i < 6; ++i) *(spreads ? &spread[2 * i] : &dense[i]) = root + i + call;
      if (spreads)
        MPI_Bcast(spread, 1, every_other, root, communicator);
      else
        MPI_Bcast(dense, 6, MPI_DOUBLE, root, communicator);
      for (int i = 0; i < 6; ++i) {
        const double got = spreads ? spread[2 * i] : dense[i];
        CHECK(got == root + i + call, "root %d, call %d, element %d: %g", root, call, i, got);
        CHECK(!spreads || spread[2 * i + 1] == -1, "a gap was written");
      }
      char text[5] = "....";
      if (rank == root) memcpy(text, "abcd", 5);
      MPI_Bcast(text, 5, MPI_CHAR, root, communicator);
      CHECK(strcmp(text, "abcd") == 0, "%s", text);
    }
  MPI_Type_free(&every_other);
}

/* Buffers whose addresses are in their type. */
static void broadcasts_from_bottom(void) {
  double parts[2] = {-1, -1};
  MPI_Datatype absolute;
  const int lengths[] = {1, 1};
  MPI_Aint places[2];
  MPI_Get_address(&parts[0], &places[0]);
  MPI_Get_address(&parts[1], &places[1]);
  MPI_Type_create_hindexed(2, lengths, places, MPI_DOUBLE, &absolute);
  MPI_Type_commit(&absolute);
  const unsigned long long before = calls_taken("MPI_Bcast");
  for (int call = 0; call < calls; ++call) {
    parts[0] = rank == 0 ? call : -1;
    parts[1] = rank == 0 ? call + 1 : -1;
    MPI_Bcast(MPI_BOTTOM, 1, absolute, 0, communicator);
    CHECK(parts[0] == call && parts[1] == call + 1, "call %d: %g %g", call, parts[0], parts[1]);
  }
  MPI_Type_free(&absolute);
  CHECK(ranks == 1 || calls_taken("MPI_Bcast") > before, "none was taken");
}

static void reduces(void) {
  for (int root = 0; root < ranks; ++root)
    for (int call = 0; call < 2 * calls; ++call) {
      double mine[5], all[5];
      for (int i = 0; i < 5; ++i) mine[i] = rank + i, all[i] = -1;
      const int in_place = call % 2;
      if (rank == root && in_place) memcpy(all, mine, sizeof all);
      MPI_Reduce(rank == root && in_place ? MPI_IN_PLACE : mine, rank == root ? all : NULL, 5,
                 MPI_DOUBLE, MPI_SUM, root, communicator);
      for (int i = 0; i < 5; ++i) {
        CHECK(mine[i] == rank + i, "a source was written");
        CHECK(all[i] == (rank == root ? ranks * i + ranks * (ranks - 1) / 2 : -1),
              "root %d, call %d: %g", root, call, all[i]);
      }
    }
}

/* From one element to more than is taken. */
static void sizes(void) {
  const int greatest = 200000;
  double* mine = malloc(greatest * sizeof *mine);
  double* all = malloc(greatest * sizeof *all);
  for (int count = 1; count <= greatest; count = count * 7 + 1)
    for (int call = 0; call < 5; ++call) {
      for (int i = 0; i < count; ++i) mine[i] = rank + i + call;
      MPI_Allreduce(mine, all, count, MPI_DOUBLE, MPI_SUM, communicator);
      for (int i = 0; i < count; ++i)
        CHECK(all[i] == ranks * ((double)i + call) + ranks * (ranks - 1) / 2, "element %d of %d", i,
              count);
    }
  free(mine);
  free(all);
}

/* Buffers that lie beside each other, with fewer elements than the operation has. */
static void beside(void) {
  const unsigned long long before = calls_taken("MPI_Allreduce");
  for (int call = 0; call < calls; ++call) {
    float numbers[6] = {rank, 1, 2};
    MPI_Allreduce(numbers, numbers + 3, 3, MPI_FLOAT, MPI_PROD, communicator);
    CHECK(numbers[3] == 0 && numbers[4] == 1, "%g %g", numbers[3], numbers[4]);
  }
  CHECK(ranks == 1 || calls_taken("MPI_Allreduce") > before, "none was taken");
}

static void nothing(void) {
  for (int call = 0; call < calls; ++call) {
    double x = 3;
    MPI_Allreduce(&x, &x, 0, MPI_DOUBLE, MPI_SUM, communicator);
    MPI_Bcast(&x, 0, MPI_DOUBLE, 0, communicator);
    CHECK(x == 3, "%g", x);
  }
}

static void all_of_it(MPI_Comm which) {
  communicator = which;
  rank = rank_in(which);
  ranks = ranks_of(which);
  sums();
  signs();
  other_operators();
  users_operators();
  broadcasts();
  broadcasts_from_bottom();
  reduces();
  sizes();
  beside();
  nothing();
  for (int call = 0; call < calls; ++call) MPI_Barrier(communicator);
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  all_of_it(MPI_COMM_WORLD);
  all_of_it(MPI_COMM_SELF);
  /* Parts, whose ranks are in another order; one of them may have a single rank. */
  MPI_Comm part;
  const int world_rank = rank_in(MPI_COMM_WORLD);
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 3 == 0, -world_rank, &part);
  all_of_it(part);
  MPI_Comm_free(&part);
  const char* functions[] = {"MPI_Barrier", "MPI_Allreduce", "MPI_Bcast", "MPI_Reduce"};
  for (int i = 0; i < 4; ++i)
    CHECK(ranks_of(MPI_COMM_WORLD) == 1 || calls_taken(functions[i]) > 3, "%s was never taken",
          functions[i]);
  if (world_rank == 0) printf("%llu allreduces were taken\n", calls_taken("MPI_Allreduce"));
  MPI_Finalize();
  return 0;
}
