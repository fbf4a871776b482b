/* Nonblocking collectives: their results, requests among others of MPI's, progress of tutti while
 * MPI waits and of MPI while tutti does, and what a program may free while they are in flight.
 * nonblocking by_mpi: Open MPI 4.1 crashes if a communicator is freed that it has calls in flight
 * on. */
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "composition.h"

enum { flights = 10, some = 7, large = 1 << 20 };
static MPI_Comm communicator;
static int rank, ranks;
/* Ranks that share few cores take long; with many of them some things are left out. */
static int has_all;
static int frees_in_flight = 1;

/* The first calls of a kind pass; a blocking call, at the latest, lets the next ones be taken. */
static void check_taken(const char* function, unsigned long long before, int calls) {
  CHECK(ranks == 1 || calls_taken(function) == before + (unsigned long long)calls,
        "%llu of %d calls of %s were taken", calls_taken(function) - before, calls, function);
}

static double sum_of(int i, int call) {
  return ranks * (i % 7 + call) + ranks * (ranks - 1) / 2;
}

/* From one element to many, in place and not. */
static void sums(void) {
  static const int counts[] = {1, 2, 5, 65, 1000, 20000};
  double* mine = malloc(20000 * sizeof *mine);
  double* all = malloc(20000 * sizeof *all);
  for (int which = 0; which < 6; which += has_all ? 1 : 3) {
    unsigned long long before = 0;
    for (int call = 0; call < 8; ++call) {
      if (call == 4) before = calls_taken("MPI_Iallreduce");
      const int count = counts[which];
      for (int i = 0; i < count; ++i) mine[i] = rank + i % 7 + call, all[i] = mine[i];
      MPI_Request request;
      MPI_Iallreduce(call % 2 ? MPI_IN_PLACE : mine, all, count, MPI_DOUBLE, MPI_SUM, communicator,
                     &request);
      MPI_Status status;
      MPI_Wait(&request, &status);
      CHECK(request == MPI_REQUEST_NULL, "the request is still there");
      for (int i = 0; i < count; ++i)
        CHECK(all[i] == sum_of(i, call), "call %d, element %d of %d: %g", call, i, count, all[i]);
      if (call == 3) MPI_Barrier(communicator);
    }
    check_taken("MPI_Iallreduce", before, 4);
  }
  free(mine);
  free(all);
}

/* All roots, and ranks that describe a payload in different ways. */
static void rooted(void) {
  MPI_Datatype every_other;
  MPI_Type_vector(6, 1, 2, MPI_DOUBLE, &every_other);
  MPI_Type_commit(&every_other);
  for (int root = 0; root < ranks; ++root) {
    unsigned long long broadcasts = 0, reduces = 0;
    for (int call = 0; call < 8; ++call) {
      if (call == 4) {
        MPI_Barrier(communicator);
        broadcasts = calls_taken("MPI_Ibcast");
        reduces = calls_taken("MPI_Ireduce");
      }
      double spread[12], dense[6], mine[5], all[5];
      for (int i = 0; i < 12; ++i) spread[i] = -1;
      const int spreads = (rank + call) % 2;
      for (int i = 0; i < 6; ++i) {
        dense[i] = -1;
        if (rank == root) *(spreads ? &spread[2 * i] : &dense[i]) = root + i + call;
      }
      for (int i = 0; i < 5; ++i) mine[i] = rank + i + call, all[i] = -1;
      const int in_place = rank == root && call % 3 == 0;
      if (in_place) memcpy(all, mine, sizeof all);
      MPI_Request requests[2];
      MPI_Ibcast(spreads ? spread : dense, spreads ? 1 : 6, spreads ? every_other : MPI_DOUBLE,
                 root, communicator, &requests[0]);
      MPI_Ireduce(in_place ? MPI_IN_PLACE : mine, rank == root ? all : NULL, 5, MPI_DOUBLE, MPI_SUM,
                  root, communicator, &requests[1]);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      for (int i = 0; i < 6; ++i) {
        const double got = spreads ? spread[2 * i] : dense[i];
        CHECK(got == root + i + call, "root %d, call %d, element %d: %g", root, call, i, got);
        CHECK(!spreads || spread[2 * i + 1] == -1, "a gap was written");
      }
      for (int i = 0; i < 5; ++i)
        CHECK(all[i] == (rank == root ? sum_of(i, call) : -1), "root %d, call %d: %g", root, call,
              all[i]);
    }
    check_taken("MPI_Ibcast", broadcasts, 4);
    check_taken("MPI_Ireduce", reduces, 4);
  }
  MPI_Type_free(&every_other);
}

