#include "tune/corrections.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace tutti::tune {
namespace {

constexpr int fraction_bits = 16;
constexpr std::int64_t doubling = std::int64_t{1} << fraction_bits;
constexpr std::array<std::int64_t, 3> reach_of_axis = {
    Corrections::reach_in_ranks_per_node * doubling, Corrections::reach_in_nodes* doubling,
    Corrections::reach_in_bytes* doubling};

/// The binary logarithm in units of 1 / doubling, rounded down: each squaring of a number between 1
/// and 2 yields a bit of it.
std::int64_t binary_logarithm(std::uint64_t value) {
  const auto whole = static_cast<int>(std::bit_width(value)) - 1;
  std::uint64_t mantissa = (value << (63 - whole)) >> 32;  // from 2^31, which is 1
  std::int64_t logarithm = whole;
  for (int bit = 0; bit < fraction_bits; ++bit) {
    mantissa = mantissa * mantissa >> 31;
    const bool is_two = mantissa >> 32 != 0;
    if (is_two) mantissa >>= 1;
    logarithm = 2 * logarithm + (is_two ? 1 : 0);
  }
  return logarithm;
}

/// measured / predicted, within bounds so wide that the means of families still differ.
std::int64_t quotient_of(plan::Picoseconds measured, plan::Picoseconds predicted) {
  constexpr std::int64_t wide = 1 << 12;
  if (measured / wide >= predicted) return wide * Corrections::one;
  if (measured <= predicted / wide) return Corrections::one / wide;
  while (measured > INT64_MAX / (2 * Corrections::one)) {  // more digits make no difference
    measured /= 2;
    predicted /= 2;
  }
  return (measured * Corrections::one + predicted / 2) / predicted;
}

/// The middle factor; of an even number, the lower one of the two in the middle.
std::int64_t middle_of(std::vector<std::int64_t> factors) {
  const auto middle = factors.begin() + static_cast<std::ptrdiff_t>((factors.size() - 1) / 2);
  std::nth_element(factors.begin(), middle, factors.end());
  return *middle;
}

bool starts_number(std::string_view word) {
  return !word.empty() && word[0] >= '0' && word[0] <= '9';
}
bool leads_to_number(std::string_view word) {
  return word == "with" || word == "in" || word == "of" || word == "by" || word == "along" ||
         word == "and";
}

}  // namespace

Corrections::Place Corrections::place_of(std::uint64_t bytes, std::uint32_t nodes,
                                         std::uint32_t ranks_per_node) {
  const auto coordinate = [](std::uint64_t value, std::uint64_t more) {
    const std::uint64_t sum =
        std::max<std::uint64_t>(value <= UINT64_MAX - more ? value + more : UINT64_MAX, 1);
    return Coordinate{.value = value, .logarithm = binary_logarithm(sum)};
  };
  return {coordinate(ranks_per_node, 0), coordinate(nodes, 0), coordinate(bytes, 8)};
}

Corrections::Corrections(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings)
    if (!finding.is_noisy) add(finding);
  const auto key = [](const Point& point) {
    return std::tuple(std::string_view(point.family), point.collective, point.place[0].value,
                      point.place[1].value, point.place[2].value);
  };
  std::sort(points_.begin(), points_.end(),
            [&](const Point& left, const Point& right) { return key(left) < key(right); });
  std::vector<Point> means;
  for (auto first = points_.begin(); first != points_.end();) {
    const auto last = std::find_if(first, points_.end(),
                                   [&](const Point& other) { return key(other) != key(*first); });
    std::int64_t sum = 0;
    for (auto point = first; point != last; ++point) sum += point->factor;
    means.push_back(*first);
    means.back().factor = sum / (last - first);
    first = last;
  }
  points_ = std::move(means);
}

void Corrections::add(const Finding& finding) {
  std::map<std::string, std::vector<std::int64_t>> quotients;  // of each family
  const auto look_at = [&](const Timing& timing) {
    if (timing.measured > 0 && timing.predicted > 0)
      quotients[family_of(timing.choice)].push_back(quotient_of(timing.measured, timing.predicted));
  };
  look_at(finding.winner);
  for (const Timing& other : finding.others) look_at(other);
  if (quotients.size() < 2) return;  // one family alone has nothing to be compared with
  std::map<std::string, std::int64_t> means;
  std::vector<std::int64_t> all;
  all.reserve(quotients.size());
  for (const auto& [family, of_family] : quotients)
    all.push_back(means[family] =
                      std::accumulate(of_family.begin(), of_family.end(), std::int64_t{0}) /
                      std::ssize(of_family));
  const std::int64_t common = middle_of(std::move(all));
  for (const auto& [family, mean] : means)
    points_.push_back({.family = family,
                       .collective = finding.collective,
                       .place = place_of(finding.bytes, finding.nodes, finding.ranks_per_node),
                       .factor = std::clamp((mean * one + common / 2) / common, least, most)});
}

