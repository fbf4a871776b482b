// The collectives that are taken.  Each function returns whether it took the call, which is then
// done; the caller passes what was not taken to MPI.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "interposer.hpp"

namespace tutti::interposer {

bool take_barrier(MPI_Comm communicator) noexcept;
bool take_allreduce(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                    MPI_Op op, MPI_Comm communicator) noexcept;
bool take_broadcast(void* buffer, std::int64_t count, MPI_Datatype type, int root,
                    MPI_Comm communicator) noexcept;
bool take_reduce(const void* source, void* target, std::int64_t count, MPI_Datatype type, MPI_Op op,
                 int root, MPI_Comm communicator) noexcept;

/// The arguments of the last calls are remembered with their operations, which may go now.
void forget_fast_ways() noexcept;

/// What of the program's buffers this rank reads, and what it writes; nullptr for nothing.
struct Buffers {
  const void* source;
  void* target;
};
Buffers buffers_of(Collective collective, bool is_root, const void* source, void* target) noexcept;

Reason reason_of(Passing passing);

}  // namespace tutti::interposer
