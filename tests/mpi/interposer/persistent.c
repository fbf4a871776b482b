/* Persistent collectives: their results, by whatever function they are completed; requests among
 * others of MPI's; what a program may free, and in which order; and that starts are taken.
 * persistent by_mpi: MPI does everything, too, which takes its time. */
#include "persistent_names.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#if !HAS_PERSISTENT
int main(void) {
  printf("this MPI has no persistent collectives\n");
  return 77;
}
#else

/* MPICH's MPI_STATUSES_IGNORE is an array without room, for GCC. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

enum { requests_max = 32, greatest = 20000 };
static MPI_Comm communicator;
static int rank, ranks;
/* MPICH's ranks that share CPUs take some 10 ms for each of its calls: some things are left out. */
static int is_slow;
static int is_verified;

static void check_taken(const char* function, unsigned long long before, int starts) {
  CHECK(ranks == 1 || calls_taken(function) == before + (unsigned long long)starts,
        "%llu of %d starts of %s were taken", calls_taken(function) - before, starts, function);
}

static double sum_of(int i, int call) {
  return ranks * (i % 7 + call) + ranks * (ranks - 1) / 2;
}

/* MPICH 4.0 can only wait for persistent collectives of its own, once they were started; the other
 * functions that complete requests fail, or never return. */
#ifdef OPEN_MPI
enum { only_wait = 0 };
#else
enum { only_wait = 1 };
#endif

/* Completes a request in one of the ways that MPI has. */
static void complete(MPI_Request* request, int way) {
  const MPI_Request before = *request;
  MPI_Status status;
  int flag = 0, count = 0, index = -1;
  MPI_Request pair[2] = {MPI_REQUEST_NULL, *request};
  if (way % 8 == 0) MPI_Wait(request, &status);
  while (way % 8 == 1 && !flag) MPI_Test(request, &flag, &status);
  if (way % 8 == 2) MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
  while (way % 8 == 3 && !flag) MPI_Testall(1, request, &flag, MPI_STATUSES_IGNORE);
  if (way % 8 == 4) {
    MPI_Waitany(2, pair, &index, &status);
    CHECK(index == 1, "%d", index);
  }
  while (way % 8 == 5 && count == 0) MPI_Testsome(2, pair, &count, &index, MPI_STATUSES_IGNORE);
  if (way % 8 == 6) MPI_Waitsome(1, request, &count, &index, MPI_STATUSES_IGNORE);
  if (way % 8 == 7) {
    while (!flag) MPI_Request_get_status(*request, &flag, &status);
    MPI_Wait(request, &status);
  }
  CHECK(*request == before && pair[1] == before, "way %d: the request is another one", way);
  MPI_Wait(request, &status); /* an inactive one is complete */
}

