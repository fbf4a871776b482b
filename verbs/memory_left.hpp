// How much memory can still be allocated.  Allocating more does not fail, but wakes the
// out-of-memory killer.
#pragma once

#include <cstddef>
#include <string>

namespace tutti::verbs {

/// Files in which the kernel says how much there is; tests have their own.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string own_cgroup = "/proc/self/cgroup";
  std::string cgroups = "/sys/fs/cgroup";
};

struct MemoryLeft {
  std::size_t bytes = 0;   // SIZE_MAX where the kernel does not say
  std::string limited_by;  // "this host", or the control group whose limit is nearest
};

/// The memory that can be allocated without taking any from other processes: what the host has
/// available, within the limits of this process's control group and of the groups above it.
MemoryLeft memory_left(const MemoryFiles& files = {});

}  // namespace tutti::verbs
