/* Calls of which tutti and MPI come to the same, although neither the order of operands nor what
 * lies between elements is the same; verify.sh runs it with TUTTI_MPI=verify.
 * verified unsteady: others, by an operator that never comes to the same.
 * verified erring: others, in the last of which MPI errs (erring.c).
 * verified persistent: persistent requests by such an operator, and what
 * MPI refuses of them. */
#include <complex.h>
#include <math.h>
#include <string.h>

#include "check.h"
#include "composition.h"
#include "persistent_names.h"

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
  MPI_Datatype type = type_of_maps();
  MPI_Op_create(compose, 0, &op);
  map mine[3], all[3];
  memset(mine, 0x11 * rank, sizeof mine);
  for (int i = 0; i < 3; ++i) mine[i] = (map){1.1 + rank, rank + i / 3.0, 1};
  MPI_Reduce(mine, all, 3, type, op, ranks - 1, MPI_COMM_WORLD);
  MPI_Op_free(&op);
  MPI_Type_free(&type);
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

/* Sums of some ranks, and sums of which each rank gets a few, differ no more than those of all. */
static void parts(int call) {
  const double numbers[] = {1e16, 1, -1e16};
  double mine[2] = {numbers[(rank + call) % 3], rank}, sum[2] = {-1, -1};
  MPI_Scan(mine, sum, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum[1] == rank * (rank + 1) / 2, "%g", sum[1]);
  memcpy(sum, mine, sizeof sum);
  MPI_Exscan(MPI_IN_PLACE, sum, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum[1] == (rank == 0 ? 0 : rank * (rank - 1) / 2), "%g", sum[1]);
  double terms[64], part[64];
  int counts[32], of_last = 0; /* the first rank gets none */
  for (int i = 0; i < ranks; ++i) counts[i] = of_last = i % 3;
  for (int i = 0; i < 64; ++i) terms[i] = numbers[(rank + i) % 3] + i, part[i] = -1;
  const int in_place = call % 2;
  if (in_place) memcpy(part, terms, sizeof part);
  MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : terms, part, counts, MPI_DOUBLE, MPI_SUM,
                     MPI_COMM_WORLD);
  CHECK(in_place || part[counts[rank]] == -1, "%d elements of the last rank: %g", of_last,
        part[counts[rank]]);
  MPI_Reduce_scatter_block(terms, part, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* How long blocks are is known to some ranks alone; the last one that is gathered is long. */
static void blocks_of_unknown_length(int call, MPI_Datatype pair) {
  enum { long_block = 200 };
  short mine[2 * 32], all[(long_block + 4) * 32];
  int sent[32], received[32], from[32], to[32];
  for (int i = 0; i < ranks; ++i) {
    received[i] = (rank + i + call) % 2, sent[i] = 2 * received[i];
    from[i] = 2 * i, to[i] = ranks - 1 - i;
    mine[2 * i] = (short)(rank + call), mine[2 * i + 1] = (short)i;
  }
  for (int i = 0; i < 4 * ranks; ++i) all[i] = 99;
  if (call % 2) {
    for (int i = 0; i < ranks; ++i) all[3 * to[i]] = mine[0], all[3 * to[i] + 2] = (short)i;
    MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, all, received, to, pair,
                  MPI_COMM_WORLD);
  } else {
    MPI_Alltoallv(mine, sent, from, MPI_SHORT, all, received, to, pair, MPI_COMM_WORLD);
  }
  for (int i = 0; i < ranks; ++i) {
    const short* const block = all + 3 * to[i];
    CHECK(!received[i] || (block[0] == i + call && block[2] == rank), "%d %d", block[0], block[2]);
    CHECK(block[1] == 99, "a gap holds %d", block[1]);
  }
  const int root = ranks - 1, keeps = rank == root && call % 2;
  short long_one[long_block] = {(short)rank};
  for (int i = 0; i < ranks; ++i) {
    received[i] = call == calls - 1 && i == 0 ? long_block : 1 + i % 2;
    to[i] = (long_block + 4) * i;
  }
  if (keeps) all[to[root]] = long_one[0];
  MPI_Gatherv(keeps ? MPI_IN_PLACE : long_one, received[rank], MPI_SHORT, all, received, to,
              MPI_SHORT, root, MPI_COMM_WORLD);
  for (int i = 0; i < ranks && rank == root; ++i) CHECK(all[to[i]] == i, "%d", all[to[i]]);
  for (int i = 0; i < ranks; ++i) sent[i] = 1 + i % 2;
  short one[2] = {-1, -1};
  MPI_Scatterv(mine, sent, from, MPI_SHORT, keeps ? MPI_IN_PLACE : one, sent[rank], MPI_SHORT, root,
               MPI_COMM_WORLD);
  CHECK(keeps || one[0] == root + call, "%d", one[0]);
}

