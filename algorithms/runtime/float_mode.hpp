// How this thread rounds: equal bits on all ranks need equal modes.
#pragma once

#include <cfenv>
#include <cstdint>
#include <string>

namespace tutti::runtime {

namespace float_mode_bits {
inline constexpr std::uint32_t rounding = 3;        // 0 nearest, 1 down, 2 up, 3 to zero
inline constexpr std::uint32_t flush_results = 4;   // subnormal results become 0 (FTZ)
inline constexpr std::uint32_t flush_operands = 8;  // subnormal operands count as 0 (DAZ)
}  // namespace float_mode_bits

/// The mode of the calling thread.  Where the processor's control register is not known, it is the
/// rounding mode alone.
inline std::uint32_t float_mode() noexcept {
  std::uint32_t mode = 0;
  switch (std::fegetround()) {
    case FE_DOWNWARD:
      mode = 1;
      break;
    case FE_UPWARD:
      mode = 2;
      break;
    case FE_TOWARDZERO:
      mode = 3;
      break;
    default:
      break;
  }
  std::fenv_t environment;
  std::fegetenv(&environment);
#if defined(__x86_64__)
  mode = environment.__mxcsr >> 13 & 3;  // fegetround() looks at the x87 unit, which nobody uses
  if ((environment.__mxcsr & 0x8000) != 0) mode |= float_mode_bits::flush_results;
  if ((environment.__mxcsr & 0x0040) != 0) mode |= float_mode_bits::flush_operands;
#elif defined(__aarch64__)
  if ((environment.__fpcr >> 24 & 1) != 0)  // FZ stands for both
    mode |= float_mode_bits::flush_results | float_mode_bits::flush_operands;
#endif
  return mode;
}

inline std::string text_of_float_mode(std::uint32_t mode) {
  constexpr const char* roundings[] = {"to nearest", "down", "up", "to zero"};
  std::string text = std::string("rounds ") + roundings[mode & float_mode_bits::rounding];
  if ((mode & float_mode_bits::flush_results) != 0) text += ", flushes subnormal results (FTZ)";
  if ((mode & float_mode_bits::flush_operands) != 0)
    text += ", takes subnormal operands as 0 (DAZ)";
  return text;
}

}  // namespace tutti::runtime
