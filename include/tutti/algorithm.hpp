// The schedules that a collective can be asked to take by name.  Which of them keeps which promise
// is told by the table in algorithms/README.md; a schedule that cannot do what it is asked for
// is refused with the ones that can.
#pragma once

#include <cstdint>

namespace tutti {

/// The same on every rank.  Names in quotes are those of command lines and results.
enum class Algorithm : std::uint8_t {
  automatic,              // "automatic": by operator, agreement, payload and number of ranks
  dissemination,          // "dissemination": overlapping; barrier and idempotent operators
  two_partial,            // "two_partial_dissemination": any number of ranks, any vector
  recursive_multiplying,  // "recursive_multiplying": identical bits
};

}  // namespace tutti
