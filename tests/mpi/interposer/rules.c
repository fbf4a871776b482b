/* What adoption must not break: communicators come and go, overlap, have one another's handles, and
 * connect groups; each is taken, or left, by all of its ranks alike. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { first_calls = 3, calls = 5 };
static int world_rank, world_ranks;
/* MPICH's ranks that share CPUs take some 10 ms for each of its calls.  Then no more communicators
 * are used than are adopted early. */
static int is_slow;

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A line of /proc/self/status, in KiB. */
static long memory_kib(const char* name) {
  char line[256];
  long kib = -1;
  FILE* const file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, name, strlen(name)) == 0) kib = atol(line + strlen(name) + 1);
  if (file != NULL) fclose(file);
  return kib;
}

/* An allreduce of one double, whose sum is known. */
static void allreduce_in(MPI_Comm communicator, int salt) {
  const int ranks = ranks_of(communicator);
  double mine = rank_in(communicator) + salt, sum = -1;
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, communicator);
  CHECK(sum == ranks * salt + ranks * (ranks - 1) / 2.0, "%g by %d ranks, salt %d", sum, ranks,
        salt);
}

static void allreduces_in(MPI_Comm communicator, int count, int salt) {
  for (int call = 0; call < count; ++call) allreduce_in(communicator, salt + call);
}

/* How many of `count` calls on a communicator are taken. */
static unsigned long long taken_of(MPI_Comm communicator, int count) {
  const unsigned long long before = calls_taken("MPI_Allreduce");
  allreduces_in(communicator, count, 1);
  return calls_taken("MPI_Allreduce") - before;
}

/* After enough calls a communicator is adopted, but not before: programs make and free thousands.
 */
static void use_until_taken(MPI_Comm communicator) {
  enum { enough = 1010 };
  unsigned long long before = calls_taken("MPI_Barrier");
  int call = 0;
  for (; call < enough && calls_taken("MPI_Barrier") == before; ++call) MPI_Barrier(communicator);
  CHECK(call < enough, "a communicator of %d ranks is never adopted", ranks_of(communicator));
  CHECK(call > first_calls, "it was adopted after %d calls", call);
  allreduces_in(communicator, first_calls, 1);
  CHECK(taken_of(communicator, calls) == calls, "calls are not taken");
}

/* The address sanitizer does. */
static int keeps_what_is_freed(void) {
  return dlsym(RTLD_DEFAULT, "__asan_init") != NULL;
}

/* Hundreds that live at the same time: some are adopted early, and any of them if it is used. */
static void at_once(void) {
  enum { communicators_max = 500 };
  static MPI_Comm all[communicators_max];
  const int communicators = is_slow           ? 2
                            : world_ranks > 3 ? 100
                                              : communicators_max,
            early = is_slow ? 2 : 32;
  for (int i = 0; i < communicators; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &all[i]);
  const unsigned long long before = calls_taken("MPI_Allreduce");
  for (int round = 0; round < calls; ++round)
    for (int i = 0; i < communicators; ++i) allreduce_in(all[i], i + round);
  const unsigned long long taken = calls_taken("MPI_Allreduce") - before;
  CHECK(taken == (calls - first_calls) * (unsigned)early, "%llu were taken", taken);
  use_until_taken(all[communicators - 1]);
  CHECK(taken_of(all[0], calls) == calls, "the first one is no longer taken");
  for (int i = 0; i < communicators; ++i) MPI_Comm_free(&all[(i * 7) % communicators]);
}

/* Thousands, one after the other: some are parts, in the order of ranks or against it, and a few
 * are used often. */
static void one_after_the_other(void) {
  enum { communicators = 3000, settled = 1000 };
  long resident = 0, mapped = 0;
  const unsigned long long before = calls_taken("MPI_Allreduce");
  int used_often = 0;
  for (int i = 0; i < communicators; ++i) {
    MPI_Comm communicator;
    if (i % 2 == 0)
      MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
    else
      MPI_Comm_split(MPI_COMM_WORLD, i % 4 == 1 && world_rank == 0,
                     i % 3 ? world_rank : -world_rank, &communicator);
    if (i % 200 == 0) use_until_taken(communicator), ++used_often;
    allreduces_in(communicator, calls, i);
    MPI_Comm_free(&communicator);
    if (i == settled) resident = memory_kib("VmRSS"), mapped = memory_kib("VmSize");
  }
  const long resident_more = memory_kib("VmRSS") - resident;
  const long mapped_more = memory_kib("VmSize") - mapped;
  CHECK((resident_more < 2048 && mapped_more < 8192) || keeps_what_is_freed(),
        "%ld KiB more in memory, %ld KiB more mapped after %d communicators", resident_more,
        mapped_more, communicators - settled);
  const unsigned long long taken = calls_taken("MPI_Allreduce") - before;
  CHECK(taken == 2ull * calls * used_often, "%llu of them were taken", taken);
}

