// How far the model is off, as races have found: measured over predicted time of each family of
// schedules, divided by the median of the families in the same race.  Between findings these
// factors are interpolated in the logarithms of bytes and nodes.  They are bounded, and 1 far from
// all findings.  An error that all families of a race share comes from the parameters of the
// machine and does not tell which of them is faster.  Left in the factors, it would make families
// that were not raced look too fast or too slow.  What was never measured is priced by the model,
// and not by the nearest row.  Integers only, because all ranks have to agree.
//
//     factor
//      1.3 |        o.                      o  a finding
//          |       .   ` .
//      1.2 |      .        ` o              between two: a line, if both reach the middle
//          |     .             `.
//      1.0 |____.                `._____    one reach away from the last: 1
//          +----|---|-------|----|------  logarithm of bytes, then of nodes, then of ranks a node
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tune/tuning.hpp"

namespace tutti::tune {

class Corrections {
 public:
  Corrections() = default;
  /// Noisy findings do not count, nor does what has no price, nor a race of one family alone.  Of a
  /// family that was raced several times at one point, or in several variants in one race, the mean
  /// counts, so that the order of findings does not matter.  A family that was not in a race counts
  /// as the middle one of those that were (of an even number, the lower one of the two in the
  /// middle).
  explicit Corrections(const std::vector<Finding>& findings);

  /// What a price is multiplied by, in units of 1 / one.  `family`: family_of() a choice's name.
  std::int64_t factor(std::string_view family, Collective collective, std::uint64_t bytes,
                      std::uint32_t nodes, std::uint32_t ranks_per_node) const;
  static constexpr std::int64_t one = 1 << 12;
  static constexpr std::int64_t least = one / 2, most = 2 * one;

  /// How many times a quantity may double, or halve, until a finding says nothing any more.  Eight
  /// bytes are added to bytes first, as less than that makes no difference to a message.
  static constexpr int reach_in_bytes = 4, reach_in_nodes = 2, reach_in_ranks_per_node = 2;

  bool empty() const noexcept { return points_.empty(); }

 private:
  /// A quantity and its binary logarithm.
  struct Coordinate {
    std::uint64_t value = 0;
    std::int64_t logarithm = 0;
  };
  using Place = std::array<Coordinate, 3>;  // ranks per node, nodes, bytes
  struct Point {
    std::string family;
    Collective collective;
    Place place;
    std::int64_t factor;
  };
  void add(const Finding& finding);
  static Place place_of(std::uint64_t bytes, std::uint32_t nodes, std::uint32_t ranks_per_node);
  /// From points that are alike in all coordinates before `axis`; nothing where none is near.
  static std::optional<std::int64_t> interpolated(std::span<const Point> points, std::size_t axis,
                                                  const Place& place);

  std::vector<Point> points_;  // sorted, each place of a family once
};

/// `price` times a factor, without an overflow.
std::int64_t corrected(std::int64_t price, std::int64_t factor);

/// A choice's name without its numbers: "lanes, circulant across" of "8 lanes in 2 sub-blocks,
/// circulant across".
std::string family_of(std::string_view choice_name);

}  // namespace tutti::tune
