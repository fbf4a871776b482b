/* Collectives of blocks, and scans: of predefined types, and of types by which ranks lay out one
 * signature in different ways, in place and not, for all roots, with counts that vary, of users'
 * operators, on parts of the world; first left to MPI and then taken.  The results are right. */
#include <string.h>

#include "check.h"
#include "composition.h"

enum { calls = 6 /* the first three are left to MPI */, ranks_max = 8, elements = 5 };
static MPI_Comm communicator;
static int rank, ranks;
static int is_verified; /* TUTTI_MPI=verify, where MPI says what is wrong in its own ways */

/* The roots that are tried: all of few ranks, else the first, the last and one between. */
static int next_root(int root) {
  return root + (ranks <= 3 ? 1 : (ranks - 1) / 2 + ((ranks - 1) % 2 && root == 0));
}

/* What rank `from` has for rank `to` as element i. */
static double value(int from, int to, int i, int call) {
  return from * 1000 + to * 100 + i + call / 64.0;
}

/* ---- Layouts of blocks of five doubles --------------------------------------------------------
 */
typedef struct {
  MPI_Datatype type;
  int count, block, stride, first; /* element i of block b is at b * block + first + i * stride */
} layout;
static layout dense, spread, reversed;

static void make_layouts(void) {
  MPI_Datatype vector;
  const int backwards[elements] = {4, 3, 2, 1, 0};
  dense = (layout){MPI_DOUBLE, elements, elements, 1, 0};
  spread = (layout){MPI_DATATYPE_NULL, 1, 2 * elements, 2, 0};
  MPI_Type_vector(elements, 1, 2, MPI_DOUBLE, &vector);
  MPI_Type_create_resized(vector, 0, 2 * elements * (MPI_Aint)sizeof(double), &spread.type);
  MPI_Type_free(&vector);
  reversed = (layout){MPI_DATATYPE_NULL, 1, elements, -1, elements - 1};
  MPI_Type_create_indexed_block(elements, 1, backwards, MPI_DOUBLE, &reversed.type);
  MPI_Type_commit(&spread.type);
  MPI_Type_commit(&reversed.type);
}

/* Each rank has its own for each call. */
static layout layout_of(int call, int side) {
  if (call % 2 == 0) return dense;
  switch ((rank + call / 2 + side) % 3) {
    case 0:
      return dense;
    case 1:
      return spread;
    default:
      return reversed;
  }
}

static double* at(double* buffer, layout l, int block, int i) {
  return &buffer[block * l.block + l.first + i * l.stride];
}

typedef double buffer[ranks_max * 2 * elements];

static void clear(buffer b) {
  for (int i = 0; i < ranks_max * 2 * elements; ++i) b[i] = -1;
}

static void put(double* b, layout l, int block, int from, int to, int call) {
  for (int i = 0; i < elements; ++i) *at(b, l, block, i) = value(from, to, i, call);
}

static void check(double* b, layout l, int block, int from, int to, int call, const char* what) {
  for (int i = 0; i < elements; ++i) {
    CHECK(*at(b, l, block, i) == value(from, to, i, call),
          "%s, call %d, rank %d: element %d of block %d is %g", what, call, rank, i, block,
          *at(b, l, block, i));
    CHECK(l.stride != 2 || *(at(b, l, block, i) + 1) == -1, "%s: a gap was written", what);
  }
}

static void check_untouched(const double* b, const char* what) {
  for (int i = 0; i < ranks_max * 2 * elements; ++i) CHECK(b[i] == -1, "%s: %g", what, b[i]);
}

/* ---- Equal blocks -----------------------------------------------------------------------------
 */
static void allgathers(void) {
  for (int call = 0; call < 3 * calls; ++call) {
    buffer mine, all;
    const layout from = layout_of(call, 0), to = layout_of(call, 1);
    clear(all);
    put(mine, from, 0, rank, 0, call);
    if (call % 3 == 2) {
      put(all, to, rank, rank, 0, call);
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, to.count, to.type, communicator);
    } else {
      MPI_Allgather(mine, from.count, from.type, all, to.count, to.type, communicator);
    }
    for (int r = 0; r < ranks; ++r) check(all, to, r, r, 0, call, "allgather");
  }
}

