/* An MPI that errs, where a program asks for it: of numbers of MPI_SHORT that are passed on, one
 * comes out too large, and some calls it refuses.  It is linked in front of MPI, and
 * libtutti-mpi finds its functions as MPI's own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include <dlfcn.h>
#include <mpi.h>
#include <string.h>

extern int erring_at;
int erring_at = -1; /* in which number of its target this rank's MPI errs; none */
extern int refuses_calls;
int refuses_calls = 0; /* whether this rank's MPI makes no communicator, and starts no MPI_Ibcast */

static void err(int result, void* target, MPI_Datatype type) {
  if (result == MPI_SUCCESS && erring_at >= 0 && type == MPI_SHORT) ++((short*)target)[erring_at];
}

#define ERRING_BY(symbol, parameters, arguments)                  \
  int symbol parameters;                                          \
  int symbol parameters {                                         \
    static int(*next) parameters;                                 \
    if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, #symbol); \
    const int result = next arguments;                            \
    err(result, target, type);                                    \
    return result;                                                \
  }
#define ERRING(name, parameters, arguments)    \
  ERRING_BY(MPI_##name, parameters, arguments) \
  ERRING_BY(PMPI_##name, parameters, arguments)

ERRING(Bcast, (void* target, int count, MPI_Datatype type, int root, MPI_Comm comm),
       (target, count, type, root, comm))
ERRING(Allgather,
       (const void* source, int count, MPI_Datatype source_type, void* target, int target_count,
        MPI_Datatype type, MPI_Comm comm),
       (source, count, source_type, target, target_count, type, comm))
ERRING(Allgatherv,
       (const void* source, int count, MPI_Datatype source_type, void* target, const int counts[],
        const int displacements[], MPI_Datatype type, MPI_Comm comm),
       (source, count, source_type, target, counts, displacements, type, comm))
ERRING(Alltoall,
       (const void* source, int count, MPI_Datatype source_type, void* target, int target_count,
        MPI_Datatype type, MPI_Comm comm),
       (source, count, source_type, target, target_count, type, comm))
ERRING(Alltoallv,
       (const void* source, const int source_counts[], const int source_displacements[],
        MPI_Datatype source_type, void* target, const int counts[], const int displacements[],
        MPI_Datatype type, MPI_Comm comm),
       (source, source_counts, source_displacements, source_type, target, counts, displacements,
        type, comm))
ERRING(Gatherv,
       (const void* source, int count, MPI_Datatype source_type, void* target, const int counts[],
        const int displacements[], MPI_Datatype type, int root, MPI_Comm comm),
       (source, count, source_type, target, counts, displacements, type, root, comm))
ERRING(Scatterv,
       (const void* source, const int counts[], const int displacements[], MPI_Datatype source_type,
        void* target, int target_count, MPI_Datatype type, int root, MPI_Comm comm),
       (source, counts, displacements, source_type, target, target_count, type, root, comm))
ERRING(Gather,
       (const void* source, int count, MPI_Datatype source_type, void* target, int target_count,
        MPI_Datatype type, int root, MPI_Comm comm),
       (source, count, source_type, target, target_count, type, root, comm))
ERRING(Scatter,
       (const void* source, int count, MPI_Datatype source_type, void* target, int target_count,
        MPI_Datatype type, int root, MPI_Comm comm),
       (source, count, source_type, target, target_count, type, root, comm))

/* A nonblocking call: the root sends something else. */
static int err_before(int (*ibcast)(void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*),
                      void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm,
                      MPI_Request* request) {
  static short sent[64];
  if (refuses_calls) return MPI_ERR_OTHER;
  if (erring_at >= 0 && type == MPI_SHORT) {
    memcpy(sent, buffer, (size_t)count * sizeof *sent);
    ++sent[erring_at];
    buffer = sent;
  }
  return ibcast(buffer, count, type, root, comm, request);
}
#define ERRING_BEFORE(symbol)                                                     \
  int symbol(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, \
             MPI_Request* request) {                                              \
    static int (*next)(void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*);    \
    if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, #symbol);                 \
    return err_before(next, buffer, count, type, root, comm, request);            \
  }
ERRING_BEFORE(MPI_Ibcast)
ERRING_BEFORE(PMPI_Ibcast)

/* The other ranks have the communicator. */
#define REFUSING(symbol)                                          \
  int symbol(MPI_Comm comm, int color, int key, MPI_Comm* made) { \
    static int (*next)(MPI_Comm, int, int, MPI_Comm*);            \
    if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, #symbol); \
    const int result = next(comm, color, key, made);              \
    return refuses_calls ? MPI_ERR_OTHER : result;                \
  }
REFUSING(MPI_Comm_split)
REFUSING(PMPI_Comm_split)
