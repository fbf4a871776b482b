// How an operation runs in place of a call: on the program's buffers, or on buffers of its own
// where these cannot be used.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <vector>

#include "shape.hpp"
#include "signature.hpp"
#include "tutti/status.hpp"
#include "tutti/timeout.hpp"

namespace tutti::interposer {

/// Stands for a buffer that this rank does not have; a null address is one, MPI_BOTTOM.
inline constexpr char no_buffer_there = 0;
inline void* const no_buffer = const_cast<char*>(&no_buffer_there);

/// How long a wait looks at its own messages before it lets MPI go on: partners may need this rank
/// there before they come.
inline constexpr Timeout before_mpi = std::chrono::microseconds(1);
/// How long it looks at them between two turns of MPI.
inline constexpr Timeout between_mpi = std::chrono::microseconds(20);
void end_run_slow(Shape& shape, MPI_Comm communicator, Status status) noexcept;

/// Starts the shape's operation.
inline Status begin(Shape& shape, const void* source, void* target) noexcept {
  Operation& operation = *shape.operation;
  const bool is_same = source == shape.last_source && target == shape.last_target;
  const Status status = is_same ? operation.start() : operation.start(source, target);
  shape.last_source = source;
  shape.last_target = target;
  return status;
}
/// Goes on with what begin() has returned until the operation has ended, and lets MPI go on
/// meanwhile.  A failure ends the job, as MPI does when a rank dies.
inline void end(Shape& shape, MPI_Comm communicator, Status begun) noexcept {
  const Status status = begun == Status::ok ? shape.operation->wait(before_mpi) : begun;
  if (status != Status::ok) [[unlikely]]
    end_run_slow(shape, communicator, status);
}
inline void run(Shape& shape, const void* source, void* target, MPI_Comm communicator) noexcept {
  end(shape, communicator, begin(shape, source, target));
}

/// Runs it on buffers of the shape, for calls with fewer elements than the operation.  The first
/// `bytes` of `source`, unless it is no_buffer, are copied before, and those of `target` after.
void run_staged(Shape& shape, std::size_t bytes, const void* source, void* target,
                MPI_Comm communicator) noexcept;

/// Likewise, where MPI knows how the elements lie.
void run_laid_out(Shape& shape, const Call& call, const void* source, void* target);

/// Room of the shape's for so many bytes.
std::byte* room(std::vector<std::byte>& staging, std::size_t bytes);

/// Copies elements of the program's, wherever they lie, into contiguous room or back.
void copy_elements(const void* from, void* to, const Call& call, bool from_program, bool packed);

}  // namespace tutti::interposer
