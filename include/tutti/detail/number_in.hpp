// Reads numbers as command lines, variables and the kernel write them.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace tutti::detail {

/// The number that the text is, if all of it is one.
template <class Number>
std::optional<Number> number_in(std::string_view text) noexcept {
  Number number{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last) return std::nullopt;
  return number;
}

}  // namespace tutti::detail
