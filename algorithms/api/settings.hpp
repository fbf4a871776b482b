// The TUTTI_* environment, read in this one place (TUTTI_SOFT_* by verbs/soft).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::api {

struct Setting {
  const char* name;
  const char* takes;    // what a value looks like
  const char* meaning;  // one line
};

/// Every TUTTI_* variable there is, in the order of the README.
std::span<const Setting> settings() noexcept;

/// Throws Error{invalid_argument} if the environment has a TUTTI_* variable that is none of these.
void refuse_unknown_settings();

/// "3,2,1" -> {3, 2, 1}; throws Error{invalid_argument} that begins with `origin`.
std::vector<std::uint32_t> parse_per_round(std::string_view text, const std::string& origin);

/// "16M" -> 16777216; K, M, G are powers of 1024; throws Error{invalid_argument}.
std::uint64_t parse_bytes(std::string_view text, const std::string& origin);

}  // namespace tutti::api
