/* Promise: C programs have every collective, and what is wrong is refused by name, on all ranks,
 * before anything is sent.  C11; a program of its own, because the test library knows no C. */
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS, nanosleep */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { ranks_max = 4, elements = 5 };

static int failures = 0;

static void check(int right, const char* what, int line) {
  if (right) return;
  fprintf(stderr, "line %d: %s\n", line, what);
  ++failures;
}
#define CHECK(condition) check((condition) ? 1 : 0, #condition, __LINE__)

/* What one rank holds. */
typedef struct {
  tutti_context* context;
  tutti_communicator* communicator;
  int32_t self, count;
} place;

static int enter(place* here, tutti_exchange* exchange) {
  tutti_failure failure;
  tutti_context_options options = {
      .struct_size = sizeof options, .device = "soft0", .arena_bytes = 4 << 20};
  if (tutti_context_create(&options, &here->context, &failure) != TUTTI_OK ||
      tutti_communicator_create(here->context, exchange, &here->communicator, &failure) !=
          TUTTI_OK) {
    fprintf(stderr, "%s: %s\n", tutti_status_name(failure.status), failure.text);
    return 0;
  }
  here->self = tutti_rank(here->communicator);
  here->count = tutti_rank_count(here->communicator);
  return 1;
}

static void leave(place* here) {
  CHECK(tutti_communicator_free(here->communicator) == TUTTI_OK);
  CHECK(tutti_context_free(here->context) == TUTTI_OK);
}

/* Two calls of an operation that could be made, and the end of it. */
static void call(tutti_status made, tutti_operation* operation, const tutti_failure* failure,
                 int line) {
  if (made != TUTTI_OK) {
    check(0, failure->text, line);
    return;
  }
  for (int i = 0; i < 2; ++i) {
    check(tutti_start(operation) == TUTTI_OK, "started", line);
    tutti_status status = tutti_test(operation);
    if (status == TUTTI_IN_PROGRESS) status = tutti_wait(operation, INT64_C(10000000000));
    check(status == TUTTI_OK, tutti_status_name(status), line);
  }
  check(tutti_in_flight(operation) == 0, "nothing in flight", line);
  check(tutti_operation_free(operation) == TUTTI_OK, "freed", line);
}
#define CALL(make)                             \
  do {                                         \
    const tutti_status made = (make);          \
    call(made, operation, &failure, __LINE__); \
  } while (0)

static void larger(const void* incoming, void* partial, size_t element_count, void* context) {
  const int32_t* const left = incoming;
  int32_t* const right = partial;
  for (size_t i = 0; i < element_count; ++i)
    if (left[i] > right[i]) right[i] = left[i];
  ++*(int64_t*)context;
}

static void reductions(const place* here) {
  tutti_operation* operation = NULL;
  tutti_failure failure;
  double mine[elements], whole[elements];
  for (int i = 0; i < elements; ++i) mine[i] = here->self + i;
  const double ranks = here->count, sum_of_ranks = ranks * (ranks - 1) / 2;
  const tutti_reduction sum = {.which = TUTTI_SUM, .type = TUTTI_DOUBLE};

  CALL(tutti_barrier_init(here->communicator, NULL, &operation, &failure));

  const int32_t messages[] = {3};
  tutti_allreduce_arguments all = {.struct_size = sizeof all,
                                   .source = mine,
                                   .target = whole,
                                   .element_count = elements,
                                   .reduction = sum,
                                   .per_round = {.values = messages, .count = 1},
                                   .agreement = TUTTI_RELAXED,
                                   .algorithm = TUTTI_ALGORITHM_TWO_PARTIAL};
  memset(whole, 0, sizeof whole);
  CHECK(tutti_allreduce_init(here->communicator, &all, &operation, &failure) == TUTTI_OK);
  char text[64];
  CHECK(tutti_algorithm(operation, text, sizeof text) == strlen("two_partial_dissemination"));
  CHECK(strcmp(text, "two_partial_dissemination") == 0);
  CHECK(tutti_algorithm(operation, text, 4) == strlen("two_partial_dissemination"));
  CHECK(strcmp(text, "two") == 0);
  char explanation[4096];
  const size_t length = tutti_explanation(operation, explanation, sizeof explanation);
  CHECK(length > 0 && length < sizeof explanation && strlen(explanation) == length);
  CHECK(strstr(explanation, "chosen: two_partial_dissemination") == explanation);
  CHECK(strstr(explanation, "\ntable: ") != NULL);
  CHECK(tutti_explanation(NULL, explanation, sizeof explanation) == 0);
  int32_t rounds[4];
  CHECK(tutti_per_round(operation, rounds, 4) == 1 && rounds[0] == here->count - 1);
  CALL(TUTTI_OK);
  for (int i = 0; i < elements; ++i) CHECK(whole[i] == sum_of_ranks + ranks * i);

  /* On other buffers, and a user's operator. */
  int64_t combined = 0;
  int32_t small[2] = {here->self, -here->self}, other[2] = {here->self + 7, 1}, top[2] = {0, 0};
  tutti_allreduce_arguments users = {
      .struct_size = sizeof users,
      .source = small,
      .target = top,
      .element_count = 2,
      .reduction = {.which = TUTTI_USER,
                    .type = TUTTI_INT32,
                    .combine = larger,
                    .context = &combined,
                    .element_bytes = 4,
                    .commutative = 1,
                    .idempotent = 1},
      .across = TUTTI_ACROSS_FLAT,
  };
  CHECK(tutti_allreduce_init(here->communicator, &users, &operation, &failure) == TUTTI_OK);
  CHECK(tutti_start_on(operation, other, top) == TUTTI_OK);
  CHECK(tutti_wait(operation, TUTTI_WAIT_FOREVER) == TUTTI_OK);
  CHECK(top[0] == here->count + 6 && top[1] == 1 && combined > 0);
  CHECK(tutti_start_on(operation, small, top) == TUTTI_OK);
  CHECK(tutti_wait(operation, TUTTI_WAIT_FOREVER) == TUTTI_OK);
  CHECK(top[0] == here->count - 1 && top[1] == 0);
  CALL(TUTTI_OK);
  CHECK(top[0] == here->count - 1 && top[1] == 0);

  tutti_allreduce_ssp_arguments stale = {.struct_size = sizeof stale,
                                         .source = mine,
                                         .target = whole,
                                         .element_count = elements,
                                         .reduction = sum,
                                         .slack = 1};
  CHECK(tutti_allreduce_ssp_init(here->communicator, &stale, &operation, &failure) == TUTTI_OK);
  for (int i = 0; i < 4; ++i) {
    CHECK(tutti_start(operation) == TUTTI_OK);
    CHECK(tutti_wait(operation, TUTTI_WAIT_FOREVER) == TUTTI_OK);
    CHECK(tutti_staleness(operation) >= 0 && tutti_staleness(operation) <= 1);
    CHECK(whole[1] == sum_of_ranks + ranks);
  }
  CHECK(tutti_operation_free(operation) == TUTTI_OK);

  tutti_reduce_arguments to_root = {.struct_size = sizeof to_root,
                                    .source = mine,
                                    .target = whole,
                                    .element_count = elements,
                                    .reduction = sum,
                                    .rank_fraction = 0.5,
                                    .root = here->count - 1};
  memset(whole, 0, sizeof whole);
  CHECK(tutti_reduce_init(here->communicator, &to_root, &operation, &failure) == TUTTI_OK);
  CHECK(tutti_start(operation) == TUTTI_OK);
  CHECK(tutti_wait(operation, TUTTI_WAIT_FOREVER) == TUTTI_OK);
  CHECK(tutti_covered_elements(operation) == elements);
  CHECK(tutti_covered_ranks(operation) == (here->count + 1) / 2);
  CALL(TUTTI_OK);
  if (here->self == to_root.root) { /* the root, and the ranks that follow it */
    double expected = here->count - 1;
    for (int rank = 0; rank + 1 < (here->count + 1) / 2; ++rank) expected += rank;
    CHECK(whole[0] == expected);
  }

  tutti_scan_arguments prefix = {.struct_size = sizeof prefix,
                                 .source = mine,
                                 .target = whole,
                                 .element_count = elements,
                                 .reduction = sum};
  CALL(tutti_scan_init(here->communicator, &prefix, &operation, &failure));
  CHECK(whole[0] == here->self * (here->self + 1) / 2);
  whole[0] = -1;
  CALL(tutti_exscan_init(here->communicator, &prefix, &operation, &failure));
  CHECK(whole[0] == (here->self == 0 ? -1 : here->self * (here->self - 1) / 2));

  char buffer[10] = "";
  if (here->self == 1) memcpy(buffer, "123456789", 10);
  tutti_broadcast_arguments tell = {.struct_size = sizeof tell,
                                    .buffer = buffer,
                                    .bytes = 10,
                                    .element_bytes = 2,
                                    .data_fraction = 0.5,
                                    .root = 1};
  CALL(tutti_broadcast_init(here->communicator, &tell, &operation, &failure));
  CHECK(memcmp(buffer, "123456", 6) == 0 && (here->self == 1 || buffer[6] == 0));
}

