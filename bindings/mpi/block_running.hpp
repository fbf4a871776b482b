// How an operation runs in place of a call with blocks: on the program's buffers where blocks lie
// there as the operation has them, else on buffers of the shape.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "block_signature.hpp"
#include "shape.hpp"
#include "tutti/communicator.hpp"
#include "tutti/operation.hpp"

namespace tutti::interposer {

/// The operation of a shape with blocks.
Operation make_block_operation(Communicator& communicator, Shape& shape);

/// This holds all that is known of a call but its buffers.
struct BlockWay {
  Shape* shape = nullptr;
  Place place = {};
  std::size_t bytes = 0;     // of the blocks of all ranks
  bool is_root = false;      // of a gather or scatter
  bool uses_source = false;  // blocks of the source are read where they lie
  bool uses_target = false;  // blocks of the target are written where they lie
};
BlockWay way_of(const BlockCall& call, const BlockSignature& signature, const Place& place,
                Shape& shape);

void run_blocks(const BlockWay& way, const BlockCall& call);

}  // namespace tutti::interposer
