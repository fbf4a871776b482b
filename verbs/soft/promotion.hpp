// TUTTI_SOFT_PROMOTE=1: private memory is moved to a sealed file when it is registered, at the same
// address and with the same contents, so that peers reach it by a shared map.
//
// Opt-in, as programs can notice: what other threads write to these pages during the registration
// may be lost; whole pages are moved, with what else lies on them; and a child of fork shares them
// with its parent from then on, instead of getting a copy.  The heap and stacks are left alone for
// that reason, and so is everything but anonymous private memory that is readable and writable.
#pragma once

#include <cstddef>

#include "tutti/detail/descriptor.hpp"

namespace tutti::verbs::soft {

/// The file that all pages of the range lie in now; empty when they are as they were, for a
/// `reason`. To be kept open until the file is found by its mapping.
detail::Descriptor promote(const void* address, std::size_t bytes, const char*& reason) noexcept;

}  // namespace tutti::verbs::soft
