// Where the registers of an operation are, and what each chunk of it is about.
#pragma once

#include <cstddef>

#include "runtime/make_operation.hpp"
#include "runtime/operation.hpp"

namespace tutti::runtime {

/// Returns zeroed memory of the arena; nullptr: there is no room.  Waits a moment for operations
/// that are destroyed, and whose messages are still being read.
std::byte* allocate_block(Context::Implementation& context, std::size_t bytes);

/// Cuts payload and arena for the operation's plan.  Throws Error{limit_exceeded}.
void lay_out_memory(Operation::Implementation& operation, const OperationRequest& request,
                    const Completed& completed);

}  // namespace tutti::runtime
