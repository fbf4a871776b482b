// Which ranks share a node, and within large nodes a domain (a last-level cache or a NUMA node), as
// choices see it.  It is the same on every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <tutti/types.hpp>
#include <vector>

#include "plan/core/nodes.hpp"

namespace tutti::tune {

struct Topology {
  std::uint32_t rank_count = 1;
  std::vector<Node> node_of = {};              // of each rank; empty: each is a node of its own
  std::vector<Node> domain_of = {};            // of each rank; empty: nodes are not divided
  bool shares_cpus = false;                    // some node has more ranks than CPUs for them
  bool caches_are_apart = false;               // two ranks of some node share no cache (measured)
  std::optional<plan::NodeCounts> known = {};  // of counted(): no rank changes its node any more

  /// Looks at all ranks once and for all.  A choice asks for the following hundreds of times, which
  /// takes long where there are thousands of ranks.
  Topology counted() const;
  plan::NodeCounts counts() const;

  std::uint32_t node_count() const;
  std::uint32_t largest_node() const;   // ranks in it
  std::uint32_t smallest_node() const;  // ranks in it
  bool is_one_node() const { return node_count() == 1; }
  bool has_shared_nodes() const { return node_count() < rank_count; }
  bool has_equal_nodes() const { return largest_node() * node_count() == rank_count; }
  /// Whether the ranks of each node follow each other.
  bool has_runs() const;
  /// Whether nodes are divided into domains whose ranks and leaders there are slots for.
  bool has_domains() const;
};

}  // namespace tutti::tune
