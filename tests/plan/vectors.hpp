// Vectors of messages per round for exhaustive tests, found without the code under test.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::plan::test {

/// Calls `visit` with every ordered vector of entries 1 .. `largest` that covers `rank_count` (at
/// least 2) and no longer does when its last entry is lowered by one.
inline void for_each_minimal_vector(
    std::uint32_t rank_count, std::uint32_t largest,
    const std::function<void(const std::vector<std::uint32_t>&)>& visit) {
  std::vector<std::uint32_t> vector;
  const std::function<void(std::uint64_t)> extend = [&](std::uint64_t reached) {
    for (std::uint32_t entry = 1; entry <= largest; ++entry) {
      vector.push_back(entry);
      const std::uint64_t product = reached * (entry + 1);
      if (product < rank_count)
        extend(product);
      else if (reached * entry < rank_count)
        visit(vector);
      vector.pop_back();
    }
  };
  extend(1);
}

/// Calls `visit` with every ordered vector, the empty one included, of entries 1 .. `largest` whose
/// product of (entry + 1) is at most `rank_count`.
inline void for_each_core(std::uint32_t rank_count, std::uint32_t largest,
                          const std::function<void(const std::vector<std::uint32_t>&)>& visit) {
  std::vector<std::uint32_t> vector;
  const std::function<void(std::uint64_t)> extend = [&](std::uint64_t product) {
    visit(vector);
    for (std::uint32_t entry = 1; entry <= largest && product * (entry + 1) <= rank_count;
         ++entry) {
      vector.push_back(entry);
      extend(product * (entry + 1));
      vector.pop_back();
    }
  };
  extend(1);
}

/// Least k with (messages + 1)^k >= rank_count.
inline std::uint32_t exact_rounds(std::uint32_t rank_count, std::uint32_t messages) {
  std::uint32_t rounds = 0;
  for (std::uint64_t reached = 1; reached < rank_count; ++rounds) reached *= messages + 1;
  return rounds;
}

}  // namespace tutti::plan::test
