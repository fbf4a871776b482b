// Networks for tests of the cost model: one like FDR InfiniBand, and arbitrary ones.
#pragma once

#include <cstdint>
#include <random>

#include "plan/cost/loggp.hpp"

namespace tutti::plan::test {

/// FDR-like, with gamma = 10 ns + bytes at 8 GB/s.
inline LogGP fdr(Picoseconds gap = 100'000) {
  return {.latency = 700'000,
          .send_overhead = 150'000,
          .receive_overhead = 50'000,
          .gap = gap,
          .per_byte = {.time = 10'000, .bytes = 68},
          .work = 10'000,
          .work_per_byte = {.time = 125}};
}

/// A generator whose numbers are alike on every machine.
class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}

  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(std::uint64_t{engine_()} * bound >> 32);
  }
  std::uint32_t between(std::uint32_t first, std::uint32_t last) {
    return first + below(last - first + 1);
  }

 private:
  std::mt19937 engine_;
};

/// A network of any proportions; every third has times so short that many of them are equal.  Rates
/// have odd divisors, so that no byte count lies halfway between two picoseconds.
inline LogGP arbitrary_network(Random& random) {
  const std::uint32_t scale = random.below(3) == 0 ? 1 : 10'000;
  const auto time = [&] { return Picoseconds{random.below(10)} * random.between(1, scale); };
  const auto rate = [&] {
    return Rate{.time = random.below(10 * scale / 100 + 2), .bytes = 2 * random.between(0, 4) + 1};
  };
  return {.latency = 1 + 3 * time(),
          .send_overhead = time(),
          .receive_overhead = time(),
          .gap = time(),
          .rank_gap = random.below(2) == 0 ? 0 : time(),
          .per_byte = rate(),
          .work = time(),
          .work_per_byte = rate()};
}

}  // namespace tutti::plan::test
