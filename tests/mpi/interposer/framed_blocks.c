/* Collectives of blocks of which only some ranks know how long they are: of types by which ranks
 * lay out one signature in different ways, in place and not, for all roots, on parts of the world;
 * short and long ones, and what the program does wrong.  The results are right, and calls are taken
 * where the rules say so (README of bindings/mpi). */
#include "blocks.h"

static int is_verified; /* TUTTI_MPI=verify, where MPI says what is wrong in its own ways */

/* ---- Arrangements of blocks -------------------------------------------------------------------
 */
enum { long_block = 100 /* doubles, above what is taken */, place_of_block = long_block + 4 };
typedef enum { all_short, all_middle, one_long, all_long, own_long } lengths;
typedef double wide_buffer[2 * ranks_max * place_of_block];

/* Symmetric, as a call in place has it. */
static int elements_between(int from, int to, int call, lengths which) {
  const int at = call % ranks, next = (at + 1) % ranks;
  const int is_long =
      which == all_long || (which == own_long && from == to) ||
      (which == one_long && ((from == at && to == next) || (to == at && from == next)));
  if (which == all_middle) return 20 + (from + to + call) % 5; /* doubles, for larger frames */
  return is_long ? long_block - (from + to + call) % 3 : (from + to + call) % 5;
}

/* Which gaps are between elements, and in which order blocks lie, differs by rank and by call. */
typedef struct {
  MPI_Datatype type;
  int step;
  int counts[ranks_max], places[ranks_max];
} arrangement;

static arrangement arranged(int call, int side, const int* counts) {
  arrangement a = {MPI_DOUBLE, 1, {0}, {0}};
  if ((rank + call / 2 + side) % 3 == 1) {
    a.step = 2;
    MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * (MPI_Aint)sizeof(double), &a.type);
    MPI_Type_commit(&a.type);
  }
  for (int r = 0; r < ranks; ++r) {
    a.counts[r] = counts[r];
    a.places[r] = place_of_block * ((rank + call) % 2 ? ranks - 1 - r : r);
  }
  return a;
}

static void forget(arrangement* a) {
  if (a->step == 2) MPI_Type_free(&a->type);
}

static double* in_block(double* buffer, const arrangement* a, int block, int i) {
  return &buffer[a->step * (a->places[block] + i)];
}

static void empty(double* b) {
  for (int i = 0; i < 2 * ranks_max * place_of_block; ++i) b[i] = -1;
}

/* Block r of this rank's is for rank r; if `root` is not negative, all of it is for the root. */
static void fill(double* b, const arrangement* a, int root, int call) {
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < a->counts[r]; ++i)
      *in_block(b, a, r, i) = value(rank, root < 0 ? r : root, i, call);
}

/* Block r came from rank r; nothing else was written. */
static void check_received(double* b, const arrangement* a, int call, const char* what) {
  int written = 0;
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < a->counts[r]; ++i, ++written)
      CHECK(*in_block(b, a, r, i) == value(r, rank, i, call),
            "%s, call %d, rank %d: element %d of %d of block %d is %g", what, call, rank, i,
            a->counts[r], r, *in_block(b, a, r, i));
  for (int i = 0; i < 2 * ranks_max * place_of_block; ++i) written -= b[i] != -1;
  CHECK(written == 0, "%s, call %d: %d more elements were written", what, call, -written);
}

/* ---- The collectives --------------------------------------------------------------------------
 */
static void alltoallv(int call, lengths which) {
  static wide_buffer mine, all;
  int counts[ranks_max];
  for (int r = 0; r < ranks; ++r) counts[r] = elements_between(rank, r, call, which);
  arrangement from = arranged(call, 0, counts), to = arranged(call, 1, counts);
  const int in_place = call % 3 == 2;
  empty(all);
  fill(in_place ? all : mine, in_place ? &to : &from, -1, call);
  if (in_place)
    MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, all, to.counts, to.places, to.type,
                  communicator);
  else
    MPI_Alltoallv(mine, from.counts, from.places, from.type, all, to.counts, to.places, to.type,
                  communicator);
  check_received(all, &to, call, "alltoallv");
  forget(&from);
  forget(&to);
}

static int root_of_calls;