/* From one element to many, in place and not. */
static void sums(void) {
  static const int counts[] = {0, 1, 2, 5, 130, 1000, greatest};
  static double mine[greatest], all[greatest];
  for (int which = 0; which < 7; which += is_slow ? 3 : 1)
    for (int in_place = 0; in_place < 2; ++in_place) {
      const int count = counts[which];
      MPI_Request request;
      MPI_Allreduce_init(in_place ? MPI_IN_PLACE : mine, all, count, MPI_DOUBLE, MPI_SUM,
                         communicator, MPI_INFO_NULL, &request);
      if (count > 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
      const unsigned long long before = calls_taken("MPI_Allreduce_init");
      for (int call = 0; call < 8; ++call) {
        for (int i = 0; i < count; ++i) mine[i] = all[i] = rank + i % 7 + call;
        MPI_Start(&request);
        complete(&request, count == 0 && only_wait ? 0 : call + which);
        for (int i = 0; i < count; ++i)
          CHECK(all[i] == sum_of(i, call), "call %d, element %d of %d: %g", call, i, count, all[i]);
      }
      check_taken("MPI_Allreduce_init", before, count == 0 ? 0 : 8);
      MPI_Request_free(&request);
      CHECK(request == MPI_REQUEST_NULL, "the request is still there");
    }
}

/* All roots, and ranks that describe a payload in different ways; the type is freed before the
 * first start. */
static void rooted(void) {
  for (int root = 0; root < ranks; root += is_slow ? 2 : 1) {
    MPI_Datatype every_other;
    MPI_Type_vector(6, 1, 2, MPI_DOUBLE, &every_other);
    MPI_Type_commit(&every_other);
    const int spreads = (rank + root) % 2, in_place = rank == root && root % 2;
    double spread[12], dense[6], mine[5], all[5];
    MPI_Request requests[3];
    MPI_Bcast_init(spreads ? spread : dense, spreads ? 1 : 6, spreads ? every_other : MPI_DOUBLE,
                   root, communicator, MPI_INFO_NULL, &requests[0]);
    MPI_Reduce_init(in_place ? MPI_IN_PLACE : mine, rank == root ? all : NULL, 5, MPI_DOUBLE,
                    MPI_SUM, root, communicator, MPI_INFO_NULL, &requests[1]);
    MPI_Barrier_init(communicator, MPI_INFO_NULL, &requests[2]);
    MPI_Type_free(&every_other);
    CHECK(every_other == MPI_DATATYPE_NULL, "the type is still there");
    const unsigned long long broadcasts = calls_taken("MPI_Bcast_init"),
                             reduces = calls_taken("MPI_Reduce_init"),
                             barriers = calls_taken("MPI_Barrier_init");
    for (int call = 0; call < 6; ++call) {
      for (int i = 0; i < 12; ++i) spread[i] = -1;
      for (int i = 0; i < 6; ++i) {
        dense[i] = -1;
        if (rank == root) *(spreads ? &spread[2 * i] : &dense[i]) = root + i + call;
      }
      for (int i = 0; i < 5; ++i) mine[i] = rank + i + call, all[i] = in_place ? mine[i] : -1;
      MPI_Startall(3, requests);
      for (int i = 0; i < 3; ++i) complete(&requests[i], call + i);
      for (int i = 0; i < 6; ++i) {
        const double got = spreads ? spread[2 * i] : dense[i];
        CHECK(got == root + i + call, "root %d, call %d, element %d: %g", root, call, i, got);
        CHECK(!spreads || spread[2 * i + 1] == -1, "a gap was written");
      }
      for (int i = 0; i < 5; ++i)
        CHECK(all[i] == (rank == root ? sum_of(i, call) : -1), "root %d, call %d: %g", root, call,
              all[i]);
    }
    check_taken("MPI_Bcast_init", broadcasts, 6);
    check_taken("MPI_Reduce_init", reduces, 6);
    check_taken("MPI_Barrier_init", barriers, 6);
    for (int i = 0; i < 3; ++i) MPI_Request_free(&requests[i]);
  }
}

/* a -> b a + c of two maps, which does not commute, on a type of its own. */
typedef struct {
  double b, c;
  float unused; /* and a gap behind it */
} map;
static MPI_Datatype type_of_maps;
static int operator_calls;
static void compose(void* left, void* right, int* count, MPI_Datatype* type) {
  CHECK(*type == type_of_maps, "another type");
  const map* first = left;
  map* second = right;
  for (int i = 0; i < *count; ++i) {
    second[i].c = second[i].b * first[i].c + second[i].c;
    second[i].b = second[i].b * first[i].b;
  }
  ++operator_calls;
}

/* Operator and type are freed before the first start. */
static void users_operator(void) {
  MPI_Op op;
  MPI_Datatype type;
  const int lengths[] = {2, 1};
  const MPI_Aint places[] = {offsetof(map, b), offsetof(map, unused)};
  const MPI_Datatype types[] = {MPI_DOUBLE, MPI_FLOAT};
  MPI_Type_create_struct(2, lengths, places, types, &type);
  MPI_Type_create_resized(type, 0, sizeof(map), &type_of_maps);
  MPI_Type_free(&type);
  MPI_Type_commit(&type_of_maps);
  MPI_Op_create(compose, 0, &op);
  map mine[3], all[3];
  MPI_Request request;
  MPI_Allreduce_init(mine, all, 3, type_of_maps, op, communicator, MPI_INFO_NULL, &request);
  MPI_Datatype freed = type_of_maps;
  MPI_Op_free(&op);
  MPI_Type_free(&freed);
  CHECK(op == MPI_OP_NULL && freed == MPI_DATATYPE_NULL, "handles are still there");
  const unsigned long long before = calls_taken("MPI_Allreduce_init");
  for (int call = 0; call < 5; ++call) {
    memset(all, 0x55, sizeof all);
    for (int i = 0; i < 3; ++i) mine[i] = (map){rank + 2, rank + i + call, 1};
    MPI_Start(&request);
    if (rank == call % ranks) usleep(500);
    complete(&request, call);
    for (int i = 0; i < 3; ++i) {
      map expected = {2, i + call, 1};
      for (int r = 1; r < ranks; ++r) {
        expected.c = (r + 2) * expected.c + r + i + call;
        expected.b *= r + 2;
      }
      CHECK(all[i].b == expected.b && all[i].c == expected.c, "call %d: %g %g, not %g %g", call,
            all[i].b, all[i].c, expected.b, expected.c);
      unsigned gap = 0;
      memcpy(&gap, (const char*)&all[i] + offsetof(map, unused) + sizeof(float), sizeof gap);
      CHECK(gap == 0x55555555, "the gap holds %x", gap);
    }
  }
  CHECK(ranks == 1 || rank > 0 || operator_calls > 0, "the operator was not called");
  check_taken("MPI_Allreduce_init", before, 5);
  MPI_Request_free(&request);
}

/* One array has collectives and messages. */
static void mixed(void) {
  double mine = rank, all = -1;
  int from = -1, to = rank;
  MPI_Request requests[5];
  MPI_Recv_init(&from, 1, MPI_INT, (rank + 1) % ranks, 9, communicator, &requests[0]);
  MPI_Allreduce_init(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, communicator, MPI_INFO_NULL,
                     &requests[1]);
  MPI_Send_init(&to, 1, MPI_INT, (rank + ranks - 1) % ranks, 9, communicator, &requests[2]);
  MPI_Barrier_init(communicator, MPI_INFO_NULL, &requests[3]);
  for (int call = 0; call < 12; ++call) {
    mine = rank + call;
    from = -1;
    MPI_Ibarrier(communicator, &requests[4]);
    MPI_Startall(4, requests);
    MPI_Status statuses[5];
    int indices[5], left = 5, count = 0, flag = 0;
    if (call % 4 == 0) MPI_Waitall(5, requests, statuses);
    while (call % 4 == 1 && !flag) MPI_Testall(5, requests, &flag, statuses);
    for (; call % 4 == 2 && left > 0; left -= count)
      MPI_Waitsome(5, requests, &count, indices, statuses);
    for (; call % 4 == 3 && left > 0; --left) MPI_Waitany(5, requests, indices, statuses);
    CHECK(from == (rank + 1) % ranks && all == sum_of(0, call), "%d %g", from, all);
    CHECK(requests[4] == MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL, "other requests");
  }
  for (int i = 0; i < 4; ++i) MPI_Request_free(&requests[(i + rank) % 4]);
}

/* Ranks start requests of two communicators in different orders, and free them in others; one of
 * the communicators is freed before. */
static void orders(void) {
  enum { each = 6 };
  static double mine[2 * each][300], all[2 * each][300];
  MPI_Comm copy;
  MPI_Comm_dup(communicator, &copy);
  MPI_Request requests[2 * each];
  for (int i = 0; i < 2 * each; ++i)
    MPI_Allreduce_init(mine[i], all[i], 30 * (i % each + 1), MPI_DOUBLE, MPI_SUM,
                       i < each ? communicator : copy, MPI_INFO_NULL, &requests[i]);
  const unsigned long long before = calls_taken("MPI_Allreduce_init");
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 2 * each; ++i)
      for (int k = 0; k < 300; ++k) mine[i][k] = rank + k % 7 + round + i, all[i][k] = -1;
    if (round == 2) MPI_Comm_free(&copy);
    for (int i = 0; i < 2 * each; ++i)
      MPI_Start(&requests[rank % 2 ? 2 * each - 1 - i : (i + round) % (2 * each)]);
    if (rank == round % ranks) usleep(500);
    double one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, communicator);
    CHECK(sum == ranks, "%g", sum);
    if (round % 2)
      MPI_Waitall(2 * each, requests, MPI_STATUSES_IGNORE);
    else
      for (int i = 0; i < 2 * each; ++i) complete(&requests[(i * 5 + rank) % (2 * each)], i);
    for (int i = 0; i < 2 * each; ++i)
      for (int k = 0; k < 30 * (i % each + 1); ++k)
        CHECK(all[i][k] == sum_of(k, round + i), "round %d, request %d: %g", round, i, all[i][k]);
  }
  check_taken("MPI_Allreduce_init", before, 4 * 2 * each);
  for (int i = 0; i < 2 * each; ++i) MPI_Request_free(&requests[(i + 5 * rank) % (2 * each)]);
}

