/* What the programs of collectives of blocks share.  Each of their parts runs on a communicator of
 * its own, first left to MPI and then taken. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "check.h"

enum { calls = 6 /* the first three are left to MPI */, ranks_max = 8 };
static MPI_Comm communicator;
static int rank, ranks;

/* The roots that are tried: all of few ranks, else the first, the last and one between. */
static inline int next_root(int root) {
  return root + (ranks <= 3 ? 1 : (ranks - 1) / 2 + ((ranks - 1) % 2 && root == 0));
}

/* What rank `from` has for rank `to` as element i. */
static inline double value(int from, int to, int i, int call) {
  return from * 1000 + to * 100 + i + call / 64.0;
}

/* Runs a part of the test on a communicator of its own, which has no operations yet.  The ranks of
 * each have to see `function`, if any, taken so often. */
static inline void on(MPI_Comm parent, void (*part)(void), const char* function,
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

/* With many ranks each call takes long, so that less is tried. */
static inline int are_few(void) {
  return ranks_of(MPI_COMM_WORLD) <= 3;
}

/* Runs on all ranks together.  If these are few, also on each rank alone and on parts of the world,
 * whose ranks are in another order; one of the parts has a single rank. */
static inline void on_world_and_parts(void (*all_of_it)(MPI_Comm)) {
  all_of_it(MPI_COMM_WORLD);
  if (!are_few()) return;
  all_of_it(MPI_COMM_SELF);
  const int world_rank = rank_in(MPI_COMM_WORLD);
  MPI_Comm part;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 3 == 0, -world_rank, &part);
  all_of_it(part);
  MPI_Comm_free(&part);
}

#endif
