// The built-in reductions.  Each is one loop that the compiler vectorises.
//
// Integer sums and products are computed unsigned, so overflow wraps.  Floating-point min and max
// give the same bits in every order: -0 < +0, a NaN wins and becomes the canonical quiet NaN.  A
// NaN that a sum or product gives becomes the canonical one, too: the payload of a CPU's NaN is
// that of one of the operands, and which of them is the compiler's choice, which may differ between
// the body and the ends of a vectorised loop, and hence between buffers of other alignment.
#include "runtime/kernels.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <tutti/detail/names.hpp>
#include <tutti/reduction.hpp>
#include <tutti/status.hpp>
#include <type_traits>

namespace tutti {
namespace {

/// Types of 16 bits, computed in float.  One operation on two of them, rounded to float and then to
/// 16 bits, is rounded correctly: float has more than twice their bits of mantissa, and two more.
template <class T>
concept Narrow = std::same_as<T, Half> || std::same_as<T, BFloat16>;

template <std::floating_point T>
T canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <class T>
T wrap_sum(T left, T right) {
  if constexpr (std::integral<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
  } else {
    return canonical(left + right);
  }
}

template <class T>
T wrap_product(T left, T right) {
  if constexpr (std::integral<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(left) * static_cast<Unsigned>(right));
  } else {
    return canonical(left * right);
  }
}

template <std::floating_point T>
using Word = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

/// Ordered as the values are, with -0 before +0: the words of negative numbers run backwards.  As
/// words, subnormals differ from zero also where the floating-point environment says otherwise
/// (DAZ), and loops over them are vectorised, which they are not over branches.
template <std::floating_point T>
Word<T> place_in_order(T value) {
  const auto word = std::bit_cast<Word<T>>(value);
  return word ^ (word >> (8 * sizeof(T) - 1) & std::numeric_limits<Word<T>>::max());
}

/// One of both, or the canonical NaN if one is a NaN.
template <std::floating_point T>
T chosen(bool takes_left, T left, T right) {
  constexpr auto largest = std::numeric_limits<Word<T>>::max();
  constexpr auto infinity = std::bit_cast<Word<T>>(std::numeric_limits<T>::infinity());
  constexpr auto nan = std::bit_cast<Word<T>>(std::numeric_limits<T>::quiet_NaN());
  const auto left_word = std::bit_cast<Word<T>>(left), right_word = std::bit_cast<Word<T>>(right);
  const auto mask = [](bool condition) { return -static_cast<Word<T>>(condition); };
  const Word<T> is_nan =
      mask((left_word & largest) > infinity) | mask((right_word & largest) > infinity);
  const Word<T> value = (left_word & mask(takes_left)) | (right_word & ~mask(takes_left));
  return std::bit_cast<T>((value & ~is_nan) | (nan & is_nan));
}

template <class T>
T least(T left, T right) {
  if constexpr (std::floating_point<T>)
    return chosen(place_in_order(left) < place_in_order(right), left, right);
  else
    return right < left ? right : left;
}

template <class T>
T greatest(T left, T right) {
  if constexpr (std::floating_point<T>)
    return chosen(place_in_order(left) > place_in_order(right), left, right);
  else
    return left < right ? right : left;
}

template <BuiltIn which, class T>
T apply_wide(T left, T right) {
  if constexpr (which == BuiltIn::sum) return wrap_sum(left, right);
  if constexpr (which == BuiltIn::product) return wrap_product(left, right);
  if constexpr (which == BuiltIn::min) return least(left, right);
  if constexpr (which == BuiltIn::max) return greatest(left, right);
  if constexpr (std::integral<T>) {
    if constexpr (which == BuiltIn::bit_and) return left & right;
    if constexpr (which == BuiltIn::bit_or) return left | right;
    if constexpr (which == BuiltIn::bit_xor) return left ^ right;
    if constexpr (which == BuiltIn::logical_and) return static_cast<T>(left != 0 && right != 0);
    if constexpr (which == BuiltIn::logical_or) return static_cast<T>(left != 0 || right != 0);
  }
}

/// Inlined whatever its size: a loop with a call is not vectorised.
template <BuiltIn which, class T>
[[gnu::always_inline]] inline T apply(T left, T right) {
  if constexpr (Narrow<T>)
    return T(apply_wide<which, float>(static_cast<float>(left), static_cast<float>(right)));
  else
    return apply_wide<which, T>(left, right);
}

/// Takes `incoming` out of `partial`.  There is an inverse only where it gives back exactly what
/// was there before: not for floating-point sums, which round, nor for products, which may be 0.
template <BuiltIn which, class T>
constexpr bool has_inverse = std::integral<T> &&
                             (which == BuiltIn::sum || which == BuiltIn::bit_xor);

template <BuiltIn which, class T>
T apply_inverse(T taken, T whole) {
  if constexpr (which == BuiltIn::bit_xor) return whole ^ taken;
  using Unsigned = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<Unsigned>(whole) - static_cast<Unsigned>(taken));
}