/* A request that is freed while it is active; its buffers stay.  And others, whose communicator is
 * freed, too. */
static void freed(void) {
  if (ranks == 1) return; /* tutti allows it, MPI does not */
  static double mine;
  static volatile double all;
  mine = rank;
  all = -1;
  MPI_Request request;
  MPI_Allreduce_init(&mine, (double*)&all, 1, MPI_DOUBLE, MPI_SUM, communicator, MPI_INFO_NULL,
                     &request);
  if (rank == 0) usleep(500);
  MPI_Start(&request);
  MPI_Request_free(&request);
  for (int flag = 0; all != sum_of(0, 0);)
    MPI_Iprobe(MPI_ANY_SOURCE, 99, communicator, &flag, MPI_STATUS_IGNORE);
  /* Ranks free it before their communicator, and after it. */
  for (int round = 0; round < 4; ++round) {
    MPI_Comm copy;
    MPI_Comm_dup(communicator, &copy);
    MPI_Allreduce_init(&mine, (double*)&all, 1, MPI_DOUBLE, MPI_SUM, copy, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == round % ranks) MPI_Request_free(&request);
    MPI_Comm_free(&copy);
    if (rank != round % ranks) MPI_Request_free(&request);
  }
}

/* Many requests, one after the other: what was made for one is used for the next, or goes.  All of
 * it together would not fit into tutti's memory. */