/* A call of one of 48 kinds, more than have an operation. */
static void one_of_many(MPI_Comm communicator, unsigned kind, int salt) {
  enum { doubles_max = 400 };
  double mine[doubles_max], all[doubles_max];
  const int ranks = ranks_of(communicator), rank = rank_in(communicator);
  const int count = 150 + 5 * (int)(kind / 3), root = (int)(kind % (unsigned)ranks);
  for (int i = 0; i < count; ++i) mine[i] = rank + i + salt;
  const int is_reduce = kind % 3 == 1, is_broadcast = kind % 3 == 2;
  if (is_reduce)
    MPI_Reduce(mine, all, count, MPI_DOUBLE, MPI_SUM, root, communicator);
  else if (is_broadcast)
    MPI_Bcast(mine, count, MPI_DOUBLE, root, communicator);
  else
    MPI_Allreduce(mine, all, count, MPI_DOUBLE, MPI_SUM, communicator);
  for (int i = 0; i < count; ++i)
    if (is_broadcast)
      CHECK(mine[i] == root + i + salt, "kind %u, element %d: %g", kind, i, mine[i]);
    else if (!is_reduce || rank == root)
      CHECK(all[i] == ranks * (i + salt) + ranks * (ranks - 1) / 2.0, "kind %u, element %d: %g",
            kind, i, all[i]);
}

/* Each rank is in the world, alone, and in a part with each neighbour; all of them make their calls
 * in one order, of which each rank sees what concerns it. */
static void interleaved(void) {
  MPI_Comm pairs[8], mine = MPI_COMM_NULL, whole;
  for (int first = 0; first < world_ranks; ++first) {
    const int second = (first + 1) % world_ranks;
    const int is_in = world_rank == first || world_rank == second;
    MPI_Comm_split(MPI_COMM_WORLD, is_in ? 0 : MPI_UNDEFINED, world_rank == first, &pairs[first]);
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &whole);
  MPI_Comm_dup(MPI_COMM_SELF, &mine);
  for (int first = 0; first < world_ranks; ++first)
    if (pairs[first] != MPI_COMM_NULL) use_until_taken(pairs[first]);
  use_until_taken(whole);
  const unsigned long long before = calls_taken("MPI_Allreduce") + calls_taken("MPI_Bcast");
  unsigned random = 1;
  const int steps = is_slow ? 300 : 12000;
  for (int step = 0; step < steps; ++step) {
    random = random * 1664525 + 1013904223;
    const unsigned which = (random >> 20) % ((unsigned)world_ranks + 1);
    const MPI_Comm communicator = which < (unsigned)world_ranks ? pairs[which] : whole;
    /* A few kinds are many times as frequent as others, then other ones, and at last the first. */
    const int part = step * 4 / steps;
    const unsigned often = part == 1 ? 16 : part == 2 ? 32 : 0;
    const unsigned kind = (random >> 16) % 4 == 0 ? (random >> 8) % 48 : often + (random >> 8) % 3;
    if (communicator != MPI_COMM_NULL) one_of_many(communicator, is_slow ? kind % 4 : kind, step);
    if ((step + world_rank) % 3 == 0) one_of_many(mine, (unsigned)(step + world_rank) % 3, step);
    if ((step + world_rank) % 5 == 0) one_of_many(MPI_COMM_SELF, 0, step);
  }
  const unsigned long long taken = calls_taken("MPI_Allreduce") + calls_taken("MPI_Bcast") - before;
  CHECK(taken > 50, "%llu were taken", taken);
  for (int first = 0; first < world_ranks; ++first)
    if (pairs[first] != MPI_COMM_NULL) MPI_Comm_free(&pairs[first]);
  MPI_Comm_free(&whole);
  MPI_Comm_free(&mine);
}

/* Which operation goes for want of room is the same on all ranks, though some of them find a call
 * to be a repeated one that others do not, because they were called on another communicator
 * between. */
