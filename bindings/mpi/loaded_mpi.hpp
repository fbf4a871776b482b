// The MPI that the process has loaded, found at run time: the interposer links no MPI, so that it
// can be preloaded into programs without one.
#pragma once

#include <mpi.h>
#if defined OPEN_MPI && OMPI_MAJOR_VERSION < 5 && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

// What the interposer takes, and passes on where it does not.
#define TUTTI_MPI_TAKEN(X) \
  X(Allreduce)             \
  X(Barrier)               \
  X(Bcast)                 \
  X(Reduce)                \
  X(Allgather)             \
  X(Allgatherv)            \
  X(Alltoall)              \
  X(Alltoallv)             \
  X(Gather)                \
  X(Gatherv)               \
  X(Scatter)               \
  X(Scatterv)              \
  X(Reduce_scatter)        \
  X(Reduce_scatter_block)  \
  X(Scan)                  \
  X(Exscan)                \
  X(Iallreduce)            \
  X(Ibarrier)              \
  X(Ibcast)                \
  X(Ireduce)               \
  X(Start)                 \
  X(Startall)              \
  X(Request_free)          \
  X(Wait)                  \
  X(Waitall)               \
  X(Cancel)                \
  X(Op_free)               \
  X(Type_free)             \
  X(Init)                  \
  X(Init_thread)           \
  X(Finalize)
// By which a program gives a communicator info.
#define TUTTI_MPI_INFORMS(X) \
  X(Comm_dup_with_info)      \
  X(Comm_set_info)           \
  X(Comm_split_type)
// The forms with large counts, of MPI 4.
#if MPI_VERSION >= 4
#define TUTTI_MPI_TAKEN_LARGE(X) \
  X(Allreduce_c)                 \
  X(Bcast_c)                     \
  X(Reduce_c)                    \
  X(Allgather_c)                 \
  X(Allgatherv_c)                \
  X(Alltoall_c)                  \
  X(Alltoallv_c)                 \
  X(Gather_c)                    \
  X(Gatherv_c)                   \
  X(Scatter_c)                   \
  X(Scatterv_c)                  \
  X(Reduce_scatter_c)            \
  X(Reduce_scatter_block_c)      \
  X(Scan_c)                      \
  X(Exscan_c)                    \
  X(Iallreduce_c)                \
  X(Ibcast_c)                    \
  X(Ireduce_c)
#else
#define TUTTI_MPI_TAKEN_LARGE(X)
#endif
// Persistent collectives, which Open MPI 4 has as an extension.
#if MPI_VERSION >= 4 || (defined OPEN_MPI && OMPI_MAJOR_VERSION >= 5)
#define TUTTI_MPI_INIT_PREFIX MPI
#elif defined OMPI_HAVE_MPI_EXT_PCOLLREQ
#define TUTTI_MPI_INIT_PREFIX MPIX
#endif
#ifdef TUTTI_MPI_INIT_PREFIX
#define TUTTI_MPI_INIT(X)      \
  X(Barrier_init)              \
  X(Allreduce_init)            \
  X(Bcast_init)                \
  X(Reduce_init)               \
  X(Allgather_init)            \
  X(Allgatherv_init)           \
  X(Alltoall_init)             \
  X(Alltoallv_init)            \
  X(Alltoallw_init)            \
  X(Gather_init)               \
  X(Gatherv_init)              \
  X(Scatter_init)              \
  X(Scatterv_init)             \
  X(Reduce_scatter_init)       \
  X(Reduce_scatter_block_init) \
  X(Scan_init)                 \
  X(Exscan_init)
#else
#define TUTTI_MPI_INIT(X)
#endif
#if MPI_VERSION >= 4
#define TUTTI_MPI_INIT_LARGE(X)  \
  X(Allreduce_init_c)            \
  X(Bcast_init_c)                \
  X(Reduce_init_c)               \
  X(Allgather_init_c)            \
  X(Allgatherv_init_c)           \
  X(Alltoall_init_c)             \
  X(Alltoallv_init_c)            \
  X(Alltoallw_init_c)            \
  X(Gather_init_c)               \
  X(Gatherv_init_c)              \
  X(Scatter_init_c)              \
  X(Scatterv_init_c)             \
  X(Reduce_scatter_init_c)       \
  X(Reduce_scatter_block_init_c) \
  X(Scan_init_c)                 \
  X(Exscan_init_c)
