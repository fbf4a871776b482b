#include "microbench/machine.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace tutti::bench {

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
  cpus.reserve(order.size());
  for (const auto& [position, cpu] : order) cpus.push_back(cpu);
  return cpus;
}

bool bind_to(unsigned cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return sched_setaffinity(0, sizeof one, &one) == 0;
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