static void one_after_the_other(void) {
  enum { count = only_wait ? 65536 : 16384 };
  const int requests = is_verified ? 20 : only_wait ? 200 : 1000;
  static double mine[count], all[count];
  const unsigned long long before = calls_taken("MPI_Allreduce_init");
  for (int i = 0; i < requests; ++i) {
    MPI_Request request;
    MPI_Allreduce_init(mine, all, i % 10 ? count : count - i, MPI_DOUBLE, MPI_SUM, communicator,
                       MPI_INFO_NULL, &request);
    mine[0] = rank + i;
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(all[0] == sum_of(0, i), "request %d: %g", i, all[0]);
    MPI_Request_free(&request);
  }
  check_taken("MPI_Allreduce_init", before, requests);
}

/* More at a time than tutti has operations for: the others are MPI's.  Ranks free them in different
 * orders while they make new ones, and see them go at different times. */
static void too_many(void) {
  enum { more = 8, all_of_them = requests_max + more };
  static double mine[all_of_them], all[all_of_them];
  MPI_Request requests[all_of_them];
  MPI_Comm copy;
  MPI_Comm_dup(communicator, &copy);
  const unsigned long long passed = calls_passed("MPI_Allreduce_init");
  for (int i = 0; i < all_of_them; ++i)
    MPI_Allreduce_init(&mine[i], &all[i], 1, MPI_DOUBLE, MPI_SUM, copy, MPI_INFO_NULL,
                       &requests[i]);
  CHECK(ranks == 1 || calls_passed("MPI_Allreduce_init") == passed + more, "%llu were passed",
        calls_passed("MPI_Allreduce_init") - passed);
  for (int round = 0; round < 3; ++round) {
    const unsigned long long before = calls_taken("MPI_Allreduce_init");
    for (int i = 0; i < all_of_them; ++i) mine[i] = rank + i + round, all[i] = -1;
    MPI_Startall(all_of_them, requests);
    MPI_Waitall(all_of_them, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < all_of_them; ++i)
      CHECK(all[i] == ranks * (i + round) + ranks * (ranks - 1) / 2, "round %d, request %d: %g",
            round, i, all[i]);
    check_taken("MPI_Allreduce_init", before, round < 2 ? requests_max : requests_max - 1);
    if (round == 2) break;
    /* Rank 0 frees the first one before it makes another, and the others after that: in round 0 all
     * free it before, in round 1 they do not. */
    MPI_Request next;
    if (round == 0 || rank == 0) MPI_Request_free(&requests[0]);
    MPI_Allreduce_init(&mine[0], &all[0], 1, MPI_DOUBLE, MPI_SUM, copy, MPI_INFO_NULL, &next);
    if (round == 1 && rank != 0) MPI_Request_free(&requests[0]);
    requests[0] = next;
  }
  for (int i = 0; i < all_of_them; ++i) MPI_Request_free(&requests[i]);
  MPI_Comm_free(&copy);
}

