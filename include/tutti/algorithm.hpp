// The schedules that a collective can be asked to take by name.  The table in algorithms/README.md
// says which schedule keeps which promise.  A schedule that cannot keep a promise is refused, and
// the error lists the ones that can.
#pragma once

#include <cstdint>

namespace tutti {

/// A schedule, alike on every rank.  Names in quotes are those of command lines and results.
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
  shared_ring,              // "shared_ring": identical bits, along a ring of nodes, where any rank
                            // of a node does the work of its node; also of an allgather(v) or a
                            // reduce_scatter, which have no other schedule by name
  circulant,                // "circulant": identical bits, for large payloads, any number of ranks
                            // and operators that commute, on few connections
  canonical_halving,        // "canonical_halving": reproducible bits, for large payloads of many
                            // ranks on few connections
};

/// How barrier and allreduce use the nodes that ranks share (Communicator::node()); alike on every
/// rank.  With leader and lanes the schedule runs across the nodes, with a stage in shared memory
/// before it and one after it.
enum class Across : std::uint8_t {
  automatic,  // "automatic": by price or a rule; flat where a schedule or a vector is given
  flat,       // "flat": the schedule runs over all ranks
  leader,     // "leader": over one rank of each node, which alone uses the network
  lanes,      // "lanes": a part of the payload for each of as many ranks as the smallest node has
};

/// The tree of a broadcast or a reduce: over the nodes, or over the ranks if there is one node;
/// alike on every rank.
enum class Tree : std::uint8_t {
  automatic,  // "automatic": what costs least over the nodes, a chain of them as well; where
              // TUTTI_PER_ROUND says more, and within a node, knomial
  knomial,    // "knomial": messages per round as given, or what costs least
  binomial,   // "binomial": one message per round
  fibonacci,  // "fibonacci": each rank that has the payload sends it on, again and again; optimal
              // in the postal model
};

}  // namespace tutti