/* Blocks with gaps that lie in another order than their ranks, and in place. */
static void blocks(int call) {
  MPI_Datatype pair;
  MPI_Type_vector(2, 1, 2, MPI_SHORT, &pair); /* extends over three numbers */
  MPI_Type_commit(&pair);
  short mine[2] = {(short)(rank + call), (short)-rank}, all[4 * 32];
  int counts[32], places[32];
  for (int i = 0; i < ranks; ++i) counts[i] = i % 2, places[i] = ranks - 1 - i;
  for (int i = 0; i < 4 * ranks; ++i) all[i] = 99;
  MPI_Allgatherv(mine, 2 * (rank % 2), MPI_SHORT, all, counts, places, pair, MPI_COMM_WORLD);
  for (int i = 0; i < ranks; ++i) {
    const short* const block = all + 3 * places[i];
    CHECK(block[0] == (i % 2 ? i + call : 99) && block[1] == 99, "%d %d", block[0], block[1]);
  }
  all[rank] = mine[0];
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_SHORT, all, 1, MPI_SHORT, MPI_COMM_WORLD);
  MPI_Alltoall(MPI_IN_PLACE, 0, MPI_SHORT, all, 1, MPI_SHORT, MPI_COMM_WORLD);
  for (int i = 0; i < ranks; ++i) CHECK(all[i] == rank + call, "%d of rank %d", all[i], i);
  const int root = ranks - 1, keeps = rank == root && call % 2;
  if (keeps) all[root] = mine[0];
  MPI_Gather(keeps ? MPI_IN_PLACE : mine, 1, MPI_SHORT, rank == root ? all : NULL, 1, MPI_SHORT,
             root, MPI_COMM_WORLD);
  MPI_Scatter(rank == root ? all : NULL, 1, MPI_SHORT, keeps ? MPI_IN_PLACE : mine, 1, MPI_SHORT,
              root, MPI_COMM_WORLD);
  CHECK(mine[0] == rank + call, "%d", mine[0]);
  blocks_of_unknown_length(call, pair);
  MPI_Type_free(&pair);
}

/* Calls in flight: more of a kind than have operations, with handles that are freed meanwhile. */
static void in_flight(void) {
  enum { flights = 5 };
  const double numbers[] = {1e16, 1, -1e16};
  double mine[flights][2], all[flights][2], sum[2] = {-1, -1};
  short sent[3] = {-1, -1, -1};
  MPI_Request requests[flights + 3];
  MPI_Datatype every_other;
  MPI_Type_vector(2, 1, 2, MPI_SHORT, &every_other);
  MPI_Type_commit(&every_other);
  if (rank == 0) sent[0] = 5, sent[1] = sent[2] = 6;
  for (int i = 0; i < flights; ++i) {
    mine[i][0] = all[i][0] = numbers[(rank + i) % 3];
    mine[i][1] = all[i][1] = rank + i;
    MPI_Iallreduce(i % 2 ? MPI_IN_PLACE : mine[i], all[i], 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD,
                   &requests[i]);
  }
  MPI_Ireduce(mine[0], sum, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD, &requests[flights]);
  MPI_Ibcast(sent, 1, every_other, 0, MPI_COMM_WORLD, &requests[flights + 1]);
  MPI_Type_free(&every_other);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[flights + 2]);
  MPI_Waitall(flights + 3, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < flights; ++i)
    CHECK(all[i][1] == ranks * i + ranks * (ranks - 1) / 2, "call %d: %g", i, all[i][1]);
  CHECK(sum[1] == (rank == 0 ? ranks * (ranks - 1) / 2 : -1), "%g", sum[1]);
  CHECK(sent[0] == 5 && sent[1] == (rank == 0 ? 6 : -1) && sent[2] == 6, "%d %d %d", sent[0],
        sent[1], sent[2]);
}

