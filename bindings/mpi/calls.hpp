// The collectives that are taken.  Each function returns whether it took the call, which is then
// done; the caller passes what was not taken to MPI.  take_again_X() takes a call only if its
// arguments are those of the last one of its kind, which costs nothing to find out.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include "interposer.hpp"

namespace tutti::interposer {

struct CallCounts;
struct Shape;

/// The arguments of a call that was taken, and what does it.  A call with the same ones is taken
/// without looking anything up.
struct FastWay {
  MPI_Comm communicator{};
  MPI_Datatype type{};
  MPI_Op op{};
  std::int64_t count = -1;
  int root = 0;
  Shape* shape = nullptr;
  CallCounts* counts = nullptr;
  std::size_t bytes = 0;   // of the call's payload
  bool is_staged = false;  // the operation has more elements than the call
  bool is_root = false;

  bool matches(std::int64_t its_count, MPI_Datatype its_type, MPI_Op its_op, int its_root,
               MPI_Comm its_communicator) const noexcept {
    return communicator == its_communicator && count == its_count && type == its_type &&
           op == its_op && root == its_root;
  }
};
struct FastWays {
  FastWay barrier, allreduce, broadcast, reduce, scan, exscan;
};
extern constinit FastWays last_calls;

void run_last_barrier() noexcept;
void run_last_allreduce(const void* source, void* target) noexcept;
void run_last_broadcast(void* buffer) noexcept;
void run_last_reduce(const void* source, void* target) noexcept;

inline bool take_again_barrier(MPI_Comm communicator) noexcept {
  const FastWay& last = last_calls.barrier;
  if (last.communicator != communicator || last.count != 0) return false;
  run_last_barrier();
  return true;
}
inline bool take_again_allreduce(const void* source, void* target, std::int64_t count,
                                 MPI_Datatype type, MPI_Op op, MPI_Comm communicator) noexcept {
  if (!last_calls.allreduce.matches(count, type, op, 0, communicator)) return false;
  run_last_allreduce(source, target);
  return true;
}
inline bool take_again_broadcast(void* buffer, std::int64_t count, MPI_Datatype type, int root,
                                 MPI_Comm communicator) noexcept {
  if (!last_calls.broadcast.matches(count, type, MPI_Op{}, root, communicator)) return false;
  run_last_broadcast(buffer);
  return true;
}
inline bool take_again_reduce(const void* source, void* target, std::int64_t count,
                              MPI_Datatype type, MPI_Op op, int root,
                              MPI_Comm communicator) noexcept {
  if (!last_calls.reduce.matches(count, type, op, root, communicator)) return false;
  run_last_reduce(source, target);
  return true;
}

bool take_barrier(MPI_Comm communicator) noexcept;
bool take_allreduce(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                    MPI_Op op, MPI_Comm communicator) noexcept;
bool take_broadcast(void* buffer, std::int64_t count, MPI_Datatype type, int root,
                    MPI_Comm communicator) noexcept;
bool take_reduce(const void* source, void* target, std::int64_t count, MPI_Datatype type, MPI_Op op,
                 int root, MPI_Comm communicator) noexcept;

bool take_scan(const void* source, void* target, std::int64_t count, MPI_Datatype type, MPI_Op op,
               MPI_Comm communicator) noexcept;
bool take_exscan(const void* source, void* target, std::int64_t count, MPI_Datatype type, MPI_Op op,
                 MPI_Comm communicator) noexcept;

/// The arguments of the last calls are remembered with their operations, which may go now.
void forget_fast_ways() noexcept;

/// What of the program's buffers this rank reads, and what it writes; no_buffer for nothing.
struct Buffers {
  const void* source;
  void* target;
};
Buffers buffers_of(Collective collective, bool is_root, const void* source, void* target) noexcept;

}  // namespace tutti::interposer
