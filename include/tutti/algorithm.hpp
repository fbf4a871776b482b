// The schedules that a collective can be asked to take by name.  Which of them keeps which promise
// is told by the table in algorithms/README.md; a schedule that cannot do what it is asked for
// is refused with the ones that can.
#pragma once

#include <cstdint>

namespace tutti {

/// The same on every rank.  Names in quotes are those of command lines and results.
enum class Algorithm : std::uint8_t {
  automatic,                // "automatic": by operator, agreement, payload and number of ranks
  dissemination,            // "dissemination": overlapping; barrier and idempotent operators
  two_partial,              // "two_partial_dissemination": any number of ranks, any vector
  recursive_multiplying,    // "recursive_multiplying": identical bits
  nway,                     // "nway": adapted n-way dissemination, one n for all rounds
  nway_inverse,             // "nway_inverse": the same, with the inverse operator
  decomposition,            // "decomposition": out-of-band partial results, a prefix per digit
  decomposition_digits,     // "decomposition_digits": the same, a message per unit of a digit
  canonical_dissemination,  // "canonical_dissemination": reproducible bits, blocks of a fixed tree
  chunked_fold,             // "chunked_fold": reproducible bits, for large payloads
  ring,                     // "ring": identical bits, for large payloads on two connections
  shared_ring,              // "shared_ring": the same along the ring of nodes, by whichever rank of
                            // a node is there; allreduce only
  circulant,                // "circulant": identical bits, for large payloads on few connections
  canonical_halving,        // "canonical_halving": reproducible bits, for large payloads of many
                            // ranks on few connections
};

/// How barrier and allreduce regard that ranks share nodes (Communicator::node()); the same on
/// every rank.  A schedule then runs across the nodes, and shared memory leads to it and back.
enum class Across : std::uint8_t {
  automatic,  // "automatic": by payload and shape; flat where a schedule or a vector is given
  flat,       // "flat": the schedule runs over all ranks
  leader,     // "leader": over one rank of each node, which alone uses the network
  lanes,      // "lanes": a part of the payload for each of as many ranks as the smallest node has
};

/// Along which tree a broadcast or a reduce goes: over the nodes, or over the ranks of the only
/// one; the same on every rank.
enum class Tree : std::uint8_t {
  automatic,  // "automatic": over nodes fibonacci, for a latency that goes with the payload, but
              // for broadcasts of up to 256 bytes and where TUTTI_PER_ROUND says more; else
              // knomial; long payloads, from 64 KiB on, along a chain of the nodes where that is
              // faster
  knomial,    // "knomial": messages per round as given, or by a rule
  binomial,   // "binomial": one message per round
  fibonacci,  // "fibonacci": whoever has the payload goes on sending; optimal in the postal model
};

}  // namespace tutti