#if defined(__x86_64__)
/// The loop of elementwise() for CPUs with wider vectors than the architecture's least: the same
/// operations on every element, hence the same bits.  Writes whole lines: a user's large array
/// usually begins 16 bytes into one, and then every other vector would lie in two.
template <BuiltIn which, class T>
[[gnu::always_inline]] inline void combine_lines(const void* incoming, void* partial,
                                                 std::size_t element_count) noexcept {
  const T* left = static_cast<const T*>(incoming);
  T* right = static_cast<T*>(partial);
  constexpr std::size_t line_bytes = 64;
  const std::size_t to_line = -reinterpret_cast<std::uintptr_t>(right) % line_bytes / sizeof(T);
  const std::size_t head = element_count < to_line ? element_count : to_line;
  std::size_t i = 0;
  for (; i < head; ++i) right[i] = apply<which, T>(left[i], right[i]);
  for (; i < element_count; ++i) right[i] = apply<which, T>(left[i], right[i]);
}

template <BuiltIn which, class T>
[[gnu::target("avx2")]] void combine_by_avx2(const void* incoming, void* partial,
                                             std::size_t element_count, void*) noexcept {
  combine_lines<which, T>(incoming, partial, element_count);
}

#if defined(__clang__)
#define TUTTI_TARGET_AVX512 \
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), clang::min_vector_width(512)]]
#else
#define TUTTI_TARGET_AVX512 \
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]]
#endif

template <BuiltIn which, class T>
TUTTI_TARGET_AVX512 void combine_by_avx512(const void* incoming, void* partial,
                                           std::size_t element_count, void*) noexcept {
  combine_lines<which, T>(incoming, partial, element_count);
}

/// result = incoming o own.  Whole lines of the result, as in combine_lines().
template <BuiltIn which, class T>
[[gnu::always_inline]] inline void combine_lines_apart(const void* incoming, const void* own,
                                                       void* result,
                                                       std::size_t element_count) noexcept {
  const T* left = static_cast<const T*>(incoming);
  const T* right = static_cast<const T*>(own);
  T* __restrict into = static_cast<T*>(result);
  constexpr std::size_t line_bytes = 64;
  const std::size_t to_line = -reinterpret_cast<std::uintptr_t>(into) % line_bytes / sizeof(T);
  const std::size_t head = element_count < to_line ? element_count : to_line;
  std::size_t i = 0;
  for (; i < head; ++i) into[i] = apply<which, T>(left[i], right[i]);
  for (; i < element_count; ++i) into[i] = apply<which, T>(left[i], right[i]);
}

template <BuiltIn which, class T>
[[gnu::target("avx2")]] void combine_apart_by_avx2(const void* incoming, const void* own,
                                                   void* result,
                                                   std::size_t element_count) noexcept {
  combine_lines_apart<which, T>(incoming, own, result, element_count);
}

template <BuiltIn which, class T>
TUTTI_TARGET_AVX512 void combine_apart_by_avx512(const void* incoming, const void* own,
                                                 void* result, std::size_t element_count) noexcept {
  combine_lines_apart<which, T>(incoming, own, result, element_count);
}

/// Not used on the first CPUs that have such vectors, because their clock drops meanwhile.  CPUs
/// with VBMI2 keep their clock.
bool has_fast_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vbmi2");
}

/// __builtin_cpu_supports() of Clang 14 does not know it.
bool cpu_converts_halves() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/// Combines halves by the CPU's own conversions.  They round as Half does, whatever the
/// floating-point environment says of subnormals, and what is computed holds no NaN but the
/// canonical one: hence the same bits.
template <BuiltIn which>
[[gnu::target("avx2,f16c")]] void combine_by_f16c(const void* incoming, void* partial,
                                                  std::size_t element_count, void*) noexcept {
  const Half* left = static_cast<const Half*>(incoming);
  Half* right = static_cast<Half*>(partial);
  constexpr std::size_t width = 8, block = 64;  // a loop over a block is vectorised
  const auto widened = [](const Half* from, float* into) __attribute__((target("avx2,f16c"))) {
    const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    _mm256_storeu_ps(into, _mm256_cvtph_ps(narrow));
  };
  std::size_t i = 0;
  for (; i + block <= element_count; i += block) {
    float lefts[block], rights[block];
    for (std::size_t k = 0; k < block; k += width) {
      widened(left + i + k, lefts + k);
      widened(right + i + k, rights + k);
    }
    for (std::size_t k = 0; k < block; ++k)
      rights[k] = apply_wide<which, float>(lefts[k], rights[k]);
    for (std::size_t k = 0; k < block; k += width) {
      const __m128i narrow =
          _mm256_cvtps_ph(_mm256_loadu_ps(rights + k), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(right + i + k), narrow);
    }
  }
  for (; i < element_count; ++i) right[i] = apply<which, Half>(left[i], right[i]);
}
#endif

