// How far the model is off, as races have found: measured over predicted time of each family of
// schedules, between the findings interpolated in the logarithms of bytes and nodes, within bounds,
// and 1 far from all of them.  So what was never measured is priced, and never taken from the
// nearest row.  Integers only, because all ranks have to agree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tune/tuning.hpp"

namespace tutti::tune {

class Corrections {
 public:
  Corrections() = default;
  explicit Corrections(const std::vector<Finding>& findings);

  /// What a price is multiplied by, in units of 1 / one.  `family`: family_of() a choice's name.
  std::int64_t factor(std::string_view family, Collective collective, std::uint64_t bytes,
                      std::uint32_t nodes, std::uint32_t ranks_per_node) const;
  static constexpr std::int64_t one = 1 << 12;

  bool empty() const noexcept { return points_.empty(); }

 private:
  struct Point {
    std::string family;
    Collective collective;
    std::uint64_t bytes;
    std::uint32_t nodes, ranks_per_node;
    std::int64_t factor;
  };
  std::vector<Point> points_;
};

/// A choice's name without its numbers: "lanes, circulant across" of "8 lanes in 2 sub-blocks,
/// circulant across".
std::string family_of(std::string_view choice_name);

}  // namespace tutti::tune
