// Floating-point elements that make every reordering and every carelessness visible.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>

namespace tutti::test {

/// One rank's element: in turn what cancels, is subnormal, a signed zero, a NaN with a payload of
/// the rank's, too large for a sum of two, or of any magnitude.
template <class T>
T adversarial(std::mt19937_64& random, std::uint32_t rank, std::size_t element) {
  using Limits = std::numeric_limits<T>;
  using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const std::uint64_t any = random();
  const T sign = any & 1 ? T{-1} : T{1};
  const T mantissa = T{1} + static_cast<T>(any >> 40) / static_cast<T>(1u << 24);
  switch (element % 7) {
    case 0:
      return rank % 3 == 0 ? T(1e7) * mantissa : rank % 3 == 1 ? T(-1e7) * mantissa : mantissa;
    case 1:
      return sign * Limits::denorm_min() * static_cast<T>(any >> 50);
    case 2:
      return sign * T{0};
    case 3: {
      if (rank % 2 == 0) return mantissa;
      const Word payload = static_cast<Word>(rank + 1) << 2 | (any & 1);
      const Word signed_bit = static_cast<Word>(any >> 1 & 1) << (8 * sizeof(T) - 1);
      return std::bit_cast<T>(std::bit_cast<Word>(Limits::quiet_NaN()) | payload | signed_bit);
    }
    case 4:
      return any % 5 == 0 ? sign * Limits::max() : any % 5 == 1 ? sign * Limits::infinity() : sign;
    case 5:
      return sign * std::ldexp(mantissa, static_cast<int>(any >> 8 & 31) - 16);
    default:
      return sign * mantissa;
  }
}

}  // namespace tutti::test
