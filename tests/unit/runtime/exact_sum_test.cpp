// Promise: the bytes of an ExactSum depend on the values alone, and what it rounds to is as exact
// as tutti/exact_sum.hpp says.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <tutti/exact_sum.hpp>
#include <vector>

#include "runtime/exact_sum.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A sum of doubles without any error: an integer of 2,304 bits, in units of 2^-1074.
class Reference {
 public:
  void add(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
    std::uint64_t mantissa = bits & 0xfffffffffffff;
    if (exponent != 0) mantissa |= std::uint64_t{1} << 52;
    const int shift = std::max(exponent, 1) - 1;
    const auto at = static_cast<std::size_t>(shift / 64);
    const std::uint64_t high = shift % 64 == 0 ? 0 : mantissa >> (64 - shift % 64);
    add_word(at, mantissa << (shift % 64), value < 0);
    add_word(at + 1, high, value < 0);
  }
  /// Rounded toward zero at 60 bits: near enough to compare with bounds.
  double about() const {
    Words words = words_;
    const bool is_negative = words.back() >> 63 != 0;
    if (is_negative) {
      unsigned char carry = 1;
      for (std::uint64_t& word : words) {
        word = ~word + carry;
        carry = carry != 0 && word == 0;
      }
    }
    double total = 0;
    for (std::size_t i = words.size(); i-- > 0;)
      if (words[i] != 0) {
        total = std::ldexp(static_cast<double>(words[i] >> 4), static_cast<int>(64 * i) + 4 - 1074);
        if (i > 0)
          total += std::ldexp(static_cast<double>(words[i - 1] >> 4),
                              static_cast<int>(64 * i) - 60 - 1074);
        break;
      }
    return is_negative ? -total : total;
  }

 private:
  using Words = std::array<std::uint64_t, 36>;
  void add_word(std::size_t at, std::uint64_t word, bool is_negative) {
    for (; at < words_.size() && word != 0; ++at, word = 1) {
      const std::uint64_t before = words_[at];
      words_[at] = is_negative ? before - word : before + word;
      if (is_negative ? words_[at] <= before : words_[at] >= before) break;
    }
  }
  Words words_{};
};

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum total;
  total.add(values);
  return total;
}

void expect_same_bytes(const ExactSum& one, const ExactSum& other, const char* what) {
  EXPECT_EQ(std::memcmp(&one, &other, sizeof one), 0)
      << what << ": " << one.value() << ", " << other.value();
}

double ulp_of(double value) {
  const double magnitude = std::fabs(value);
  return magnitude == std::numeric_limits<double>::max()
             ? magnitude - std::nextafter(magnitude, 0)
             : std::nextafter(magnitude, infinity) - magnitude;
}

/// Values of one of several kinds.
std::vector<double> random_values(std::mt19937_64& random) {
  const std::size_t count = 1 + random() % 40;
  const auto spread = static_cast<int>(1 + random() % 160);
  const auto middle = static_cast<int>(random() % 1900) - 1000;
  const bool is_anything = random() % 8 == 0, cancels = random() % 3 == 0;
  std::vector<double> values;
  while (values.size() < count) {
    double value = 0;
    if (is_anything) {
      value = std::bit_cast<double>(random());
      if (!std::isfinite(value) || std::fabs(value) > 1e300) continue;
    } else {
      const auto exponent = middle + static_cast<int>(random() % static_cast<unsigned>(spread));
      // Few bits make ties, many make slices in all bins.
      const auto mantissa = static_cast<std::int64_t>(random()) >> (11 + random() % 52);
      value = std::ldexp(static_cast<double>(mantissa), std::min(exponent, 940));
    }
    values.push_back(value);
    if (cancels && random() % 2 == 0) values.push_back(-values[random() % values.size()]);
  }
  return values;
}

TEST(ExactSum, is_as_exact_as_it_says) {
  std::mt19937_64 random(1);
  std::size_t rounded_correctly = 0;
  constexpr int cases = 100000;
  for (int i = 0; i < cases; ++i) {
    const std::vector<double> values = random_values(random);
    Reference difference;
    double largest = 0;
    for (const double value : values) {
      difference.add(value);
      largest = std::max(largest, std::fabs(value));
    }
    const double value = sum_of(values).value();
    difference.add(-value);
    const double error = std::fabs(difference.about());
    const double bound = static_cast<double>(values.size()) * std::ldexp(largest, -80);
    if (error <= ulp_of(value) / 2) ++rounded_correctly;
    ASSERT_LE(error, (bound + ulp_of(value) / 2) * (1 + 1e-15)) << "case " << i;
  }
  EXPECT_GT(rounded_correctly, cases * 6 / 10);  // but for what cancels, and then dropped bits show
}