/* The source is at an absolute address. */
static void allgathers_from_bottom(void) {
  double mine[elements] = {0}, all[ranks_max * elements];
  MPI_Aint address;
  MPI_Datatype there;
  const int length = elements;
  MPI_Get_address(mine, &address);
  MPI_Type_create_hindexed(1, &length, &address, MPI_DOUBLE, &there);
  MPI_Type_commit(&there);
  for (int call = 0; call < calls; ++call) {
    put(mine, dense, 0, rank, 0, call);
    MPI_Allgather(MPI_BOTTOM, 1, there, all, elements, MPI_DOUBLE, communicator);
    for (int r = 0; r < ranks; ++r) check(all, dense, r, r, 0, call, "allgather from bottom");
  }
  MPI_Type_free(&there);
}

static void alltoalls(void) {
  for (int call = 0; call < 3 * calls; ++call) {
    buffer mine, all;
    const layout from = layout_of(call, 0), to = layout_of(call, 1);
    clear(all);
    const int in_place = call % 3 == 2;
    for (int r = 0; r < ranks; ++r)
      put(in_place ? all : mine, in_place ? to : from, r, rank, r, call);
    if (in_place)
      MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, to.count, to.type, communicator);
    else
      MPI_Alltoall(mine, from.count, from.type, all, to.count, to.type, communicator);
    for (int r = 0; r < ranks; ++r) check(all, to, r, r, rank, call, "alltoall");
  }
}

static void gathers(void) {
  for (int root = 0; root < ranks; root = next_root(root))
    for (int call = 0; call < 2 * calls; ++call) {
      buffer mine, all;
      const layout from = layout_of(call, 0), to = layout_of(call, 1);
      clear(all);
      put(mine, from, 0, rank, root, call);
      const int in_place = rank == root && call % 3 == 2;
      if (in_place) put(all, to, rank, rank, root, call);
      MPI_Gather(in_place ? MPI_IN_PLACE : mine, from.count, from.type, all,
                 rank == root ? to.count : -7, rank == root ? to.type : MPI_DATATYPE_NULL, root,
                 communicator);
      for (int r = 0; r < ranks && rank == root; ++r) check(all, to, r, r, root, call, "gather");
      if (rank != root) check_untouched(all, "gather");
    }
}

static void scatters(void) {
  for (int root = 0; root < ranks; root = next_root(root))
    for (int call = 0; call < 2 * calls; ++call) {
      buffer all, mine;
      const layout from = layout_of(call, 0), to = layout_of(call, 1);
      clear(mine);
      for (int r = 0; r < ranks; ++r) put(all, from, r, root, r, call);
      const int in_place = rank == root && call % 3 == 2;
      MPI_Scatter(rank == root ? all : NULL, rank == root ? from.count : -7,
                  rank == root ? from.type : MPI_DATATYPE_NULL, in_place ? MPI_IN_PLACE : mine,
                  to.count, to.type, root, communicator);
      if (in_place) {
        check_untouched(mine, "scatter in place");
        for (int r = 0; r < ranks; ++r)
          for (int i = 0; i < elements; ++i)
            CHECK(*at(all, from, r, i) == value(root, r, i, call), "the source was written");
      } else {
        check(mine, to, 0, root, rank, call, "scatter");
      }
    }
}

