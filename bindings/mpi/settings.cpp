#include "settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::interposer {
namespace {

[[noreturn]] void refuse(const char* name, std::string_view value, const char* expected) {
  throw Error(ErrorCode::invalid_argument,
              std::string(name) + "=\"" + std::string(value) + "\": expected " + expected);
}

std::optional<std::string_view> value_of(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

/// A number with an optional K, M or G behind it.
template <class Number>
void read_number(const char* name, Number& result, std::uint64_t greatest, const char* expected) {
  const std::optional<std::string_view> value = value_of(name);
  if (!value) return;
  std::uint64_t number = 0;
  std::size_t i = 0;
  for (; i < value->size() && (*value)[i] >= '0' && (*value)[i] <= '9'; ++i) {
    if (number > std::numeric_limits<std::uint64_t>::max() / 10 - 9) refuse(name, *value, expected);
    number = number * 10 + static_cast<std::uint64_t>((*value)[i] - '0');
  }
  const std::string_view unit = value->substr(i);
  const unsigned shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : 0;
  if (i == 0 || (shift == 0 && !unit.empty()) || number > greatest >> shift)
    refuse(name, *value, expected);
  result = static_cast<Number>(number << shift);
}

constexpr Mode every_mode[] = {Mode::off, Mode::on, Mode::verify, Mode::report};

}  // namespace

const char* name_of(Mode mode) noexcept {
  switch (mode) {
    case Mode::off:
      return "off";
    case Mode::on:
      return "on";
    case Mode::verify:
      return "verify";
    case Mode::report:
      return "report";
  }
  return "";
}

Settings settings_of_environment() {
  Settings settings;
  if (const auto mode = value_of("TUTTI_MPI")) {
    const auto found = std::find_if(std::begin(every_mode), std::end(every_mode),
                                    [&](Mode one) { return *mode == name_of(one); });
    if (found == std::end(every_mode)) refuse("TUTTI_MPI", *mode, "off, on, verify or report");
    settings.mode = *found;
  }
  read_number("TUTTI_MPI_AFTER", settings.after, 1'000'000'000, "a number of calls, such as 3");
  read_number("TUTTI_MPI_BYTES", settings.bytes_max, std::uint64_t{1} << 30,
              "bytes, such as 64K or 1M, at most 1G");
  read_number("TUTTI_MPI_COMMUNICATORS", settings.communicators_max, 1'000'000'000,
              "a number, such as 64");
  if (const auto table = value_of("TUTTI_MPI_TABLE")) {
    if (*table != "0" && *table != "1") refuse("TUTTI_MPI_TABLE", *table, "0 or 1");
    settings.table = *table == "1";
  }
  if (settings.mode == Mode::verify || settings.mode == Mode::report) settings.table = true;
  return settings;
}

}  // namespace tutti::interposer
