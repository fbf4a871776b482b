// Where the registers of an operation are, and what each chunk of it is about.
#pragma once

#include "api/implementation.hpp"

namespace tutti::api {

/// A block of the arena, after waiting a moment for those that neighbours are about to have read;
/// nullptr: no room.
std::byte* allocate_block(Context::Implementation& context, std::size_t bytes);

/// Cuts payload and arena for the operation's plan.  Throws Error{limit_exceeded}.
void lay_out(Operation::Implementation& operation, const OperationRequest& request,
             const Blocks& blocks);

}  // namespace tutti::api