/* Adds another number each time, and on each rank others: a rank may have come as far as the one
 * whose result MPI passes on. */
static void add_unsteadily(void* left, void* right, int* count, MPI_Datatype* type) {
  static unsigned state = 0;
  (void)count;
  if (state == 0) state = 1 + 2654435769u * (unsigned)rank;
  state = state * 1103515245u + 12345u;
  const int number = (int)(state >> 8 & 0x7fffff);
  if (*type == MPI_INT)
    *(int*)right += *(int*)left + number;
  else
    *(double*)right += *(double*)left + number;
}
static void unsteady(void) {
  MPI_Op op;
  MPI_Op_create(add_unsteadily, 1, &op);
  MPI_Comm_set_name(MPI_COMM_WORLD, "everybody");
  int numbers[32], sum, counts[32];
  double real = 1, real_sum;
  for (int i = 0; i < ranks; ++i) numbers[i] = counts[i] = 1;
  for (int call = 0; call < calls; ++call) {
    MPI_Allreduce(numbers, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Request requests[2];
    MPI_Iallreduce(numbers, &sum, 1, MPI_INT, op, MPI_COMM_WORLD, &requests[0]);
    MPI_Ireduce(&real, &real_sum, 1, MPI_DOUBLE, op, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (call == calls - 1) break; /* a process tells ten differences */
    MPI_Reduce(&real, &real_sum, 1, MPI_DOUBLE, op, 0, MPI_COMM_WORLD);
    MPI_Scan(numbers, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Exscan(&real, &real_sum, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
    MPI_Reduce_scatter(numbers, &sum, counts, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Reduce_scatter_block(numbers, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
  }
  MPI_Op_free(&op);
}

/* In the last calls MPI gives one rank a number that is too large.  The program gets what MPI says.
 */
extern int erring_at;
static void is_wrong(const char* function, const short* numbers, int at) {
  if (erring_at < 0) return;
  CHECK(numbers[at] == at + 1, "%s: %d at %d", function, numbers[at], at);
}
static void erring(void) {
  short mine[2 * 32], all[2 * 32];
  int counts[32], places[32];
  const int last = ranks - 1, of_last = 2 * last + 1;
  for (int call = 0; call < calls; ++call) {
    const int errs = call == calls - 1 && rank == last;
    for (int i = 0; i < 2 * ranks; ++i) mine[i] = (short)(i < 2 ? 2 * rank + i : -1), all[i] = -1;
    for (int i = 0; i < ranks; ++i) counts[i] = 2, places[i] = 2 * i;
    erring_at = errs ? of_last : -1;
    MPI_Allgather(mine, 2, MPI_SHORT, all, 2, MPI_SHORT, MPI_COMM_WORLD);
    is_wrong("MPI_Allgather", all, of_last);
    MPI_Allgatherv(mine, 2, MPI_SHORT, all, counts, places, MPI_SHORT, MPI_COMM_WORLD);
    is_wrong("MPI_Allgatherv", all, of_last);
    MPI_Gather(mine, 2, MPI_SHORT, all, 2, MPI_SHORT, last, MPI_COMM_WORLD);
    if (rank == last) is_wrong("MPI_Gather", all, of_last);
    MPI_Gatherv(mine, 2, MPI_SHORT, all, counts, places, MPI_SHORT, last, MPI_COMM_WORLD);
    if (rank == last) is_wrong("MPI_Gatherv", all, of_last);
    for (int i = 0; i < 2 * ranks; ++i) mine[i] = (short)i; /* to every rank */
    erring_at = errs ? 1 : -1;
    MPI_Scatter(mine, 2, MPI_SHORT, all, 2, MPI_SHORT, 0, MPI_COMM_WORLD);
    MPI_Scatterv(mine, counts, places, MPI_SHORT, all, 2, MPI_SHORT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 2 * ranks; ++i) mine[i] = (short)(i % 2);
    MPI_Alltoall(mine, 2, MPI_SHORT, all, 2, MPI_SHORT, MPI_COMM_WORLD);
    is_wrong("MPI_Alltoall", all, 1);
    MPI_Alltoallv(mine, counts, places, MPI_SHORT, all, counts, places, MPI_SHORT, MPI_COMM_WORLD);
    is_wrong("MPI_Alltoallv", all, 1);
    for (int i = 0; i < 2 * ranks; ++i) all[i] = (short)(rank == 0 ? i : -1);
    MPI_Bcast(all, 3, MPI_SHORT, 0, MPI_COMM_WORLD);
    is_wrong("MPI_Bcast", all, 1);
    /* Here it is the root whose MPI errs, and all others see it. */
    erring_at = call == calls - 1 && rank == 0 ? 2 : -1;
    MPI_Request request;
    MPI_Ibcast(all, 3, MPI_SHORT, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (call == calls - 1) CHECK(all[2] == (rank == 0 ? 2 : 3), "%d", all[2]);
  }
  erring_at = -1;
}

/* Ranks start requests in different orders, and their communicator is gone. */
extern int refuses_calls;
static void persistent(void) {
#if HAS_PERSISTENT
  enum { kinds = 3 };
  MPI_Op op;
  MPI_Comm copy;
  MPI_Request requests[kinds], left;
  int number = 1, sum = 0;
  double real = 1, real_sum = 0, all = 0;
  short word = 0;
  MPI_Op_create(add_unsteadily, 1, &op);
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_name(copy, "everybody");
  MPI_Allreduce_init(&number, &sum, 1, MPI_INT, op, copy, MPI_INFO_NULL, &requests[0]);
  MPI_Reduce_init(&real, &real_sum, 1, MPI_DOUBLE, op, 0, copy, MPI_INFO_NULL, &requests[1]);
  MPI_Bcast_init(&word, 1, MPI_SHORT, 1, copy, MPI_INFO_NULL, &requests[2]);
  MPI_Op_free(&op);
  refuses_calls = rank == 1;
  MPI_Allreduce_init(&real, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &left);
  refuses_calls = 0;
  MPI_Comm_free(&copy);
  for (int call = 0; call < 2; ++call) {
    word = (short)(rank == 1 ? 7 : -1);
    erring_at = call == 1 && rank == 1 ? 0 : -1; /* the root's MPI sends something else */
    for (int i = 0; i < kinds; ++i) MPI_Start(&requests[(i + rank) % kinds]);
    erring_at = -1;
    MPI_Waitall(kinds, requests, MPI_STATUSES_IGNORE);
    if (rank != 1) CHECK(word == 7 + call, "%d", word);
  }
  /* What MPI refuses it says when a request is started, which is inactive then. */
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  refuses_calls = 1;
  CHECK(MPI_Start(&requests[2]) == MPI_ERR_OTHER, "MPI_Start has no error");
  refuses_calls = 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
  word = (short)(rank == 1 ? 9 : -1);
  MPI_Start(&requests[2]);
  MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
  CHECK(word == 9, "%d", word);
  MPI_Start(&left);
  MPI_Wait(&left, MPI_STATUS_IGNORE);
  CHECK(all == ranks, "%g", all);
  for (int i = 0; i < kinds; ++i) MPI_Request_free(&requests[i]);
  MPI_Request_free(&left);
#else
  printf("this MPI has no persistent collectives\n");
#endif
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  rank = rank_in(MPI_COMM_WORLD);
  ranks = ranks_of(MPI_COMM_WORLD);
  const char* const what = argument_count > 1 ? arguments[1] : "";
  if (strcmp(what, "unsteady") == 0) {
    unsteady();
  } else if (strcmp(what, "erring") == 0) {
    erring();
  } else if (strcmp(what, "persistent") == 0) {
    persistent();
  } else {
    for (int call = 0; call < calls; ++call) {
      sums(call);
      places(call);
      users();
      broadcasts(call);
      reduces(call);
      parts(call);
      blocks(call);
      in_flight();
    }
  }
  if (rank == 0) printf("sum %d\n", 5);
  MPI_Finalize();
  return 0;
}
