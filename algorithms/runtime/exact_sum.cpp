// See tutti/exact_sum.hpp.
//
// How values are cut.  Bin k has the unit 2^(40 k - 1074): bin 0 ends where doubles do.  A double
// between 2^52 and 2^53 units has the unit as its last bit.  So with M = 1.5 * 2^52 units, M + x
// rounds x to whole units, and x - ((M + x) - M) is what is left of x, exactly, for the next bin.
// The bits of M + x, as an integer, are those of M and the number of units: they are added up as
// integers, and M is subtracted once for each block of values.
//
//   first bin of a value x: the lowest k with |x| < 2^39 units of bin k
//
// In higher bins its slice is 0: it would be less than half a unit there.  So it does not matter
// which bins are held when x comes.
#include "runtime/exact_sum.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <tutti/exact_sum.hpp>

#ifdef __FAST_MATH__
#error "M + x - M is not x here: compile this file without -ffast-math"
#endif

// Vectors are passed between functions that are inlined, so their ABI does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace tutti {

/// What of a sum the functions below read and write.
struct ExactSumAccess {
  static auto& low(auto& total) { return total.low_; }
  static auto& high(auto& total) { return total.high_; }
  static auto& above(auto& total) { return total.above_; }
  static auto& specials(auto& total) { return total.specials_; }
};

namespace {

using Access = ExactSumAccess;
constexpr int bins = ExactSum::bins, bin_bits = ExactSum::bin_bits;
constexpr int least_exponent = -1074;
constexpr int upper_half = 1;
static_assert(std::endian::native == std::endian::little);
constexpr std::uint8_t positive_infinity = 1, negative_infinity = 2, not_a_number = 4;
/// A block whose first bin turns out to be too low is read twice, so it should stay in the caches.
/// The sum of its slices, below 2^40 units each, stays far below 2^63.
constexpr std::size_t block_values = 2048;

double power_of_two(int exponent) noexcept {  // of normal numbers
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

int first_of(const ExactSum& total) noexcept {
  return Access::above(total) + bins - 1;
}

/// The first bin of values whose exponents, as the bits of doubles have them, are at most this.
int first_bin(int biased_exponent) noexcept {
  // |value| < 2^(biased_exponent - 1022), also if it is subnormal
  const int above = biased_exponent - 1022 - least_exponent - (bin_bits - 1);
  return std::max(bins - 1, (above + bin_bits - 1) / bin_bits);
}

/// Units near the ends of the range of doubles, and 2^52 of them, are no normal doubles: values are
/// multiplied by 2^exponent before they are cut.  What a value loses by that is below a unit.
int scaling_exponent(int first) noexcept {
  return first < 14 ? 500 : first >= 40 ? -500 : 0;
}

void add_units(ExactSum& total, std::size_t k, std::int64_t units) noexcept {
  std::uint64_t& low = Access::low(total)[k];
  const bool carries = __builtin_add_overflow(low, static_cast<std::uint64_t>(units), &low);
  Access::high(total)[k] += (units < 0 ? -1 : 0) + (carries ? 1 : 0);
}

/// Lets the bins begin with `first`, if that is above where they begin.
void raise(ExactSum& total, int first) noexcept {
  const int by = first - first_of(total);
  if (by <= 0) return;
  for (int k = bins - 1; k >= 0; --k) {
    const auto index = static_cast<std::size_t>(k);
    const bool is_held = k >= by;
    Access::low(total)[index] =
        is_held ? Access::low(total)[index - static_cast<std::size_t>(by)] : 0;
    Access::high(total)[index] =
        is_held ? Access::high(total)[index - static_cast<std::size_t>(by)] : 0;
  }
  Access::above(total) = static_cast<std::uint8_t>(first - (bins - 1));
}

template <int lanes>
struct Vector {
  typedef double Reals __attribute__((vector_size(8 * lanes)));
  typedef std::uint64_t Words __attribute__((vector_size(8 * lanes)));
  typedef std::int32_t Halves __attribute__((vector_size(8 * lanes)));
};

struct Cutting {
  double scale;
  std::array<double, bins> magic;  // 1.5 * 2^52 scaled units
};

struct Cut {
  std::array<std::uint64_t, bins> units{};  // of all slices, in two's complement
  int biased_exponent = 0;                  // the largest; 2047 where a value is not finite
};

/// The slices of a whole number of vectors.  They are those of the values if `biased_exponent` is
/// one for which the bins are high enough.
template <int lanes>
[[gnu::always_inline]] inline Cut cut(const double* values, std::size_t count,
                                      const Cutting& cutting) noexcept {
  using Reals = typename Vector<lanes>::Reals;
  using Words = typename Vector<lanes>::Words;
  using Halves = typename Vector<lanes>::Halves;
  const Reals magic[bins] = {Reals{} + cutting.magic[0], Reals{} + cutting.magic[1],
                             Reals{} + cutting.magic[2]};
  Words sums[bins] = {};
  Halves largest = {};  // the exponent is in the upper half of a double
  for (std::size_t i = 0; i < count; i += lanes) {
    Reals rest;
    std::memcpy(&rest, values + i, sizeof rest);
    const Halves halves = reinterpret_cast<Halves>(reinterpret_cast<Words>(rest) &
                                                   std::numeric_limits<std::int64_t>::max());
    largest = halves > largest ? halves : largest;
    rest *= cutting.scale;
    for (std::size_t k = 0; k < bins; ++k) {
      const Reals shifted = magic[k] + rest;
      sums[k] += reinterpret_cast<Words>(shifted);
      rest -= shifted - magic[k];
    }
  }
  Cut result;
  std::int32_t most = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    most = std::max(most, largest[2 * lane + upper_half]);
    for (std::size_t k = 0; k < bins; ++k) result.units[k] += sums[k][lane];
  }
  for (std::size_t k = 0; k < bins; ++k)
    result.units[k] -= count * std::bit_cast<std::uint64_t>(cutting.magic[k]);
  result.biased_exponent = most >> 20;
  return result;
}

Cutting cutting_from(int first) noexcept {
  const int scaling = scaling_exponent(first);
  Cutting cutting = {.scale = power_of_two(scaling), .magic = {}};
  for (int k = 0; k < bins; ++k)
    cutting.magic[static_cast<std::size_t>(k)] =
        1.5 * power_of_two(bin_bits * (first - k) + least_exponent + scaling + 52);
  return cutting;
}

template <int lanes>
[[gnu::always_inline]] inline void add_all(ExactSum& total, const double* values,
                                           std::size_t count) noexcept;

/// Adds values one by one: those of a block that holds an infinity or a NaN, and those that do not
/// fill a vector.
[[gnu::noinline]] void add_each(ExactSum& total, const double* values, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) {
      add_all<1>(total, values + i, 1);
    } else {
      Access::specials(total) |= std::isnan(values[i]) ? not_a_number
                                 : values[i] > 0       ? positive_infinity
                                                       : negative_infinity;
    }
  }
}

