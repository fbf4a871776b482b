// Where the ranks of this run are: which of them share a machine, which CPUs they may use, and
// whether each can have a CPU of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/exchange.hpp>
#include <vector>

#include "bootstrap/node_map.hpp"
#include "microbench/machine.hpp"
#include "microbench/options.hpp"

namespace tutti::bench {

/// What a rank says about itself in an allgather.
struct Whereabouts {
  bootstrap::HostIdentity host;
  CpuSet cpus;
  pid_t pid = 0;
};

struct Placement {
  std::vector<Whereabouts> ranks;  // in rank order, before binding
  bool oversubscribed = false;     // some machine has more ranks than CPUs allowed
  bool one_machine = true;         // all ranks run under one boot of one kernel
  std::string binding;             // one line: which ranks are bound to which CPUs, and why
};

/// Finds the placement.  Collective.  Binds the calling rank to a core of its own if `bind` is
/// asked for, all ranks of the machine may use the same CPUs (so nothing has bound them yet), and
/// there are enough.
Placement place_ranks(Exchange& exchange, bool bind);

/// What the context of a rank has to know of how ranks were started.
ContextOptions context_options_of(const RankOptions& options);

/// The node of each forked rank in an emulated network, where the ranks of a node share its ports.
std::vector<std::uint32_t> nodes_of_ranks(const RankOptions& options);

}  // namespace tutti::bench