std::int64_t Corrections::factor(std::string_view family, Collective collective,
                                 std::uint64_t bytes, std::uint32_t nodes,
                                 std::uint32_t ranks_per_node) const {
  struct Key {
    std::string_view family;
    Collective collective;
  };
  struct Less {
    static auto key(const Point& point) {
      return std::tuple(std::string_view(point.family), point.collective);
    }
    static auto key(const Key& wanted) { return std::tuple(wanted.family, wanted.collective); }
    bool operator()(const Point& point, const Key& wanted) const {
      return key(point) < key(wanted);
    }
    bool operator()(const Key& wanted, const Point& point) const {
      return key(wanted) < key(point);
    }
  };
  const auto [first, last] =
      std::equal_range(points_.begin(), points_.end(), Key{family, collective}, Less{});
  return interpolated({first, last}, 0, place_of(bytes, nodes, ranks_per_node)).value_or(one);
}

std::optional<std::int64_t> Corrections::interpolated(std::span<const Point> points,
                                                      std::size_t axis, const Place& place) {
  if (points.empty()) return std::nullopt;
  if (axis == place.size()) return points.front().factor;
  const Coordinate& here = place[axis];
  const std::int64_t reach = reach_of_axis[axis];
  const auto before = [axis](const Point& point, std::uint64_t value) {
    return point.place[axis].value < value;
  };
  const auto after = [axis](std::uint64_t value, const Point& point) {
    return value < point.place[axis].value;
  };

  // The nearest on either side at which the coordinates that follow have something near.
  std::optional<std::int64_t> below, above;
  std::int64_t to_below = 0, to_above = 0;
  const auto middle = std::lower_bound(points.begin(), points.end(), here.value, before);
  for (auto first = middle; first != points.end() && !above;) {
    to_above = first->place[axis].logarithm - here.logarithm;
    if (to_above > 2 * reach) break;
    const auto last = std::upper_bound(first, points.end(), first->place[axis].value, after);
    above = interpolated({first, last}, axis + 1, place);
    if (above && first->place[axis].value == here.value) return above;
    first = last;
  }
  for (auto last = middle; last != points.begin() && !below;) {
    const std::uint64_t value = (last - 1)->place[axis].value;
    to_below = here.logarithm - (last - 1)->place[axis].logarithm;
    if (to_below > 2 * reach) break;
    const auto first = std::lower_bound(points.begin(), last, value, before);
    below = interpolated({first, last}, axis + 1, place);
    last = first;
  }

  if (below && above && to_below + to_above <= 2 * reach) {
    if (to_below + to_above == 0) return below;
    return *below + (*above - *below) * to_below / (to_below + to_above);
  }
  const auto fading = [&](std::int64_t factor, std::int64_t distance) {
    return one + (factor - one) * (reach - distance) / reach;
  };
  if (below && to_below < reach) return fading(*below, to_below);
  if (above && to_above < reach) return fading(*above, to_above);
  return std::nullopt;
}

std::int64_t corrected(std::int64_t price, std::int64_t factor) {
  constexpr std::int64_t one = Corrections::one;
  return price / one * factor + price % one * factor / one;
}

std::string family_of(std::string_view choice_name) {
  std::string family;
  while (!choice_name.empty()) {
    const std::size_t comma = choice_name.find(", ");
    std::string_view clause = choice_name.substr(0, comma);
    choice_name.remove_prefix(comma == std::string_view::npos ? choice_name.size() : comma + 2);
    std::vector<std::string_view> words;
    bool leaves_out = false;  // "a round" of "with 3,2 a round"
    while (!clause.empty()) {
      const std::size_t blank = clause.find(' ');
      const std::string_view word = clause.substr(0, blank);
      clause.remove_prefix(blank == std::string_view::npos ? clause.size() : blank + 1);
      if (starts_number(word)) {
        // "of 4", "of latency 4"
        const auto first =
            std::find_if(words.end() - std::min<std::ptrdiff_t>(2, std::ssize(words)), words.end(),
                         leads_to_number);
        leaves_out = first != words.end();
        words.erase(first, words.end());
        continue;
      }
      if (leads_to_number(word) || word == "across") leaves_out = false;
      if (!leaves_out && !word.empty()) words.push_back(word);
    }
    if (words.empty()) continue;
    if (!family.empty()) family += ',';
    for (const std::string_view word : words) {
      if (!family.empty()) family += ' ';
      family += word;
    }
  }
  return family;
}

}  // namespace tutti::tune