/* Starts more calls of a kind than it has operations.  Rank `late` comes later. */
static double contributions[flights][some], results[flights][some];
static void start(MPI_Comm where, int late, MPI_Request* requests) {
  if (rank == late) usleep(2000);
  for (int call = 0; call < flights; ++call) {
    for (int i = 0; i < some; ++i) contributions[call][i] = rank + i + call, results[call][i] = -1;
    MPI_Iallreduce(contributions[call], results[call], some, MPI_DOUBLE, MPI_SUM, where,
                   &requests[call]);
  }
}
static void check_results(void) {
  for (int call = 0; call < flights; ++call)
    for (int i = 0; i < some; ++i)
      CHECK(results[call][i] == sum_of(i, call), "call %d: %g", call, results[call][i]);
}
static void prepare(MPI_Comm where) {
  MPI_Request requests[flights];
  start(where, 0, requests);
  MPI_Waitall(flights, requests, MPI_STATUSES_IGNORE);
  MPI_Barrier(where);
}

/* Ranks wait for a receive while others need them in the reductions before they send, and the other
 * way round. */
static void crossings(void) {
  const unsigned long long before = calls_taken("MPI_Iallreduce");
  int token = 0;
  MPI_Request requests[flights];
  const int receivers = ranks < 4 ? ranks : 4;
  for (int receiver = 0; receiver < receivers; ++receiver) {
    start(communicator, (receiver + 1) % ranks, requests);
    if (rank == receiver)
      for (int i = 0; i + 1 < ranks; ++i)
        MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 7, communicator, MPI_STATUS_IGNORE);
    for (int call = 0; call < flights; ++call) MPI_Wait(&requests[call], MPI_STATUS_IGNORE);
    check_results();
    if (rank != receiver) MPI_Send(&token, 1, MPI_INT, receiver, 7, communicator);
  }
  check_taken("MPI_Iallreduce", before, receivers * flights);
  if (ranks == 1) return;
  /* A rank is in a collective of tutti while its partner sends it what it has to ask for. */
  char* bytes = calloc(large, 1);
  for (int call = 0; call < 8; ++call)
    for (int blocks = 0; blocks < 2; ++blocks) {
      MPI_Request transfer = MPI_REQUEST_NULL, reduction;
      double mine = rank, all = -1;
      if (rank == 0) MPI_Irecv(bytes, large, MPI_CHAR, 1, 8, communicator, &transfer);
      if (rank == 1) MPI_Send(bytes, large, MPI_CHAR, 0, 8, communicator);
      if (blocks) {
        MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, communicator);
      } else {
        MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, communicator, &reduction);
        MPI_Wait(&reduction, MPI_STATUS_IGNORE);
      }
      CHECK(all == ranks * (ranks - 1) / 2, "%g", all);
      MPI_Wait(&transfer, MPI_STATUS_IGNORE);
    }
  free(bytes);
  /* Rank 0 is in a blocking collective of its own communicator with rank 1, which comes there only
   * after the reductions that need rank 0. */
  MPI_Comm pair;
  MPI_Comm_split(communicator, rank < 2, rank, &pair);
  for (int call = 0; call < 8; ++call) {
    start(communicator, 1, requests);
    if (rank != 0) MPI_Waitall(flights, requests, MPI_STATUSES_IGNORE);
    if (rank < 2) MPI_Barrier(pair);
    if (rank == 0) MPI_Waitall(flights, requests, MPI_STATUSES_IGNORE);
    check_results();
  }
  MPI_Comm_free(&pair);
}

/* Sparse exchange: nobody knows how many messages come; a barrier in flight says when all have. */
static void sparse_exchange(void) {
  const unsigned long long before = calls_taken("MPI_Ibarrier");
  enum { rounds = 12 };
  for (int round = 0; round < rounds; ++round) {
    if (round == 4) MPI_Barrier(communicator);
    int payload = rank * 100 + round, sends = 0, received = 0;
    MPI_Request sent[2], barrier = MPI_REQUEST_NULL;
    for (int i = 1; i <= 2; ++i)
      if ((rank + round) % 3 < 2)
        MPI_Issend(&payload, 1, MPI_INT, (rank + i) % ranks, round, communicator, &sent[sends++]);
    for (int done = 0; !done;) {
      MPI_Status status;
      int there = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, round, communicator, &there, &status);
      if (there) {
        int got = -1;
        MPI_Recv(&got, 1, MPI_INT, status.MPI_SOURCE, round, communicator, MPI_STATUS_IGNORE);
        CHECK(got == status.MPI_SOURCE * 100 + round, "%d of %d", got, status.MPI_SOURCE);
        ++received;
      }
      if (barrier != MPI_REQUEST_NULL) {
        MPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
      } else {
        int all_sent = 0;
        MPI_Testall(sends, sent, &all_sent, MPI_STATUSES_IGNORE);
        if (all_sent) MPI_Ibarrier(communicator, &barrier);
      }
    }
    int expected = 0;
    for (int i = 1; i <= 2; ++i) expected += ((rank + 2 * ranks - i) % ranks + round) % 3 < 2;
    CHECK(received == expected, "round %d: %d of %d came", round, received, expected);
  }
  CHECK(ranks == 1 || calls_taken("MPI_Ibarrier") >= before + 6, "few barriers were taken");
}

