#include "microbench/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tutti/status.hpp>
#include <type_traits>

#include "microbench/options.hpp"

namespace tutti::bench {
namespace {

/// Elements of 16 bits, looked at as floats.
template <class T>
constexpr bool is_narrow = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

/// The finaliser of SplitMix64: neighbouring inputs give unrelated outputs.
constexpr std::uint64_t mix(std::uint64_t word) noexcept {
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
  word = (word ^ word >> 27) * 0x94d049bb133111eb;
  return word ^ word >> 31;
}
constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;

template <class T>
T one_bit(std::uint64_t random) noexcept {
  return static_cast<T>(static_cast<std::make_unsigned_t<T>>(1) << random % (8 * sizeof(T)));
}

/// Input of integer operators.  Logical ones must not be saturated by the first few ranks, so an
/// absorbing value comes from about one rank in 2 P.
template <class T>
T integer_value(BuiltIn op, std::uint64_t random, std::uint32_t rank_count) noexcept {
  const bool rare = random >> 32 < (std::uint64_t{1} << 31) / rank_count;
  switch (op) {
    case BuiltIn::product:
      return static_cast<T>(random | 1);  // an even factor would end in zeros
    case BuiltIn::bit_and:
      return static_cast<T>(~one_bit<T>(random));
    case BuiltIn::bit_or:
      return one_bit<T>(random);
    case BuiltIn::logical_and:
      return rare ? T{0} : static_cast<T>(random | 2);
    case BuiltIn::logical_or:
      return rare ? static_cast<T>(random | 2) : T{0};
    case BuiltIn::none:
      return static_cast<T>(random | std::uint64_t{1} << 32);  // a odd: no loss
    case BuiltIn::sum:
    case BuiltIn::min:
    case BuiltIn::max:
    case BuiltIn::bit_xor:
      break;
  }
  return static_cast<T>(random);
}

/// Sums stay below 2^24, the integers that a float holds, up to 16,000 ranks.  Products of +-1/2,
/// +-1 and +-2 cannot leave the exponents of a float below 126 ranks, and hardly ever above.
template <class T>
T floating_value(BuiltIn op, std::uint64_t random) noexcept {
  if (op == BuiltIn::product) {
    const T magnitude = std::ldexp(T{1}, static_cast<int>(random % 3) - 1);
    return (random >> 32 & 1) != 0 ? -magnitude : magnitude;
  }
  const T value = static_cast<T>(static_cast<int>(random % 2001) - 1000);
  // min and max order the two zeros; a sum of them is +0 unless all are -0.
  return value == 0 && op != BuiltIn::sum && (random >> 32 & 1) != 0 ? -value : value;
}

/// Any magnitude between 2^-8 and 2^8 with all bits of the mantissa for sums; 1/2 .. 2 for
/// products, which stay within the exponents of a float for 126 ranks.
template <class T>
T rounding_value(BuiltIn op, std::uint64_t random) noexcept {
  const T mantissa = T{1} + std::ldexp(static_cast<T>(random >> 11), -53);
  const int exponent =
      op == BuiltIn::sum ? static_cast<int>(random & 15) - 8 : static_cast<int>(random & 1) - 1;
  const T magnitude = std::ldexp(mantissa, exponent);
  return (random & 16) != 0 ? -magnitude : magnitude;
}

/// Sums stay below the integers that the type holds, up to that many ranks; products of up to 14
/// ranks within the exponents of a half, and for more of them they are +-1.
template <class T>
T narrow_value(BuiltIn op, std::uint64_t random, std::uint32_t rank_count) noexcept {
  const bool sign = (random >> 32 & 1) != 0;
  if (op == BuiltIn::product) {
    const int exponent = rank_count <= 14 ? static_cast<int>(random % 3) - 1 : 0;
    return T(std::ldexp(sign ? -1.0f : 1.0f, exponent));
  }
  constexpr std::uint32_t integers = std::is_same_v<T, Half> ? 2048 : 256;
  const std::uint32_t largest = std::clamp(integers / rank_count, 1u, 1000u);
  const auto magnitude = static_cast<float>(random % (largest + 1));
  return T(sign && (magnitude != 0 || op != BuiltIn::sum) ? -magnitude : magnitude);
}

template <class T>
T value_for(BuiltIn op, std::uint64_t random, std::uint32_t rank_count) noexcept {
  if constexpr (is_narrow<T>)
    return narrow_value<T>(op, random, rank_count);
  else if constexpr (std::is_floating_point_v<T>)
    return floating_value<T>(op, random);
  else
    return integer_value<T>(op, random, rank_count);
}

template <class T>
bool less(T left, T right) noexcept {
  if constexpr (std::is_floating_point_v<T>)
    if (left == right) return std::signbit(left) && !std::signbit(right);
  return left < right;
}

template <class T>
T fold_integer(BuiltIn op, T left, T right) noexcept {
  using Unsigned = std::make_unsigned_t<T>;  // wraps where the signed type may not
  const auto one = static_cast<Unsigned>(left);
  const auto other = static_cast<Unsigned>(right);
  switch (op) {
    case BuiltIn::none:
      return static_cast<T>(compose_affine(one, other));
    case BuiltIn::sum:
      return static_cast<T>(one + other);
    case BuiltIn::product:
      return static_cast<T>(one * other);
    case BuiltIn::bit_and:
      return static_cast<T>(one & other);
    case BuiltIn::bit_or:
      return static_cast<T>(one | other);
    case BuiltIn::bit_xor:
      return static_cast<T>(one ^ other);
    case BuiltIn::logical_and:
      return left != 0 && right != 0 ? T{1} : T{0};
    case BuiltIn::logical_or:
      return left != 0 || right != 0 ? T{1} : T{0};
    case BuiltIn::min:
    case BuiltIn::max:
      break;
  }
  return T{0};
}

template <class T>
T fold_wide(BuiltIn op, T left, T right) noexcept {
  if (op == BuiltIn::min) return less(right, left) ? right : left;
  if (op == BuiltIn::max) return less(left, right) ? right : left;
  if constexpr (std::is_floating_point_v<T>)
    return op == BuiltIn::product ? left * right : left + right;
  else
    return fold_integer(op, left, right);
}

template <class T>
T fold(BuiltIn op, T left, T right) noexcept {
  if constexpr (is_narrow<T>)
    return T(fold_wide(op, static_cast<float>(left), static_cast<float>(right)));
  else
    return fold_wide(op, left, right);
}

template <class T>
void store(std::span<std::byte> buffer, std::size_t element, T value) noexcept {
  std::memcpy(buffer.data() + element * sizeof(T), &value, sizeof(T));
}

template <class T>
T load(std::span<const std::byte> buffer, std::size_t element) noexcept {
  T value;
  std::memcpy(&value, buffer.data() + element * sizeof(T), sizeof(T));
  return value;
}

std::uint64_t key_of(const Reference::Inputs& inputs, std::uint32_t rank, std::uint64_t call) {
  return mix(mix(inputs.seed + golden * rank) + golden * call);
}

/// One rank's inputs to one call, element by element.
template <class T>
class Contribution {
 public:
  Contribution(const Reference::Inputs& inputs, std::uint32_t rank, std::uint64_t call)
      : inputs_(inputs), key_(key_of(inputs, rank, call)) {}
  T operator[](std::size_t element) const noexcept {
    return value_for<T>(inputs_.op, mix(key_ + golden * (element + 1)), inputs_.rank_count);
  }

