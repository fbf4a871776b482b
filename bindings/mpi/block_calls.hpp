// The collectives of blocks of which all ranks know how long they are (the others: framed_blocks).
// Each function returns whether it took the call, as in calls.hpp.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "shape.hpp"

namespace tutti::interposer {

bool take_allgather(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                    void* target, std::int64_t target_count, MPI_Datatype target_type,
                    MPI_Comm communicator) noexcept;
bool take_alltoall(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                   void* target, std::int64_t target_count, MPI_Datatype target_type,
                   MPI_Comm communicator) noexcept;
bool take_gather(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                 void* target, std::int64_t target_count, MPI_Datatype target_type, int root,
                 MPI_Comm communicator) noexcept;
bool take_scatter(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                  void* target, std::int64_t target_count, MPI_Datatype target_type, int root,
                  MPI_Comm communicator) noexcept;
bool take_allgatherv(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                     void* target, const int* counts, const int* displacements,
                     MPI_Datatype target_type, MPI_Comm communicator) noexcept;
bool take_allgatherv_c(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                       void* target, const MPI_Count* counts, const MPI_Aint* displacements,
                       MPI_Datatype target_type, MPI_Comm communicator) noexcept;
bool take_reduce_scatter(const void* source, void* target, const int* counts, MPI_Datatype type,
                         MPI_Op op, MPI_Comm communicator) noexcept;
bool take_reduce_scatter_c(const void* source, void* target, const MPI_Count* counts,
                           MPI_Datatype type, MPI_Op op, MPI_Comm communicator) noexcept;
bool take_reduce_scatter_block(const void* source, void* target, std::int64_t count,
                               MPI_Datatype type, MPI_Op op, MPI_Comm communicator) noexcept;

/// As forget_fast_ways(), which calls it.
void forget_fast_ways_of_blocks() noexcept;

}  // namespace tutti::interposer
