// See tutti/exact_sum.hpp.  For tests.
#pragma once

#include <span>
#include <tutti/exact_sum.hpp>

namespace tutti::runtime {

/// Adds in vectors of 1 or 2 values, or of as many as this CPU takes; the bytes are the same.
void add_by(int lanes, ExactSum& total, std::span<const double> values) noexcept;

}  // namespace tutti::runtime
