// Which CPUs of a host are near to each other, and which ranks of a node therefore form a domain:
// those that share a last-level cache within one NUMA node.  Cache lines travel inside a domain in
// a fraction of the time that they take between two.
//
//   CPUs          0 1 2 3 | 4 5 6 7     last-level caches
//                 0 1 2 3   4 5 6 7     one NUMA node
//   may run on    0   2     4 4-5 3-4
//   domain        0   0     4  4  none
//
// The facts come from /sys; the maps are pure functions.  Hosts and processes name a domain by its
// lowest CPU; maps number domains by their lowest rank, as they number nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tutti/detail/cpu_set.hpp>
#include <vector>

#include "bootstrap/node_map.hpp"
#include "tutti/types.hpp"

namespace tutti::bootstrap {

inline constexpr std::uint32_t no_domain = UINT32_MAX;

struct CpuDomain {
  detail::CpuSet cpus =
      {};  // empty: the allowed CPUs belong to several domains, or nothing is known
  std::string reason = {};  // what the CPUs have in common, or why there is no domain

  std::uint32_t name() const noexcept;  // the lowest CPU, or no_domain
};

/// The domain of a process that may run on `allowed`.  It is the last-level cache if more CPUs
/// share it than those of one core; if there is none, or it spans NUMA nodes, the NUMA node bounds
/// the domain.
CpuDomain domain_of(const detail::CpuSet& allowed, const std::string& sys = "/sys");

/// The domain of each rank, given the names of all.  The ranks of a node are one domain if one of
/// them has no name, if they are no more than `ranks_above`, or if no two of them share a name.
std::vector<Node> domain_map(const NodeMap& nodes, std::span<const std::uint32_t> names,
                             std::size_t ranks_above);

/// Domains that are imposed instead of found: each node's ranks, in rank order, in domains of these
/// sizes; the last size is repeated for all further domains.  Every size must be at least 1.
std::vector<Node> imposed_domain_map(const NodeMap& nodes,
                                     std::span<const std::uint32_t> ranks_per_domain);

}  // namespace tutti::bootstrap
