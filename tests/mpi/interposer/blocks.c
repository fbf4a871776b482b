/* Collectives of blocks whose lengths all ranks know, and scans: of predefined types, and of types
 * by which ranks lay out one signature in different ways, in place and not, for all roots, with
 * counts that vary, of users' operators, on parts of the world; first left to MPI and then taken.
 * The results are right. */
#include <string.h>

#include "blocks.h"
#include "composition.h"

/* ---- Layouts of blocks of five doubles --------------------------------------------------------
 */
enum { elements = 5 };

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
  }
}
#endif

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
  if (!are_few()) return;
  on(parent, special_cases, "MPI_Allgatherv", 18);
  on(parent, nothing, NULL, 0);
#if MPI_VERSION >= 4
  on(parent, large_counts, "MPI_Allgatherv", 3);
#endif
}

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  make_layouts();
  map_type = type_of_maps();
  MPI_Op_create(compose, 0, &composition);
  on_world_and_parts(all_of_it);
  if (are_few()) {
    on(MPI_COMM_WORLD, sizes, "MPI_Alltoall", 4);
    on(MPI_COMM_WORLD, many_lengths, "MPI_Allgather", 40);
  }
  if (rank_in(MPI_COMM_WORLD) == 0)
    printf("%llu allgathers were taken\n", calls_taken("MPI_Allgather"));
  MPI_Op_free(&composition);
  MPI_Type_free(&map_type);
  MPI_Type_free(&spread.type);
  MPI_Type_free(&reversed.type);
  MPI_Finalize();
  return 0;
}
