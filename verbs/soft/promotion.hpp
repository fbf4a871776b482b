// TUTTI_SOFT_PROMOTE=1: private memory is moved to a sealed file when it is registered, at the same
// address and with the same contents, so that peers reach it by a shared map.
//
// The setting is opt-in, because programs can notice it: writes of other threads to these pages
// during the registration may be lost; whole pages are moved, with everything else on them; and a
// child of fork then shares them with its parent instead of getting a copy.  Therefore the heap and
// stacks are left alone, and so is everything but anonymous private memory that is readable and
// writable.
#pragma once

#include <cstddef>

#include "tutti/detail/descriptor.hpp"

namespace tutti::verbs::soft {

/// The file that all pages of the range lie in now; empty when they are unchanged, for a `reason`.
/// The descriptor must stay open until the file is found by its mapping.
detail::Descriptor promote(const void* address, std::size_t bytes, const char*& reason);

}  // namespace tutti::verbs::soft