/// A whole number of vectors.  Bins begin where they did before, which is mostly high enough.
template <int lanes>
[[gnu::always_inline]] inline void add_block(ExactSum& total, const double* values,
                                             std::size_t count) noexcept {
  Cut slices = cut<lanes>(values, count, cutting_from(first_of(total)));
  if (slices.biased_exponent == 2047) return add_each(total, values, count);
  if (const int first = first_bin(slices.biased_exponent); first > first_of(total)) {
    raise(total, first);
    slices = cut<lanes>(values, count, cutting_from(first));
  }
  for (std::size_t k = 0; k < bins; ++k)
    add_units(total, k, static_cast<std::int64_t>(slices.units[k]));
}

template <int lanes>
[[gnu::always_inline]] inline void add_all(ExactSum& total, const double* values,
                                           std::size_t count) noexcept {
  while (count >= lanes) {
    const std::size_t taken = std::min(count, block_values) / lanes * lanes;
    add_block<lanes>(total, values, taken);
    values += taken;
    count -= taken;
  }
  if (count > 0) add_each(total, values, count);
}

[[gnu::noinline]] void add_by_two(ExactSum& total, const double* values,
                                  std::size_t count) noexcept {
  add_all<2>(total, values, count);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] void add_by_four(ExactSum& total, const double* values,
                                         std::size_t count) noexcept {
  add_all<4>(total, values, count);
}
[[gnu::target("avx512f")]] void add_by_eight(ExactSum& total, const double* values,
                                             std::size_t count) noexcept {
  add_all<8>(total, values, count);
}
#endif

/// The number of values in the longest vectors that this CPU has and this file uses.
int widest() noexcept {
#if defined(__x86_64__)
  static const int lanes = __builtin_cpu_supports("avx512f") ? 8
                           : __builtin_cpu_supports("avx2")  ? 4
                                                             : 2;
  return lanes;
#else
  return 2;
#endif
}

