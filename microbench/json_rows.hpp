// Rows as JSON objects, and those as the lines of a file.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::bench {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// One object per line.
std::string json_lines(std::span<const Json> rows);

/// One row per line, flattened; the first line names the columns.  The key "against" of a row is
/// null, or has an object `beside` with the keys `beside_keys`.
std::string csv_lines(std::span<const Json> rows, const std::string& beside,
                      std::span<const char* const> beside_keys);

}  // namespace tutti::bench
