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

/// Decided by what MPI makes equal on all ranks.  Whether the root is a rank, admission says.
Signature signature_of(const Call& call);

/// Bytes of a call's elements, without gaps; 0 where its arguments are wrong.
std::uint64_t payload_of(const Call& call);

}  // namespace tutti::interposer
