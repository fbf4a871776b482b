// See tutti/exact_sum.hpp.  For tests.
#pragma once

#include <span>
#include <tutti/exact_sum.hpp>

namespace tutti::runtime {

/// The most values that this CPU adds at once: 2, 4 or 8.
int widest_lanes() noexcept;

/// Adds in vectors of 1, 2, 4 or 8 values, of at most widest_lanes(); the bytes are the same.
void add_by(int lanes, ExactSum& total, std::span<const double> values) noexcept;

}  // namespace tutti::runtime