static void blocks(const place* here) {
  tutti_operation* operation = NULL;
  tutti_failure failure;
  const int32_t self = here->self, count = here->count;
  int32_t mine[ranks_max], theirs[ranks_max];

  tutti_allgather_arguments gather_all = {
      .struct_size = sizeof gather_all, .source = &self, .target = theirs, .bytes = 4};
  CALL(tutti_allgather_init(here->communicator, &gather_all, &operation, &failure));
  for (int q = 0; q < count; ++q) CHECK(theirs[q] == q);
  memset(theirs, 0, sizeof theirs);
  gather_all.algorithm = TUTTI_ALGORITHM_SHARED_RING;
  CALL(tutti_allgather_init(here->communicator, &gather_all, &operation, &failure));
  for (int q = 0; q < count; ++q) CHECK(theirs[q] == q);

  for (int p = 0; p < count; ++p) mine[p] = 10 * self + p;
  tutti_alltoall_arguments exchange = {
      .struct_size = sizeof exchange, .source = mine, .target = theirs, .bytes = 4};
  CALL(tutti_alltoall_init(here->communicator, &exchange, &operation, &failure));
  for (int q = 0; q < count; ++q) CHECK(theirs[q] == 10 * q + self);

  /* Rank q has q bytes, in reverse order, with a gap. */
  int64_t bytes[ranks_max], offsets[ranks_max];
  for (int q = 0; q < count; ++q) bytes[q] = q;
  for (int q = 0; q < count; ++q) offsets[q] = 8 * (count - 1 - q);
  char letters[8 * ranks_max], own[ranks_max];
  memset(letters, '.', sizeof letters);
  memset(own, 'a' + self, sizeof own);
  tutti_allgatherv_arguments gather_allv = {.struct_size = sizeof gather_allv,
                                            .source = own,
                                            .target = letters,
                                            .blocks = {.bytes = bytes, .offsets = offsets}};
  CALL(tutti_allgatherv_init(here->communicator, &gather_allv, &operation, &failure));
  for (int q = 0; q < count; ++q)
    for (int i = 0; i < 8; ++i) CHECK(letters[offsets[q] + i] == (i < q ? 'a' + q : '.'));

  /* p sends q to rank q, that is: this rank receives its own number of bytes from each. */
  int64_t from_each[ranks_max];
  char sent[16], received[16] = "";
  for (int q = 0; q < count; ++q) from_each[q] = self;
  memset(sent, 'a' + self, sizeof sent);
  tutti_alltoallv_arguments exchangev = {.struct_size = sizeof exchangev,
                                         .source = sent,
                                         .target = received,
                                         .source_blocks = {.bytes = bytes},
                                         .target_blocks = {.bytes = from_each}};
  CALL(tutti_alltoallv_init(here->communicator, &exchangev, &operation, &failure));
  for (int i = 0; i < count * self; ++i) CHECK(received[i] == 'a' + i / self);

  const int32_t root = count - 1;
  tutti_gather_arguments gather = {.struct_size = sizeof gather,
                                   .source = &self,
                                   .target = self == root ? theirs : NULL,
                                   .bytes = 4,
                                   .root = root};
  CALL(tutti_gather_init(here->communicator, &gather, &operation, &failure));
  for (int q = 0; q < count && self == root; ++q) CHECK(theirs[q] == q);

  int32_t given = -1;
  tutti_scatter_arguments scatter = {.struct_size = sizeof scatter,
                                     .source = self == root ? mine : NULL,
                                     .target = &given,
                                     .bytes = 4,
                                     .root = root};
  CALL(tutti_scatter_init(here->communicator, &scatter, &operation, &failure));
  CHECK(given == 10 * root + self);

  memset(letters, '.', sizeof letters);
  tutti_gatherv_arguments gatherv = {
      .struct_size = sizeof gatherv, .source = own, .target = letters, .bytes = self, .root = root};
  if (self == root) gatherv.blocks = (tutti_block_layout){.bytes = bytes, .offsets = offsets};
  CALL(tutti_gatherv_init(here->communicator, &gatherv, &operation, &failure));
  for (int q = 0; q < count && self == root; ++q) CHECK(letters[offsets[q]] == (q ? 'a' + q : '.'));

  memset(own, '?', sizeof own);
  tutti_scatterv_arguments scatterv = gatherv;
  scatterv.source = letters;
  scatterv.target = own;
  CALL(tutti_scatterv_init(here->communicator, &scatterv, &operation, &failure));
  for (int i = 0; i < ranks_max; ++i) CHECK(own[i] == (i < self ? 'a' + self : '?'));

  int64_t ones[ranks_max];
  for (int q = 0; q < count; ++q) ones[q] = 1;
  tutti_reduce_scatter_arguments reduce_scatter = {
      .struct_size = sizeof reduce_scatter,
      .source = mine,
      .target = &given,
      .element_counts = ones,
      .reduction = {.which = TUTTI_MAX, .type = TUTTI_INT32}};
  CALL(tutti_reduce_scatter_init(here->communicator, &reduce_scatter, &operation, &failure));
  CHECK(given == 10 * (count - 1) + self);
}