/* From one element to more than is taken; predefined types of all lengths. */
static void sizes(void) {
  const int greatest = 150000;
  int* mine = malloc((size_t)greatest * sizeof *mine);
  int* all = malloc((size_t)(greatest * ranks) * sizeof *all);
  for (int count = 1; count <= greatest; count = count * 11 + 2)
    for (int call = 0; call < 5; ++call) {
      for (int i = 0; i < count; ++i) mine[i] = rank * 7 + i + call;
      MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, communicator);
      for (int r = 0; r < ranks; ++r)
        for (int i = 0; i < count; i += 1 + count / 100)
          CHECK(all[r * count + i] == r * 7 + i + call, "element %d of %d", i, count);
      MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, all, count, MPI_INT, communicator);
      for (int r = 0; r < ranks; ++r)
        for (int i = 0; i < count; i += 1 + count / 100)
          CHECK(all[r * count + i] == rank * 7 + i + call, "element %d of %d", i, count);
      for (int i = 0; i < count * ranks; ++i) all[i] = rank + i;
      MPI_Reduce_scatter_block(MPI_IN_PLACE, all, count, MPI_INT, MPI_SUM, communicator);
      for (int i = 0; i < count; i += 1 + count / 100)
        CHECK(all[i] == ranks * (rank * count + i) + ranks * (ranks - 1) / 2, "element %d of %d", i,
              count);
    }
  free(mine);
  free(all);
  char letter = (char)('a' + rank), letters[ranks_max];
  for (int call = 0; call < calls; ++call) {
    MPI_Gather(&letter, 1, MPI_CHAR, letters, 1, MPI_CHAR, ranks - 1, communicator);
    if (rank == ranks - 1)
      for (int r = 0; r < ranks; ++r) CHECK(letters[r] == 'a' + r, "%c", letters[r]);
  }
}

/* ---- Blocks of different sizes ----------------------------------------------------------------
 */
static int length_of(int r, int pattern) {
  static const int lengths[] = {3, 0, 1, 4, 2};
  return lengths[(r + pattern) % 5];
}

/* Where the blocks of the target lie, and with which gaps between elements, differs by rank. */
static void allgatherv(int pattern, int call) {
  MPI_Datatype wide;
  MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * (MPI_Aint)sizeof(double), &wide);
  MPI_Type_commit(&wide);
  double mine[5], all[ranks_max * 16];
  int counts[ranks_max], places[ranks_max], next = 0;
  const int apart = (rank + call) % 2, is_wide = (rank + call) % 3 == 1, step = is_wide ? 2 : 1;
  for (int r = 0; r < ranks; ++r) counts[r] = length_of(r, pattern);
  for (int k = 0; k < ranks; ++k) { /* backwards where they are apart */
    const int r = apart ? ranks - 1 - k : k;
    places[r] = next;
    next += counts[r] + apart;
  }
  for (int i = 0; i < ranks_max * 16; ++i) all[i] = -1;
  const int in_place = call % 3 == 2;
  for (int i = 0; i < counts[rank]; ++i)
    *(in_place ? &all[step * (places[rank] + i)] : &mine[i]) = value(rank, 0, i, call);
  MPI_Allgatherv(in_place ? MPI_IN_PLACE : mine, counts[rank], MPI_DOUBLE, all, counts, places,
                 is_wide ? wide : MPI_DOUBLE, communicator);
  int written = 0;
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < counts[r]; ++i, ++written)
      CHECK(all[step * (places[r] + i)] == value(r, 0, i, call),
            "pattern %d, call %d, rank %d, block %d, element %d: %g", pattern, call, rank, r, i,
            all[step * (places[r] + i)]);
  for (int i = 0; i < ranks_max * 16; ++i) written -= all[i] != -1;
  CHECK(written == 0, "%d more elements were written", -written);
  MPI_Type_free(&wide);
}

static void allgathervs(void) {
  for (int pattern = 0; pattern < 3; ++pattern)
    for (int call = 0; call < 2 * calls; ++call) allgatherv(pattern, call);
}

/* Two vectors of counts with one sum take turns. */
static void turns(void) {
  for (int call = 0; call < 4 * calls; ++call) {
    const int first = call % 2 == 0 ? 1 : 2, second = 3 - first;
    int counts[ranks_max], places[ranks_max], mine[2] = {rank, -rank}, all[ranks_max + 1];
    for (int r = 0; r < ranks; ++r) counts[r] = r == 0 ? first : r == 1 ? second : 1;
    for (int r = 0, next = 0; r < ranks; next += counts[r], ++r) places[r] = next;
    MPI_Allgatherv(mine, counts[rank], MPI_INT, all, counts, places, MPI_INT, communicator);
    for (int r = 0; r < ranks; ++r)
      for (int i = 0; i < counts[r]; ++i)
        CHECK(all[places[r] + i] == (i == 0 ? r : -r), "block %d: %d", r, all[places[r] + i]);
  }
}