static void one_of_a_size(MPI_Comm communicator, int size) {
  double mine[256] = {0}, all[256];
  mine[0] = rank_in(communicator) + size;
  if (size == 1)
    MPI_Reduce(mine, all, 150 + size, MPI_DOUBLE, MPI_SUM, 0, communicator);
  else
    MPI_Allreduce(mine, all, 150 + size, MPI_DOUBLE, MPI_SUM, communicator);
  const int ranks = ranks_of(communicator);
  if (size != 1 || rank_in(communicator) == 0)
    CHECK(all[0] == ranks * size + ranks * (ranks - 1) / 2.0, "size %d: %g", size, all[0]);
}
static void dropped_alike(void) {
  enum { operations_max = 32 };
  MPI_Comm whole, part;
  MPI_Comm_dup(MPI_COMM_WORLD, &whole);
  MPI_Comm_split(MPI_COMM_WORLD, world_rank < 2, world_rank, &part);
  if (world_rank < 2) use_until_taken(part);
  for (int call = 0; call < 1010; ++call) MPI_Barrier(whole);
  for (int size = 0; size < operations_max; ++size)
    for (int call = 0; call <= first_calls; ++call) one_of_a_size(whole, size);
  one_of_a_size(whole, 0);
  one_of_a_size(whole, 1);
  if (world_rank < 2) allreduce_in(part, 1);
  one_of_a_size(whole, 0);
  for (int size = 2; size < operations_max; ++size) one_of_a_size(whole, size);
  /* Another one, for which that of size 1 goes, and none else. */
  for (int call = 0; call <= first_calls; ++call) one_of_a_size(whole, operations_max);
  const unsigned long long before = calls_taken("MPI_Allreduce") + calls_taken("MPI_Reduce");
  one_of_a_size(whole, 0);
  one_of_a_size(whole, 1);
  CHECK(calls_taken("MPI_Allreduce") + calls_taken("MPI_Reduce") - before == 1,
        "not the oldest one was dropped");
  MPI_Comm_free(&part);
  MPI_Comm_free(&whole);
}

/* A duplicate inherits nothing, and each of the two outlives the other. */
static void duplicates(void) {
  for (int original_goes = 0; original_goes < 2; ++original_goes) {
    MPI_Comm original, duplicate;
    MPI_Comm_dup(MPI_COMM_WORLD, &original);
    use_until_taken(original);
    MPI_Comm_dup(original, &duplicate);
    use_until_taken(duplicate);
    MPI_Comm_free(original_goes ? &original : &duplicate);
    const MPI_Comm rest = original_goes ? duplicate : original;
    CHECK(taken_of(rest, calls) == calls, "the other one was forgotten");
    MPI_Comm_free(original_goes ? &duplicate : &original);
  }
}

/* A handle that names another communicator now.  Ranks see reuse at different times. */
static void reused_handles(int disconnect) {
  int reused = 0;
  MPI_Comm last = MPI_COMM_NULL;
  for (int i = 0; i < (is_slow ? 2 : 6); ++i) {
    MPI_Comm communicator, other = MPI_COMM_NULL;
    if (i == 4 && world_rank % 2 == 0) MPI_Comm_dup(MPI_COMM_SELF, &other);
    /* Ranks have other numbers, and other partners, each time. */
    MPI_Comm_split(MPI_COMM_WORLD, i % 2 && world_rank == i / 2 % world_ranks,
                   i % 3 ? world_rank : -world_rank, &communicator);
    reused += communicator == last;
    last = communicator;
    if (ranks_of(communicator) > 1)
      use_until_taken(communicator);
    else
      CHECK(taken_of(communicator, calls) == 0, "of one rank");
    if (disconnect)
      MPI_Comm_disconnect(&communicator);
    else
      MPI_Comm_free(&communicator);
    CHECK(communicator == MPI_COMM_NULL, "it was not freed");
    if (other != MPI_COMM_NULL) MPI_Comm_free(&other);
  }
  /* It is up to MPI's memory whether this was looked at. */
  if (reused == 0 && rank_in(MPI_COMM_WORLD) == 0) printf("no handle was used again\n");
}

/* A rank leaves the broadcast, and frees the communicator, before the others come.  They wait for a
 * collective of MPI's first, which that rank has to help on. */
