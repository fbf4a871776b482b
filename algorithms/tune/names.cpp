#include "tune/names.hpp"

#include <charconv>
#include <cstdint>

namespace tutti::tune {

NameParts parts_of(std::string_view name) {
  constexpr std::string_view comma = ", ", across = " across";
  const std::size_t at = name.find(comma);
  if (at == std::string_view::npos || !name.ends_with(across)) return {std::string(name), {}};
  const std::size_t begin = at + comma.size();
  return {std::string(name.substr(0, at)),
          std::string(name.substr(begin, name.size() - across.size() - begin))};
}

std::optional<plan::PerRound> vector_in(std::string_view name) {
  constexpr std::string_view before = " with ", after = " a round";
  const std::string_view own = name.substr(0, name.find(", "));
  const std::size_t at = own.find(before);
  if (at == std::string_view::npos) return {};
  const std::size_t begin = at + before.size(), end = own.find(after, begin);
  if (end == std::string_view::npos) return {};
  plan::PerRound vector;
  const char* place = own.data() + begin;
  const char* const last = own.data() + end;
  while (place != last) {
    std::uint32_t entry = 0;
    const auto [next, error] = std::from_chars(place, last, entry);
    if (error != std::errc() || entry == 0) return plan::PerRound();
    vector.push_back(entry);
    if (next == last) break;
    if (*next != ',') return plan::PerRound();
    place = next + 1;
  }
  return vector;
}

std::string in_thousands(std::int64_t value, const char* unit) {
  const std::string fraction = std::to_string(value % 1000);
  return std::to_string(value / 1000) + "." + std::string(3 - fraction.size(), '0') + fraction +
         " " + unit;
}

}  // namespace tutti::tune
