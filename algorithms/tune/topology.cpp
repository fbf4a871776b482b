#include "tune/topology.hpp"

#include "plan/allreduce/lanes.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"

namespace tutti::tune {

std::uint32_t Topology::node_count() const {
  return plan::node_count_of(node_of, rank_count);
}

std::uint32_t Topology::largest_node() const {
  return static_cast<std::uint32_t>(plan::largest_node_of(node_of));
}

std::uint32_t Topology::smallest_node() const {
  return node_of.empty() ? 1 : plan::lanes_max(rank_count, node_of);
}

bool Topology::has_runs() const {
  return plan::nodes_are_runs(node_of);
}

bool Topology::has_domains() const {
  if (domain_of.empty() || plan::node_count_of(domain_of, 0) == plan::node_count_of(node_of, 0))
    return false;
  const std::size_t leaders = plan::largest_node_of(plan::nodes_of_domains(node_of, domain_of));
  return plan::largest_node_of(domain_of) + leaders < plan::slots_max / 2;
}

}  // namespace tutti::tune
