#include "verbs/locality.hpp"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <tutti/detail/number_in.hpp>

namespace tutti::verbs {
namespace {

using detail::first_line;
using detail::number_in;

// Distances that ACPI prescribes, and assumes where the firmware has no table.
constexpr unsigned distance_on_the_spot = 10;
constexpr unsigned distance_elsewhere = 20;

std::vector<unsigned> numbers_in(const std::string& text) {
  std::istringstream words(text);
  std::vector<unsigned> numbers;
  for (unsigned number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

std::string path_of(const std::string& device, const std::string& sys) {
  return sys + "/class/infiniband/" + device + "/device/";
}

bool is_before(const NumaNode& one, const NumaNode& other) {
  return one.number < other.number;
}

unsigned distance_of(unsigned cpu, const Locality& device, const std::vector<NumaNode>& nodes) {
  if (device.near.contains(cpu)) return distance_on_the_spot;
  const auto home = std::find_if(nodes.begin(), nodes.end(),
                                 [&](const NumaNode& node) { return node.cpus.contains(cpu); });
  const auto there = std::find_if(nodes.begin(), nodes.end(), [&](const NumaNode& node) {
    return device.numa_node == node.number;
  });
  if (home == nodes.end() || there == nodes.end()) return distance_elsewhere;
  assert(std::is_sorted(nodes.begin(), nodes.end(), is_before));
  const auto column = static_cast<std::size_t>(there - nodes.begin());
  return column < home->distances.size() ? home->distances[column] : distance_elsewhere;
}

}  // namespace

Surroundings look_around(const std::string& sys) {
  Surroundings surroundings{.allowed = detail::allowed_cpus()};
  std::error_code error;
  const std::filesystem::directory_iterator folder(sys + "/devices/system/node", error);
  if (error) return surroundings;
  for (const auto& entry : folder) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    const std::optional<unsigned> number = number_in<unsigned>(std::string_view(name).substr(4));
    if (!number) continue;
    const std::string path = entry.path().string();
    surroundings.nodes.push_back({.number = *number,
                                  .cpus = detail::parse_cpu_list(first_line(path + "/cpulist")),
                                  .distances = numbers_in(first_line(path + "/distance"))});
  }
  std::sort(surroundings.nodes.begin(), surroundings.nodes.end(), is_before);
  return surroundings;
}

Locality locality_of(const std::string& device, const std::string& sys) {
  const std::string path = path_of(device, sys);
  // The kernel writes -1 where the firmware gives no node; the CPUs then are those of the bus.
  return {.numa_node = number_in<unsigned>(first_line(path + "numa_node")),
          .near = detail::parse_cpu_list(first_line(path + "local_cpulist"))};
}

std::string kernel_driver_of(const std::string& device, const std::string& sys) {
  std::error_code error;
  return std::filesystem::read_symlink(path_of(device, sys) + "driver", error).filename().string();
}

double distance_to(const Locality& device, const Surroundings& surroundings) {
  assert(device.known());
  unsigned sum = 0;
  const std::vector<unsigned> cpus = surroundings.allowed.list();
  for (const unsigned cpu : cpus) sum += distance_of(cpu, device, surroundings.nodes);
  return cpus.empty() ? 0 : static_cast<double>(sum) / static_cast<double>(cpus.size());
}

std::string text_of(const Locality& locality) {
  if (!locality.known()) return "unknown";
  const std::string cpus = locality.near.empty() ? "no CPUs" : "CPUs " + text_of(locality.near);
  return locality.numa_node ? "NUMA node " + std::to_string(*locality.numa_node) + ", " + cpus
                            : cpus;
}

}  // namespace tutti::verbs
