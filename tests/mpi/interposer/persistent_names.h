/* Persistent collectives by MPI's names, also where Open MPI 4 has them as an extension.
 * HAS_PERSISTENT says whether this MPI has them at all. */
#ifndef PERSISTENT_NAMES_H
#define PERSISTENT_NAMES_H

#include <mpi.h>

#if MPI_VERSION >= 4 || (defined OPEN_MPI && OMPI_MAJOR_VERSION >= 5)
#define HAS_PERSISTENT 1
#elif defined OPEN_MPI && defined __has_include
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
#define HAS_PERSISTENT 1
#define MPI_Barrier_init MPIX_Barrier_init
#define MPI_Allreduce_init MPIX_Allreduce_init
#define MPI_Bcast_init MPIX_Bcast_init
#define MPI_Reduce_init MPIX_Reduce_init
#define MPI_Allgather_init MPIX_Allgather_init
#define MPI_Scan_init MPIX_Scan_init
#endif
#endif
#ifndef HAS_PERSISTENT
#define HAS_PERSISTENT 0
#endif

#endif