/* Requests of both kinds in one array. */
static void mixed(void) {
  for (int call = 0; call < 12; ++call) {
    if (call == 4) MPI_Barrier(communicator);
    int from = -1;
    double mine = rank, all = -1, least = -1;
    MPI_Request requests[6];
    MPI_Irecv(&from, 1, MPI_INT, (rank + 1) % ranks, 9, communicator, &requests[0]);
    MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, communicator, &requests[1]);
    requests[2] = MPI_REQUEST_NULL;
    MPI_Isend(&rank, 1, MPI_INT, (rank + ranks - 1) % ranks, 9, communicator, &requests[3]);
    MPI_Ibarrier(communicator, &requests[4]);
    MPI_Iallreduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, communicator, &requests[5]);
    MPI_Status statuses[6];
    int indices[6], left = 5, count = 0, flag = 0;
    if (call % 4 == 0) MPI_Waitall(6, requests, statuses);
    if (call % 4 == 1)
      while (!flag) MPI_Testall(6, requests, &flag, statuses);
    for (; call % 4 == 2 && left > 0; left -= count)
      MPI_Waitsome(6, requests, &count, indices, statuses);
    for (; call % 4 == 3 && left > 0; --left) MPI_Waitany(6, requests, indices, statuses);
    for (int i = 0; i < 6; ++i) CHECK(requests[i] == MPI_REQUEST_NULL, "request %d", i);
    CHECK(from == (rank + 1) % ranks, "%d", from);
    CHECK(all == ranks * (ranks - 1) / 2 && least == 0, "%g %g", all, least);
  }
}

/* Ranks wait for calls of one kind in different orders, while other kinds are in flight. */
static void orders(void) {
  for (int round = 0; round < 4; ++round) {
    MPI_Request requests[flights], barrier;
    start(communicator, round % ranks, requests);
    MPI_Ibarrier(communicator, &barrier);
    for (int i = 0; i < flights; ++i)
      MPI_Wait(&requests[(rank + round) % 2 ? i : flights - 1 - i], MPI_STATUS_IGNORE);
    check_results();
    double mine = rank, all = -1;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, communicator);
    CHECK(all == ranks * (ranks - 1) / 2, "%g", all);
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
  }
}

static MPI_Datatype expected_type;

static void compose_of_type(void* left, void* right, int* count, MPI_Datatype* type) {
  CHECK(*type == expected_type, "another type");
  compose(left, right, count, type);
}

/* Operators and types are freed as soon as the calls have been made. */
static void users_operators(void) {
  unsigned long long before = 0;
  for (int round = 0; round < 4; ++round) {
    enum { calls = 6 };
    if (round == 1) before = calls_taken("MPI_Iallreduce");
    MPI_Op op;
    expected_type = type_of_maps();
    MPI_Op_create(compose_of_type, 0, &op);
    static map mine[calls][3], all[calls][3];
    MPI_Request requests[calls];
    fill_gaps(all[0], calls * 3);
    for (int call = 0; call < calls; ++call) {
      for (int i = 0; i < 3; ++i) mine[call][i] = (map){rank + 2, rank + i + call, 1};
      MPI_Iallreduce(mine[call], all[call], 3, expected_type, op, communicator, &requests[call]);
    }
    MPI_Datatype freed = expected_type;
    MPI_Op_free(&op);
    MPI_Type_free(&freed);
    CHECK(op == MPI_OP_NULL && freed == MPI_DATATYPE_NULL, "handles are still there");
    usleep(rank == round % ranks ? 1000 : 0);
    MPI_Waitall(calls, requests, MPI_STATUSES_IGNORE);
    for (int call = 0; call < calls; ++call)
      for (int i = 0; i < 3; ++i) {
        map expected = {2, i + call, 1};
        for (int r = 1; r < ranks; ++r) {
          expected.c = (r + 2) * expected.c + r + i + call;
          expected.b *= r + 2;
        }
        check_map(&all[call][i], &expected, "iallreduce");
      }
    MPI_Barrier(communicator);
  }
  check_taken("MPI_Iallreduce", before, 18);
}