static void freed_before_all_have_come(void) {
  for (int early = 0; early < (is_slow ? 1 : world_ranks); ++early) {
    MPI_Comm communicator;
    MPI_Request request;
    double payload[200] = {0};
    int one = 1, number = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
    use_until_taken(communicator);
    for (int call = 0; call < calls; ++call)
      MPI_Bcast(payload, 200, MPI_DOUBLE, early, communicator);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = seconds();
    if (world_rank == (early + 1) % world_ranks) usleep(20000);
    MPI_Iscan(&one, &number, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (world_rank != early) MPI_Wait(&request, MPI_STATUS_IGNORE);
    payload[7] = world_rank == early ? 7 : -1;
    MPI_Bcast(payload, 200, MPI_DOUBLE, early, communicator);
    CHECK(payload[7] == 7, "%g", payload[7]);
    MPI_Comm_free(&communicator);
    if (world_rank == early) MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(number == world_rank + 1, "%d", number);
    CHECK(seconds() - begin < 4, "it took %.1f s", seconds() - begin);
  }
}

/* Two groups, of which each gets what the other one has. */
static void intercommunicators(void) {
  const int half = world_rank < world_ranks / 2;
  const int ranks_here = half ? world_ranks / 2 : world_ranks - world_ranks / 2;
  MPI_Comm part, both;
  MPI_Comm_split(MPI_COMM_WORLD, half, world_rank, &part);
  MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, half ? world_ranks / 2 : 0, 9, &both);
  const unsigned long long before = calls_passed("MPI_Allreduce") + calls_passed("MPI_Bcast") +
                                    calls_passed("MPI_Reduce") + calls_passed("MPI_Barrier");
  for (int call = 0; call < calls; ++call) {
    int one = half ? 1 : 100, sum = -1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, both);
    CHECK(sum == (half ? 100 : 1) * (world_ranks - ranks_here), "%d", sum);
    MPI_Barrier(both);
    const int root = !half ? 0 : rank_in(part) == 0 ? MPI_ROOT : MPI_PROC_NULL;
    int value = half ? 5 : -1;
    MPI_Bcast(&value, 1, MPI_INT, root, both);
    CHECK(value == 5, "%d", value);
    sum = -1;
    MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, root, both);
    CHECK(sum == (root == MPI_ROOT ? 100 * (world_ranks - ranks_here) : -1), "%d", sum);
  }
  const unsigned long long passed = calls_passed("MPI_Allreduce") + calls_passed("MPI_Bcast") +
                                    calls_passed("MPI_Reduce") + calls_passed("MPI_Barrier") -
                                    before;
  CHECK(passed == 4 * calls, "%llu were passed", passed);
  MPI_Comm_free(&both);
  MPI_Comm_free(&part);
}

/* Ranks of other worlds may have other settings, or no interposer: calls with them are MPI's. */
static void with_other_worlds(MPI_Comm between, int is_child) {
  MPI_Comm merged;
  MPI_Intercomm_merge(between, is_child, &merged);
  CHECK(taken_of(merged, calls) == 0, "calls with other worlds were taken");
  MPI_Comm_free(&merged);
  MPI_Comm_disconnect(&between);
}
#ifdef OPEN_MPI
static const char* own_name;
static void spawned(void) {
  MPI_Comm children;
  char* child_arguments[] = {"child", NULL};
  MPI_Comm_spawn(own_name, child_arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                 MPI_ERRCODES_IGNORE);
  with_other_worlds(children, 0);
}
#endif

/* A call on a communicator that is no more returns MPI's error, and is forgotten: the next one with
 * its handle is taken by all ranks alike.  Open MPI's handles are addresses of freed memory then.
 */
static void stale_handle(void) {
#ifndef OPEN_MPI
  MPI_Comm stale, next;
  MPI_Comm_dup(MPI_COMM_WORLD, &next);
  stale = next;
  MPI_Comm_free(&next);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  double one = 1, sum = 0;
  for (int call = 0; call < calls && world_rank == 0; ++call)
    CHECK(MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, stale) != MPI_SUCCESS, "no error");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_dup(MPI_COMM_WORLD, &next);
  CHECK(next == stale, "the handle is not used again");
  use_until_taken(next);
  MPI_Comm_free(&next);
#endif
}

static void timed(const char* what, void (*test)(void)) {
  const double begin = seconds();
  test();
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank == 0) printf("%-30s %6.3f s\n", what, seconds() - begin);
}

static void freed_handles(void) {
  reused_handles(0);
}
static void disconnected_handles(void) {
  reused_handles(1);
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  world_rank = rank_in(MPI_COMM_WORLD);
  world_ranks = ranks_of(MPI_COMM_WORLD);
#ifdef OPEN_MPI
  own_name = arguments[0];
#endif
  MPI_Comm parents;
  MPI_Comm_get_parent(&parents);
  if (parents != MPI_COMM_NULL) {
    with_other_worlds(parents, 1);
    MPI_Finalize();
    return 0;
  }
#ifndef OPEN_MPI
  is_slow = world_ranks > sysconf(_SC_NPROCESSORS_ONLN);
#endif
#ifdef OPEN_MPI                                    /* Debian's MPICH spawns no processes */
  if (world_ranks == 2) timed("spawned", spawned); /* while communicators are adopted early */
#endif
  timed("at once", at_once);
  timed("interleaved", interleaved);
  timed("intercommunicators", intercommunicators);
  timed("duplicates", duplicates);
  timed("freed handles", freed_handles);
  timed("disconnected handles", disconnected_handles);
  timed("freed before all have come", freed_before_all_have_come);
  timed("stale handle", stale_handle);
  if (world_ranks == 3 && !is_slow) timed("dropped alike", dropped_alike);
  if (world_ranks <= 3 && !is_slow) timed("one after the other", one_after_the_other);
  MPI_Finalize();
  return 0;
}
