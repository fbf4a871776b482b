/* An operator of the program's, which does not commute, on a type with a gap that nobody may write:
 * the composition of maps a -> b a + c. */
#ifndef COMPOSITION_H
#define COMPOSITION_H

#include <stddef.h>
#include <string.h>

#include "check.h"

typedef struct {
  double b, c;
  float unused; /* and a gap behind it */
} map;

static inline void compose(void* left, void* right, int* count, MPI_Datatype* type) {
  (void)type;
  const map* first = left;
  map* second = right;
  for (int i = 0; i < *count; ++i) {
    second[i].c = second[i].b * first[i].c + second[i].c;
    second[i].b = second[i].b * first[i].b;
  }
}

/* A new datatype of maps, which the caller frees. */
static inline MPI_Datatype type_of_maps(void) {
  MPI_Datatype members, type;
  const int lengths[] = {2, 1};
  const MPI_Aint places[] = {offsetof(map, b), offsetof(map, unused)};
  const MPI_Datatype types[] = {MPI_DOUBLE, MPI_FLOAT};
  MPI_Type_create_struct(2, lengths, places, types, &members);
  MPI_Type_create_resized(members, 0, sizeof(map), &type);
  MPI_Type_free(&members);
  MPI_Type_commit(&type);
  return type;
}

static inline void fill_gaps(map* maps, int count) {
  memset(maps, 0x55, (size_t)count * sizeof *maps);
}

static inline void check_map(const map* found, const map* expected, const char* what) {
  unsigned gap = 0;
  memcpy(&gap, (const char*)found + offsetof(map, unused) + sizeof(float), sizeof gap);
  CHECK(found->b == expected->b && found->c == expected->c, "%s: %g %g, not %g %g", what, found->b,
        found->c, expected->b, expected->c);
  CHECK(gap == 0x55555555, "%s: the gap holds %x", what, gap);
}

#endif
