// Checks the messages per round that a call or a context asks for against the number of ranks.  The
// result is what a schedule runs with, or a refusal that names the nearest numbers that will do.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/algorithm.hpp>

#include "plan/allreduce/decomposition.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/core/per_round.hpp"

namespace tutti::tune {

/// Throws Error{invalid_argument}: "per_round 3,2" and why it cannot be.
[[noreturn]] void refuse_vector(const plan::PerRound& vector, const std::string& why);

/// The vector asked for, which has to cover the ranks.
plan::PerRound covering(const plan::PerRound& asked, std::uint32_t rank_count);

/// A core of recursive multiplying that is asked for, or the cheapest within these bounds.
plan::PerRound core(const plan::PerRound& asked, std::uint32_t rank_count,
                    const plan::CorePrices& prices);

/// One n for all rounds, of n-way dissemination: one that can be adapted to the ranks.
std::uint32_t nway_n(const plan::PerRound& asked, std::uint32_t rank_count, Algorithm algorithm);
/// One n for the decomposition of the ranks into digits.
std::uint32_t decomposition_n(const plan::PerRound& asked, std::uint32_t rank_count,
                              Algorithm algorithm, plan::Digits digits);

}  // namespace tutti::tune
