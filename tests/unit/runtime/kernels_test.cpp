// Promise: every built-in operator on every type is what docs/guarantees.md says, in every order.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tutti/detail/names.hpp>
#include <tutti/reduction.hpp>
#include <tutti/status.hpp>
#include <vector>

#include "runtime/kernels.hpp"

namespace tutti {
namespace {

template <class T>
T combined(BuiltIn which, T left, T right) {
  const Reduction reduction = built_in_reduction(which, element_type_of<T>());
  EXPECT_EQ(reduction.element_bytes, sizeof(T));
  // Several elements, so that the vectorised body and its tail both run.
  std::vector<T> incoming(37, left), partial(37, right);
  reduction.combine(incoming.data(), partial.data(), partial.size(), nullptr);
  for (const T& value : partial) EXPECT_EQ(std::memcmp(&value, partial.data(), sizeof(T)), 0);
  return partial[0];
}

template <class T>
void expect_the_same_apart(BuiltIn which) {
  const Reduction reduction = built_in_reduction(which, element_type_of<T>());
  const runtime::CombineApart apart = runtime::combine_apart(reduction);
  if (apart == nullptr) return;  // on CPUs without wide vectors
  for (std::size_t begin = 0; begin < 9; ++begin) {
    std::vector<T> incoming, own;
    for (int i = 0; i < 100; ++i) {
      incoming.push_back(static_cast<T>(i * 37 % 11 - 3) / static_cast<T>(2));
      own.push_back(i % 13 == 0 ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(i % 7));
    }
    std::vector<T> partial = own, result(own.size(), T{42});
    const std::size_t count = own.size() - begin - 1;
    reduction.combine(incoming.data() + begin, partial.data() + begin, count, nullptr);
    apart(incoming.data() + begin, own.data() + begin, result.data() + begin, count);
    EXPECT_EQ(std::memcmp(result.data() + begin, partial.data() + begin, count * sizeof(T)), 0)
        << begin;
    EXPECT_EQ(result.back(), T{42});
  }
}

template <class T>
class Apart : public testing::Test {};
using ApartTypes =
    testing::Types<std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float, double>;
TYPED_TEST_SUITE(Apart, ApartTypes);

TYPED_TEST(Apart, operators_give_the_same_bits_as_in_place) {
  for (const BuiltIn which :
       {BuiltIn::sum, BuiltIn::product, BuiltIn::min, BuiltIn::max, BuiltIn::bit_and,
        BuiltIn::bit_or, BuiltIn::bit_xor, BuiltIn::logical_and, BuiltIn::logical_or})
    if (defined_for(which, element_type_of<TypeParam>())) expect_the_same_apart<TypeParam>(which);
}

TEST(Apart, operators_that_are_not_built_in_are_not_replaced) {
  Reduction changed = built_in_reduction(BuiltIn::sum, ElementType::float64);
  changed.combine = built_in_reduction(BuiltIn::max, ElementType::float64).combine;
  EXPECT_EQ(runtime::combine_apart(changed), nullptr);
  EXPECT_EQ(runtime::combine_apart(Reduction{}), nullptr);
  EXPECT_EQ(runtime::combine_apart(built_in_reduction(BuiltIn::sum, ElementType::float16)),
            nullptr);
}

template <class T>
class Integers : public testing::Test {};
using IntegerTypes = testing::Types<std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;
TYPED_TEST_SUITE(Integers, IntegerTypes);

TYPED_TEST(Integers, operators_match_the_language) {
  using T = TypeParam;
  const auto a = static_cast<T>(-13), b = static_cast<T>(7);
  EXPECT_EQ(combined<T>(BuiltIn::sum, a, b), static_cast<T>(a + b));
  EXPECT_EQ(combined<T>(BuiltIn::product, a, b), static_cast<T>(a * b));
  EXPECT_EQ(combined<T>(BuiltIn::min, a, b), std::min(a, b));
  EXPECT_EQ(combined<T>(BuiltIn::max, a, b), std::max(a, b));
  EXPECT_EQ(combined<T>(BuiltIn::bit_and, a, b), static_cast<T>(a & b));
  EXPECT_EQ(combined<T>(BuiltIn::bit_or, a, b), static_cast<T>(a | b));
  EXPECT_EQ(combined<T>(BuiltIn::bit_xor, a, b), static_cast<T>(a ^ b));
  EXPECT_EQ(combined<T>(BuiltIn::logical_and, a, b), T{1});
  EXPECT_EQ(combined<T>(BuiltIn::logical_and, a, T{0}), T{0});
  EXPECT_EQ(combined<T>(BuiltIn::logical_or, T{0}, b), T{1});
  EXPECT_EQ(combined<T>(BuiltIn::logical_or, T{0}, T{0}), T{0});
}

TYPED_TEST(Integers, overflow_wraps) {
  using T = TypeParam;
  const T largest = std::numeric_limits<T>::max();
  EXPECT_EQ(combined<T>(BuiltIn::sum, largest, T{1}), std::numeric_limits<T>::min());
  EXPECT_EQ(combined<T>(BuiltIn::product, largest, T{2}), static_cast<T>(-2));
}

TYPED_TEST(Integers, an_inverse_gives_back_what_was_there) {
  using T = TypeParam;
  for (const BuiltIn which : {BuiltIn::sum, BuiltIn::bit_xor}) {
    const Reduction reduction = built_in_reduction(which, element_type_of<T>());
    ASSERT_NE(reduction.inverse, nullptr);
    const T before = std::numeric_limits<T>::max();
    const std::vector<T> taken(37, static_cast<T>(-13));
    std::vector<T> whole(37, before);
    reduction.combine(taken.data(), whole.data(), whole.size(), nullptr);
    EXPECT_NE(whole[36], before);
    reduction.inverse(taken.data(), whole.data(), whole.size(), nullptr);
    EXPECT_EQ(whole, std::vector<T>(37, before));
  }
  EXPECT_EQ(built_in_reduction(BuiltIn::product, element_type_of<T>()).inverse, nullptr);
  EXPECT_EQ(built_in_reduction(BuiltIn::min, element_type_of<T>()).inverse, nullptr);
}

template <class T>
class Floats : public testing::Test {};
using FloatTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Floats, FloatTypes);

TYPED_TEST(Floats, min_and_max_give_the_same_bits_in_both_orders) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T odd_nan = -std::numeric_limits<T>::signaling_NaN();
  const T infinity = std::numeric_limits<T>::infinity();
  const T values[] = {T(-0.0), T(0.0),   T(1),
                      T(-1),   infinity, -infinity,
                      nan,     odd_nan,  std::numeric_limits<T>::denorm_min()};
  for (const BuiltIn which : {BuiltIn::min, BuiltIn::max})
    for (const T a : values)
      for (const T b : values) {
        const T one = combined<T>(which, a, b), other = combined<T>(which, b, a);
        EXPECT_EQ(std::memcmp(&one, &other, sizeof(T)), 0) << a << " " << b;
        if (std::isnan(a) || std::isnan(b)) {
          EXPECT_EQ(std::memcmp(&one, &nan, sizeof(T)), 0);
        }
      }
  EXPECT_TRUE(std::signbit(combined<T>(BuiltIn::min, T(0.0), T(-0.0))));
  EXPECT_FALSE(std::signbit(combined<T>(BuiltIn::max, T(0.0), T(-0.0))));
}