 private:
  const Reference::Inputs& inputs_;
  std::uint64_t key_;
};

template <class T>
void fill_expected(const Reference::Inputs& inputs, std::uint32_t rank_count, std::uint64_t call,
                   std::span<std::byte> buffer) {
  const std::size_t count = buffer.size() / sizeof(T);
  const Contribution<T> first(inputs, 0, call);
  for (std::size_t i = 0; i < count; ++i) store(buffer, i, first[i]);
  for (std::uint32_t rank = 1; rank < rank_count; ++rank) {
    const Contribution<T> next(inputs, rank, call);
    for (std::size_t i = 0; i < count; ++i)
      store(buffer, i, fold(inputs.op, load<T>(buffer, i), next[i]));
  }
}

/// Calls `function` with a value of the C++ type that `type` stands for.
template <class Function>
auto with_type(ElementType type, Function function) {
  switch (type) {
    case ElementType::int32:
      return function(std::int32_t{});
    case ElementType::uint32:
      return function(std::uint32_t{});
    case ElementType::int64:
      return function(std::int64_t{});
    case ElementType::uint64:
      return function(std::uint64_t{});
    case ElementType::float32:
      return function(float{});
    case ElementType::float64:
      return function(double{});
    case ElementType::float16:
      return function(Half{});
    case ElementType::bfloat16:
      return function(BFloat16{});
    case ElementType::other:
      break;
  }
  throw Error(ErrorCode::invalid_argument, "an element type that has no reference");
}

}  // namespace

std::uint64_t compose_affine(std::uint64_t left, std::uint64_t right) noexcept {
  const auto left_factor = static_cast<std::uint32_t>(left >> 32);
  const auto right_factor = static_cast<std::uint32_t>(right >> 32);
  const std::uint32_t factor = left_factor * right_factor;
  const std::uint32_t offset =
      left_factor * static_cast<std::uint32_t>(right) + static_cast<std::uint32_t>(left);
  return std::uint64_t{factor} << 32 | offset;
}

Reduction reduction_for(BuiltIn op, ElementType type) {
  if (op != BuiltIn::none) return built_in_reduction(op, type);
  return elementwise<std::uint64_t, compose_affine>({.commutative = false});
}

void Reference::contribution(std::uint32_t rank, std::uint64_t call,
                             std::span<std::byte> buffer) const {
  with_type(inputs_.type, [&]<class T>(T) {
    const Contribution<T> values(inputs_, rank, call);
    for (std::size_t i = 0; i < buffer.size() / sizeof(T); ++i) store(buffer, i, values[i]);
  });
}

bool Reference::can_round() const {
  const bool rounds = inputs_.op == BuiltIn::sum || inputs_.op == BuiltIn::product;
  return rounds && is_floating(inputs_.type);
}

void Reference::contribution_that_rounds(std::uint32_t rank, std::uint64_t call,
                                         std::span<std::byte> buffer) const {
  const std::uint64_t key = key_of(inputs_, rank, call);
  with_type(inputs_.type, [&]<class T>(T) {
    if constexpr (std::is_floating_point_v<T>)
      for (std::size_t i = 0; i < buffer.size() / sizeof(T); ++i)
        store(buffer, i, rounding_value<T>(inputs_.op, mix(key + golden * (i + 1))));
    else if constexpr (is_narrow<T>)
      for (std::size_t i = 0; i < buffer.size() / sizeof(T); ++i)
        store(buffer, i, T(rounding_value<float>(inputs_.op, mix(key + golden * (i + 1)))));
  });
}

void Reference::expected(std::uint64_t call, std::span<std::byte> buffer) const {
  expected_of(inputs_.rank_count, call, buffer);
}

void Reference::expected_of(std::uint32_t rank_count, std::uint64_t call,
                            std::span<std::byte> buffer) const {
  with_type(inputs_.type, [&]<class T>(T) { fill_expected<T>(inputs_, rank_count, call, buffer); });
}

std::optional<std::size_t> Reference::first_difference(std::span<const std::byte> got,
                                                       std::span<const std::byte> expected) const {
  if (got.empty() || std::memcmp(got.data(), expected.data(), got.size()) == 0) return {};
  std::size_t byte = 0;
  while (got[byte] == expected[byte]) ++byte;
  return byte / element_bytes(inputs_.type);
}

std::string Reference::text_of(std::span<const std::byte> buffer, std::size_t element) const {
  return with_type(inputs_.type, [&]<class T>(T) {
    const T value = load<T>(buffer, element);
    if constexpr (is_narrow<T>)
      return fmt::format("{}", static_cast<float>(value));
    else if constexpr (std::is_floating_point_v<T>)
      return fmt::format("{}", value);
    else
      return inputs_.op == BuiltIn::sum ? fmt::format("{}", value) : fmt::format("{:#x}", value);
  });
}

}  // namespace tutti::bench
