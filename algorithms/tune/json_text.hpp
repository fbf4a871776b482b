// JSON as a tree whose values know the lines they are in.  The library that reads it is seen by
// json_text.cpp alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tune {

struct JsonValue {
  enum class Kind : std::uint8_t { null, boolean, whole, number, text, list, object };
  Kind kind = Kind::null;
  std::size_t line = 1;
  std::uint64_t whole = 0;            // whole numbers from 0
  std::string text = {};              // a string; of other numbers and words, what is written
  std::string key = {};               // of a member of an object
  std::size_t key_line = 1;           // ...
  std::vector<JsonValue> items = {};  // of a list, or the members of an object
};

/// What a text may have at most: none that is meant comes near.
inline constexpr std::size_t json_bytes_max = std::size_t{8} << 20;
inline constexpr std::size_t json_depth_max = 6;
inline constexpr std::size_t json_members_max = 32;      // of an object
inline constexpr std::size_t json_items_max = 1u << 16;  // of a list
inline constexpr std::size_t json_values_max = 1u << 20;

/// Throws Error{invalid_argument} where it is no JSON, is larger than that, or has a key twice in
/// one object.  `first_line`: the number of its first line.
JsonValue parse_json(std::string_view text, const std::string& name, std::size_t first_line = 1);

/// Throws Error{invalid_argument}, "NAME:LINE: reason".
[[noreturn]] void refuse_line(const std::string& name, std::size_t line, const std::string& reason);

/// A value as a message quotes it.
std::string quotation_of(const JsonValue& value);
/// "text", shortened, without characters that a terminal would act on.
std::string quotation_of(std::string_view text);

/// A string of JSON.
std::string json_string(std::string_view text);

}  // namespace tutti::tune