/* More kinds of calls than operations are kept for. */
static void many_lengths(void) {
  for (int call = 0; call < 200; ++call) {
    const int length = 1 + call % 40;
    char mine[40], all[40 * ranks_max];
    memset(mine, 'a' + rank, sizeof mine);
    MPI_Allgather(mine, length, MPI_CHAR, all, length, MPI_CHAR, communicator);
    for (int i = 0; i < length * ranks; ++i) CHECK(all[i] == 'a' + i / length, "%c", all[i]);
  }
}

/* ---- Blocks of which only some ranks know how long they are ------------------------------------
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

/* ---- Reductions -------------------------------------------------------------------------------
 */
static MPI_Datatype map_type;
static MPI_Op composition;

static map map_of(int r, int i) {
  return (map){r % 3 + 2, r + i, 1};
}

/* The maps of `count` ranks, one after the other. */
static map composed(int count, int i) {
  map all = map_of(0, i);
  for (int r = 1; r < count; ++r) {
    const map next = map_of(r, i);
    all.c = next.b * all.c + next.c;
    all.b *= next.b;
  }
  return all;
}

static void reduce_scatters(void) {
  for (int pattern = 0; pattern < 2; ++pattern)
    for (int call = 0; call < 2 * calls; ++call) {
      double all[ranks_max * 5], own[5] = {-1, -1, -1, -1, -1};
      int counts[ranks_max], begin = 0, total = 0;
      for (int r = 0; r < ranks; ++r) {
        counts[r] = length_of(r, pattern);
        if (r < rank) begin += counts[r];
        total += counts[r];
      }
      for (int i = 0; i < total; ++i) all[i] = rank + 10 * i + call;
      const int in_place = call % 2;
      MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : all, in_place ? all : own, counts, MPI_DOUBLE,
                         MPI_SUM, communicator);
      for (int i = 0; i < counts[rank]; ++i)
        CHECK((in_place ? all : own)[i] ==
                  ranks * (10 * (begin + i) + call) + ranks * (ranks - 1) / 2,
              "reduce_scatter, call %d, element %d: %g", call, i, (in_place ? all : own)[i]);
      for (int i = counts[rank]; i < 5; ++i) CHECK(own[i] == -1, "written too far");
      map maps[ranks_max * 5], result[5];
      fill_gaps(maps, ranks_max * 5);
      fill_gaps(result, 5);
      for (int i = 0; i < total; ++i) {
        const map m = map_of(rank, i);
        maps[i].b = m.b, maps[i].c = m.c, maps[i].unused = 1;
      }
      MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : maps, in_place ? maps : result, counts, map_type,
                         composition, communicator);
      for (int i = 0; i < counts[rank]; ++i) {
        const map expected = composed(ranks, begin + i);
        check_map(in_place ? &maps[i] : &result[i], &expected, "reduce_scatter");
      }
    }
}