TEST(ExactSum, orders_and_parts_give_the_same_bytes) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> values = random_values(random);
    const ExactSum whole = sum_of(values);
    for (int distribution = 0; distribution < 50; ++distribution) {
      std::shuffle(values.begin(), values.end(), random);
      std::vector<ExactSum> parts(1 + random() % 8);
      for (const double value : values) parts[random() % parts.size()].add(value);
      while (parts.size() > 1) {  // in any tree
        const std::size_t from = random() % parts.size();
        std::swap(parts[from], parts.back());
        const ExactSum last = parts.back();
        parts.pop_back();
        parts[random() % parts.size()].add(last);
      }
      expect_same_bytes(parts[0], whole, "parts");
      ASSERT_FALSE(HasFailure()) << i;
    }
  }
}

TEST(ExactSum, vectors_of_any_length_and_place_are_their_elements) {
  std::mt19937_64 random(3);
  std::vector<double> values(5000);
  for (double& value : values)
    value = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                       static_cast<int>(random() % 200) - 150);
  ExactSum one_by_one;
  for (std::size_t count = 0; count < values.size(); ++count) {
    if (count < 70 || count % 509 == 0)
      for (std::size_t begin = 0; begin < 3 && begin <= count; ++begin) {
        ExactSum at_once, rest;
        at_once.add(std::span(values).subspan(begin, count - begin));
        rest.add(std::span(values).first(begin));
        rest.add(at_once);
        expect_same_bytes(rest, one_by_one, "a vector");
      }
    one_by_one.add(values[count]);
  }
}

TEST(ExactSum, ties_between_units_do_not_depend_on_what_is_there) {
  // Halves of the units of bins, which are powers of two, 40 apart.
  for (int bin = 0; bin <= 52; ++bin)
    for (const double sign : {1.0, -1.0}) {
      const int exponent = 40 * bin - 1075;
      if (exponent < -1074 || exponent > 1000) continue;
      const double half = sign * std::ldexp(1.0, exponent);
      for (const double other : {half, std::ldexp(1.0, std::min(exponent + 39, 1020)),
                                 -std::ldexp(3.0, std::min(exponent + 41, 1020))}) {
        ExactSum first = sum_of({half, half, half}), last = sum_of({other});
        first.add(other);
        last.add(half);
        last.add(std::vector{half, half});
        expect_same_bytes(first, last, "ties");
      }
    }
}

TEST(ExactSum, what_cancels_leaves_what_a_double_would_lose) {
  EXPECT_EQ(sum_of({1e16, 1, -1e16}).value(), 1);
  EXPECT_EQ(sum_of({1, std::ldexp(1.0, -70), -1}).value(), std::ldexp(1.0, -70));
  constexpr double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(sum_of({largest, largest, -largest}).value(), largest);
  EXPECT_EQ(sum_of({largest, largest}).value(), infinity);
  EXPECT_EQ(sum_of({-largest, -largest}).value(), -infinity);
  constexpr double smallest = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(sum_of({smallest, smallest, smallest}).value(), 3 * smallest);
  EXPECT_EQ(sum_of(std::vector<double>(10, 0.1)).value(), 1.0);
}

TEST(ExactSum, zeros_give_plus_zero) {
  EXPECT_FALSE(std::signbit(ExactSum().value()));
  EXPECT_FALSE(std::signbit(sum_of({-0.0, -0.0}).value()));
  EXPECT_FALSE(std::signbit(sum_of({1.5, -1.5}).value()));
  expect_same_bytes(sum_of({-0.0, 0.0}), ExactSum(), "zeros");
}

TEST(ExactSum, what_cancels_entirely_is_zero_in_every_format) {
  for (const double large : {1e10, 1e74, 1e76, 1e100, 1e300})
    for (const ExactSum& none :
         {sum_of({large, -large}), sum_of({large, large * 0x1p-125, -large})}) {
      EXPECT_EQ(none.value(), 0) << large;
      EXPECT_EQ(none.value_as_float(), 0.0f) << large;
      EXPECT_FALSE(std::signbit(none.value_as_float()));
    }
}

TEST(ExactSum, vectors_of_every_width_give_the_same_bytes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<double> values;
    while (values.size() < 2500)
      for (const double value : random_values(random)) values.push_back(value);
    if (i % 10 == 0) values[random() % values.size()] = infinity;
    values.resize(random() % values.size());
    const ExactSum whole = sum_of(values);
    for (int lanes = 1; lanes <= runtime::widest_lanes(); lanes *= 2) {
      ExactSum total;
      runtime::add_by(lanes, total, values);
      expect_same_bytes(total, whole, "a width");
    }
  }
}

TEST(ExactSum, infinities_and_nans_are_remembered) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(sum_of({1, infinity, 2}).value(), infinity);
  EXPECT_EQ(sum_of({1, -infinity, 2}).value(), -infinity);
  EXPECT_TRUE(std::isnan(sum_of({infinity, 1, -infinity}).value()));
  EXPECT_TRUE(std::isnan(sum_of({1, nan, infinity}).value()));
  // In the middle of a long vector, in any place of it, and in any order.
  std::vector<double> values(3000, 1.25);
  for (const std::size_t at : {0u, 1u, 2u, 3u, 2047u, 2048u, 2999u}) {
    std::vector<double> some = values;
    some[at] = nan;
    EXPECT_TRUE(std::isnan(sum_of(some).value())) << at;
    ExactSum backwards;
    for (std::size_t i = some.size(); i-- > 0;) backwards.add(some[i]);
    expect_same_bytes(backwards, sum_of(some), "with a NaN");
    some[at] = -infinity;
    EXPECT_EQ(sum_of(some).value(), -infinity) << at;
  }
}

