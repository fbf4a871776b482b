// An associative operator that does not commute, inputs that differ by rank, call and element, and
// the naive reference.
#pragma once

#include <cstdint>
#include <tutti/reduction.hpp>
#include <vector>

namespace tutti::test {

/// Composition of x -> a x + b modulo 2^32, with a in the high half.
constexpr std::uint64_t compose(std::uint64_t left, std::uint64_t right) {
  const auto a = static_cast<std::uint32_t>(left >> 32), b = static_cast<std::uint32_t>(left);
  const auto c = static_cast<std::uint32_t>(right >> 32), d = static_cast<std::uint32_t>(right);
  return std::uint64_t{a * c} << 32 | std::uint32_t{a * d + b};
}
static_assert(compose(0x300000001, 0x500000004) != compose(0x500000004, 0x300000001));

constexpr std::uint64_t add(std::uint64_t left, std::uint64_t right) {
  return left + right;
}
constexpr std::uint64_t greater(std::uint64_t left, std::uint64_t right) {
  return left > right ? left : right;
}

/// Both halves odd, so that composition loses nothing.
constexpr std::uint64_t input(std::uint32_t rank, std::uint64_t call, std::size_t element) {
  std::uint64_t x = (rank + 1) * 0x9e3779b97f4a7c15u + call * 0xbf58476d1ce4e5b9u + element;
  x ^= x >> 31;
  return (x * 0x94d049bb133111ebu) | 0x100000001u;
}

/// One of the three operators that the tests run, with its reference.
struct Job {
  const char* name;
  Reduction reduction;
  std::uint64_t (*fold)(std::uint64_t, std::uint64_t);

  std::uint64_t expected(std::uint32_t rank_count, std::uint64_t call, std::size_t element) const {
    std::uint64_t value = input(0, call, element);
    for (std::uint32_t rank = 1; rank < rank_count; ++rank)
      value = fold(value, input(rank, call, element));
    return value;
  }
};

inline Job sum_job() {
  return {"sum", built_in_reduction(BuiltIn::sum, ElementType::uint64), add};
}
inline Job max_job() {
  return {"max", built_in_reduction(BuiltIn::max, ElementType::uint64), greater};
}
inline Job ordered_job() {
  return {"ordered", elementwise<std::uint64_t, compose>({}), compose};
}

/// Every ordered vector of entries 1 .. `largest` whose product of (entry + 1) covers `rank_count`
/// while lowering its last entry by one no longer does.
inline std::vector<std::vector<std::uint32_t>> minimal_vectors(std::uint32_t rank_count,
                                                               std::uint32_t largest) {
  std::vector<std::vector<std::uint32_t>> found;
  std::vector<std::uint32_t> prefix;
  const auto extend = [&](const auto& self, std::uint64_t product) -> void {
    for (std::uint32_t entry = 1; entry <= largest; ++entry) {
      prefix.push_back(entry);
      if (product * (entry + 1) < rank_count) {
        self(self, product * (entry + 1));
        prefix.pop_back();
      } else {
        found.push_back(prefix);
        prefix.pop_back();
        break;
      }
    }
  };
  if (rank_count > 1) extend(extend, 1);
  return found;
}

}  // namespace tutti::test
