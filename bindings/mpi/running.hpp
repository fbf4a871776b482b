// How an operation runs in place of a call: on the program's buffers, or on buffers of its own
// where these cannot be used.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "shape.hpp"
#include "signature.hpp"

namespace tutti::interposer {

/// Runs the shape's operation to its end, and lets MPI go on meanwhile.  A failure ends the job, as
/// MPI does when a rank dies.
void run(Shape& shape, const void* source, void* target, MPI_Comm communicator) noexcept;

/// The same on buffers of the shape, for calls with fewer elements than the operation.  The first
/// `bytes` of `source`, unless it is nullptr, are copied before, and those of `target` after.
void run_staged(Shape& shape, std::size_t bytes, const void* source, void* target,
                MPI_Comm communicator) noexcept;

/// Likewise, where MPI knows how the elements lie.
void run_laid_out(Shape& shape, const Call& call, const void* source, void* target);

/// Room of the shape's for so many bytes.
std::byte* room(std::vector<std::byte>& staging, std::size_t bytes);

/// Copies elements of the program's, wherever they lie, into contiguous room or back.
void copy_elements(const void* from, void* to, const Call& call, bool from_program, bool packed);

}  // namespace tutti::interposer