/* What is wrong is MPI's to say, and what tutti does not take is counted. */
static void left_to_mpi(void) {
  double mine = 1, all[16];
  MPI_Request request;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  unsigned long long passed = calls_passed("MPI_Allreduce_init");
  const unsigned long long taken = calls_taken("MPI_Allreduce_init");
  CHECK(MPI_Allreduce_init(&mine, all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_NULL, MPI_INFO_NULL,
                           &request) != MPI_SUCCESS,
        "no communicator");
  CHECK(MPI_Allreduce_init(&mine, all, 1, MPI_DOUBLE, MPI_OP_NULL, communicator, MPI_INFO_NULL,
                           &request) != MPI_SUCCESS,
        "no operator");
  CHECK(MPI_Allreduce_init(&mine, all, 1, MPI_DOUBLE, MPI_BAND, communicator, MPI_INFO_NULL,
                           &request) != MPI_SUCCESS,
        "an operator that is not for the type");
  CHECK(MPI_Bcast_init(all, 1, MPI_DOUBLE, ranks, communicator, MPI_INFO_NULL, &request) !=
            MPI_SUCCESS,
        "no such root");
  CHECK(calls_passed("MPI_Allreduce_init") == passed + 3, "they were not passed");
  /* A collective can neither be cancelled nor started twice. */
  MPI_Barrier_init(communicator, MPI_INFO_NULL, &request);
  if (ranks > 1) {
    int error_class = 0;
    if (rank == 0) MPI_Start(&request);
    if (rank == 0) {
      MPI_Error_class(MPI_Start(&request), &error_class);
      CHECK(error_class == MPI_ERR_REQUEST, "started twice: %d", error_class);
    }
    MPI_Error_class(MPI_Cancel(&request), &error_class);
    CHECK(error_class == MPI_ERR_REQUEST, "cancelled: %d", error_class);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0) MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Request_free(&request);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_ARE_FATAL);

  passed = calls_passed("MPI_Allgather_init") + calls_passed("MPI_Scan_init");
  MPI_Request others[2];
  double sum = 0;
  MPI_Allgather_init(&mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, communicator, MPI_INFO_NULL,
                     &others[0]);
  MPI_Scan_init(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, communicator, MPI_INFO_NULL, &others[1]);
  MPI_Startall(2, others);
  MPI_Waitall(2, others, MPI_STATUSES_IGNORE);
  CHECK(sum == rank + 1 && all[ranks - 1] == 1, "%g %g", sum, all[ranks - 1]);
  MPI_Request_free(&others[0]);
  MPI_Request_free(&others[1]);
  CHECK(calls_passed("MPI_Allgather_init") + calls_passed("MPI_Scan_init") == passed + 2,
        "they were not counted");
  CHECK(calls_taken("MPI_Allreduce_init") == taken, "a wrong call was taken");
}

