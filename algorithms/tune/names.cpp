#include "tune/names.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "tune/choose.hpp"

namespace tutti::tune {

std::string described(const Row& row, const Variant& variant) {
  std::string text = row.name;
  if (variant.lane_count > 1) text = std::to_string(variant.lane_count) + " " + text;
  if (variant.group_size > 0) text += " of " + std::to_string(variant.group_size);
  const plan::TreeFans& fans = variant.fans;
  // In a single node, the tree that is named is the one inside it.
  const bool is_inside = row.tree == Tree::knomial && fans.across.empty();
  const plan::PerRound& vector = !variant.per_round.empty() ? variant.per_round
                                 : is_inside                ? fans.in_node
                                                            : fans.across;
  if (!vector.empty()) text += " with " + text_of(vector) + " a round";
  const auto is_fibonacci = [](const plan::Branching& by) {
    return by.rule == plan::Branching::Rule::fibonacci;
  };
  if (is_fibonacci(fans.across_by))
    text += " of latency " + std::to_string(fans.across_by.latency);
  else if (row.tree == Tree::fibonacci && is_fibonacci(fans.in_node_by))
    text += " of latency " + std::to_string(fans.in_node_by.latency);
  if (fans.is_chain && variant.lane_count > 1) text += " along a chain";
  if (variant.turns > 0) text += " in " + std::to_string(variant.turns) + " turns";
  if (variant.turn_pieces > 1) text += " of " + std::to_string(variant.turn_pieces) + " pieces";
  if (variant.turn_exchanges > 0)
    text += " with " + std::to_string(variant.turn_exchanges) +
            (variant.turn_exchanges == 1 ? " exchange" : " exchanges");
  if (variant.sub_blocks > 1) text += " in " + std::to_string(variant.sub_blocks) + " sub-blocks";
  return text;
}

std::string full_name(const Row& row, const Variant& variant) {
  return described(row, variant) +
         (variant.across ? ", " + variant.across->name() + " across" : "");
}

bool may_be_named(const Row& row, std::string_view own) {
  if (const std::size_t word = own.find_first_not_of("0123456789"); word > 0)
    own.remove_prefix(std::min(word + 1, own.size()));
  const std::string_view name = row.name;
  return own == name || (own.starts_with(name) && own[name.size()] == ' ');
}

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
