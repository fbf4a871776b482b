// The check pass compares every result with the reference.  It is a pass of its own, so that it
// slows no timed call, and makes random delays if asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tutti/exchange.hpp>

#include "microbench/options.hpp"
#include "microbench/placement.hpp"
#include "microbench/tutti_side.hpp"

namespace tutti::bench {

struct CheckOutcome {
  std::optional<bool> correct;  // absent where it cannot be checked
  std::string what;             // the first mismatch of all ranks, or why there was no check
};

struct CheckPlan {
  std::size_t calls = 0;
  std::uint32_t delay_us = 0;
  std::uint64_t seed = 1;
};

/// Checks a collective that has a payload.  Collective.  Compares every byte of the target (of a
/// broadcast, the source) with what the call has to write, also on ranks and outside of blocks
/// where nothing may be touched.  Every fourth call of an allreduce is in place.  With
/// Agreement::identical, as many further calls of it, at most 1000, have floating-point inputs that
/// round, and their bits are compared across the ranks.  Throws RunFailed, Error.
CheckOutcome check_payload(Collective collective, std::size_t payload_bytes, TuttiSubject& subject,
                           Buffers& buffers, const Options& options, Exchange& exchange,
                           const CheckPlan& plan);

/// Compares the times at which the ranks entered and left each barrier, by the clock of the machine
/// that they share: no rank may leave before the last has entered.  Collective.
CheckOutcome check_barrier(TuttiSubject& subject, Exchange& exchange, const Placement& placement,
                           const CheckPlan& plan);

}  // namespace tutti::bench