/* One value of each rank, so large and small that a plain sum depends on their order. */
static void exact_sums(const place* here) {
  tutti_failure failure;
  tutti_operation* operation = NULL;
  tutti_exact_sum mine = TUTTI_EXACT_SUM_ZERO, whole, expected = TUTTI_EXACT_SUM_ZERO;
  tutti_exact_sum other = TUTTI_EXACT_SUM_ZERO;
  const float half = 0.5f;
  for (int q = 0; q < here->count; ++q) {
    const double value = (q % 2 ? -1e10 : 1e-10) * (q + 1);
    tutti_exact_sum_add(&expected, &value, 1);
    tutti_exact_sum_add_products(&expected, &value, &value, 1);
    tutti_exact_sum_add_floats(&expected, &half, 1);
    if (q != here->self) continue;
    tutti_exact_sum_add_floats(&mine, &half, 1);
    tutti_exact_sum_add_products(&other, &value, &value, 1);
    tutti_exact_sum_add(&other, &value, 1);
    tutti_exact_sum_merge(&mine, &other);
  }
  tutti_allreduce_arguments arguments = {.struct_size = sizeof arguments,
                                         .source = &mine,
                                         .target = &whole,
                                         .element_count = 1,
                                         .reduction = tutti_exact_addition()};
  CALL(tutti_allreduce_init(here->communicator, &arguments, &operation, &failure));
  CHECK(memcmp(&whole, &expected, sizeof whole) == 0);
  CHECK(tutti_exact_sum_value(&whole) == tutti_exact_sum_value(&expected));
  CHECK(tutti_exact_sum_value_as_float(&whole) == (float)tutti_exact_sum_value(&expected));
}

static void parts_and_segments(const place* here) {
  tutti_failure failure;
  tutti_communicator* part = NULL;
  tutti_operation* operation = NULL;
  const int32_t color = here->self == 0 ? TUTTI_NO_COLOR : here->self % 2;
  CHECK(tutti_communicator_split(here->communicator, color, -here->self, &part, &failure) ==
        TUTTI_OK);
  CHECK((part == NULL) == (color == TUTTI_NO_COLOR));
  if (part != NULL) {
    int32_t members = 0;
    for (int rank = 1; rank < here->count; ++rank) members += rank % 2 == color;
    CHECK(tutti_rank_count(part) == members);
    int32_t above = 0; /* the keys turn the order round */
    for (int rank = here->self + 1; rank < here->count; ++rank) above += rank % 2 == color;
    CHECK(tutti_rank(part) == above);
    CALL(tutti_barrier_init(part, NULL, &operation, &failure));
    CHECK(tutti_progress(part) == TUTTI_OK);
    /* One rank is late, and all give the call up. */
    CHECK(tutti_barrier_init(part, NULL, &operation, &failure) == TUTTI_OK);
    if (tutti_rank(part) > 0) {
      CHECK(tutti_start(operation) == TUTTI_OK);
      CHECK(tutti_wait(operation, 1000000) == TUTTI_TIMED_OUT);
    }
    CHECK(tutti_cancel(part, &failure) == TUTTI_OK);
    CHECK(tutti_in_flight(operation) == 0);
    for (int calls = 0; calls < 3; ++calls) {
      CHECK(tutti_start(operation) == TUTTI_OK);
      CHECK(tutti_wait(operation, 10000000000) == TUTTI_OK);
    }
    CHECK(tutti_operation_free(operation) == TUTTI_OK);
    CHECK(tutti_communicator_free(part) == TUTTI_OK);
  }
  CHECK(tutti_synchronize(here->communicator, &failure) == TUTTI_OK);

  tutti_segment* segment = NULL;
  CHECK(tutti_segment_allocate(here->communicator, 4096, TUTTI_SCOPE_RANK, &segment, &failure) ==
        TUTTI_OK);
  CHECK(tutti_segment_size(segment) == 4096);
  CHECK(((char*)tutti_segment_data(segment))[4095] == 0);
  CHECK(tutti_segment_free(segment) == TUTTI_OK);

  /* One buffer of all ranks of a node. */
  CHECK(tutti_segment_allocate(here->communicator, 4096, TUTTI_SCOPE_NODE, &segment, &failure) ==
        TUTTI_OK);
  int32_t* shared = tutti_segment_data(segment);
  for (int i = 0; here->self == 0 && i < 1024; ++i) shared[i] = 3 * i + 1;
  const tutti_broadcast_arguments broadcast = {
      .struct_size = sizeof broadcast, .buffer = shared, .bytes = 4096};
  CALL(tutti_broadcast_init(here->communicator, &broadcast, &operation, &failure));
  for (int i = 0; i < 1024; ++i) CHECK(shared[i] == 3 * i + 1);
  CHECK(tutti_synchronize(here->communicator, &failure) == TUTTI_OK); /* all have read it */
  CHECK(tutti_segment_free(segment) == TUTTI_OK);

  char text[16];
  CHECK(tutti_device_name(here->context, text, sizeof text) == 7 && strcmp(text, "soft0:1") == 0);
  CHECK(tutti_device_choice(here->context, NULL, 0) > 0);
  CHECK(tutti_node(here->communicator) < tutti_node_count(here->communicator));
  CHECK(tutti_get_failure(here->communicator, &failure) == TUTTI_OK);
  CHECK(failure.status == TUTTI_OK && failure.peer == -1);
}