TYPED_TEST(Floats, sum_and_product_are_ieee) {
  using T = TypeParam;
  EXPECT_EQ(combined<T>(BuiltIn::sum, T(0.1), T(0.2)), T(0.1) + T(0.2));
  EXPECT_EQ(combined<T>(BuiltIn::product, T(0.1), T(0.2)), T(0.1) * T(0.2));
}

TYPED_TEST(Floats, sum_and_product_give_the_same_bits_in_both_orders) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const T nan = Limits::quiet_NaN();
  const T other_nan = std::bit_cast<T>(std::bit_cast<Word>(nan) | 42);
  const T values[] = {T(-0.0),
                      T(0.0),
                      T(1),
                      T(-1),
                      Limits::infinity(),
                      nan,
                      -other_nan,
                      -Limits::infinity(),
                      other_nan,
                      Limits::signaling_NaN(),
                      Limits::denorm_min(),
                      Limits::max()};
  for (const BuiltIn which : {BuiltIn::sum, BuiltIn::product})
    for (const T a : values)
      for (const T b : values) {
        const T one = combined<T>(which, a, b), other = combined<T>(which, b, a);
        EXPECT_EQ(std::memcmp(&one, &other, sizeof(T)), 0) << a << " " << b;
        const T plain = which == BuiltIn::sum ? a + b : a * b;  // infinity - infinity, too
        const T expected = std::isnan(plain) ? nan : plain;
        EXPECT_EQ(std::memcmp(&one, &expected, sizeof(T)), 0) << a << " " << b;
      }
}

// Half and BFloat16 -------------------------------------------------------------------------------

/// What a half means, from the words of IEEE 754 (3.4).
double meaning_of_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Halves, all_are_what_ieee_754_says_and_come_back_from_float) {
  for (std::uint32_t word = 0; word < 65536; ++word) {
    const auto bits = static_cast<std::uint16_t>(word);
    const auto value = static_cast<float>(Half::from_bits(bits));
    const double expected = meaning_of_half(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << word;
      EXPECT_EQ(Half(value).bits, 0x7e00) << word;
      continue;
    }
    EXPECT_EQ(static_cast<double>(value), expected) << word;
    EXPECT_EQ(std::signbit(value), std::signbit(expected)) << word;
    EXPECT_EQ(Half(value).bits, bits);
  }
}

