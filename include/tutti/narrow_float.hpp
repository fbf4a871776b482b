// Floating-point numbers of 16 bits, as elements of reductions: the binary16 of IEEE 754 (half) and
// bfloat16, the upper half of a float.  They hold what std::float16_t and std::bfloat16_t hold, bit
// by bit.  To compute with them, go by way of float, which holds every value of both.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti {

namespace detail {
/// Chooses without a branch, so that loops over it are vectorised.
constexpr std::uint32_t either(bool condition, std::uint32_t one, std::uint32_t other) noexcept {
  const std::uint32_t mask = condition ? ~0u : 0u;
  return (one & mask) | (other & ~mask);
}
}  // namespace detail

/// 1 bit of sign, 5 of exponent, 10 of mantissa: 6e-8 .. 65504.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  /// Rounds to the nearest value, of two to the even one; from 65520 on to infinity.  A NaN becomes
  /// the quiet NaN 0x7e00.  Needs the rounding mode "to nearest" of the floating-point environment.
  explicit constexpr Half(float value) noexcept : bits(rounded(value)) {}
  static constexpr Half from_bits(std::uint16_t bits) noexcept {
    Half half;
    half.bits = bits;
    return half;
  }

  explicit constexpr operator float() const noexcept {
    // The exponent moves from a bias of 15 to a bias of 127.
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    const std::uint32_t finite = magnitude + (112u << 23);
    const std::uint32_t special = magnitude + (224u << 23);  // infinity and NaN
    const float smallest_normal = std::bit_cast<float>(113u << 23);
    const auto subnormal = std::bit_cast<std::uint32_t>(
        std::bit_cast<float>(magnitude + (113u << 23)) - smallest_normal);
    std::uint32_t scaled = detail::either(magnitude >= (31u << 23), special, finite);
    scaled = detail::either(magnitude < (1u << 23), subnormal & 0x7fffffffu, scaled);
    return std::bit_cast<float>(scaled | (bits & 0x8000u) << 16);
  }

  friend constexpr bool operator==(Half left, Half right) noexcept {
    return static_cast<float>(left) == static_cast<float>(right);
  }

 private:
  static constexpr std::uint16_t rounded(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    const std::uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    // The last bit of a sum with 1/2 weighs as much as the last bit of a subnormal half, so the
    // addition rounds.
    const bool is_small = magnitude < (113u << 23);
    const auto small = std::bit_cast<float>(detail::either(is_small, magnitude, 0u));
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(small + 0.5f) - (126u << 23);
    std::uint32_t rounded = detail::either(is_small, subnormal, normal);
    rounded = detail::either(magnitude >= 0x477ff000u, 0x7c00u, rounded);
    rounded = detail::either(magnitude > 0x7f800000u, 0x7e00u, rounded | (word >> 16 & 0x8000u));
    return static_cast<std::uint16_t>(rounded);
  }
};

/// The sign, the 8 bits of exponent and the first 7 of the mantissa of a float.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  /// Rounds to the nearest value, of two to the even one.  A NaN becomes the quiet NaN 0x7fc0.
  explicit constexpr BFloat16(float value) noexcept : bits(rounded(value)) {}
  static constexpr BFloat16 from_bits(std::uint16_t bits) noexcept {
    BFloat16 number;
    number.bits = bits;
    return number;
  }

  explicit constexpr operator float() const noexcept {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }

  friend constexpr bool operator==(BFloat16 left, BFloat16 right) noexcept {
    return static_cast<float>(left) == static_cast<float>(right);
  }

 private:
  static constexpr std::uint16_t rounded(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t nearest = (word + 0x7fffu + (word >> 16 & 1u)) >> 16;
    return static_cast<std::uint16_t>(
        detail::either((word & 0x7fffffffu) > 0x7f800000u, 0x7fc0u, nearest));
  }
};

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2);

}  // namespace tutti
