// The probes of the tuner: how long single messages, streams of messages, waiting messages and
// messages inside a node take here, as samples of which tune/fit.hpp makes the parameters of a
// machine.  They use the verbs layer and the shared memory as the library does, so that they run on
// a card, on the software device, on a network that it emulates, and in virtual time, where each
// sample is the formula of its probe.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <tutti/exchange.hpp>
#include <vector>

#include "tune/fit.hpp"

namespace tutti::bench {

struct NetworkProbeOptions {
  std::string device = {};                   // as ContextOptions::device
  Timeout budget = std::chrono::seconds(3);  // at least 50 ms; with making the connections
  std::vector<tune::Probe> only = {};        // these; empty: all
  /// Called on all ranks for each probe that these ranks can make, but had no time for.
  std::function<void(tune::Probe)> on_untried = {};
};

/// Collective.  `nodes` says which node each rank is of; ranks of a node must be able to map each
/// other's memory.  Returns the same samples on every rank.  Between nodes, rank 0 measures with
/// the first rank of another node, with the other ranks of its node, and with ranks of all other
/// nodes; inside, two ranks of the first node that has them.  What cannot be measured with these
/// ranks, or is not permitted here, has no samples.
///
/// The probes take turns, in 96 passes at most.  They end when the budget is spent, or after a
/// quarter of it if the median of each is then known to a fiftieth.  Each sample is the least mean
/// of up to 32 blocks of up to 16 repetitions.  In virtual time (if this process has joined one)
/// repetitions are counted instead, and the budget bounds them.
///
/// Throws Error{invalid_argument} for a budget below 50 ms, other Errors alike on all ranks, and
/// RunFailed where a rank does not answer for a minute.
std::vector<tune::Sample> probe_network(Exchange& exchange, std::span<const Node> nodes,
                                        const NetworkProbeOptions& options);

}  // namespace tutti::bench
