// The check pass: every result compared with the reference, in a pass of its own so that no timed
// call is slowed by it, under random delays if asked for.
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
  std::string what;             // of the first mismatch of all ranks, or why there was no check
};

struct CheckPlan {
  std::size_t calls = 0;
  std::uint32_t delay_us = 0;
  std::uint64_t seed = 1;
};

/// Collective.  Every fourth call is in place.  With Agreement::identical as many further calls, at
/// most 1000, take floating-point inputs that round, and their bits are compared across the ranks.
/// Throws RunFailed, Error.
CheckOutcome check_allreduce(TuttiSubject& subject, Buffers& buffers, const Options& options,
                             Exchange& exchange, const CheckPlan& plan);

/// Collective.  Broadcast (of the source) or reduce: what the root gave, or got; and that no other
/// rank's target was touched.
CheckOutcome check_rooted(Collective collective, TuttiSubject& subject, Buffers& buffers,
                          const Options& options, Exchange& exchange, const CheckPlan& plan);

/// Collective.  Those of blocks, and scans: every byte of the target, also where nothing belongs.
CheckOutcome check_blocks(Collective collective, std::size_t payload_bytes, TuttiSubject& subject,
                          Buffers& buffers, const Options& options, Exchange& exchange,
                          const CheckPlan& plan);

/// Collective.  Compares the times at which the ranks entered and left each barrier, by the one
/// clock of the machine that they share: nobody may leave before the last has entered.
CheckOutcome check_barrier(TuttiSubject& subject, Exchange& exchange, const Placement& placement,
                           const CheckPlan& plan);

}  // namespace tutti::bench
