// See tutti/exact_sum.hpp.  For tests.
#pragma once

#include <span>
#include <tutti/exact_sum.hpp>

namespace tutti::runtime {

/// The most values that this CPU adds at once: 2, 4 or 8.
int widest_lanes() noexcept;

/// Adds in vectors of `lanes` values: 1, 2, 4 or 8, and at most widest_lanes().  The result has the
/// same bytes for each.
void add_by(int lanes, ExactSum& total, std::span<const double> values) noexcept;

}  // namespace tutti::runtime
