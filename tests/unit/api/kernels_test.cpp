// Promise: every built-in operator on every type is what README "Guarantees" says, in every order.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tutti/reduction.hpp>
#include <tutti/status.hpp>
#include <vector>

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
class Integers : public testing::Test {};
using IntegerTypes = testing::Types<std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;
TYPED_TEST_SUITE(Integers, IntegerTypes);

TYPED_TEST(Integers, OperatorsMatchTheLanguage) {
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

TYPED_TEST(Integers, OverflowWraps) {
  using T = TypeParam;
  const T largest = std::numeric_limits<T>::max();
  EXPECT_EQ(combined<T>(BuiltIn::sum, largest, T{1}), std::numeric_limits<T>::min());
  EXPECT_EQ(combined<T>(BuiltIn::product, largest, T{2}), static_cast<T>(-2));
}

TYPED_TEST(Integers, AnInverseGivesBackWhatWasThere) {
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

TYPED_TEST(Floats, MinAndMaxGiveTheSameBitsInBothOrders) {
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

TYPED_TEST(Floats, SumAndProductAreIeee) {
  using T = TypeParam;
  EXPECT_EQ(combined<T>(BuiltIn::sum, T(0.1), T(0.2)), T(0.1) + T(0.2));
  EXPECT_EQ(combined<T>(BuiltIn::product, T(0.1), T(0.2)), T(0.1) * T(0.2));
}

TYPED_TEST(Floats, SumAndProductGiveTheSameBitsInBothOrders) {
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

TEST(Operators, BitwiseOnFloatingPointIsRefusedByName) {
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

TEST(Operators, IncomingIsTheLeftOperand) {
  const Reduction reduction = elementwise<int, minus>({});
  int incoming = 10, partial = 3;
  reduction.combine(&incoming, &partial, 1, nullptr);
  EXPECT_EQ(partial, 7);
}

TEST(Operators, ZeroElementsTouchNothing) {
  const Reduction reduction = built_in_reduction(BuiltIn::sum, ElementType::int32);
  reduction.combine(nullptr, nullptr, 0, nullptr);
}

}  // namespace
}  // namespace tutti
