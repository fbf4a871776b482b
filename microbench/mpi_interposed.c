/* What does the interposer (bindings/mpi) cost, and what does it bring?  In one run, blocks
 * alternate between MPI's own functions, the same calls with libtutti-mpi preloaded, and persistent
 * operations of tutti; and for a call that is left to MPI, between the first two.  interposer.sh
 * launches it. */
#define _GNU_SOURCE
#include <bootstrap/mpi_exchange.h>
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

enum { blocks_max = 30, batches = 20, calls = 250, warm_up = 50 };
static int blocks = blocks_max; /* 2 if the argument is "smoke" */
enum side { mpi, interposed, native, sides };

/* MPI's own functions.  A look-up in its library itself passes by what is preloaded. */
static int (*own_allreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
static int (*own_barrier)(MPI_Comm);
static int (*own_alltoallv)(const void*, const int*, const int*, MPI_Datatype, void*, const int*,
                            const int*, MPI_Datatype, MPI_Comm);
static int (*own_gatherv)(const void*, int, MPI_Datatype, void*, const int*, const int*,
                          MPI_Datatype, int, MPI_Comm);
static int (*own_scatterv)(const void*, const int*, const int*, MPI_Datatype, void*, int,
                           MPI_Datatype, int, MPI_Comm);
static int (*own_iallreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*);
static int (*own_wait)(MPI_Request*, MPI_Status*);
static int (*own_start)(MPI_Request*);
/* Persistent requests, of MPI's and of the interposer's; only where this MPI has them. */
typedef int init(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request*);
static MPI_Request persistent[2];

static tutti_exchange* exchange;
static tutti_context* context;
static tutti_communicator* communicator;
static tutti_operation *allreduce_of_tutti, *barrier_of_tutti, *alltoall_of_tutti, *gather_of_tutti,
    *scatter_of_tutti;
static double mine = 1, sum;
static double source_blocks[2] = {1, 2}, target_blocks[2]; /* of two ranks */

static void fail(const char* what) {
  fprintf(stderr, "interposed: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int find_library(struct dl_phdr_info* object, size_t bytes, void* found) {
  (void)bytes;
  const char* const slash = strrchr(object->dlpi_name, '/');
  if (slash == NULL ||
      (strncmp(slash, "/libmpi.so", 10) != 0 && strncmp(slash, "/libmpich.so", 12) != 0))
    return 0;
  *(void**)found = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  return 1;
}

static void* library = NULL;

static void find_own_functions(void) {
  dl_iterate_phdr(find_library, &library);
  if (library == NULL) fail("no library of MPI is loaded");
  *(void**)&own_allreduce = dlsym(library, "PMPI_Allreduce");
  *(void**)&own_barrier = dlsym(library, "PMPI_Barrier");
  *(void**)&own_alltoallv = dlsym(library, "PMPI_Alltoallv");
  *(void**)&own_gatherv = dlsym(library, "PMPI_Gatherv");
  *(void**)&own_scatterv = dlsym(library, "PMPI_Scatterv");
  if (own_alltoallv == NULL || own_gatherv == NULL || own_scatterv == NULL)
    fail("MPI has no PMPI_Alltoallv, PMPI_Gatherv or PMPI_Scatterv");
  *(void**)&own_iallreduce = dlsym(library, "PMPI_Iallreduce");
  *(void**)&own_wait = dlsym(library, "PMPI_Wait");
  *(void**)&own_start = dlsym(library, "PMPI_Start");
  if (own_wait == NULL || own_start == NULL) fail("MPI has no PMPI_Wait or PMPI_Start");
  if (own_allreduce == NULL || own_barrier == NULL || own_iallreduce == NULL)
    fail("MPI has no PMPI_Allreduce, PMPI_Barrier or PMPI_Iallreduce");
}

static void make_native_operations(void) {
  tutti_failure failure = {0};
  const tutti_context_options options = {.struct_size = sizeof options};
  const tutti_allreduce_arguments arguments = {
      .struct_size = sizeof arguments,
      .source = &mine,
      .target = &sum,
      .element_count = 1,
      .reduction = {.which = TUTTI_SUM, .type = TUTTI_DOUBLE}};
  const tutti_alltoall_arguments all_to_all = {.struct_size = sizeof all_to_all,
                                               .source = source_blocks,
                                               .target = target_blocks,
                                               .bytes = sizeof(double)};
  const tutti_gather_arguments rooted = {.struct_size = sizeof rooted,
                                         .source = source_blocks,
                                         .target = target_blocks,
                                         .bytes = sizeof(double)};
  if (tutti_mpi_exchange(MPI_COMM_WORLD, 0, &exchange, &failure) != TUTTI_OK ||
      tutti_context_create(&options, &context, &failure) != TUTTI_OK ||
      tutti_communicator_create(context, exchange, &communicator, &failure) != TUTTI_OK ||
      tutti_allreduce_init(communicator, &arguments, &allreduce_of_tutti, &failure) != TUTTI_OK ||
      tutti_barrier_init(communicator, NULL, &barrier_of_tutti, &failure) != TUTTI_OK ||
      tutti_alltoall_init(communicator, &all_to_all, &alltoall_of_tutti, &failure) != TUTTI_OK ||
      tutti_gather_init(communicator, &rooted, &gather_of_tutti, &failure) != TUTTI_OK ||
      tutti_scatter_init(communicator, &rooted, &scatter_of_tutti, &failure) != TUTTI_OK)
    fail(failure.text);
}

static void run_native(tutti_operation* operation) {
  if (tutti_start(operation) != TUTTI_OK || tutti_wait(operation, INT64_MAX) != TUTTI_OK)
    fail("tutti failed");
}

static void allreduces(enum side side, int count) {
  for (int call = 0; call < count; ++call)
    if (side == native)
      run_native(allreduce_of_tutti);
    else
      (side == mpi ? own_allreduce : MPI_Allreduce)(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM,
                                                    MPI_COMM_WORLD);
}

static void barriers(enum side side, int count) {
  for (int call = 0; call < count; ++call)
    if (side == native)
      run_native(barrier_of_tutti);
    else
      (side == mpi ? own_barrier : MPI_Barrier)(MPI_COMM_WORLD);
}

/* Blocks of which only some ranks know how long they are; tutti's own have one length. */
static const int ones[] = {1, 1}, places[] = {0, 1};

static void alltoallvs(enum side side, int count) {
  for (int call = 0; call < count; ++call)
    if (side == native)
      run_native(alltoall_of_tutti);
    else
      (side == mpi ? own_alltoallv : MPI_Alltoallv)(source_blocks, ones, places, MPI_DOUBLE,
                                                    target_blocks, ones, places, MPI_DOUBLE,
                                                    MPI_COMM_WORLD);
}

/* There and back, so that no rank is ahead. */
static void gathervs_and_scattervs(enum side side, int count) {
  for (int call = 0; call < count; ++call) {
    if (side == native) {
      run_native(gather_of_tutti);
      run_native(scatter_of_tutti);
      continue;
    }
    (side == mpi ? own_gatherv : MPI_Gatherv)(source_blocks, 1, MPI_DOUBLE, target_blocks, ones,
                                              places, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    (side == mpi ? own_scatterv : MPI_Scatterv)(source_blocks, ones, places, MPI_DOUBLE,
                                                target_blocks, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
}

static void nonblocking(enum side side, int count) {
  for (int call = 0; call < count; ++call) {
    if (side == native) {
      run_native(allreduce_of_tutti);
      continue;
    }
    MPI_Request request;
    (side == mpi ? own_iallreduce : MPI_Iallreduce)(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM,
                                                    MPI_COMM_WORLD, &request);
    (side == mpi ? own_wait : MPI_Wait)(&request, MPI_STATUS_IGNORE);
  }
}

static void starts(enum side side, int count) {
  for (int call = 0; call < count; ++call) {
    if (side == native) {
      run_native(allreduce_of_tutti);
      continue;
    }
    (side == mpi ? own_start : MPI_Start)(&persistent[side]);
    (side == mpi ? own_wait : MPI_Wait)(&persistent[side], MPI_STATUS_IGNORE);
  }
}

/* One rank is left to MPI. */
static void passing(enum side side, int count) {
  for (int call = 0; call < count; ++call)
    (side == mpi ? own_allreduce : MPI_Allreduce)(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM,
                                                  MPI_COMM_SELF);
}

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void* a, const void* b) {
  const double difference = *(const double*)a - *(const double*)b;
  return (difference > 0) - (difference < 0);
}

static double median(const double* values, int count) {
  double sorted[blocks_max];
  memcpy(sorted, values, (size_t)count * sizeof *values);
  qsort(sorted, (size_t)count, sizeof *sorted, compare);
  return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/* Nanoseconds of a call: the median of batches. */
static double block_of(void (*row)(enum side, int), enum side side) {
  double samples[batches];
  own_barrier(MPI_COMM_WORLD);
  row(side, warm_up);
  for (int batch = 0; batch < batches; ++batch) {
    const double begin = now_ns();
    row(side, calls);
    samples[batch] = (now_ns() - begin) / calls;
  }
  return median(samples, batches);
}

static double samples_of[sides][blocks_max];

static void measure(void (*row)(enum side, int), int sides_here) {
  for (int block = 0; block < blocks; ++block)
    for (int side = 0; side < sides_here; ++side)
      samples_of[side][block] = block_of(row, (enum side)side);
}

/* The median of the blocks' ratios, or differences. */
static double ratio(enum side above, enum side below) {
  double ratios[blocks_max];
  for (int i = 0; i < blocks; ++i) ratios[i] = samples_of[above][i] / samples_of[below][i];
  return median(ratios, blocks);
}
static double difference(enum side more, enum side less) {
  double differences[blocks_max];
  for (int i = 0; i < blocks; ++i) differences[i] = samples_of[more][i] - samples_of[less][i];
  return median(differences, blocks);
}

static int rank;

static void compare_sides(const char* name, void (*row)(enum side, int), const char* targets) {
  measure(row, sides);
  if (rank != 0) return;
  printf("%-16s MPI %7.1f ns  interposed %7.1f ns  native %7.1f ns\n", name,
         median(samples_of[mpi], blocks), median(samples_of[interposed], blocks),
         median(samples_of[native], blocks));
  printf("%-16s interposed/native %.2f  MPI/interposed %.2f%s\n", "", ratio(interposed, native),
         ratio(mpi, interposed), targets);
}

/* Open MPI 4 has them as an extension. */
static int make_persistent(void) {
  init *own = NULL, *other = NULL;
  *(void**)&own = dlsym(library, "PMPI_Allreduce_init");
  *(void**)&other = dlsym(RTLD_DEFAULT, "MPI_Allreduce_init");
  if (own == NULL) {
    *(void**)&own = dlsym(library, "PMPIX_Allreduce_init");
    *(void**)&other = dlsym(RTLD_DEFAULT, "MPIX_Allreduce_init");
  }
  if (own == NULL || other == NULL) return 0;
  own(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &persistent[mpi]);
  other(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
        &persistent[interposed]);
  return 1;
}

/* How many calls tutti has taken: the figures mean nothing if it took none. */
static unsigned long long calls_taken(const char* function) {
  unsigned long long taken = 0, passed = 0;
  int (*counts)(const char*, unsigned long long*, unsigned long long*) = NULL;
  *(void**)&counts = dlsym(RTLD_DEFAULT, "tutti_mpi_calls");
  if (counts == NULL) fail("libtutti-mpi is not preloaded; start it by interposer.sh");
  return counts(function, &taken, &passed) == 0 ? taken : 0;
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argument_count > 1 && strcmp(arguments[1], "smoke") == 0) blocks = 2;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2) fail("expected 2 ranks; start it by interposer.sh");
  find_own_functions();
  make_native_operations();
  const char* const targets = " (targets: at most 1.15, at least 1.7)";
  compare_sides("MPI_Allreduce 8", allreduces, targets);
  compare_sides("MPI_Barrier", barriers, targets);
  compare_sides("MPI_Alltoallv 8", alltoallvs, "");
  compare_sides("Gatherv+Scatterv", gathervs_and_scattervs, "");
  for (int call = 0; call < 8; ++call) { /* a blocking call makes the operations */
    nonblocking(interposed, 1);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  compare_sides("MPI_Iallreduce 8", nonblocking, "");
  const int has_persistent = make_persistent();
  if (has_persistent) compare_sides("MPI_Start 8", starts, "");
  const unsigned long long least = (unsigned long long)blocks * batches * calls;
  if (calls_taken("MPI_Allreduce") < least || calls_taken("MPI_Barrier") < least ||
      calls_taken("MPI_Iallreduce") < least || calls_taken("MPI_Alltoallv") < least ||
      calls_taken("MPI_Gatherv") < least || calls_taken("MPI_Scatterv") < least ||
      (has_persistent && calls_taken("MPI_Allreduce_init") < least))
    fail("calls were left to MPI; the environment may say so (TUTTI_MPI)");
  measure(passing, 2);
  if (rank == 0)
    printf("%-16s MPI %7.1f ns  interposed %7.1f ns  more %.1f ns (target: at most 20)\n",
           "a call that passes", median(samples_of[mpi], blocks),
           median(samples_of[interposed], blocks), difference(interposed, mpi));
  run_native(barrier_of_tutti);
  tutti_operation_free(allreduce_of_tutti);
  tutti_operation_free(barrier_of_tutti);
  tutti_operation_free(alltoall_of_tutti);
  tutti_operation_free(gather_of_tutti);
  tutti_operation_free(scatter_of_tutti);
  tutti_communicator_free(communicator);
  tutti_context_free(context);
  tutti_exchange_free(exchange);
  MPI_Finalize();
  return 0;
}
