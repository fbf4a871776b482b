// Turns words of a command line into values; a wrong word is refused in one line that names the
// option, its value and what was expected.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/communicator.hpp>
#include <tutti/reduction.hpp>
#include <tutti/status.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/detail/names.hpp>
#include <tutti/detail/number_in.hpp>
#include "tune/registry.hpp"

namespace tutti::bench {

inline constexpr BuiltIn every_operator[] = {
    BuiltIn::sum,    BuiltIn::product, BuiltIn::min,         BuiltIn::max,        BuiltIn::bit_and,
    BuiltIn::bit_or, BuiltIn::bit_xor, BuiltIn::logical_and, BuiltIn::logical_or, BuiltIn::none};
inline constexpr ElementType every_type[] = {
    ElementType::int32,   ElementType::uint32,  ElementType::int64,   ElementType::uint64,
    ElementType::float32, ElementType::float64, ElementType::float16, ElementType::bfloat16};
inline constexpr auto every_way_across = detail::enumerators<Across::lanes>;
inline constexpr auto every_tree = detail::enumerators<Tree::fibonacci>;
inline constexpr auto every_notification = detail::enumerators<Notify::flag>;
inline constexpr auto every_agreement = detail::enumerators<Agreement::relaxed>;

/// The words between the commas.
inline std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = text.find(',', begin);
    words.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return words;
    begin = comma + 1;
  }
}

[[noreturn]] inline void refuse(std::string_view option, std::string_view value,
                                std::string_view expected) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}=\"{}\": expected {}", option, value, expected));
}

/// What `parse` makes of the words of a list, in which none may be there twice; they are names,
/// sizes or the like, as `kind` says.
template <class Parse>
auto parse_list(const char* option, const std::string& text, const char* kind, Parse&& parse) {
  std::vector<std::invoke_result_t<Parse&, const std::string&>> values;
  for (const std::string& word : split(text)) {
    auto value = parse(word);
    if (std::find(values.begin(), values.end(), value) != values.end())
      refuse(option, text, fmt::format("each {} once; {} is there twice", kind, word));
    values.push_back(std::move(value));
  }
  return values;
}

/// The schedules that a collective can be asked to take.
inline std::vector<Algorithm> every_algorithm() {
  std::vector<Algorithm> all{Algorithm::automatic};
  for (const tune::Row& row : tune::registry())
    if (row.collective == tune::Collective::allreduce && row.algorithm != Algorithm::automatic)
      all.push_back(row.algorithm);
  return all;
}

/// The strongest agreement that a schedule asked for by name gives; nothing for `automatic`.
inline std::optional<Agreement> agreement_of(Algorithm algorithm) {
  if (algorithm == Algorithm::automatic) return {};
  return tune::agreement_of(tune::row_of(algorithm));
}

/// Joins words: "a, b, c".
template <class All>
std::string names_of(const All& all) {
  std::string names;
  for (const auto one : all) names += (names.empty() ? "" : ", ") + std::string(name_of(one));
  return names;
}

/// The enumerator with a given name; `all` are the valid ones.
template <class All>
auto parse_name(const All& all, std::string_view option, std::string_view value) {
  for (const auto candidate : all)
    if (value == name_of(candidate)) return candidate;
  refuse(option, value, "one of " + names_of(all));
}

template <class Number>
Number parse_number(std::string_view option, std::string_view value, Number least, Number most) {
  const std::optional<Number> number = detail::number_in<Number>(value);
  if (!number || *number < least || *number > most)
    refuse(option, value, fmt::format("a number from {} to {}", least, most));
  return *number;
}

/// Refuses bitwise and logical operators on elements that are no integers.
inline void require_defined(BuiltIn op, ElementType type) {
  if (!defined_for(op, type))
    refuse("--op", name_of(op),
           fmt::format("sum, prod, min or max for --dtype {}; bitwise and logical ones need an "
                       "integer type, for example --dtype uint64",
                       name_of(type)));
}

/// Refuses `bytes`, which `text` gave, unless it is a whole number of elements.  `remedy` is this
/// program's advice.
inline void require_whole(std::string_view text, std::size_t bytes, ElementType type,
                          std::size_t each,
                          std::string_view remedy = "give another size or --dtype") {
  if (bytes % each != 0)
    refuse("--bytes", text,
           fmt::format("a multiple of {}, the size of one {}; {}", each, name_of(type), remedy));
}

inline std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace tutti::bench