static void reduce_scatter_blocks(void) {
  for (int call = 0; call < 2 * calls; ++call) {
    float all[ranks_max * 3], own[3];
    for (int i = 0; i < 3 * ranks; ++i) all[i] = (float)(rank * i + call);
    const int in_place = call % 2;
    MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : all, in_place ? all : own, 3, MPI_FLOAT,
                             MPI_SUM, communicator);
    for (int i = 0; i < 3; ++i)
      CHECK((in_place ? all : own)[i] ==
                (float)(ranks * (ranks - 1) / 2 * (3 * rank + i) + ranks * call),
            "reduce_scatter_block, call %d, element %d: %g", call, i, (in_place ? all : own)[i]);
    struct {
      double value;
      int index;
    } mine[ranks_max], least[ranks_max];
    for (int r = 0; r < ranks; ++r) mine[r].value = (r + rank) % ranks, mine[r].index = rank;
    MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : mine, in_place ? mine : least, 1,
                             MPI_DOUBLE_INT, MPI_MINLOC, communicator);
    if (in_place) least[0] = mine[0];
    CHECK(least[0].value == 0 && least[0].index == (ranks - rank) % ranks, "%g at %d",
          least[0].value, least[0].index);
    double complex_parts[ranks_max][2], sum[2];
    for (int r = 0; r < ranks; ++r) complex_parts[r][0] = rank + r, complex_parts[r][1] = -rank;
    MPI_Reduce_scatter_block(complex_parts, sum, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, communicator);
    CHECK(sum[0] == ranks * (ranks - 1) / 2 + ranks * rank && sum[1] == -ranks * (ranks - 1) / 2,
          "%g %g", sum[0], sum[1]);
  }
}

static void scans(void) {
  for (int exclusive = 0; exclusive < 2; ++exclusive)
    for (int call = 0; call < 2 * calls; ++call) {
      int (*const prefix)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm) =
          exclusive ? MPI_Exscan : MPI_Scan;
      const int number = exclusive ? rank : rank + 1; /* of ranks that contribute */
      const int in_place = call % 2, keeps = exclusive && rank == 0;
      double mine[3], sums[3];
      for (int i = 0; i < 3; ++i) mine[i] = rank + 10 * i + call, sums[i] = in_place ? mine[i] : -1;
      prefix(in_place ? MPI_IN_PLACE : mine, sums, 3, MPI_DOUBLE, MPI_SUM, communicator);
      for (int i = 0; i < 3; ++i) {
        const double sum = number * (10 * i + call) + number * (number - 1) / 2;
        CHECK(sums[i] == (!keeps     ? sum
                          : in_place ? mine[i]
                                     : -1),
              "scan %d, call %d: %g", exclusive, call, sums[i]);
      }
      map maps[2], result[2];
      fill_gaps(maps, 2);
      fill_gaps(result, 2);
      for (int i = 0; i < 2; ++i) {
        const map m = map_of(rank, i);
        maps[i].b = m.b, maps[i].c = m.c, maps[i].unused = 1;
      }
      prefix(in_place ? MPI_IN_PLACE : maps, in_place ? maps : result, 2, map_type, composition,
             communicator);
      for (int i = 0; i < 2; ++i) {
        map expected = keeps ? map_of(rank, i) : composed(number, i);
        if (keeps && !in_place) fill_gaps(&expected, 1);
        check_map(in_place ? &maps[i] : &result[i], &expected, exclusive ? "exscan" : "scan");
      }
      struct {
        float value;
        int index;
      } at_rank = {(float)((rank * 3 + 1) % ranks), rank}, greatest = {-1, -1};
      prefix(&at_rank, &greatest, 1, MPI_FLOAT_INT, MPI_MAXLOC, communicator);
      float most = -1;
      for (int r = 0; r < number; ++r)
        if ((float)((r * 3 + 1) % ranks) > most) most = (float)((r * 3 + 1) % ranks);
      CHECK(greatest.value == most, "%g, not %g", greatest.value, most);
    }
}

/* ---- Nothing, and nearly nothing --------------------------------------------------------------
 */
static void nothing(void) {
  const int none[ranks_max] = {0};
  for (int call = 0; call < calls; ++call) {
    double x = 3, y = 4;
    MPI_Allgather(&x, 0, MPI_DOUBLE, &y, 0, MPI_DOUBLE, communicator);
    MPI_Allgatherv(&x, 0, MPI_DOUBLE, &y, none, none, MPI_DOUBLE, communicator);
    MPI_Alltoall(&x, 0, MPI_DOUBLE, &y, 0, MPI_DOUBLE, communicator);
    MPI_Gather(&x, 0, MPI_DOUBLE, &y, 0, MPI_DOUBLE, 0, communicator);
    MPI_Scatter(&x, 0, MPI_DOUBLE, &y, 0, MPI_DOUBLE, 0, communicator);
    MPI_Reduce_scatter(&x, &y, none, MPI_DOUBLE, MPI_SUM, communicator);
    MPI_Reduce_scatter_block(&x, &y, 0, MPI_DOUBLE, MPI_SUM, communicator);
    MPI_Scan(&x, &y, 0, MPI_DOUBLE, MPI_SUM, communicator);
    MPI_Exscan(&x, &y, 0, MPI_DOUBLE, MPI_SUM, communicator);
    CHECK(x == 3 && y == 4, "%g %g", x, y);
  }
}