static void expect_refused(tutti_status status, const tutti_failure* failure, const char* words,
                           int line) {
  check(status == TUTTI_INVALID_ARGUMENT, tutti_status_name(status), line);
  if (status == TUTTI_OK) return;
  check(failure->error == TUTTI_ERROR_INVALID_ARGUMENT, "error", line);
  if (strstr(failure->text, words) == NULL) {
    fprintf(stderr, "line %d: \"%s\", expected \"%s\"\n", line, failure->text, words);
    ++failures;
  }
}
#define REFUSED(status, words) expect_refused((status), &failure, (words), __LINE__)

/* Each with one wrong member, on the last rank alone if `everywhere` is 0: all have to hear of it.
 */
static void bad_input(const place* here, int everywhere) {
  tutti_communicator* const all = here->communicator;
  tutti_operation* operation = NULL;
  tutti_failure failure;
  const int wrong = everywhere || here->self == here->count - 1;
  double source[ranks_max] = {0}, target[ranks_max] = {0};
  int64_t bytes[ranks_max] = {8, 8, 8, 8}, bad[ranks_max] = {8, 8, 8, 8};
  if (wrong) bad[1] = -8;
  const tutti_reduction sum = {.which = TUTTI_SUM, .type = TUTTI_DOUBLE};
#define WITH(type, member, value) \
  type changed = right;           \
  if (wrong) changed.member = value
#define REFUSES(type, function, member, value, words)              \
  do {                                                             \
    WITH(type, member, value);                                     \
    REFUSED(function(all, &changed, &operation, &failure), words); \
  } while (0)
  {
    const tutti_allreduce_arguments right = {.struct_size = sizeof right,
                                             .source = source,
                                             .target = target,
                                             .element_count = 1,
                                             .reduction = sum};
    typedef tutti_allreduce_arguments type;
    REFUSES(type, tutti_allreduce_init, element_count, -1,
            "allreduce: element_count -1: expected 0 or more");
    REFUSES(type, tutti_allreduce_init, struct_size, 8, "struct_size 8: expected ");
    REFUSES(type, tutti_allreduce_init, agreement, 3, "agreement 3: expected 0 .. 2");
    REFUSES(type, tutti_allreduce_init, algorithm, 16, "algorithm 16: expected 0 .. 13");
    REFUSES(type, tutti_allreduce_init, algorithm, -1, "algorithm -1: expected 0 .. 13");
    REFUSES(type, tutti_allreduce_init, across, 4, "across 4: expected 0 .. 3");
    REFUSES(type, tutti_allreduce_init, reduction.which, 10, "reduction.which 10: expected 0 .. 9");
    REFUSES(type, tutti_allreduce_init, reduction.type, 9, "reduction.type 9: expected 0 .. 8");
    REFUSES(type, tutti_allreduce_init, reduction.which, TUTTI_USER,
            "reduction.which 0 (TUTTI_USER): expected an operator");
    REFUSES(type, tutti_allreduce_init, reduction.type, TUTTI_OTHER,
            "reduction.type 0: expected the type");
    REFUSES(type, tutti_allreduce_init, reduction.combine, larger,
            "reduction.which 1: expected TUTTI_USER");
    REFUSES(type, tutti_allreduce_init, reserved, 1, "reserved 1: expected 0");
    REFUSES(type, tutti_allreduce_init, reduction.reserved, 1, "reserved 1: expected 0");
    CHECK(operation == NULL);
    REFUSES(type, tutti_allreduce_init, reduction.which, TUTTI_BIT_OR, "allreduce: ");
    REFUSES(type, tutti_allreduce_init, per_round.count, -1, "per_round.count -1: expected 0");
    REFUSES(type, tutti_allreduce_init, per_round.count, 1, "per_round.values NULL: expected 1");
    REFUSES(type, tutti_allreduce_init, source, NULL, "allreduce: ");
    tutti_allreduce_arguments users = right;
    users.reduction = (tutti_reduction){.combine = larger, .element_bytes = wrong ? -4 : 4};
    REFUSED(tutti_allreduce_init(all, &users, &operation, &failure),
            "reduction.element_bytes -4: expected 1 .. 4294967295");
    users.reduction =
        (tutti_reduction){.combine = larger, .element_bytes = 4, .commutative = wrong ? 2 : 1};
    REFUSED(tutti_allreduce_init(all, &users, &operation, &failure),
            "reduction.commutative 2: expected 0 or 1");
    users.reduction = (tutti_reduction){
        .combine = larger, .element_bytes = 4, .commutative = 1, .exact = wrong ? 2 : 1};
    REFUSED(tutti_allreduce_init(all, &users, &operation, &failure),
            "reduction.exact 2: expected 0 or 1");
    REFUSED(tutti_allreduce_init(all, wrong ? NULL : &right, &operation, &failure),
            "arguments NULL: expected a pointer");
    REFUSED(tutti_allreduce_init(all, &right, wrong ? NULL : &operation, &failure),
            "operation NULL: expected where");
  }
  {
    const tutti_allreduce_ssp_arguments right = {.struct_size = sizeof right,
                                                 .source = source,
                                                 .target = target,
                                                 .element_count = 1,
                                                 .reduction = sum};
    typedef tutti_allreduce_ssp_arguments type;
    REFUSES(type, tutti_allreduce_ssp_init, slack, -1, "slack -1: expected 0 or more");
    REFUSES(type, tutti_allreduce_ssp_init, element_count, INT64_MIN, "element_count -9223372036");
  }
  {
    const tutti_broadcast_arguments right = {
        .struct_size = sizeof right, .buffer = target, .bytes = 8};
    typedef tutti_broadcast_arguments type;
    REFUSES(type, tutti_broadcast_init, bytes, -8, "broadcast: bytes -8: expected 0 or more");
    REFUSES(type, tutti_broadcast_init, element_bytes, -1, "element_bytes -1: expected 0");
    REFUSES(type, tutti_broadcast_init, root, -1, "root -1: expected 0 .. ");
    REFUSES(type, tutti_broadcast_init, root, here->count, ": expected 0 .. ");
    REFUSES(type, tutti_broadcast_init, tree, 5, "tree 5: expected 0 .. 3");
    REFUSES(type, tutti_broadcast_init, data_fraction, -0.5, "data_fraction -0.5");
    REFUSES(type, tutti_broadcast_init, data_fraction, 1.5, "data_fraction 1.5");
    REFUSES(type, tutti_broadcast_init, data_fraction, (double)NAN, "data_fraction ");
  }
  {
    const tutti_reduce_arguments right = {.struct_size = sizeof right,
                                          .source = source,
                                          .target = target,
                                          .element_count = 1,
                                          .reduction = sum};
    typedef tutti_reduce_arguments type;
    REFUSES(type, tutti_reduce_init, element_count, -1, "reduce: element_count -1");
    REFUSES(type, tutti_reduce_init, rank_fraction, 1.01, "rank_fraction 1.01");
    REFUSES(type, tutti_reduce_init, root, -7, "root -7: expected 0 .. ");
  }
  {
    const tutti_scan_arguments right = {.struct_size = sizeof right,
                                        .source = source,
                                        .target = target,
                                        .element_count = 1,
                                        .reduction = sum};
    typedef tutti_scan_arguments type;
    REFUSES(type, tutti_scan_init, element_count, -1, "scan: element_count -1");
    REFUSES(type, tutti_exscan_init, element_count, -1, "exscan: element_count -1");
  }
  {
    const tutti_allgather_arguments right = {
        .struct_size = sizeof right, .source = source, .target = target, .bytes = 8};
    typedef tutti_allgather_arguments type;
    REFUSES(type, tutti_allgather_init, bytes, -8, "allgather: bytes -8: expected 0 or more");
    REFUSES(type, tutti_alltoall_init, bytes, -8, "alltoall: bytes -8: expected 0 or more");
    REFUSES(type, tutti_allgather_init, algorithm, 99, "algorithm 99: expected 0 .. ");
    REFUSES(type, tutti_alltoall_init, algorithm, 11, "algorithm 11: expected 0: an alltoall has");
  }
  {
    const tutti_allgatherv_arguments right = {.struct_size = sizeof right,
                                              .source = source,
                                              .target = target,
                                              .blocks = {.bytes = bytes}};
    typedef tutti_allgatherv_arguments type;
    REFUSES(type, tutti_allgatherv_init, blocks.bytes, bad, "blocks.bytes[1] -8: expected 0");
    REFUSES(type, tutti_allgatherv_init, blocks.offsets, bad, "blocks.offsets[1] -8: expected 0");
    REFUSES(type, tutti_allgatherv_init, blocks.bytes, NULL, "blocks.bytes NULL: expected one for");
    REFUSES(type, tutti_allgatherv_init, algorithm, -1, "algorithm -1: expected 0 .. ");
  }
  {
    const tutti_alltoallv_arguments right = {.struct_size = sizeof right,
                                             .source = source,
                                             .target = target,
                                             .source_blocks = {.bytes = bytes},
                                             .target_blocks = {.bytes = bytes}};
    typedef tutti_alltoallv_arguments type;
    REFUSES(type, tutti_alltoallv_init, source_blocks.bytes, bad, "source_blocks.bytes[1] -8");
    REFUSES(type, tutti_alltoallv_init, target_blocks.bytes, bad, "target_blocks.bytes[1] -8");
    REFUSES(type, tutti_alltoallv_init, target_blocks.offsets, bad, "target_blocks.offsets[1] -8");
  }
  {
    const tutti_gather_arguments right = {
        .struct_size = sizeof right, .source = source, .target = target, .bytes = 8};
    typedef tutti_gather_arguments type;
    REFUSES(type, tutti_gather_init, bytes, -8, "gather: bytes -8: expected 0 or more");
    REFUSES(type, tutti_scatter_init, bytes, -8, "scatter: bytes -8: expected 0 or more");
    REFUSES(type, tutti_gather_init, root, -1, "root -1: expected 0 .. ");
  }
  {
    const tutti_gatherv_arguments right = {.struct_size = sizeof right,
                                           .source = source,
                                           .target = target,
                                           .bytes = 8,
                                           .blocks = {.bytes = bytes},
                                           .root = here->count - 1};
    typedef tutti_gatherv_arguments type;
    REFUSES(type, tutti_gatherv_init, bytes, -8, "gatherv: bytes -8: expected 0 or more");
    REFUSES(type, tutti_scatterv_init, bytes, -8, "scatterv: bytes -8: expected 0 or more");
    REFUSES(type, tutti_gatherv_init, blocks.bytes, bad, "gatherv: blocks.bytes[1] -8");
    REFUSES(type, tutti_scatterv_init, blocks.bytes, bad, "scatterv: blocks.bytes[1] -8");
  }
  {
    const tutti_reduce_scatter_arguments right = {.struct_size = sizeof right,
                                                  .source = source,
                                                  .target = target,
                                                  .element_counts = bytes,
                                                  .reduction = sum};
    typedef tutti_reduce_scatter_arguments type;
    REFUSES(type, tutti_reduce_scatter_init, element_counts, bad, "element_counts[1] -8: expected");
    REFUSES(type, tutti_reduce_scatter_init, algorithm, 99, "algorithm 99: expected 0 .. ");
  }
  {
    tutti_communicator* part = NULL;
    tutti_segment* segment = NULL;
    REFUSED(tutti_communicator_shrink(all, 0, &part, &failure),
            "shrink: this communicator cannot be shrunk; set TUTTI_SHRINKABLE=1");
    REFUSED(tutti_communicator_shrink(all, 0, NULL, &failure), "survivors NULL: ");
    REFUSED(tutti_communicator_split(all, wrong ? -2 : 0, 0, &part, &failure),
            "split: color -2: expected 0 or more, or TUTTI_NO_COLOR");
    REFUSED(tutti_segment_allocate(all, wrong ? -1 : 64, TUTTI_SCOPE_RANK, &segment, &failure),
            "allocate: bytes -1: expected 0 or more");
    REFUSED(tutti_segment_allocate(all, 64, wrong ? 2 : TUTTI_SCOPE_NODE, &segment, &failure),
            "allocate: scope 2: expected 0 .. 1");
  }
  /* The communicator is as good as before. */
  CALL(tutti_barrier_init(all, NULL, &operation, &failure));
}

