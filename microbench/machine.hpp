// What the figures were taken on: processor, CPUs this process may use, memory limits; and the
// binding of ranks to distinct cores.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::bench {

/// A set of CPUs that an exchange can carry.
struct CpuSet {
  static constexpr unsigned cpus_max = 1024;
  std::array<std::uint64_t, cpus_max / 64> words{};

  bool contains(unsigned cpu) const noexcept { return (words[cpu / 64] >> cpu % 64 & 1) != 0; }
  void add(unsigned cpu) noexcept { words[cpu / 64] |= std::uint64_t{1} << cpu % 64; }
  std::vector<unsigned> list() const;
  friend bool operator==(const CpuSet&, const CpuSet&) = default;
};

/// "0-3,8"
std::string text_of(const CpuSet& set);

/// "0-3,8" as the kernel writes it; what cannot be read is left out.
CpuSet parse_cpu_list(const std::string& text);

CpuSet allowed_cpus();
std::string cpu_model();

/// The CPUs of `set`, one of each core before the second of any.
std::vector<unsigned> by_core(const CpuSet& set);

/// Binds the calling thread.  False if the system refuses.
bool bind_to(unsigned cpu);

struct NumaNode {
  unsigned number = 0;
  std::string cpus;
};
std::vector<NumaNode> numa_nodes();

/// First line of a file, or "" where it cannot be read.
std::string first_line(const std::string& path);

/// "Release, GCC 12.2.0" of this build.
std::string build_text();

}  // namespace tutti::bench