/* Source and target are neighbours, while the operation has one element more. */
static void neighbours(void) {
  for (int call = 0; call < calls; ++call) {
    double both[6] = {rank, 1, 2, -1, -1, -1};
    MPI_Scan(both, both + 3, 3, MPI_DOUBLE, MPI_SUM, communicator);
    CHECK(both[3] == rank * (rank + 1) / 2 && both[4] == rank + 1, "%g", both[3]);
    MPI_Allreduce(both, both + 3, 3, MPI_DOUBLE, MPI_SUM, communicator);
    CHECK(both[3] == ranks * (ranks - 1) / 2 && both[4] == ranks, "%g", both[3]);
  }
}

/* An interposer takes up to 32 communicators early (README of bindings/mpi), so that parts of this
 * test which call in different ways share one. */
static void special_cases(void) {
  const unsigned long long scans = calls_taken("MPI_Scan");
  const unsigned long long allgathers = calls_taken("MPI_Allgather");
  const unsigned long long allreduces = calls_taken("MPI_Allreduce");
  allgathers_from_bottom();
  turns();
  neighbours();
  if (ranks == ranks_of(MPI_COMM_WORLD)) shares(); /* MPICH's calls take long */
  CHECK(ranks == 1 || calls_taken("MPI_Scan") - scans == 3, "scans");
  CHECK(ranks == 1 || calls_taken("MPI_Allgather") - allgathers == 3, "allgathers");
  CHECK(ranks == 1 || calls_taken("MPI_Allreduce") - allreduces == 3, "allreduces");
}

#if MPI_VERSION >= 4
/* The forms with large counts. */
static void large_counts(void) {
  for (int call = 0; call < calls; ++call) {
    double mine[ranks_max], all[ranks_max], sum = -1;
    MPI_Count counts[ranks_max];
    MPI_Aint places[ranks_max];
    for (int r = 0; r < ranks; ++r) {
      mine[r] = rank + r, counts[r] = 1, places[r] = ranks - 1 - r;
    }
    MPI_Allgather_c(mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, communicator);
    CHECK(all[ranks - 1] == ranks - 1, "%g", all[ranks - 1]);
    MPI_Allgatherv_c(mine, 1, MPI_DOUBLE, all, counts, places, MPI_DOUBLE, communicator);
    CHECK(all[0] == ranks - 1, "%g", all[0]);
    MPI_Alltoall_c(mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, communicator);
    CHECK(all[ranks - 1] == ranks - 1 + rank, "%g", all[ranks - 1]);
    MPI_Gather_c(mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, communicator);
    MPI_Scatter_c(mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, communicator);
    CHECK(all[0] == rank, "%g", all[0]);
    MPI_Reduce_scatter_c(mine, &sum, counts, MPI_DOUBLE, MPI_SUM, communicator);
    CHECK(sum == ranks * rank + ranks * (ranks - 1) / 2, "%g", sum);
    MPI_Reduce_scatter_block_c(mine, &sum, 1, MPI_DOUBLE, MPI_MAX, communicator);
    CHECK(sum == ranks - 1 + rank, "%g", sum);
    MPI_Scan_c(mine, &sum, 1, MPI_DOUBLE, MPI_MAX, communicator);
    CHECK(sum == rank, "%g", sum);
    MPI_Exscan_c(mine, &sum, 1, MPI_DOUBLE, MPI_MAX, communicator);
    CHECK(sum == (rank == 0 ? 0 : rank - 1), "%g", sum);
    MPI_Gatherv_c(mine, 1, MPI_DOUBLE, all, counts, places, MPI_DOUBLE, 0, communicator);
    CHECK(rank != 0 || all[0] == ranks - 1, "%g", all[0]);
    for (int r = 0; r < ranks; ++r) places[r] = r;
    MPI_Alltoallv_c(mine, counts, places, MPI_DOUBLE, all, counts, places, MPI_DOUBLE,
                    communicator);
    CHECK(all[ranks - 1] == ranks - 1 + rank, "%g", all[ranks - 1]);
    MPI_Scatterv_c(mine, counts, places, MPI_DOUBLE, &sum, 1, MPI_DOUBLE, 0, communicator);
    CHECK(sum == rank, "%g", sum);
  }
}
#endif