static void gatherv(int call, lengths which) {
  static wide_buffer mine, all;
  const int root = root_of_calls, own = elements_between(rank, root, call, which);
  int counts[ranks_max], only[ranks_max] = {0};
  for (int r = 0; r < ranks; ++r) counts[r] = elements_between(r, root, call, which);
  only[rank] = own;
  arrangement from = arranged(call, 0, only), to = arranged(call, 1, counts);
  const int in_place = rank == root && call % 3 == 2, is_root = rank == root;
  empty(all);
  fill(mine, &from, root, call);
  for (int i = 0; in_place && i < own; ++i)
    *in_block(all, &to, rank, i) = value(rank, root, i, call);
  MPI_Gatherv(in_place ? MPI_IN_PLACE : in_block(mine, &from, rank, 0), own, from.type, all,
              is_root ? to.counts : NULL, is_root ? to.places : NULL,
              is_root ? to.type : MPI_DATATYPE_NULL, root, communicator);
  for (int r = 0; r < ranks && !is_root; ++r) to.counts[r] = 0;
  check_received(all, &to, call, "gatherv");
  forget(&from);
  forget(&to);
}

static void scatterv(int call, lengths which) {
  static wide_buffer mine, all;
  const int root = root_of_calls, own = elements_between(root, rank, call, which);
  int counts[ranks_max], only[ranks_max] = {0};
  for (int r = 0; r < ranks; ++r) counts[r] = elements_between(root, r, call, which);
  only[root] = own;
  arrangement from = arranged(call, 0, counts), to = arranged(call, 1, only);
  const int in_place = rank == root && call % 3 == 2, is_root = rank == root;
  empty(mine);
  if (is_root) fill(all, &from, -1, call);
  MPI_Scatterv(is_root ? all : NULL, is_root ? from.counts : NULL, is_root ? from.places : NULL,
               is_root ? from.type : MPI_DATATYPE_NULL,
               in_place ? MPI_IN_PLACE : in_block(mine, &to, root, 0), own, to.type, root,
               communicator);
  if (in_place) to.counts[root] = 0;
  check_received(mine, &to, call, "scatterv");
  forget(&from);
  forget(&to);
}

static struct framed {
  const char* name;
  void (*call)(int, lengths);
  int is_rooted, is_taken_when_long;
} framed[] = {{"MPI_Alltoallv", alltoallv, 0, 0},
              {"MPI_Gatherv", gatherv, 1, 1},
              {"MPI_Scatterv", scatterv, 1, 0}};

/* ---- Which calls are taken --------------------------------------------------------------------
 */
/* What the interposer knows of the calls of a kind, to which the root belongs. */
typedef struct {
  int calls, score, by_operation, needs_large, is_large, is_given_up;
} history;

/* Whether the rules say that the next call is taken.  Its longest block is short, middle or long.
 */
static int is_taken(const struct framed* f, history* past, lengths longest) {
  enum { left_first = 3, score_max = 16 };
  if (ranks == 1 || ++past->calls <= left_first || past->is_given_up) return 0;
  past->score += longest == all_long ? 2 : -1;
  if (past->score < 0) past->score = 0;
  if (past->score > 2 * score_max) past->score = 2 * score_max;
  past->needs_large = past->needs_large || (longest == all_middle && !past->is_large);
  ++past->by_operation;
  if (!f->is_taken_when_long || (past->by_operation & (past->by_operation - 1)) == 0) {
    if (past->needs_large) {
      past->is_large = 1;
      past->needs_large = past->score = past->by_operation = 0;
      return f->is_taken_when_long;
    }
    past->is_given_up = past->score >= score_max;
  }
  return f->is_taken_when_long || longest != all_long;
}

static void expect_taken(const struct framed* f, history* past, int count, const lengths* which) {
  const unsigned long long before = calls_taken(f->name);
  unsigned long long expected = 0;
  for (int call = 0; call < count; ++call) {
    int most = 0;
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to)
        if (from != to && (!f->is_rooted || root_of_calls == (f->is_taken_when_long ? to : from)))
          if (elements_between(from, to, call, which[call]) > most)
            most = elements_between(from, to, call, which[call]);
    f->call(call, which[call]);
    expected += (unsigned)is_taken(f, past,
                                   most > 31  ? all_long
                                   : most > 6 ? all_middle
                                              : all_short);
    CHECK(calls_taken(f->name) - before == expected, "%s: %llu of %d calls were taken, not %llu",
          f->name, calls_taken(f->name) - before, call + 1, expected);
  }
}