/// Between two neighbours a float goes to the nearer one, from the middle to the even one.
template <class Narrow>
void expect_nearest(std::uint16_t bits) {
  const double low = static_cast<float>(Narrow::from_bits(bits));
  const double high = static_cast<float>(Narrow::from_bits(static_cast<std::uint16_t>(bits + 1)));
  if (!std::isfinite(low) || !std::isfinite(high)) return;
  const auto middle = static_cast<float>((low + high) / 2);
  ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
  const float infinity = std::numeric_limits<float>::infinity();
  const bool is_even = bits % 2 == 0;
  ASSERT_EQ(Narrow(middle).bits, is_even ? bits : bits + 1) << bits;
  ASSERT_EQ(Narrow(std::nextafter(middle, -infinity)).bits, low < high ? bits : bits + 1) << bits;
  ASSERT_EQ(Narrow(std::nextafter(middle, infinity)).bits, low < high ? bits + 1 : bits) << bits;
}

TEST(Halves, floats_go_to_the_nearest) {
  for (std::uint32_t bits = 0; bits < 65535; ++bits)
    if (bits != 0x7fff) expect_nearest<Half>(static_cast<std::uint16_t>(bits));
  EXPECT_EQ(Half(65519.996f).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Half(-1e30f).bits, 0xfc00);
  EXPECT_EQ(Half(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(Half(-std::numeric_limits<float>::min()).bits, 0x8000);
}

TEST(BFloats, are_the_upper_halves_of_floats) {
  for (std::uint32_t word = 0; word < 65536; ++word) {
    const auto bits = static_cast<std::uint16_t>(word);
    const float value = std::bit_cast<float>(word << 16);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(BFloat16::from_bits(bits))),
              word << 16);
    EXPECT_EQ(BFloat16(value).bits, std::isnan(value) ? 0x7fc0 : bits) << word;
    if (bits != 0x7fff && bits != 0xffff) expect_nearest<BFloat16>(bits);
  }
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

template <class T>
class Narrows : public testing::Test {};
using NarrowTypes = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(Narrows, NarrowTypes);

/// Whether no neighbour of `got` is nearer to `exact`, and of two as near it is the even one.
template <class T>
bool is_nearest(T got, double exact) {
  const double distance = std::abs(static_cast<double>(static_cast<float>(got)) - exact);
  if (!std::isfinite(distance)) return true;  // its bound is tested above
  for (const int step : {-1, 1}) {
    const auto bits = static_cast<std::uint16_t>(got.bits + step);
    const double other =
        std::abs(static_cast<double>(static_cast<float>(T::from_bits(bits))) - exact);
    if (other < distance || (other == distance && got.bits % 2 != 0)) return false;
  }
  return true;
}

TYPED_TEST(Narrows, operators_are_rounded_correctly_in_both_orders) {
  using T = TypeParam;
  std::vector<T> values;
  for (std::uint32_t word = 0; word < 65536; word += 257)
    values.push_back(T::from_bits(static_cast<std::uint16_t>(word)));
  for (const BuiltIn which : {BuiltIn::sum, BuiltIn::product, BuiltIn::min, BuiltIn::max}) {
    const Reduction reduction = built_in_reduction(which, element_type_of<T>());
    EXPECT_EQ(reduction.element_bytes, 2u);
    for (const T left : values) {
      const std::vector<T> lefts(values.size(), left);
      std::vector<T> one = values, other = lefts;
      reduction.combine(lefts.data(), one.data(), one.size(), nullptr);
      reduction.combine(values.data(), other.data(), other.size(), nullptr);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto a = static_cast<float>(left), b = static_cast<float>(values[i]);
        // In double the result of one operation is exact, or not near the middle of two values.
        const double exact = which == BuiltIn::sum       ? static_cast<double>(a) + b
                             : which == BuiltIn::product ? static_cast<double>(a) * b
                                                         : combined(which, a, b);
        ASSERT_EQ(std::isnan(static_cast<float>(one[i])), std::isnan(exact)) << a << " " << b;
        ASSERT_TRUE(is_nearest(one[i], exact)) << a << " " << b;
        if (std::isinf(exact)) {
          ASSERT_EQ(static_cast<double>(static_cast<float>(one[i])), exact);
        }
        ASSERT_EQ(other[i].bits, one[i].bits) << a << " " << b;
      }
    }
  }
}