#if MPI_VERSION >= 4
static void large_counts(void) {
  int mine[2] = {rank, 1}, all[2] = {-1, -1}, word[2] = {rank, rank};
  MPI_Request requests[3];
  const unsigned long long before = calls_taken("MPI_Allreduce_init");
  MPI_Allreduce_init_c(mine, all, 2, MPI_INT, MPI_SUM, communicator, MPI_INFO_NULL, &requests[0]);
  MPI_Bcast_init_c(word, 2, MPI_INT, ranks - 1, communicator, MPI_INFO_NULL, &requests[1]);
  MPI_Reduce_init_c(mine, mine + 1, 1, MPI_INT, MPI_MAX, 0, communicator, MPI_INFO_NULL,
                    &requests[2]);
  MPI_Start(&requests[0]);
  MPI_Start(&requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  MPI_Start(&requests[2]);
  MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
  CHECK(all[0] == ranks * (ranks - 1) / 2 && all[1] == ranks, "%d %d", all[0], all[1]);
  CHECK(word[1] == ranks - 1 && (rank != 0 || mine[1] == ranks - 1), "%d %d", word[1], mine[1]);
  check_taken("MPI_Allreduce_init", before, 1);
  for (int i = 0; i < 3; ++i) MPI_Request_free(&requests[i]);
}
#endif

static void all_of_it(MPI_Comm which) {
  communicator = which;
  rank = rank_in(which);
  ranks = ranks_of(which);
  sums();
  rooted();
  users_operator();
  mixed();
  orders();
  freed();
#if MPI_VERSION >= 4
  large_counts();
#endif
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  is_verified = argument_count > 1; /* "by_mpi" */
#ifndef OPEN_MPI
  is_slow = ranks_of(MPI_COMM_WORLD) > sysconf(_SC_NPROCESSORS_ONLN);
#endif
  all_of_it(MPI_COMM_WORLD);
  left_to_mpi();
  if (ranks <= 3 && !is_slow) {
    MPI_Comm part;
    one_after_the_other();
    too_many();
    const int world_rank = rank;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == 1 ? 1 : 0, -world_rank, &part);
    if (ranks_of(part) > 1 || !only_wait) all_of_it(part);
    MPI_Comm_free(&part);
  }
  communicator = MPI_COMM_WORLD;
  rank = rank_in(communicator);
  ranks = ranks_of(communicator);
  /* Requests that nobody frees: inactive, complete, and one that a rank alone has started. */
  static double mine[3], all[3];
  MPI_Request left[3];
  for (int i = 0; i < 3; ++i)
    MPI_Allreduce_init(&mine[i], &all[i], 1, MPI_DOUBLE, MPI_SUM, communicator, MPI_INFO_NULL,
                       &left[i]);
  MPI_Start(&left[0]);
  if (ranks == 2 && rank == 0) MPI_Start(&left[1]);
  if (rank == 0) printf("%llu starts were taken\n", calls_taken("MPI_Allreduce_init"));
  MPI_Finalize();
  return 0;
}
#endif
