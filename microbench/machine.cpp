#include "microbench/machine.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <utility>

namespace tutti::bench {

std::vector<unsigned> CpuSet::list() const {
  std::vector<unsigned> cpus;
  for (unsigned cpu = 0; cpu < cpus_max; ++cpu)
    if (contains(cpu)) cpus.push_back(cpu);
  return cpus;
}

std::string text_of(const CpuSet& set) {
  std::string text;
  for (unsigned cpu = 0; cpu < CpuSet::cpus_max; ++cpu) {
    if (!set.contains(cpu)) continue;
    unsigned last = cpu;
    while (last + 1 < CpuSet::cpus_max && set.contains(last + 1)) ++last;
    if (!text.empty()) text += ',';
    text += last == cpu ? fmt::format("{}", cpu) : fmt::format("{}-{}", cpu, last);
    cpu = last;
  }
  return text;
}

CpuSet parse_cpu_list(const std::string& text) {
  CpuSet set;
  const char* position = text.data();
  const char* const end = text.data() + text.size();
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

CpuSet allowed_cpus() {
  CpuSet set;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return set;
  for (unsigned cpu = 0; cpu < CpuSet::cpus_max && cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) set.add(cpu);
  return set;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::vector<unsigned> by_core(const CpuSet& set) {
  std::vector<std::pair<unsigned, unsigned>> order;  // position within its core, CPU
  for (const unsigned cpu : set.list()) {
    const CpuSet siblings = parse_cpu_list(first_line(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu)));
    unsigned position = 0;
    for (const unsigned sibling : siblings.list())
      if (sibling < cpu && set.contains(sibling)) ++position;
    order.emplace_back(position, cpu);
  }
  std::sort(order.begin(), order.end());
  std::vector<unsigned> cpus;
  for (const auto& [position, cpu] : order) cpus.push_back(cpu);
  return cpus;
}

bool bind_to(unsigned cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return sched_setaffinity(0, sizeof one, &one) == 0;
}

std::vector<NumaNode> numa_nodes() {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    unsigned number = 0;
    if (!name.starts_with("node")) continue;
    const auto [end, bad] = std::from_chars(name.data() + 4, name.data() + name.size(), number);
    if (bad != std::errc() || end != name.data() + name.size()) continue;
    nodes.push_back({number, first_line(entry.path().string() + "/cpulist")});
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& one, const NumaNode& other) { return one.number < other.number; });
  return nodes;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string build_text() {
#if defined(__clang__)
  const std::string compiler = "Clang " __clang_version__;
#else
  const std::string compiler = "GCC " __VERSION__;
#endif
  return fmt::format("{}, {}", TUTTI_BENCH_BUILD_TYPE, compiler);
}

}  // namespace tutti::bench