static int everything(tutti_exchange* exchange, void* unused) {
  place here;
  (void)unused;
  failures = 0; /* a process of its own, whose parent counts for itself */
  CHECK(tutti_exchange_free(exchange) == TUTTI_INVALID_ARGUMENT); /* it is borrowed */
  if (!enter(&here, exchange)) return 1;
  reductions(&here);
  blocks(&here);
  exact_sums(&here);
  parts_and_segments(&here);
  bad_input(&here, 1);
  bad_input(&here, 0);
  leave(&here);
  return failures != 0;
}

/* The last rank gives up while the others wait. */
static int giving_up(tutti_exchange* exchange, void* unused) {
  place here;
  tutti_failure failure;
  tutti_operation* operation = NULL;
  (void)unused;
  failures = 0;
  if (!enter(&here, exchange)) return 1;
  CHECK(tutti_barrier_init(here.communicator, NULL, &operation, &failure) == TUTTI_OK);
  if (here.self == here.count - 1) {
    CHECK(tutti_abort(here.communicator) == TUTTI_OK);
    CHECK(tutti_start(operation) == TUTTI_ABORTED);
  } else {
    CHECK(tutti_start(operation) == TUTTI_OK);
    CHECK(tutti_wait(operation, 0) == TUTTI_TIMED_OUT || tutti_test(operation) == TUTTI_ABORTED);
    CHECK(tutti_wait(operation, INT64_C(20000000000)) == TUTTI_ABORTED);
    char text[2000];
    CHECK(tutti_set_label(operation, "the last meeting") == TUTTI_OK);
    CHECK(tutti_describe(operation, text, sizeof text) > 0);
    CHECK(tutti_report(here.communicator, 0, text, sizeof text) > 0);
    CHECK(strstr(text, "barrier #1 \"the last meeting\", call 1") != NULL);
    CHECK(tutti_report(here.communicator, 1, text, sizeof text) > 0);
    CHECK(strstr(text, "\"label\": \"the last meeting\"") != NULL);
    CHECK(tutti_set_label(NULL, "") == TUTTI_INVALID_ARGUMENT);
    CHECK(tutti_get_failure(here.communicator, &failure) == TUTTI_ABORTED);
    CHECK(failure.peer == here.count - 1 && failure.error == TUTTI_ERROR_NONE);
    CHECK(strlen(failure.text) > 0);
  }
  CHECK(tutti_operation_free(operation) == TUTTI_OK);
  leave(&here);
  return failures != 0;
}

