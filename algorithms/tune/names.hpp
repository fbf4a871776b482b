// The name of a choice (Choice::name()): put together, and taken apart again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plan/core/per_round.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {

/// "8 lanes in 2 sub-blocks", "bruck_alltoall with 7 a round", "4 lanes of latency 5 along a
/// chain". What is varied has to show here, so that names tell choices apart.
std::string described(const Row& row, const Variant& variant);

/// Choice::name() of a row and a variant.
std::string full_name(const Row& row, const Variant& variant);

/// Whether a name may be that of a variant of the row.
bool may_be_named(const Row& row, std::string_view own);

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