void add_values(int lanes, ExactSum& total, const double* values, std::size_t count) noexcept {
#if defined(__x86_64__)
  if (lanes == 8) return add_by_eight(total, values, count);
  if (lanes == 4) return add_by_four(total, values, count);
#endif
  add_by_two(total, values, count);
}

void add_values(ExactSum& total, const double* values, std::size_t count) noexcept {
  add_values(widest(), total, values, count);
}

/// Rounds to nearest and keeps subnormals while it lives, whatever the caller has set.  What it is
/// meant for has to be in functions that are not inlined: compilers move arithmetic, but not calls.
class UsualArithmetic {
 public:
#if defined(__x86_64__)
  static constexpr unsigned masked = 0x1f80;
  UsualArithmetic() noexcept : before_(_mm_getcsr()) {
    if ((before_ & ~0x3fu) != masked) _mm_setcsr(masked);
  }
  // Flags that the cutting has raised are not the caller's.
  ~UsualArithmetic() {
    _mm_setcsr(before_);
  }

 private:
  unsigned before_;
#else
  UsualArithmetic() noexcept {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~UsualArithmetic() {
    std::fesetenv(&before_);
  }

 private:
  std::fenv_t before_;
#endif
 public:
  UsualArithmetic(const UsualArithmetic&) = delete;
  UsualArithmetic& operator=(const UsualArithmetic&) = delete;
};

/// f(i) for all i, in blocks of doubles.
template <class F>
[[gnu::noinline]] void add_converted(ExactSum& total, std::size_t count, F&& f) noexcept {
  constexpr std::size_t block = 256;
  double values[block];
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t end = std::min(count, begin + block);
    for (std::size_t i = begin; i < end; ++i) values[i - begin] = f(i);
    add_values(total, values, end - begin);
  }
}

/// A sum as sign and magnitude, in units of the last bin.
struct Magnitude {
  bool is_negative = false;
  std::array<std::uint64_t, 3> words{};  // the lowest first
  int exponent = 0;                      // of the unit

  bool bit(int at) const noexcept {
    return (words[static_cast<std::size_t>(at / 64)] >> (at % 64) & 1) != 0;
  }
  int length() const noexcept {
    for (int i = 2; i >= 0; --i)
      if (const std::uint64_t word = words[static_cast<std::size_t>(i)]; word != 0)
        return 64 * i + static_cast<int>(std::bit_width(word));
    return 0;
  }
};

Magnitude magnitude_of(const ExactSum& total) noexcept {
  // As a number of 192 bits, by two's complement.
  std::array<std::uint64_t, 3> words{};
  for (int k = 0; k < bins; ++k) {
    const auto index = static_cast<std::size_t>(k);
    const int shift = bin_bits * (bins - 1 - k);
    const auto high = static_cast<std::uint64_t>(std::int64_t{Access::high(total)[index]});
    const std::uint64_t fill = Access::high(total)[index] < 0 ? ~std::uint64_t{0} : 0;
    const std::uint64_t source[4] = {Access::low(total)[index], high, fill, fill};
    unsigned carry = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const int from = static_cast<int>(i) - shift / 64;
      const int bits = shift % 64;
      std::uint64_t word = from < 0 ? 0 : source[from] << bits;
      if (bits > 0 && from > 0) word |= source[from - 1] >> (64 - bits);
      const bool first_carries = __builtin_add_overflow(words[i], word, &words[i]);
      const bool second_carries = __builtin_add_overflow(words[i], std::uint64_t{carry}, &words[i]);
      carry = first_carries || second_carries ? 1 : 0;
    }
  }
  Magnitude magnitude{.is_negative = words[2] >> 63 != 0,
                      .words = words,
                      .exponent = bin_bits * Access::above(total) + least_exponent};
  if (magnitude.is_negative) {
    unsigned carry = 1;
    for (std::uint64_t& word : magnitude.words)
      carry = __builtin_add_overflow(~word, std::uint64_t{carry}, &word) ? 1 : 0;
  }
  return magnitude;
}

template <class Real>
struct Format;
template <>
struct Format<double> {
  using Word = std::uint64_t;
  static constexpr int digits = 53, last = -1074;
};
template <>
struct Format<float> {
  using Word = std::uint32_t;
  static constexpr int digits = 24, last = -149;
};

