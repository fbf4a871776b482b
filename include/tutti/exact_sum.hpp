// Sums of floating-point numbers that have the same bits for every order of the operands, every
// distribution over ranks, every number of ranks and every schedule.
//
//   ExactSum mine, whole;
//   mine.add(part);                                    // this rank's values, in any order
//   auto all = allreduce<ExactSum>(communicator, {&mine, 1}, {&whole, 1}, exact_addition());
//   ... whole.value() is rounded once, from the sum that all ranks have alike
//
// Idea.  The numbers that a double can have are divided into 53 ranges ("bins") of 40 bits:
//
//       ... |  bin j   | bin j-1  | bin j-2  |  bin j-3 ...
//           x = s_j    + s_j-1    + s_j-2    + what is dropped
//
// A value is cut into slices, each a whole multiple of the unit of its bin.  An ExactSum holds the
// sums of the slices of three bins as integers, which are exact and hence associative and
// commutative.  Its first bin is that of the largest value so far; when a larger one comes, lower
// bins are dropped.  Nothing is ever carried from bin to bin before value() rounds, so what is left
// depends on the values alone, not on their order.
//
// How exact.  A slice is dropped where it is at most 2^-80 of the largest |value| in the sum: so of
// n values, the sum before it is rounded differs from the true one by at most
// n * max |value| * 2^-80, which is 2^27 times as exact as a double of the size of the largest
// value.  What is smaller than that is gone even if the large values cancel: 1e300 + 1 - 1e300 is
// 0, in any order.  Sums of up to 2^53 values do not overflow.
//
// Literature: J. Demmel and H. D. Nguyen, "Parallel Reproducible Summation", IEEE Transactions on
// Computers 64 (7), 2015, section 4, for bins and the cutting of slices; P. Ahrens, J. Demmel and
// H. D. Nguyen, "Algorithms for Efficient Reproducible Floating Point Summation", ACM Transactions
// on Mathematical Software 46 (3), 2020.  Theirs hold sums as pairs of doubles; here they are
// integers.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "tutti/export.hpp"
#include "tutti/reduction.hpp"

namespace tutti {

/// A sum of doubles and floats, 40 bytes.  A plain value: it may be copied, sent and stored as its
/// bytes are.  Two sums of the same values, in whatever order and parts, have the same bytes.  It
/// begins as zero, whose bytes are 0.
///
/// Results do not depend on the rounding mode of the calling thread, nor on how it treats
/// subnormals.
class ExactSum {
 public:
  static constexpr int bins = 3;
  static constexpr int bin_bits = 40;

  ExactSum() = default;

  void add(double value) noexcept { add(std::span<const double>(&value, 1)); }
  /// A double cannot hold every integer of 64 bits or long double: convert it yourself, so that the
  /// rounding is visible.
  template <class T>
  requires(std::same_as<T, long double> ||
           (std::integral<T> && sizeof(T) > 4)) void add(T value) = delete;
  void add(std::initializer_list<double> values) noexcept {
    add(std::span<const double>(values.begin(), values.size()));
  }
  /// Faster than one value after the other.
  TUTTI_EXPORT void add(std::span<const double> values) noexcept;
  TUTTI_EXPORT void add(std::span<const float> values) noexcept;
  /// Adds the products left[i] * right[i], each rounded to a double, up to the length of the
  /// shorter span.
  TUTTI_EXPORT void add_products(std::span<const double> left,
                                 std::span<const double> right) noexcept;
  TUTTI_EXPORT void add(const ExactSum& other) noexcept;

  /// The sum rounded to the nearest double, ties to even.  Infinite if the sum is too large for a
  /// double or a value was infinite; NaN if a value was a NaN, or if both infinities were added.  A
  /// sum of zeros is +0.
  TUTTI_EXPORT double value() const noexcept;
  /// The sum rounded to a float at once, not by way of a double.
  TUTTI_EXPORT float value_as_float() const noexcept;

  bool operator==(const ExactSum&) const = default;

 private:
  friend struct ExactSumAccess;
  // The first bin is bin 2 + above_.  Of the k-th one after it, the sum of the slices, in its unit,
  // is high_[k] * 2^64 + low_[k].  All bytes are 0 where nothing has been added.
  std::array<std::uint64_t, bins> low_{};
  std::array<std::int32_t, bins> high_{};
  std::uint8_t above_ = 0;
  std::uint8_t specials_ = 0;  // bits: infinity, minus infinity, NaN
  std::uint16_t unused_ = 0;
};
static_assert(sizeof(ExactSum) == 40);

/// Adds two sums: the operator for reductions of ExactSum.  It is exact, so results have the same
/// bits with every agreement and every schedule.
TUTTI_EXPORT Reduction exact_addition() noexcept;

}  // namespace tutti
