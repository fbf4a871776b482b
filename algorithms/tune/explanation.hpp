// The words in which choices are explained (Choice::explanation()).
#pragma once

#include <string>

#include "plan/cost/network.hpp"
#include "tune/machine.hpp"

namespace tutti::tune {

/// Why a row is out where the call names another one.  No explanation lists it.
inline constexpr const char* another_is_asked_for = "another one is asked for";

/// "1.612 us".
std::string microseconds(plan::Picoseconds price);

/// "on fdr", "as measured on mlx5_0".
std::string words_of(const Machine& machine);

}  // namespace tutti::tune