/* One leaves, and the others go on without it. */
static int going_on(tutti_exchange* exchange, void* unused) {
  (void)unused;
  failures = 0;
  tutti_failure failure;
  const tutti_context_options options = {.struct_size = sizeof options,
                                         .device = "soft0",
                                         .arena_bytes = 4 << 20,
                                         .shrinkable = TUTTI_YES};
  tutti_context* context = NULL;
  tutti_communicator *all = NULL, *survivors = NULL;
  tutti_operation* operation = NULL;
  if (tutti_context_create(&options, &context, &failure) != TUTTI_OK ||
      tutti_communicator_create(context, exchange, &all, &failure) != TUTTI_OK)
    return 1;
  const int32_t self = tutti_rank(all), count = tutti_rank_count(all);
  if (self != 1) {
    CHECK(tutti_communicator_shrink(all, INT64_C(20000000000), &survivors, &failure) == TUTTI_OK);
    CHECK(tutti_communicator_free(all) == TUTTI_OK);
    CHECK(tutti_rank_count(survivors) == count - 1);
    CHECK(tutti_rank(survivors) == (self == 0 ? 0 : self - 1));
    CALL(tutti_barrier_init(survivors, NULL, &operation, &failure));
    CHECK(tutti_communicator_free(survivors) == TUTTI_OK);
  } else {
    CHECK(tutti_communicator_free(all) == TUTTI_OK);
  }
  CHECK(tutti_context_free(context) == TUTTI_OK);
  return failures != 0;
}

/* An operator that always says that it has failed. */
static void refusing(const void* incoming, void* partial, size_t count, void* context) {
  (void)incoming;
  (void)partial;
  (void)count;
  tutti_fail(context, "nothing can be combined");
}

static int operator_fails(tutti_exchange* exchange, void* unused) {
  place here;
  tutti_failure failure;
  tutti_operation* operation = NULL;
  int32_t mine = 1, all = 0, context = 0;
  (void)unused;
  failures = 0;
  if (!enter(&here, exchange)) return 1;
  const tutti_allreduce_arguments arguments = {.struct_size = sizeof arguments,
                                               .source = &mine,
                                               .target = &all,
                                               .element_count = 1,
                                               .reduction = {.which = TUTTI_USER,
                                                             .type = TUTTI_INT32,
                                                             .combine = refusing,
                                                             .context = &context,
                                                             .element_bytes = 4,
                                                             .commutative = 1}};
  CHECK(tutti_allreduce_init(here.communicator, &arguments, &operation, &failure) == TUTTI_OK);
  CHECK(tutti_start(operation) == TUTTI_OK);
  CHECK(tutti_wait(operation, INT64_C(20000000000)) == TUTTI_ABORTED);
  CHECK(tutti_get_failure(here.communicator, &failure) == TUTTI_ABORTED);
  CHECK(failure.peer >= 0 && failure.peer < here.count);
  CHECK(strstr(failure.text,
               "its operator failed in allreduce #1, call 1: nothing can be combined") != NULL);
  CHECK(tutti_start(operation) == TUTTI_ABORTED);
  CHECK(tutti_operation_free(operation) == TUTTI_OK);
  leave(&here);
  return failures != 0;
}

/* Refused before there is anybody to be told. */
/* What a forked child may do with what it inherits: be told that it is one, and free it. */
static int as_forked_child(place* here, tutti_operation* operation, tutti_segment* segment) {
  const int before = failures;
  tutti_failure failure;
  tutti_operation* other = NULL;
  tutti_communicator* part = NULL;
  CHECK(tutti_start(operation) == TUTTI_ABORTED && tutti_test(operation) == TUTTI_ABORTED);
  CHECK(tutti_wait(operation, 1000000000) == TUTTI_ABORTED && tutti_in_flight(operation) == 0);
  CHECK(tutti_progress(here->communicator) == TUTTI_ABORTED);
  CHECK(tutti_get_failure(here->communicator, &failure) == TUTTI_ABORTED);
  CHECK(failure.status == TUTTI_ABORTED && strstr(failure.text, "this is a forked child") != NULL);
  CHECK(tutti_abort(here->communicator) == TUTTI_OK);
  const tutti_barrier_arguments nothing = {.struct_size = sizeof nothing};
  expect_refused(tutti_barrier_init(here->communicator, &nothing, &other, &failure), &failure,
                 "this is a forked child", __LINE__);
  CHECK(other == NULL);
  expect_refused(tutti_communicator_shrink(here->communicator, 0, &part, &failure), &failure,
                 "this is a forked child", __LINE__);
  expect_refused(tutti_communicator_split(here->communicator, 0, 0, &part, &failure), &failure,
                 "this is a forked child", __LINE__);
  expect_refused(tutti_synchronize(here->communicator, &failure), &failure,
                 "this is a forked child", __LINE__);
  expect_refused(tutti_cancel(here->communicator, &failure), &failure, "this is a forked child",
                 __LINE__);
  CHECK(tutti_operation_free(operation) == TUTTI_OK && tutti_segment_free(segment) == TUTTI_OK);
  leave(here);
  return failures - before;
}

