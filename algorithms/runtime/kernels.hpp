// Built-in reductions in a form that users' do not have: the result goes to a third place.
#pragma once

#include <cstddef>
#include <tutti/reduction.hpp>

namespace tutti::runtime {

/// result = incoming o own, with the bits of Reduction::combine.  Neither operand overlaps the
/// result.
using CombineApart = void (*)(const void* incoming, const void* own, void* result,
                              std::size_t element_count) noexcept;

/// Null for users' operators, for types of 16 bits, and where the CPU has no wide vectors.
CombineApart combine_apart(const Reduction& reduction) noexcept;

}  // namespace tutti::runtime
