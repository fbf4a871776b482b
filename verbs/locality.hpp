// How near a device is to the CPUs that this process may run on, as the kernel says in /sys.
#pragma once

#include <optional>
#include <string>
#include <tutti/detail/cpu_set.hpp>
#include <vector>

namespace tutti::verbs {

/// Where a device is; virtual devices have no place.
struct Locality {
  std::optional<unsigned> numa_node = {};
  detail::CpuSet near = {};

  bool known() const noexcept { return numa_node || !near.empty(); }
};

struct NumaNode {
  unsigned number = 0;
  detail::CpuSet cpus = {};
  std::vector<unsigned> distances = {};  // to the nodes, in ascending order of their numbers
};

/// The CPUs and NUMA nodes by which it is decided how near a device is.
struct Surroundings {
  detail::CpuSet allowed = {};       // where the calling thread may run; empty: unknown
  std::vector<NumaNode> nodes = {};  // in ascending order of their numbers
};

/// The surroundings of the calling thread now; ranks may be bound at any time before the choice.
Surroundings look_around(const std::string& sys = "/sys");

/// The locality of an RDMA device; unknown where the kernel says nothing.
Locality locality_of(const std::string& device, const std::string& sys = "/sys");

/// The kernel module that drives an RDMA device, e.g. "mlx5_core"; empty for a virtual device.
std::string kernel_driver_of(const std::string& device, const std::string& sys = "/sys");

/// Mean distance from the allowed CPUs to a device of known locality, as ACPI counts it: 10 within
/// one NUMA node.  0 where the allowed CPUs are not known.
double distance_to(const Locality& device, const Surroundings& surroundings);

/// "NUMA node 1, CPUs 8-15", or "unknown".
std::string text_of(const Locality& locality);

}  // namespace tutti::verbs