/// Many elements may be computed by other instructions than one, also where subnormals count as
/// zero.
TYPED_TEST(Narrows, bits_do_not_depend_on_how_many_elements_there_are) {
  using T = TypeParam;
  constexpr std::size_t count = 147;
#ifdef __SSE2__
  const unsigned before = __builtin_ia32_stmxcsr();
  const std::vector<unsigned> environments = {before, before | 0x8040};
#else
  const std::vector<unsigned> environments = {0};
#endif
  for (const unsigned environment : environments)
    for (const BuiltIn which : {BuiltIn::sum, BuiltIn::product, BuiltIn::min, BuiltIn::max}) {
      const Reduction reduction = built_in_reduction(which, element_type_of<T>());
      std::uint32_t differing = 0;
#ifdef __SSE2__
      __builtin_ia32_ldmxcsr(environment);
#endif
      for (std::uint32_t left = 0; left < 65536; left += 257)
        for (std::uint32_t first = left * 31 % 997; first < 65536; first += 6007) {
          std::vector<T> lefts(count, T::from_bits(static_cast<std::uint16_t>(left))), rights;
          for (std::uint32_t i = 0; i < count; ++i)
            rights.push_back(T::from_bits(static_cast<std::uint16_t>(first + 41 * i)));
          std::vector<T> alone = rights;
          reduction.combine(lefts.data(), rights.data(), count, nullptr);
          for (std::size_t i = 0; i < count; ++i) {
            reduction.combine(&lefts[i], &alone[i], 1, nullptr);
            differing += alone[i].bits != rights[i].bits;
          }
        }
#ifdef __SSE2__
      __builtin_ia32_ldmxcsr(before);
#endif
      EXPECT_EQ(differing, 0u) << static_cast<int>(which) << ", MXCSR " << environment;
    }
}

#ifdef __SSE2__
/// Where subnormals count as zero, least and greatest are operands all the same.
TEST(Operators, min_and_max_of_subnormals_are_operands_also_where_they_count_as_zero) {
  constexpr unsigned daz_and_ftz = 0x8040;
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | daz_and_ftz);
  const auto least = [](std::uint32_t a, std::uint32_t b) {
    return std::bit_cast<std::uint32_t>(
        combined(BuiltIn::min, std::bit_cast<float>(a), std::bit_cast<float>(b)));
  };
  const auto greatest = [](std::uint32_t a, std::uint32_t b) {
    return std::bit_cast<std::uint32_t>(
        combined(BuiltIn::max, std::bit_cast<float>(a), std::bit_cast<float>(b)));
  };
  const std::uint32_t of_one_and_two = least(1, 2), of_two_and_one = least(2, 1);
  const std::uint32_t of_minus_zero = least(1, 0x80000000), top = greatest(1, 2);
  __builtin_ia32_ldmxcsr(before);
  EXPECT_EQ(of_one_and_two, 1u);
  EXPECT_EQ(of_two_and_one, 1u);
  EXPECT_EQ(of_minus_zero, 0x80000000u);
  EXPECT_EQ(top, 2u);
}
#endif

TEST(Operators, bitwise_on_floating_point_is_refused_by_name) {
  for (const BuiltIn which : {BuiltIn::bit_and, BuiltIn::bit_or, BuiltIn::bit_xor,
                              BuiltIn::logical_and, BuiltIn::logical_or})
    try {
      (void)built_in_reduction(which, ElementType::float64);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("double"), std::string::npos);
    }
}

int minus(int left, int right) {
  return left - right;
}

TEST(Operators, incoming_is_the_left_operand) {
  const Reduction reduction = elementwise<int, minus>({});
  int incoming = 10, partial = 3;
  reduction.combine(&incoming, &partial, 1, nullptr);
  EXPECT_EQ(partial, 7);
}

template <class T>
class Places : public testing::Test {};
using PlaceTypes = testing::Types<double, float, std::int32_t, BFloat16>;
TYPED_TEST_SUITE(Places, PlaceTypes);

TYPED_TEST(Places, every_element_is_combined_once_wherever_the_arrays_begin) {
  using T = TypeParam;
  const Reduction sum = built_in_reduction(BuiltIn::sum, element_type_of<T>());
  constexpr std::size_t places = 64 / sizeof(T), length = 4 * places + 64;
  for (std::size_t left = 0; left < places; left += 3)
    for (std::size_t right = 0; right < places; ++right)
      for (const std::size_t count : {std::size_t{1}, places - 1, places, 2 * places + 5}) {
        std::vector<T> incoming(length, T(2)), partial(length, T(5));
        sum.combine(incoming.data() + left, partial.data() + right, count, nullptr);
        for (std::size_t i = 0; i < length; ++i) {
          const T expected = i >= right && i < right + count ? T(7) : T(5);
          ASSERT_EQ(std::memcmp(&partial[i], &expected, sizeof(T)), 0)
              << "element " << i << " of " << count << " from " << right;
        }
      }
}

TEST(Operators, zero_elements_touch_nothing) {
  const Reduction reduction = built_in_reduction(BuiltIn::sum, ElementType::int32);
  reduction.combine(nullptr, nullptr, 0, nullptr);
}

}  // namespace
}  // namespace tutti