/* Short, longer and long calls take turns; those that are long again and again are left to MPI at
 * last. */
static void framed_blocks(void) {
  static const lengths mixed[] = {all_short, all_long,  all_short,  all_short,  one_long,
                                  own_long,  all_short, one_long,   all_middle, all_middle,
                                  all_short, all_long,  all_middle, own_long,   all_short};
  enum { mixed_calls = sizeof mixed / sizeof *mixed, long_calls = 14, more_calls = 3 };
  lengths more[long_calls + more_calls];
  for (int call = 0; call < long_calls + more_calls; ++call)
    more[call] = call < long_calls ? all_long : all_short;
  for (int f = 0; f < 3; ++f)
    for (int root = 0; root < (framed[f].is_rooted ? ranks : 1); root = next_root(root)) {
      history past = {0, 0, 0, 0, 0, 0};
      root_of_calls = root;
      expect_taken(&framed[f], &past, mixed_calls, mixed);
      if (root == 0) expect_taken(&framed[f], &past, long_calls + more_calls, more);
      CHECK(ranks == 1 || root != 0 || past.is_given_up, "%s is not given up", framed[f].name);
    }
}

/* A third of long calls is borne, and half of them is not. */
static void shares(void) {
  enum { third_calls = 18, half_calls = 40 };
  lengths thirds[third_calls], halves[half_calls];
  for (int call = 0; call < third_calls; ++call) thirds[call] = call % 3 ? all_short : all_long;
  for (int call = 0; call < half_calls; ++call) halves[call] = call % 2 ? all_short : all_long;
  for (int f = 0; f < 3; ++f) {
    history past = {0, 0, 0, 0, 0, 0};
    root_of_calls = 0;
    expect_taken(&framed[f], &past, third_calls, thirds);
    CHECK(!past.is_given_up, "%s is given up", framed[f].name);
    if (framed[f].is_rooted) {
      past = (history){0, 0, 0, 0, 0, 0};
      root_of_calls = ranks - 1;
    }
    expect_taken(&framed[f], &past, half_calls, halves);
    CHECK(ranks == 1 || past.is_given_up, "%s is not given up", framed[f].name);
  }
}

/* Each has its own way for long blocks; all are there at the same time. */
static void many_communicators(void) {
  enum { number = 4 };
  const MPI_Comm parent = communicator;
  MPI_Comm all[number];
  root_of_calls = 0;
  for (int i = 0; i < number; ++i) MPI_Comm_dup(parent, &all[i]);
  for (int call = 0; call < 6; ++call)
    for (int i = 0; i < number; ++i) {
      communicator = all[i];
      gatherv(call, (call + i) % 2 ? all_long : all_short);
      alltoallv(call, i % 3 ? all_short : one_long);
    }
  for (int i = 0; i < number; ++i) MPI_Comm_free(&all[i]);
  communicator = parent;
}

/* Each rank has communicators that it does not free, when MPI is finalised. */
static void left_to_finalize(void) {
  enum { number = 3 };
  MPI_Comm left[number];
  root_of_calls = 0;
  for (int i = 0; i < number; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &left[i]);
  for (int call = 0; call < calls; ++call)
    for (int i = 0; i < number; ++i) {
      communicator = left[i];
      gatherv(call, all_short);
    }
}

/* ---- Mistakes ---------------------------------------------------------------------------------
 */
static int errors;
static void count_error(MPI_Comm* where, int* code, ...) {
  int class = 0;
  MPI_Error_class(*code, &class);
  CHECK(*where == communicator && class == MPI_ERR_TRUNCATE, "error class %d", class);
  ++errors;
}