constexpr bool is_idempotent(BuiltIn which) {
  // Logical operators too: x && x is 1, not x, but once two ranks were combined only the truth of
  // each contribution counts.
  return which == BuiltIn::min || which == BuiltIn::max || which == BuiltIn::bit_and ||
         which == BuiltIn::bit_or || which == BuiltIn::logical_and || which == BuiltIn::logical_or;
}

template <BuiltIn which, class T>
Reduction make() {
  constexpr ElementType type = element_type_of<T>();
  if constexpr (!defined_for(which, type)) {
    throw Error(ErrorCode::invalid_argument, std::string("operator ") + name_of(which) +
                                                 " is not defined for " + name_of(type) +
                                                 "; floating point has sum, prod, min, max");
  } else {
    Reduction reduction =
        elementwise<T, apply<which, T>>({.commutative = true, .idempotent = is_idempotent(which)});
#if defined(__x86_64__)
    static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
    if (has_avx2) reduction.combine = combine_by_avx2<which, T>;
    static const bool has_avx512 = has_fast_avx512();
    if (has_avx512) reduction.combine = combine_by_avx512<which, T>;
    if constexpr (std::same_as<T, Half>) {
      static const bool has_f16c = has_avx2 && cpu_converts_halves();
      if (has_f16c) reduction.combine = combine_by_f16c<which>;
    }
#endif
    reduction.built_in = which;
    reduction.element_type = type;
    if constexpr (has_inverse<which, T>)
      reduction.inverse = elementwise<T, apply_inverse<which, T>>({}).combine;
    return reduction;
  }
}

#if defined(__x86_64__)
template <BuiltIn which, class T>
runtime::CombineApart apart_from(CombineFunction combine) {
  if constexpr (defined_for(which, element_type_of<T>()) && !Narrow<T>) {
    if (combine == combine_by_avx512<which, T>) return combine_apart_by_avx512<which, T>;
    if (combine == combine_by_avx2<which, T>) return combine_apart_by_avx2<which, T>;
  }
  return nullptr;  // the operator has been changed, or has no such form
}
#endif

/// Calls f<which>() for the one of these operators that is asked for.
template <BuiltIn... which, class F>
void for_operator(BuiltIn asked, F&& f) {
  static_assert(sizeof...(which) + 1 == detail::enumerators<BuiltIn::logical_or>.size());
  (void)((asked == which && (f.template operator()<which>(), true)) || ...);
}

/// Calls f<T>() for the one of these types that is asked for.
template <class... T, class F>
void for_type(ElementType asked, F&& f) {
  static_assert(sizeof...(T) + 1 == detail::enumerators<ElementType::bfloat16>.size());
  (void)((asked == element_type_of<T>() && (f.template operator()<T>(), true)) || ...);
}

/// What f<which, T>() returns for a built-in reduction; an empty Result for any other.
template <class Result, class F>
Result of_built_in(BuiltIn asked, ElementType type, F&& f) {
  Result result{};
  for_type<std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float, double, Half, BFloat16>(
      type, [&]<class T>() {
        for_operator<BuiltIn::sum, BuiltIn::product, BuiltIn::min, BuiltIn::max, BuiltIn::bit_and,
                     BuiltIn::bit_or, BuiltIn::bit_xor, BuiltIn::logical_and, BuiltIn::logical_or>(
            asked, [&]<BuiltIn which>() { result = f.template operator()<which, T>(); });
      });
  return result;
}

}  // namespace

runtime::CombineApart runtime::combine_apart([[maybe_unused]] const Reduction& reduction) noexcept {
#if defined(__x86_64__)
  return of_built_in<CombineApart>(
      reduction.built_in, reduction.element_type,
      [&]<BuiltIn which, class T>() { return apart_from<which, T>(reduction.combine); });
#else
  return nullptr;
#endif
}

Reduction built_in_reduction(BuiltIn which, ElementType type) {
  if (which == BuiltIn::none)
    throw Error(ErrorCode::invalid_argument, "BuiltIn::none is not an operator");
  if (type == ElementType::other)
    throw Error(ErrorCode::invalid_argument, "ElementType::other has no built-in operators");
  return of_built_in<Reduction>(which, type,
                                []<BuiltIn each, class T>() { return make<each, T>(); });
}

}  // namespace tutti