static int with_forked_children(tutti_exchange* exchange, void* unused) {
  (void)unused;
  failures = 0;
  place here;
  if (!enter(&here, exchange)) return 1;
  tutti_failure failure;
  tutti_segment* segment = NULL;
  tutti_operation* operation = NULL;
  double mine = 0, all = 0;
  const tutti_allreduce_arguments arguments = {
      .struct_size = sizeof arguments,
      .source = &mine,
      .target = &all,
      .element_count = 1,
      .reduction = {.which = TUTTI_SUM, .type = TUTTI_DOUBLE}};
  CHECK(tutti_segment_allocate(here.communicator, 64, TUTTI_SCOPE_RANK, &segment, &failure) ==
        TUTTI_OK);
  CHECK(tutti_allreduce_init(here.communicator, &arguments, &operation, &failure) == TUTTI_OK);
  for (int i = 0; i < 6 && failures == 0; ++i) {
    mine = 10 * i + here.self;
    CHECK(tutti_start(operation) == TUTTI_OK);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(as_forked_child(&here, operation, segment) != 0);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(tutti_wait(operation, INT64_C(10000000000)) == TUTTI_OK);
    CHECK(all == 20 * i + 1);
  }
  CHECK(tutti_operation_free(operation) == TUTTI_OK && tutti_segment_free(segment) == TUTTI_OK);
  leave(&here);
  return failures != 0;
}

static void bad_set_up(void) {
  tutti_failure failure;
  tutti_context* context = NULL;
  tutti_communicator* communicator = NULL;
  tutti_operation* operation = NULL;
  tutti_exchange* exchange = NULL;
  tutti_context_options options = {.struct_size = sizeof options};
  const int32_t shape[] = {2, -1};
#define CONTEXT_REFUSED(member, value, words)                           \
  do {                                                                  \
    tutti_context_options changed = options;                            \
    changed.member = value;                                             \
    REFUSED(tutti_context_create(&changed, &context, &failure), words); \
  } while (0)
  CONTEXT_REFUSED(arena_bytes, -1, "arena_bytes -1: expected 0 or more");
  CONTEXT_REFUSED(arena_bytes, TUTTI_NEVER, "18446744073709551615\": expected at most ");
  CONTEXT_REFUSED(arena_bytes, TUTTI_NEVER - 1, "9223372036854775806\": expected at most ");
  CONTEXT_REFUSED(connections_max, -1, "connections_max -1: expected 0 or more");
  CONTEXT_REFUSED(tuning, 5, "tuning 5: expected 0 (not given) .. 4");
  CONTEXT_REFUSED(tuning_keeps_bits, 3,
                  "tuning_keeps_bits 3: expected TUTTI_DEFAULT, TUTTI_YES or TUTTI_NO");
  CONTEXT_REFUSED(shrinkable, 3, "shrinkable 3: expected TUTTI_DEFAULT, TUTTI_YES or TUTTI_NO");
  CONTEXT_REFUSED(tuning_appends, -1,
                  "tuning_appends -1: expected TUTTI_DEFAULT, TUTTI_YES or TUTTI_NO");
  CONTEXT_REFUSED(connections_max, INT64_C(1) << 32,
                  "connections_max 4294967296: expected at most 4294967295");
  CONTEXT_REFUSED(setup_timeout_ns, -1, "setup_timeout_ns -1: expected 0 or more");
  CONTEXT_REFUSED(detection_bound_ns, -1, "detection_bound_ns -1: expected 0 or more");
  CONTEXT_REFUSED(detection_bound_ns, 1, "detection_bound=\"1 ns\": expected 10 ms to an hour");
  CONTEXT_REFUSED(detection_bound_ns, INT64_MAX - 1, ": expected 10 ms to an hour");
  CONTEXT_REFUSED(check, 4, "check 4: expected 0 (not given) .. 3");
  CONTEXT_REFUSED(notify, -1, "notify -1: expected 0 (not given) .. 2");
  CONTEXT_REFUSED(wait, 5, "wait 5: ");
  CONTEXT_REFUSED(connect, 3, "connect 3: ");
  CONTEXT_REFUSED(placement, 4, "placement 4: ");
  CONTEXT_REFUSED(shared_notifications, 4, "shared_notifications 4: ");
  CONTEXT_REFUSED(register_buffers, 3, "register_buffers 3: expected TUTTI_DEFAULT, ");
  CONTEXT_REFUSED(ranks_per_node, ((tutti_counts){.values = shape, .count = 2}),
                  "ranks_per_node.values[1] -1: expected 1 or more");
  CONTEXT_REFUSED(struct_size, 0, "struct_size 0: expected ");
  REFUSED(tutti_context_create(NULL, NULL, &failure), "context NULL: expected where");
  CHECK(tutti_context_create(NULL, NULL, NULL) == TUTTI_INVALID_ARGUMENT);
  REFUSED(tutti_communicator_create(NULL, NULL, &communicator, &failure), "context NULL: ");
  /* Nothing was made, and nothing is left of what stood there before. */
  const tutti_allreduce_arguments arguments = {.struct_size = sizeof arguments};
  tutti_segment* segment = (tutti_segment*)&failure;
  operation = (tutti_operation*)&failure;
  REFUSED(tutti_barrier_init(NULL, NULL, &operation, &failure), "communicator NULL: ");
  CHECK(operation == NULL);
  operation = (tutti_operation*)&failure;
  REFUSED(tutti_allreduce_init(NULL, &arguments, &operation, &failure), "communicator NULL: ");
  CHECK(operation == NULL);
  REFUSED(tutti_segment_allocate(NULL, 8, TUTTI_SCOPE_RANK, &segment, &failure),
          "communicator NULL: ");
  CHECK(segment == NULL);
  communicator = (tutti_communicator*)&failure;
  REFUSED(tutti_communicator_shrink(NULL, 0, &communicator, &failure), "communicator NULL: ");
  REFUSED(tutti_communicator_split(NULL, 0, 0, &communicator, &failure), "communicator NULL: ");
  CHECK(communicator == NULL);
  options.device = "nothing_of_this_name";
  CHECK(tutti_context_create(&options, &context, &failure) < 0);
  CHECK(strstr(failure.text, "nothing_of_this_name") != NULL);

  tutti_tcp_options tcp = {
      .struct_size = sizeof tcp, .rank_count = 2, .rendezvous = "127.0.0.1:1", .secret = "s"};
  tcp.rank = -1;
  REFUSED(tutti_tcp_exchange(&tcp, &exchange, &failure), "rank -1: expected 0 .. 1");
  tcp.rank = 2;
  REFUSED(tutti_tcp_exchange(&tcp, &exchange, &failure), "rank 2: expected 0 .. 1");
  tcp.rank = 0;
  tcp.timeout_ns = -5;
  REFUSED(tutti_tcp_exchange(&tcp, &exchange, &failure), "timeout_ns -5: expected 0 or more");
  tcp.secret = NULL;
  REFUSED(tutti_tcp_exchange(&tcp, &exchange, &failure), "secret NULL: expected a text");
  tcp.rank_count = 0;
  REFUSED(tutti_tcp_exchange(&tcp, &exchange, &failure), "rank_count 0: expected 1 or more");
  tutti_exchange_functions functions = {.struct_size = sizeof functions, .rank_count = 1};
  REFUSED(tutti_user_exchange(&functions, &exchange, &failure), "allgather NULL: expected a func");
  REFUSED(tutti_run_local(-1, everything, NULL, NULL, &failure), "rank_count -1: expected 1 or");
  REFUSED(tutti_run_local(1, NULL, NULL, NULL, &failure), "body NULL: expected a function");

  CHECK(tutti_start(NULL) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_start_on(NULL, NULL, NULL) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_test(NULL) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_wait(NULL, 0) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_abort(NULL) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_progress(NULL) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_get_failure(NULL, &failure) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_rank(NULL) == -1 && tutti_segment_data(NULL) == NULL);
  CHECK(tutti_operation_free(NULL) == TUTTI_OK && tutti_segment_free(NULL) == TUTTI_OK);
  CHECK(tutti_communicator_free(NULL) == TUTTI_OK && tutti_context_free(NULL) == TUTTI_OK);
  CHECK(tutti_exchange_free(NULL) == TUTTI_OK);
  CHECK(strcmp(tutti_status_name(TUTTI_SETUP_FAILED), "setup_failed") == 0);
  CHECK(strcmp(tutti_status_name(TUTTI_TIMED_OUT), "timed_out") == 0);
  CHECK(strcmp(tutti_status_name(42), "invalid status") == 0);
}