/// kept * 2^exponent, by its bits: how the thread rounds does not matter.  `kept` has as many bits
/// as the type at most, or is the next power of two.
template <class Real>
Real real_of(bool is_negative, std::uint64_t kept, int exponent) noexcept {
  using Of = Format<Real>;
  const int free = Of::digits - static_cast<int>(std::bit_width(kept));
  const int up = std::min(free, exponent - Of::last);
  kept = up < 0 ? kept >> -up : kept << up;
  exponent -= up;
  const auto biased = static_cast<std::uint64_t>(exponent - Of::last);
  constexpr auto infinite = std::bit_cast<typename Of::Word>(std::numeric_limits<Real>::infinity());
  // The first bit of a normal number counts as one in the exponent.
  const std::uint64_t bits = std::min<std::uint64_t>((biased << (Of::digits - 1)) + kept, infinite);
  const std::uint64_t sign = std::uint64_t{is_negative} << (8 * sizeof(Real) - 1);
  return std::bit_cast<Real>(static_cast<typename Of::Word>(bits | sign));
}

template <class Real>
Real rounded(const ExactSum& total) noexcept {
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  switch (Access::specials(total)) {
    case 0:
      break;
    case positive_infinity:
      return infinity;
    case negative_infinity:
      return -infinity;
    default:
      return std::numeric_limits<Real>::quiet_NaN();
  }
  const Magnitude magnitude = magnitude_of(total);
  const int length = magnitude.length();
  const int dropped =
      std::max({length - Format<Real>::digits, Format<Real>::last - magnitude.exponent, 0});
  std::uint64_t kept = 0;
  for (int bit = length - 1; bit >= dropped; --bit)
    kept = kept << 1 | static_cast<std::uint64_t>(magnitude.bit(bit));
  if (dropped > 0 && dropped <= length && magnitude.bit(dropped - 1)) {
    bool is_more_than_half = (kept & 1) != 0;  // a tie goes to the even one
    for (int bit = 0; bit < dropped - 1 && !is_more_than_half; ++bit)
      is_more_than_half = magnitude.bit(bit);
    if (is_more_than_half) ++kept;
  }
  if (kept == 0) return 0;
  return real_of<Real>(magnitude.is_negative, kept, magnitude.exponent + dropped);
}

void combine_sums(const void* incoming, void* partial, std::size_t count, void*) noexcept {
  const auto* from = static_cast<const ExactSum*>(incoming);
  auto* into = static_cast<ExactSum*>(partial);
  for (std::size_t i = 0; i < count; ++i) into[i].add(from[i]);
}

}  // namespace

void ExactSum::add(std::span<const double> values) noexcept {
  const UsualArithmetic usual;
  add_values(*this, values.data(), values.size());
}

void ExactSum::add(std::span<const float> values) noexcept {
  const UsualArithmetic usual;
  add_converted(*this, values.size(), [&](std::size_t i) { return double{values[i]}; });
}

void ExactSum::add_products(std::span<const double> left, std::span<const double> right) noexcept {
  const UsualArithmetic usual;
  add_converted(*this, std::min(left.size(), right.size()),
                [&](std::size_t i) { return left[i] * right[i]; });
}

void ExactSum::add(const ExactSum& other) noexcept {
  raise(*this, first_of(other));
  specials_ |= other.specials_;
  const auto by = static_cast<std::size_t>(above_ - other.above_);
  for (std::size_t from = 0, into = by; into < bins; ++from, ++into) {
    const bool carries = __builtin_add_overflow(low_[into], other.low_[from], &low_[into]);
    high_[into] += other.high_[from] + (carries ? 1 : 0);
  }
}

double ExactSum::value() const noexcept {
  return rounded<double>(*this);
}

float ExactSum::value_as_float() const noexcept {
  return rounded<float>(*this);
}

int runtime::widest_lanes() noexcept {
  return widest();
}

void runtime::add_by(int lanes, ExactSum& total, std::span<const double> values) noexcept {
  const UsualArithmetic usual;
  if (lanes == 1) return add_each(total, values.data(), values.size());
  add_values(lanes, total, values.data(), values.size());
}

Reduction exact_addition() noexcept {
  return {.combine = combine_sums,
          .element_bytes = sizeof(ExactSum),
          .properties = {.commutative = true, .exact = true}};
}

}  // namespace tutti