/* Pairs, which MPI combines. */
static void pairs(void) {
  for (int call = 0; call < 8; ++call) {
    if (call == 4) MPI_Barrier(communicator);
    struct {
      double value;
      int index;
    } mine = {(rank * 5 + call) % ranks, rank}, least = {-1, -1};
    MPI_Request request;
    MPI_Iallreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, communicator, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(least.value <= mine.value && (5 * least.index + call) % ranks == (int)least.value,
          "%g at %d", least.value, least.index);
  }
}

/* A communicator is freed, and its successor made and used, while it has calls in flight. */
static void communicators(void) {
  for (int i = 0; i < 3; ++i) {
    MPI_Comm copy, next;
    MPI_Comm_dup(communicator, &copy);
    prepare(copy);
    const unsigned long long before = calls_taken("MPI_Iallreduce");
    MPI_Request requests[flights];
    start(copy, i % ranks, requests);
    check_taken("MPI_Iallreduce", before, flights);
    MPI_Comm_free(&copy);
    MPI_Comm_dup(communicator, &next);
    MPI_Barrier(next);
    MPI_Waitall(flights, requests, MPI_STATUSES_IGNORE);
    check_results();
    MPI_Comm_free(&next);
  }
}

/* More kinds than a communicator has operations: those go that were not used for longest, also
 * while they are in flight. */
static void kinds(void) {
  enum { kinds = 18, greatest = 300 + kinds };
  static double mine[greatest], all[kinds][greatest];
  for (int i = 0; i < greatest; ++i) mine[i] = rank + i % 7;
  const unsigned long long before = calls_taken("MPI_Iallreduce");
  for (int round = 0; round < 2; ++round) {
    MPI_Request requests[kinds];
    /* What has gone comes back after 200 calls. */
    const int end = round == 0 ? kinds : 2, calls = round == 0 ? 6 : 204;
    for (int kind = 0; kind < end; ++kind)
      for (int call = 0; call < calls; ++call) {
        MPI_Iallreduce(mine, all[kind], 300 + kind, MPI_DOUBLE, MPI_SUM, communicator,
                       &requests[kind]);
        if (call < calls - 1) MPI_Wait(&requests[kind], MPI_STATUS_IGNORE);
        if (call == calls - 3) MPI_Barrier(communicator); /* makes the operations */
      }
    MPI_Waitall(end, requests, MPI_STATUSES_IGNORE);
    for (int kind = 0; kind < end; ++kind)
      for (int i = 0; i < 300 + kind; ++i)
        CHECK(all[kind][i] == sum_of(i, 0), "kind %d, element %d: %g", kind, i, all[kind][i]);
  }
  CHECK(ranks == 1 || calls_taken("MPI_Iallreduce") >= before + 2 * (kinds + 2), "few were taken");
}

static void all_of_it(MPI_Comm which) {
  communicator = which;
  rank = rank_in(which);
  ranks = ranks_of(which);
  sums();
  if (has_all) rooted();
  prepare(which);
  crossings();
  sparse_exchange();
  mixed();
  prepare(which);
  orders();
  users_operators();
  if (!has_all) return;
  pairs();
  if (frees_in_flight) communicators();
  kinds();
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
#ifdef OPEN_MPI
  frees_in_flight = argument_count == 1;
#endif
  has_all = ranks_of(MPI_COMM_WORLD) <= 4;
  all_of_it(MPI_COMM_WORLD);
  const int world_rank = rank_in(MPI_COMM_WORLD);
  if (has_all) {
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 3 == 0, -world_rank, &part);
    all_of_it(part);
    MPI_Comm_free(&part);
  }
  /* Calls that nobody waits for, and one that a rank alone makes. */
  communicator = MPI_COMM_WORLD;
  rank = world_rank;
  ranks = ranks_of(communicator);
  prepare(communicator);
  MPI_Request left[flights + 1];
  start(communicator, 0, left);
  if (rank == 0)
    MPI_Iallreduce(contributions[0], results[0], some, MPI_DOUBLE, MPI_SUM, communicator,
                   &left[flights]);
  if (rank == 0) printf("%llu Iallreduces were taken\n", calls_taken("MPI_Iallreduce"));
  MPI_Finalize();
  return 0;
}
