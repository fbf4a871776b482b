// A reduction is a function on raw bytes, and the properties that may be assumed of it.  The
// built-in operators are tags (tutti::sum, tutti::min, ...) that turn into a Reduction for an
// element type; a user's own operator is elementwise<T, function>(properties), or a Reduction
// filled in by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tutti/export.hpp"
#include "tutti/narrow_float.hpp"

namespace tutti {

/// Combines `incoming` into `partial`, in place: partial[i] = incoming[i] o partial[i].  `incoming`
/// is the LEFT operand (as in MPI_User_function): it holds the contributions of the lower ranks.
/// Must not block, throw or call the library, but for fail().
using CombineFunction = void (*)(const void* incoming, void* partial, std::size_t element_count,
                                 void* context) noexcept;

/// Called by a user's operator, from within its combine or inverse function, that cannot combine
/// what it was given: the collective fails, instead of giving a wrong result.  `context` is that of
/// the operator, with which the function was called; `text` says why, and is cut to 95 bytes.  The
/// function returns normally after it, and is not called again in this call.
///
/// Every rank whose result needs the operands gets Status::aborted, and its communicator fails.
/// Failure names this rank, the operation and, on this rank's host, the text.  A rank whose result
/// does not need the operands may complete this call with the right result; it gets
/// Status::aborted in a later call.
TUTTI_EXPORT void fail(void* context, const char* text) noexcept;

struct OperatorProperties {
  bool commutative = false;
  bool idempotent = false;  // min, max, and, or: contributions may enter more than once
  bool exact = false;  // it never rounds: however operands are associated, the bits are the same
};

/// What floating-point results promise, if all ranks round alike (rounding mode and treatment of
/// subnormals, which are compared at CheckLevel::collective).  Integers, and/or/xor, min and max
/// always agree.
enum class Agreement : std::uint8_t {
  identical,     // all ranks get the same bits in one call
  reproducible,  // also the same bits for every algorithm, n, node shape, placement and run
  relaxed,       // fastest; ranks and runs may differ in the last bits
};

enum class BuiltIn : std::uint8_t {
  none,  // a user's operator
  sum,
  product,
  min,
  max,
  bit_and,
  bit_or,
  bit_xor,
  logical_and,
  logical_or,
};

enum class ElementType : std::uint8_t {
  other,
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  float16,   // Half
  bfloat16,  // BFloat16
};

struct Reduction {  // raw form
  CombineFunction combine = nullptr;
  CombineFunction inverse = nullptr;  // takes `incoming` out of `partial`, which contains it: for
                                      // Algorithm::nway_inverse; nullptr if there is none
  void* context = nullptr;            // borrowed; must outlive every operation that uses it
  std::uint32_t element_bytes = 0;
  OperatorProperties properties = {};
  BuiltIn built_in = BuiltIn::none;  // identity of a built-in kernel, compared across ranks
  ElementType element_type = ElementType::other;
};

constexpr bool is_floating(ElementType type) noexcept {
  return type == ElementType::float32 || type == ElementType::float64 ||
         type == ElementType::float16 || type == ElementType::bfloat16;
}

/// Whether the operator is defined for the type: bitwise and logical ones are for integers only.
constexpr bool defined_for(BuiltIn which, ElementType type) noexcept {
  if (type == ElementType::other || which == BuiltIn::none) return false;
  return !is_floating(type) || which == BuiltIn::sum || which == BuiltIn::product ||
         which == BuiltIn::min || which == BuiltIn::max;
}

/// The built-in kernel.  Integer overflow wraps.  Floating-point min and max: -0 < +0.  A NaN wins
/// and becomes the canonical quiet NaN wherever two values are combined, in sums and products, too,
/// so that every rank gets the same bits.  No fused multiply-add.  Half and BFloat16: each
/// combination of two is computed in float and rounded, which is the correctly rounded result.
/// Logical operators yield 0 or 1.  Throws Error{invalid_argument} where defined_for() says no.
TUTTI_EXPORT Reduction built_in_reduction(BuiltIn which, ElementType type);

template <class T>
concept Element = std::is_trivially_copyable_v<T>;

/// The ElementType of a C++ type, by representation: `long` is int64 here.
template <Element T>
constexpr ElementType element_type_of() noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    if constexpr (sizeof(T) == 4) return ElementType::float32;
    if constexpr (sizeof(T) == 8) return ElementType::float64;
  } else if constexpr (std::is_same_v<T, Half>) {
    return ElementType::float16;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return ElementType::bfloat16;
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if constexpr (sizeof(T) == 4)
      return std::is_signed_v<T> ? ElementType::int32 : ElementType::uint32;
    if constexpr (sizeof(T) == 8)
      return std::is_signed_v<T> ? ElementType::int64 : ElementType::uint64;
  }
  return ElementType::other;
}

template <BuiltIn which>
struct BuiltInOperator {};

inline constexpr BuiltInOperator<BuiltIn::sum> sum{};
inline constexpr BuiltInOperator<BuiltIn::product> product{};
inline constexpr BuiltInOperator<BuiltIn::min> min{};
inline constexpr BuiltInOperator<BuiltIn::max> max{};
inline constexpr BuiltInOperator<BuiltIn::bit_and> bit_and{};
inline constexpr BuiltInOperator<BuiltIn::bit_or> bit_or{};
inline constexpr BuiltInOperator<BuiltIn::bit_xor> bit_xor{};
inline constexpr BuiltInOperator<BuiltIn::logical_and> logical_and{};
inline constexpr BuiltInOperator<BuiltIn::logical_or> logical_or{};

/// An operator made of `function(left, right)` on single elements, applied in rank order:
/// elementwise<double, hypot2>({.commutative = true}).  `function` must not throw.  An inverse is
/// set afterwards: reduction.inverse = elementwise<double, take_out>({}).combine.
template <Element T, T (*function)(T left, T right)>
Reduction elementwise(OperatorProperties properties) {
  return {.combine =
              [](const void* incoming, void* partial, std::size_t element_count, void*) noexcept {
                const T* left = static_cast<const T*>(incoming);
                T* right = static_cast<T*>(partial);
                for (std::size_t i = 0; i < element_count; ++i)
                  right[i] = function(left[i], right[i]);
              },
          .element_bytes = sizeof(T),
          .properties = properties,
          .element_type = element_type_of<T>()};
}

}  // namespace tutti
