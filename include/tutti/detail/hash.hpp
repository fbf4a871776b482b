// A hash of numbers that is the same on all ranks: FNV-1a.
#pragma once

#include <cstdint>

namespace tutti::detail {

class Hash {
 public:
  void add(std::uint64_t number) noexcept { value_ = (value_ ^ number) * 0x100000001b3; }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace tutti::detail