TEST(ExactSum, as_a_float_is_rounded_once) {
  // Above the middle between two floats by less than a double shows: by way of a double, it would
  // be a tie.
  const std::vector<double> values = {1, std::ldexp(1.0, -24), std::ldexp(1.0, -60)};
  EXPECT_EQ(sum_of(values).value_as_float(), std::nextafter(1.0f, 2.0f));
  EXPECT_EQ(static_cast<float>(sum_of(values).value()), 1.0f);
  EXPECT_EQ(sum_of({1, std::ldexp(1.0, -24)}).value_as_float(), 1.0f);
  EXPECT_EQ(sum_of({1e39}).value_as_float(), std::numeric_limits<float>::infinity());
  EXPECT_EQ(sum_of({std::ldexp(1.0, -149)}).value_as_float(),
            std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(sum_of({std::ldexp(1.0, -150)}).value_as_float(), 0.0f);
  EXPECT_EQ(sum_of({std::ldexp(1.5, -150)}).value_as_float(),
            std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(sum_of({-std::numeric_limits<double>::max()}).value_as_float(),
            -std::numeric_limits<float>::infinity());
}

TEST(ExactSum, floats_and_products_are_doubles) {
  std::mt19937_64 random(5);
  std::vector<float> floats(1000);
  std::vector<double> left(1000), right(999);
  ExactSum of_floats, of_products;
  for (float& value : floats) {
    value = std::ldexp(static_cast<float>(random() >> 40), static_cast<int>(random() % 80) - 60);
    of_floats.add(double{value});
  }
  for (double& value : left) value = std::ldexp(static_cast<double>(random() >> 11), -60);
  for (double& value : right) value = std::ldexp(static_cast<double>(random() >> 11), -50);
  for (std::size_t i = 0; i < right.size(); ++i) {
    const double product = left[i] * right[i];
    of_products.add(product);
  }
  ExactSum total;
  total.add(floats);
  expect_same_bytes(total, of_floats, "floats");
  total = {};
  total.add_products(left, right);
  expect_same_bytes(total, of_products, "products, of as many as the shorter has");
}

TEST(ExactSum, twice_a_sum_is_exact_up_to_two_to_the_fiftieth) {
  ExactSum total = sum_of({1.0 / 3, -std::ldexp(1.0, 38)});
  const double once = total.value();
  for (int i = 1; i <= 50; ++i) {
    const ExactSum same = total;
    total.add(same);
    EXPECT_EQ(total.value(), std::ldexp(once, i));
  }
}

TEST(ExactSum, does_not_depend_on_how_the_thread_rounds) {
  const std::vector<double> values = {1, 0x1.8p-1030, 1e-30, -1, std::ldexp(1.0, -1074), 3e-310};
  const ExactSum usual = sum_of(values);
  const double rounded = usual.value();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const ExactSum total = sum_of(values);
    const double value = total.value();
    EXPECT_EQ(std::fegetround(), mode);
    std::fesetround(FE_TONEAREST);
    expect_same_bytes(total, usual, "a rounding mode");
    EXPECT_EQ(value, rounded);
  }
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // subnormal results and operands count as 0
  const ExactSum total = sum_of(values);
  const double tiny = sum_of({3e-310}).value();
  const float tiny_float = sum_of({0x3p-149}).value_as_float();
  ExactSum of_floats, of_products;
  const std::vector<float> floats(300, 0x3p-149f);
  const std::vector<double> factors(300, 0x1p-530), others(300, 0x1p-520);
  of_floats.add(floats);
  of_products.add_products(factors, others);
  _mm_setcsr(before);
  expect_same_bytes(total, usual, "subnormals");
  EXPECT_EQ(std::bit_cast<std::uint64_t>(tiny), std::bit_cast<std::uint64_t>(3e-310));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(tiny_float), 3u);
  EXPECT_EQ(of_floats.value(), 300 * 0x3p-149);
  EXPECT_EQ(of_products.value(), 300 * 0x1p-1050);
#endif
}

TEST(ExactSum, is_added_as_an_operator) {
  const Reduction addition = exact_addition();
  EXPECT_TRUE(addition.properties.commutative);
  EXPECT_TRUE(addition.properties.exact);
  ASSERT_EQ(addition.element_bytes, sizeof(ExactSum));
  const std::vector<ExactSum> incoming = {sum_of({1e20}), sum_of({2})};
  std::vector<ExactSum> partial = {sum_of({1}), sum_of({1e-20})};
  addition.combine(incoming.data(), partial.data(), 2, addition.context);
  expect_same_bytes(partial[0], sum_of({1, 1e20}), "first");
  expect_same_bytes(partial[1], sum_of({1e-20, 2}), "second");
}

}  // namespace
}  // namespace tutti