static void check_result(int result, int is_error, const char* what) {
  int class = 0;
  MPI_Error_class(result, &class);
  CHECK(class == (is_error ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "%s: error class %d", what, class);
  CHECK(errors == is_error, "%s: %d errors", what, errors);
  errors = 0;
}

/* Rank 0 has no room for all that another one sends, and says what MPI would say. */
static void truncated(void) {
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(count_error, &handler);
  MPI_Comm_set_errhandler(communicator, handler);
  for (int call = 0; call < calls + 2; ++call) {
    const int is_short = call >= 4 && call % 2 == 0 && rank == 0;
    int sent[ranks_max * 3], received[ranks_max * 3], counts[ranks_max], less[ranks_max],
        places[ranks_max];
    for (int r = 0; r < ranks; ++r) {
      counts[r] = 3, less[r] = is_short && r == ranks - 1 ? 2 : 3, places[r] = 3 * r;
      for (int i = 0; i < 3; ++i) sent[3 * r + i] = 10 * rank + i, received[3 * r + i] = -1;
    }
    const int last = 3 * (ranks - 1) + 2;
    check_result(
        MPI_Alltoallv(sent, counts, places, MPI_INT, received, less, places, MPI_INT, communicator),
        is_short, "alltoallv");
    CHECK(received[last] == (is_short ? -1 : 10 * (ranks - 1) + 2) &&
              received[last - 1] == 10 * (ranks - 1) + 1,
          "%d %d", received[last - 1], received[last]);
    received[last] = -1;
    check_result(MPI_Gatherv(sent, 3, MPI_INT, received, less, places, MPI_INT, 0, communicator),
                 is_short, "gatherv");
    CHECK(rank != 0 || received[last] == (is_short ? -1 : 10 * (ranks - 1) + 2), "%d",
          received[last]);
    received[2] = -1;
    check_result(MPI_Scatterv(sent, counts, places, MPI_INT, received, is_short ? 2 : 3, MPI_INT,
                              ranks - 1, communicator),
                 is_short, "scatterv");
    CHECK(received[2] == (is_short ? -1 : 10 * (ranks - 1) + 2), "%d", received[2]);
    static double long_sent[long_block], all[ranks_max * long_block];
    int long_counts[ranks_max], long_places[ranks_max];
    for (int r = 0; r < ranks; ++r) {
      long_counts[r] = is_short && r == ranks - 1 ? long_block - 1 : long_block;
      long_places[r] = long_block * r;
    }
    long_sent[0] = rank + call;
    check_result(MPI_Gatherv(long_sent, long_block, MPI_DOUBLE, all, long_counts, long_places,
                             MPI_DOUBLE, 0, communicator),
                 is_short, "gatherv of long blocks");
    CHECK(rank != 0 || all[0] == call, "%g", all[0]);
  }
  MPI_Errhandler_free(&handler);
}

/* A count that is wrong on one rank is its error, and does not hold up the others' next calls. */
static void wrong_counts(void) {
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  static double sent[long_block], all[ranks_max * long_block];
  for (int call = 0; call < calls + 6; ++call) {
    const int errs_here = rank == ranks - 1 && call == 5, root_errs = rank == 0 && call == 7;
    int counts[ranks_max], places[ranks_max];
    for (int r = 0; r < ranks; ++r) counts[r] = long_block, places[r] = long_block * r;
    for (int i = 0; i < long_block; ++i) sent[i] = rank + 100 * call, all[i] = -1;
    if (root_errs) counts[0] = -1;
    int result = MPI_Gatherv(sent, errs_here ? -1 : long_block, MPI_DOUBLE, all, counts, places,
                             MPI_DOUBLE, 0, communicator);
    CHECK((result != MPI_SUCCESS) == (errs_here || root_errs), "gatherv %d: %d", call, result);
    for (int r = 0; r < ranks - (call == 5) && rank == 0 && !root_errs; ++r)
      CHECK(all[long_block * r + 7] == r + 100 * call, "call %d: %g", call,
            all[long_block * r + 7]);
    for (int r = 0; r < ranks; ++r) counts[r] = 2, places[r] = 2 * r;
    result = MPI_Scatterv(sent, counts, places, MPI_DOUBLE, all, errs_here ? -1 : 2, MPI_DOUBLE, 0,
                          communicator);
    CHECK((result != MPI_SUCCESS) == errs_here, "scatterv %d: %d", call, result);
    CHECK(errs_here || rank != 0 || all[1] == 100 * call, "call %d: %g", call, all[1]);
    MPI_Barrier(communicator);
  }
}

/* MPI_IN_PLACE where it is not allowed is an error of the ranks that give it. */
static void misplaced(void) {
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  for (int call = 0; call < calls + 2; ++call) {
    const int errs = call == 5, root = ranks - 1, is_root = rank == root, root_errs = call == 6;
    int sent[ranks_max], received[ranks_max], counts[ranks_max], places[ranks_max];
    for (int r = 0; r < ranks; ++r)
      sent[r] = 10 * rank + call, received[r] = -1, counts[r] = 1, places[r] = r;
    int result = MPI_Alltoallv(sent, counts, places, MPI_INT, errs ? MPI_IN_PLACE : received,
                               counts, places, MPI_INT, communicator);
    CHECK((result != MPI_SUCCESS) == errs, "alltoallv %d: %d", call, result);
    CHECK(errs || received[0] == call, "alltoallv %d: %d", call, received[0]);
    result =
        MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL,
                      root_errs ? MPI_IN_PLACE : received, counts, places, MPI_INT, communicator);
    CHECK((result != MPI_SUCCESS) == root_errs, "alltoallv in place %d: %d", call, result);

    const int errs_here = errs && rank == 0, root_errs_here = root_errs && is_root;
    received[0] = received[root] = -1;
    result = MPI_Gatherv(errs_here ? MPI_IN_PLACE : sent, 1, MPI_INT,
                         root_errs_here ? MPI_IN_PLACE : received, counts, places, MPI_INT, root,
                         communicator);
    CHECK((result != MPI_SUCCESS) == (errs_here || root_errs_here), "gatherv %d: %d", call, result);
    CHECK(!is_root || root_errs || received[root] == 10 * root + call, "gatherv %d: %d", call,
          received[root]);
    CHECK(!is_root || root_errs || received[0] == (errs ? -1 : call), "gatherv %d: %d", call,
          received[0]);
    /* Where the root of a scatterv errs, all do, who would wait for it in MPI. */
    received[0] = -1;
    result = MPI_Scatterv(root_errs_here ? MPI_IN_PLACE : sent, counts, places, MPI_INT,
                          errs_here || (root_errs && !is_root) ? MPI_IN_PLACE : received, 1,
                          MPI_INT, root, communicator);
    CHECK((result != MPI_SUCCESS) == (errs_here || root_errs), "scatterv %d: %d", call, result);
    CHECK(errs_here || root_errs || received[0] == 10 * root + call, "scatterv %d: %d", call,
          received[0]);
    MPI_Barrier(communicator);
  }
}