#else
#define TUTTI_MPI_INIT_LARGE(X)
#endif
// It calls them itself where the program has called a form with large counts.
#if MPI_VERSION >= 4
#define TUTTI_MPI_USED_LARGE(X) \
  X(Recv_c)                     \
  X(Send_c)                     \
  X(Sendrecv_c)
#else
#define TUTTI_MPI_USED_LARGE(X)
#endif
// What it calls itself.
#define TUTTI_MPI_USED(X)  \
  X(Abort)                 \
  X(Comm_call_errhandler)  \
  X(Comm_create_keyval)    \
  X(Comm_free)             \
  X(Comm_free_keyval)      \
  X(Comm_get_errhandler)   \
  X(Comm_get_name)         \
  X(Comm_group)            \
  X(Comm_rank)             \
  X(Comm_set_attr)         \
  X(Comm_set_errhandler)   \
  X(Comm_set_name)         \
  X(Comm_size)             \
  X(Comm_split)            \
  X(Comm_test_inter)       \
  X(Errhandler_free)       \
  X(Grequest_complete)     \
  X(Grequest_start)        \
  X(Group_free)            \
  X(Group_translate_ranks) \
  X(Info_get)              \
  X(Op_commutative)        \
  X(Pack)                  \
  X(Query_thread)          \
  X(Recv)                  \
  X(Recv_init)             \
  X(Reduce_local)          \
  X(Send)                  \
  X(Sendrecv)              \
  X(Status_set_cancelled)  \
  X(Status_set_elements)   \
  X(Test)                  \
  X(Type_commit)           \
  X(Type_create_hindexed)  \
  X(Type_get_contents)     \
  X(Type_get_envelope)     \
  X(Type_get_extent)       \
  X(Type_get_name)         \
  X(Type_get_true_extent)  \
  X(Type_size)             \
  X(Unpack)

namespace tutti::interposer {

/// Functions of one name each: below.Allreduce is MPI_Allreduce of whoever comes after this
/// library.
struct MpiFunctions {
#define TUTTI_MPI_MEMBER(name) decltype(&MPI_##name) name = nullptr;
#define TUTTI_MPI_JOINED(prefix, name) prefix##_##name
#define TUTTI_MPI_NAMED(prefix, name) TUTTI_MPI_JOINED(prefix, name)
#define TUTTI_MPI_INIT_MEMBER(name) \
  decltype(&TUTTI_MPI_NAMED(TUTTI_MPI_INIT_PREFIX, name)) name = nullptr;
  TUTTI_MPI_TAKEN(TUTTI_MPI_MEMBER)
  TUTTI_MPI_INIT(TUTTI_MPI_INIT_MEMBER)
  TUTTI_MPI_INIT_LARGE(TUTTI_MPI_MEMBER)
  TUTTI_MPI_TAKEN_LARGE(TUTTI_MPI_MEMBER)
  TUTTI_MPI_INFORMS(TUTTI_MPI_MEMBER)
  TUTTI_MPI_USED(TUTTI_MPI_MEMBER)
  TUTTI_MPI_USED_LARGE(TUTTI_MPI_MEMBER)
#undef TUTTI_MPI_MEMBER
#undef TUTTI_MPI_INIT_MEMBER
};

/// By MPI's own names (PMPI_...), and by the names that a tool between this library and MPI may
/// have taken (MPI_...).  Looked up when they are first asked for; if no MPI is loaded the process
/// is ended with a sentence, because only a call of MPI leads here.
const MpiFunctions& own_mpi();
const MpiFunctions& next_mpi();

/// The address of a symbol of the loaded MPI; nullptr if it has none of this name.
void* function_of_mpi(const char* name);
void* variable_of_mpi(const char* name);

/// Whether the process has loaded one.
bool is_mpi_loaded();

/// Whether the loaded MPI is of the kind (Open MPI or MPICH) that this library was built for.
bool is_expected_mpi();

/// Makes progress on what MPI has in flight.
void progress_mpi();

/// "Open MPI" or "MPICH": what this library was built for.
extern const char* const expected_mpi;

}  // namespace tutti::interposer
