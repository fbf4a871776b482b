// How much memory there is to be had: allocating more does not fail, it wakes the out-of-memory
// killer.
#pragma once

#include <cstddef>
#include <string>

namespace tutti::verbs {

/// Where the kernel says so; tests have their own.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string own_cgroup = "/proc/self/cgroup";
  std::string cgroups = "/sys/fs/cgroup";
};

struct MemoryLeft {
  std::size_t bytes = 0;   // SIZE_MAX where the kernel does not say
  std::string limited_by;  // "this host", or the control group whose limit is nearest
};

/// Without pushing anybody out: what the host has available, and at most what the limits of the
/// process's control group and of those above it leave.
MemoryLeft memory_left(const MemoryFiles& files = {});

}  // namespace tutti::verbs
