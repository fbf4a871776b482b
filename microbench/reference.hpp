// Known inputs, and what an allreduce must make of them: computed by a plain fold in rank order,
// with nothing shared with the library.
//
// The input differs by rank, call and element, so that stale, misplaced or foreign data shows.  For
// every operator it is chosen such that the result depends on all ranks and is exact: floating sums
// are of small integers, products of powers of two, with which any order gives the same bits.  Such
// inputs hide order, so there are also inputs that round: their result has no single value to
// compare with, but with Agreement::identical it has the same bits on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tutti/reduction.hpp>

namespace tutti::bench {

/// The user's operator of --op user: composition of affine maps x -> a x + b modulo 2^32, a in the
/// upper half of the word, b in the lower.  Associative, not commutative.
std::uint64_t compose_affine(std::uint64_t left, std::uint64_t right) noexcept;

/// The reduction that the library is given for `op`; BuiltIn::none is the user's operator.  Throws
/// Error.
Reduction reduction_for(BuiltIn op, ElementType type);

class Reference {
 public:
  struct Inputs {
    ElementType type = ElementType::float64;
    BuiltIn op = BuiltIn::sum;
    std::uint32_t rank_count = 1;
    std::uint64_t seed = 1;
  };
  explicit Reference(const Inputs& inputs) : inputs_(inputs) {}

  /// Fills `buffer`, a whole number of elements, with the contribution of `rank` to `call`.
  void contribution(std::uint32_t rank, std::uint64_t call, std::span<std::byte> buffer) const;

  /// Whether there are inputs that round: for floating-point sums and products.
  bool can_round() const;

  /// Like contribution(), but with results that depend on order in their last bits.
  void contribution_that_rounds(std::uint32_t rank, std::uint64_t call,
                                std::span<std::byte> buffer) const;

  /// Fills `buffer` with the result of `call`.
  void expected(std::uint64_t call, std::span<std::byte> buffer) const;
  /// Like expected(), of the first `rank_count` ranks alone.
  void expected_of(std::uint32_t rank_count, std::uint64_t call, std::span<std::byte> buffer) const;

  /// The first element whose bits differ.
  std::optional<std::size_t> first_difference(std::span<const std::byte> got,
                                              std::span<const std::byte> expected) const;

  std::string text_of(std::span<const std::byte> buffer, std::size_t element) const;

 private:
  Inputs inputs_;
};

}  // namespace tutti::bench