/* Runs a part of the test on a communicator of its own, which has no operations yet.  The ranks of
 * each have to see `function`, if any, taken so often. */
static void on(MPI_Comm parent, void (*part)(void), const char* function,
               unsigned long long least) {
  MPI_Comm_dup(parent, &communicator);
  rank = rank_in(communicator);
  ranks = ranks_of(communicator);
  const unsigned long long before = function == NULL ? 0 : calls_taken(function);
  part();
  CHECK(function == NULL || ranks == 1 || calls_taken(function) - before >= least,
        "%llu of %s were taken, not %llu", calls_taken(function) - before, function, least);
  MPI_Comm_free(&communicator);
}

static void all_of_it(MPI_Comm parent) {
  const unsigned long long roots = ranks_of(parent) < 3 ? (unsigned)ranks_of(parent) : 3;
  on(parent, allgathers, "MPI_Allgather", 15);
  on(parent, alltoalls, "MPI_Alltoall", 15);
  on(parent, gathers, "MPI_Gather", 9 * roots);
  on(parent, scatters, "MPI_Scatter", 9 * roots);
  on(parent, allgathervs, "MPI_Allgatherv", 27);
  on(parent, reduce_scatters, "MPI_Reduce_scatter", 4 * 9 - 6);
  on(parent, reduce_scatter_blocks, "MPI_Reduce_scatter_block", 3 * 9);
  on(parent, scans, "MPI_Scan", 3 * 9);
  on(parent, scans, "MPI_Exscan", 3 * 9);
  on(parent, framed_blocks, NULL, 0);
  if (ranks_of(MPI_COMM_WORLD) > 3) return; /* where each call takes long */
  on(parent, special_cases, "MPI_Allgatherv", 18);
  on(parent, nothing, NULL, 0);
#if MPI_VERSION >= 4
  on(parent, large_counts, "MPI_Scatterv", 3);
#endif
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  is_verified = argument_count > 1; /* "by_mpi" */
  make_layouts();
  map_type = type_of_maps();
  MPI_Op_create(compose, 0, &composition);
  all_of_it(MPI_COMM_WORLD);
  const int world_rank = rank_in(MPI_COMM_WORLD);
  if (ranks_of(MPI_COMM_WORLD) <= 3) {
    all_of_it(MPI_COMM_SELF);
    /* Parts, whose ranks are in another order; one of them has a single rank. */
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 3 == 0, -world_rank, &part);
    all_of_it(part);
    MPI_Comm_free(&part);
    on(MPI_COMM_WORLD, many_communicators, "MPI_Gatherv", 12);
    if (!is_verified) on(MPI_COMM_WORLD, mistakes, "MPI_Scatterv", 8);
    on(MPI_COMM_WORLD, sizes, "MPI_Alltoall", 4);
    on(MPI_COMM_WORLD, many_lengths, "MPI_Allgather", 40);
    left_to_finalize();
  }
  if (world_rank == 0) printf("%llu allgathers were taken\n", calls_taken("MPI_Allgather"));
  MPI_Op_free(&composition);
  MPI_Type_free(&map_type);
  MPI_Type_free(&spread.type);
  MPI_Type_free(&reversed.type);
  MPI_Finalize();
  return 0;
}