static void mistakes(void) {
  truncated();
  wrong_counts();
  misplaced();
}

#if MPI_VERSION >= 4
/* The forms with large counts. */
static void large_counts(void) {
  for (int call = 0; call < calls; ++call) {
    double mine[ranks_max], all[ranks_max], own = -1;
    MPI_Count counts[ranks_max];
    MPI_Aint places[ranks_max];
    for (int r = 0; r < ranks; ++r) mine[r] = rank + r, counts[r] = 1, places[r] = ranks - 1 - r;
    MPI_Gatherv_c(mine, 1, MPI_DOUBLE, all, counts, places, MPI_DOUBLE, 0, communicator);
    CHECK(rank != 0 || all[0] == ranks - 1, "%g", all[0]);
    for (int r = 0; r < ranks; ++r) places[r] = r;
    MPI_Alltoallv_c(mine, counts, places, MPI_DOUBLE, all, counts, places, MPI_DOUBLE,
                    communicator);
    CHECK(all[ranks - 1] == ranks - 1 + rank, "%g", all[ranks - 1]);
    MPI_Scatterv_c(mine, counts, places, MPI_DOUBLE, &own, 1, MPI_DOUBLE, 0, communicator);
    CHECK(own == rank, "%g", own);
  }
}
#endif

static void all_of_it(MPI_Comm parent) {
  on(parent, framed_blocks, NULL, 0);
  if (!are_few()) return;
  /* Only all ranks together, because MPICH's calls take long. */
  if (ranks_of(parent) == ranks_of(MPI_COMM_WORLD)) on(parent, shares, NULL, 0);
#if MPI_VERSION >= 4
  on(parent, large_counts, "MPI_Scatterv", 3);
#endif
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  is_verified = argument_count > 1; /* "by_mpi" */
  on_world_and_parts(all_of_it);
  if (are_few()) {
    on(MPI_COMM_WORLD, many_communicators, "MPI_Gatherv", 12);
    if (!is_verified) on(MPI_COMM_WORLD, mistakes, "MPI_Scatterv", 8);
    left_to_finalize();
  }
  if (rank_in(MPI_COMM_WORLD) == 0)
    printf("%llu alltoallvs were taken\n", calls_taken("MPI_Alltoallv"));
  MPI_Finalize();
  return 0;
}
