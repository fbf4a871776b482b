// Numbers for draws that every machine and standard library repeats: splitmix64 (G. Steele, D. Lea,
// C. Flood, Fast splittable pseudorandom number generators, OOPSLA 2014).
#pragma once

#include <cassert>
#include <cstdint>

namespace tutti::tune {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    std::uint64_t word = state_ += 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }
  /// 0 .. count - 1, alike but for count / 2^64.
  std::uint64_t below(std::uint64_t count) noexcept {
    assert(count > 0);
    return next() % count;
  }

 private:
  std::uint64_t state_;
};

}  // namespace tutti::tune