/* An exchange of the user's: memory that two processes share. */
typedef struct {
  _Alignas(64) _Atomic int arrived;
  unsigned char board[2][1 << 16];
} meeting;
typedef struct {
  meeting* common;
  int self, met;
  int late; /* says from then on that it timed out */
} participant;

static tutti_status user_barrier(void* context, int64_t timeout_ns) {
  participant* const here = context;
  if (here->late) return TUTTI_TIMED_OUT;
  const int expected = 2 * ++here->met;
  struct timespec pause = {.tv_nsec = 100000};
  ++here->common->arrived;
  for (int64_t waited = 0; here->common->arrived < expected; waited += pause.tv_nsec) {
    if (waited > timeout_ns) return TUTTI_TIMED_OUT;
    nanosleep(&pause, NULL);
  }
  return TUTTI_OK;
}

static tutti_status user_allgather(void* context, const void* mine, void* all, size_t bytes,
                                   int64_t timeout_ns) {
  participant* const here = context;
  if (bytes > sizeof here->common->board[0]) return TUTTI_SETUP_FAILED;
  memcpy(here->common->board[here->self], mine, bytes);
  tutti_status status = user_barrier(here, timeout_ns);
  if (status != TUTTI_OK) return status;
  for (int rank = 0; rank < 2; ++rank)
    memcpy((char*)all + (size_t)rank * bytes, here->common->board[rank], bytes);
  return user_barrier(here, timeout_ns);
}

static int over_a_users_exchange(meeting* common, int self) {
  participant here = {.common = common, .self = self};
  tutti_exchange_functions functions = {.struct_size = sizeof functions,
                                        .rank = self,
                                        .rank_count = 2,
                                        .context = &here,
                                        .allgather = user_allgather,
                                        .barrier = user_barrier};
  tutti_exchange* exchange = NULL;
  tutti_failure failure;
  place there;
  failures = 0;
  CHECK(tutti_user_exchange(&functions, &exchange, &failure) == TUTTI_OK);
  if (!enter(&there, exchange)) return 1;
  CHECK(there.self == self && there.count == 2);
  blocks(&there);
  tutti_operation* operation = NULL;
  here.late = 1;
  CHECK(tutti_barrier_init(there.communicator, NULL, &operation, &failure) == TUTTI_SETUP_FAILED);
  CHECK(failure.error == TUTTI_ERROR_TIMED_OUT);
  here.late = 0; /* but is not asked again */
  CHECK(tutti_synchronize(there.communicator, &failure) < 0);
  leave(&there);
  CHECK(tutti_exchange_free(exchange) == TUTTI_OK);
  return failures != 0;
}

static void users_exchange(void) {
  meeting* const common =
      mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(common != MAP_FAILED);
  pid_t children[2];
  for (int self = 0; self < 2; ++self) {
    children[self] = fork();
    if (children[self] == 0) _exit(over_a_users_exchange(common, self));
  }
  for (int self = 0; self < 2; ++self) {
    int status = -1;
    CHECK(waitpid(children[self], &status, 0) == children[self]);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  munmap(common, sizeof *common);
}

static void on_ranks(int32_t count, int (*body)(tutti_exchange*, void*)) {
  tutti_local_result results[ranks_max];
  tutti_failure failure;
  CHECK(tutti_run_local(count, body, NULL, results, &failure) == TUTTI_OK);
  for (int rank = 0; rank < count; ++rank)
    CHECK(results[rank].exit_status == 0 && results[rank].signal == 0);
}

int main(void) {
  bad_set_up();
  on_ranks(2, everything);
  on_ranks(4, everything);
  on_ranks(3, giving_up);
  on_ranks(3, going_on);
  on_ranks(3, operator_fails);
  on_ranks(2, with_forked_children);
  users_exchange();
  printf("%s\n", failures == 0 ? "all right" : "WRONG");
  return failures != 0;
}
