// What a call is, in MPI's terms, and what is taken of it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include "interposer.hpp"
#include "shape.hpp"

namespace tutti::interposer {

/// A call as the program made it.
struct Call {
  Collective collective;
  const void* source = nullptr;
  void* target = nullptr;
  std::int64_t count = 0;
  MPI_Datatype type{};
  MPI_Op op{};
  int root = 0;
  MPI_Comm communicator{};
};

/// This says what is taken of a call, or why it is left.
struct Signature {
  ShapeKey key = {};
  std::size_t bytes = 0;       // of the call's payload, without gaps
  bool is_predefined = false;  // nothing but the handles decides, so that it can be remembered
  bool is_laid_out = false;    // elements have gaps, or lie anywhere: MPI copies them
  bool is_left = false;
  Reason reason = Reason::undefined;
};

/// Decided by what MPI makes equal on all ranks; but for the root, which is checked where the
/// communicator is known.
Signature signature_of(const Call& call);

constexpr bool is_rooted(Collective collective) noexcept {
  return collective == Collective::broadcast || collective == Collective::reduce;
}

}  // namespace tutti::interposer
