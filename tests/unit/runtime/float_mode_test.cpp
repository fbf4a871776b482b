// Promise: how a thread rounds is read from the processor, and told in words.
#include "runtime/float_mode.hpp"

#include <gtest/gtest.h>

#include <thread>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tutti::runtime {
namespace {

/// In a thread of its own, whose mode nobody else has.
template <class F>
void in_a_thread(F&& body) {
  std::thread thread(body);
  thread.join();
}

TEST(FloatMode, is_zero_by_default) {
  EXPECT_EQ(float_mode(), 0u);
  EXPECT_EQ(text_of_float_mode(0), "rounds to nearest");
}

TEST(FloatMode, sees_rounding) {
  in_a_thread([] {
    std::fesetround(FE_UPWARD);
    EXPECT_EQ(float_mode(), 2u);
    EXPECT_EQ(text_of_float_mode(float_mode()), "rounds up");
  });
  EXPECT_EQ(float_mode(), 0u);
}

#if defined(__x86_64__)
TEST(FloatMode, sees_rounding_of_the_vector_unit_alone) {
  in_a_thread([] {
    _mm_setcsr((_mm_getcsr() & ~0x6000u) | 0x4000);
    EXPECT_EQ(text_of_float_mode(float_mode()), "rounds up");
  });
}

TEST(FloatMode, sees_flushed_subnormals) {
  in_a_thread([] {
    _mm_setcsr(_mm_getcsr() | 0x8000);
    EXPECT_EQ(text_of_float_mode(float_mode()),
              "rounds to nearest, flushes subnormal results (FTZ)");
    _mm_setcsr(_mm_getcsr() | 0x8040);
    EXPECT_EQ(float_mode(), float_mode_bits::flush_results | float_mode_bits::flush_operands);
  });
}
#endif

}  // namespace
}  // namespace tutti::runtime
