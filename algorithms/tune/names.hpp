// What the name of a choice says (Choice::name()), taken apart again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plan/core/per_round.hpp"

namespace tutti::tune {

/// "8 lanes" and "circulant" of "8 lanes, circulant across".
struct NameParts {
  std::string own = {}, across = {};
};
NameParts parts_of(std::string_view name);

/// The vector in the first part of a name, "with 3,2 a round"; empty if it is no vector.
std::optional<plan::PerRound> vector_in(std::string_view name);

/// "4.096 us" of 4096 and "us".
std::string in_thousands(std::int64_t value, const char* unit);

}  // namespace tutti::tune
