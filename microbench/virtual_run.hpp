// Calls in virtual time: how long a collective would take on the emulated network, for any number
// of ranks on any number of CPUs.
#pragma once

#include <cstddef>
#include <tutti/exchange.hpp>

#include "microbench/measure.hpp"
#include "microbench/subject.hpp"

namespace tutti::bench {

inline constexpr std::size_t virtual_calls_default = 3;  // without faults all calls take as long

/// Samples calls.  Collective.  Each sample is the makespan of one call: all ranks start at the
/// same instant, and the last one's end counts.
Samples measure_virtual(Subject& subject, std::size_t calls, Exchange& exchange);

}  // namespace tutti::bench
