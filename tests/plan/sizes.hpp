// How far the exhaustive tests of plans go: under the address sanitizer, where the same code is
// looked at for something else, less far.
#pragma once

#include <cstdint>

namespace tutti::plan::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::uint32_t every_rank_count_up_to = 16;
inline constexpr int samples_divisor = 8;
#else
inline constexpr std::uint32_t every_rank_count_up_to = 128;
inline constexpr int samples_divisor = 1;
#endif

/// The most ranks that a quick test goes up to.
constexpr std::uint32_t up_to(std::uint32_t rank_count) {
  return samples_divisor == 1 ? rank_count : rank_count / 4;
}

constexpr int samples(int count) {
  return (count + samples_divisor - 1) / samples_divisor;
}

}  // namespace tutti::plan::test
