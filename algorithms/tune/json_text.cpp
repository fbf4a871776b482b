#include "tune/json_text.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <tutti/status.hpp>
#include <utility>

// In a namespace without a name, the library has no symbol outside this file: a program that is
// linked with tutti may have another version of it.
#define NLOHMANN_JSON_NAMESPACE nlohmann
#define NLOHMANN_JSON_NAMESPACE_BEGIN \
  namespace nlohmann {                \
  inline namespace {
#define NLOHMANN_JSON_NAMESPACE_END \
  }                                 \
  }
#include <nlohmann/json.hpp>

namespace tutti::tune {
namespace {

using Json = nlohmann::json;

constexpr std::size_t quoted_max = 80;
constexpr std::size_t reason_max = 200;

/// Where the reader is.  What it has just told ends at the character before the last one that it
/// has taken, or with that one: a line break there is not counted yet.
struct Place {
  std::size_t line = 1;
  bool ends_line = false;

  void take(char character) {
    if (ends_line) ++line;
    ends_line = character == '\n';
  }
};

/// Counts lines as it goes.
class Characters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Characters(const char* at, Place* place) : at_(at), place_(place) {}
  reference operator*() const { return *at_; }
  Characters& operator++() {
    place_->take(*at_++);
    return *this;
  }
  friend bool operator==(const Characters& left, const Characters& right) {
    return left.at_ == right.at_;
  }

 private:
  const char* at_;
  Place* place_;
};

/// Is told what the reader finds, and makes the tree of it.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& name, const Place& place) : name_(name), place_(place) {}
  JsonValue take() { return std::move(root_); }

  bool null() override { return add({.kind = JsonValue::Kind::null, .text = "null"}); }
  bool boolean(bool is) override {
    return add({.kind = JsonValue::Kind::boolean, .whole = is, .text = is ? "true" : "false"});
  }
  bool number_integer(number_integer_t number) override {
    return add(
        {.kind = JsonValue::Kind::number, .text = number == 0 ? "-0" : std::to_string(number)});
  }
  bool number_unsigned(number_unsigned_t number) override {
    return add({.kind = JsonValue::Kind::whole, .whole = number, .text = std::to_string(number)});
  }
  bool number_float(number_float_t, const string_t& written) override {
    return add({.kind = JsonValue::Kind::number, .text = written});
  }
  bool string(string_t& text) override {
    return add({.kind = JsonValue::Kind::text, .text = std::move(text)});
  }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open(JsonValue::Kind::object); }
  bool start_array(std::size_t) override { return open(JsonValue::Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    const auto& members = open_.back()->items;
    const auto first = std::find_if(members.begin(), members.end(),
                                    [&](const JsonValue& member) { return member.key == key; });
    if (first != members.end())
      refuse(quotation_of(key) + " is there twice, first in line " +
             std::to_string(first->key_line) + "; expected it once");
    if (members.size() == json_members_max)
      refuse("more than " + std::to_string(json_members_max) +
             " members; expected those of the schema");
    key_ = std::move(key);
    key_line_ = place_.line;
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    // Without "[json.exception.parse_error.101] parse error at line 1, column 5: ".
    std::string what = error.what();
    if (const std::size_t at = what.find(": "); at != std::string::npos && what.starts_with('['))
      what.erase(0, at + 2);
    else if (const std::size_t end = what.find("] "); end != std::string::npos)
      what.erase(0, end + 2);
    for (char& character : what)
      if (character < ' ' || character > '~') character = '?';
    refuse("no JSON: " + what.substr(0, reason_max));
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    refuse_line(name_, place_.line, reason);
  }
  bool add(JsonValue value) {
    value.line = place_.line;
    if (++values_ > json_values_max)
      refuse("more than " + std::to_string(json_values_max) + " values; expected fewer");
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    JsonValue& parent = *open_.back();
    if (parent.kind == JsonValue::Kind::object) {
      value.key = std::move(key_);
      value.key_line = key_line_;
    } else if (parent.items.size() == json_items_max) {
      refuse("a list of more than " + std::to_string(json_items_max) + "; expected fewer");
    }
    parent.items.push_back(std::move(value));
    return true;
  }
  bool open(JsonValue::Kind kind) {
    if (open_.size() == json_depth_max)
      refuse("nested deeper than " + std::to_string(json_depth_max) +
             "; expected what the schema says");
    add({.kind = kind});
    // No list grows while one of its items is open, so that pointers stay.
    open_.push_back(open_.empty() ? &root_ : &open_.back()->items.back());
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& name_;
  const Place& place_;
  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::string key_;
  std::size_t key_line_ = 1;
  std::size_t values_ = 0;
};

}  // namespace

void refuse_line(const std::string& name, std::size_t line, const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, name + ":" + std::to_string(line) + ": " + reason);
}

JsonValue parse_json(std::string_view text, const std::string& name, std::size_t first_line) {
  if (text.size() > json_bytes_max)
    refuse_line(
        name, first_line,
        std::to_string(text.size()) + " bytes; expected at most " + std::to_string(json_bytes_max));
  Place place{.line = first_line};
  Builder builder(name, place);
  const char* const begin = text.data();
  if (!Json::sax_parse(Characters(begin, &place), Characters(begin + text.size(), &place),
                       &builder))
    refuse_line(name, place.line, "no JSON");
  return builder.take();
}

std::string quotation_of(std::string_view text) {
  if (text.size() <= quoted_max) return json_string(text);
  std::size_t end = quoted_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;  // UTF-8
  return json_string(text.substr(0, end)) + "...";
}

std::string quotation_of(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::text:
      return quotation_of(value.text);
    case JsonValue::Kind::list:
      return "a list";
    case JsonValue::Kind::object:
      return "an object";
    case JsonValue::Kind::null:
    case JsonValue::Kind::boolean:
    case JsonValue::Kind::whole:
    case JsonValue::Kind::number:
      break;
  }
  return value.text.substr(0, quoted_max);
}

std::string json_string(std::string_view text) {
  constexpr const char* digits = "0123456789abcdef";
  std::string written = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte == '"' || byte == '\\') written += '\\';
    if (byte < ' ' || byte == 0x7f)
      written += std::string("\\u00") + digits[byte / 16] + digits[byte % 16];
    else
      written += character;
  }
  return written + '"';
}

}  // namespace tutti::tune
