#include "tune/topology.hpp"

#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"

namespace tutti::tune {

Topology Topology::counted() const {
  Topology all = *this;
  all.known = counts();
  return all;
}

plan::NodeCounts Topology::counts() const {
  return known ? *known : plan::counts_of_nodes(rank_count, node_of);
}

std::uint32_t Topology::node_count() const {
  return known ? known->nodes : plan::node_count_of(node_of, rank_count);
}

std::uint32_t Topology::largest_node() const {
  return counts().largest;
}

std::uint32_t Topology::smallest_node() const {
  return counts().smallest;
}

bool Topology::has_runs() const {
  return known ? known->are_runs : plan::nodes_are_runs(node_of);
}

bool Topology::has_domains() const {
  if (domain_of.empty() || plan::node_count_of(domain_of, 0) == plan::node_count_of(node_of, 0))
    return false;
  const std::size_t leaders = plan::largest_node_of(plan::nodes_of_domains(node_of, domain_of));
  return plan::largest_node_of(domain_of) + leaders < plan::slots_max / 2;
}

}  // namespace tutti::tune
