// Which CPUs of a host are near to each other, and which ranks of a node form a domain therefore:
// those that share a last-level cache within one NUMA node.  Lines travel inside a domain in a
// fraction of the time that they take between two.
//
//   CPUs          0 1 2 3 | 4 5 6 7     last-level caches
//                 0 1 2 3   4 5 6 7     one NUMA node
//   may run on    0   2     4 4-5 3-4
//   domain        0   0     4  4  none
//
// The system's word, from /sys; maps are pure.  Domains are named by their lowest CPU among hosts
// and processes, and numbered by their lowest rank in maps, as nodes are.
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
  detail::CpuSet cpus = {};  // none: the allowed CPUs are of several domains, or nothing is known
  std::string reason = {};   // what they have in common, or why there is none

  std::uint32_t name() const noexcept;  // the lowest CPU, or no_domain
};

/// Of a process that may run on `allowed`.  The caches count that more CPUs share than those of one
/// core; where there are none, or they span NUMA nodes, the node bounds the domain.
CpuDomain domain_of(const detail::CpuSet& allowed, const std::string& sys = "/sys");

/// The domain of each rank, given the names of all.  The ranks of a node are one domain where one
/// of them has none, where they are no more than `ranks_above`, and where no two share one.
std::vector<Node> domain_map(const NodeMap& nodes, std::span<const std::uint32_t> names,
                             std::size_t ranks_above);

/// Imposed instead of found: each node's ranks, in rank order, in domains of so many, the last
/// entry again for all further ones.  Needs entries of 1 and more.
std::vector<Node> imposed_domain_map(const NodeMap& nodes,
                                     std::span<const std::uint32_t> ranks_per_domain);

}  // namespace tutti::bootstrap
