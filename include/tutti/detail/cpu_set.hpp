// A set of CPUs that an exchange can carry, as the kernel writes and grants it.
#pragma once

#include <sched.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::detail {

struct CpuSet {
  static constexpr unsigned cpus_max = 1024;
  std::array<std::uint64_t, cpus_max / 64> words{};

  bool contains(unsigned cpu) const noexcept { return (words[cpu / 64] >> cpu % 64 & 1) != 0; }
  void add(unsigned cpu) noexcept { words[cpu / 64] |= std::uint64_t{1} << cpu % 64; }
  unsigned count() const noexcept {
    unsigned count = 0;
    for (const std::uint64_t word : words) count += static_cast<unsigned>(std::popcount(word));
    return count;
  }
  bool empty() const noexcept { return count() == 0; }
  std::vector<unsigned> list() const {
    std::vector<unsigned> cpus;
    for (unsigned cpu = 0; cpu < cpus_max; ++cpu)
      if (contains(cpu)) cpus.push_back(cpu);
    return cpus;
  }
  friend bool operator==(const CpuSet&, const CpuSet&) = default;
};

/// The set as the kernel writes it, such as "0-3,8".
inline std::string text_of(const CpuSet& set) {
  std::string text;
  for (unsigned cpu = 0; cpu < CpuSet::cpus_max; ++cpu) {
    if (!set.contains(cpu)) continue;
    const unsigned first = cpu;
    while (cpu + 1 < CpuSet::cpus_max && set.contains(cpu + 1)) ++cpu;
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (cpu != first) text += "-" + std::to_string(cpu);
  }
  return text;
}

/// Reads a set as the kernel writes it, such as "0-3,8"; leaves out what cannot be read.
inline CpuSet parse_cpu_list(std::string_view text) {
  CpuSet set;
  const char* position = text.data();
  const char* const end = position + text.size();
  while (position < end) {
    unsigned first = 0;
    auto [next, error] = std::from_chars(position, end, first);
    if (error != std::errc()) break;
    unsigned last = first;
    if (next < end && *next == '-') {
      const auto upper = std::from_chars(next + 1, end, last);
      if (upper.ec != std::errc()) break;
      next = upper.ptr;
    }
    for (unsigned cpu = first; cpu <= last && cpu < CpuSet::cpus_max; ++cpu) set.add(cpu);
    position = next < end && *next == ',' ? next + 1 : end;
  }
  return set;
}

/// First line of a file in which the kernel says something, or "" where it cannot be read.
inline std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The CPUs on which the calling thread may run; empty if the system does not say.
inline CpuSet allowed_cpus() {
  CpuSet set;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return set;
  for (unsigned cpu = 0; cpu < CpuSet::cpus_max && cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) set.add(cpu);
  return set;
}

}  // namespace tutti::detail
