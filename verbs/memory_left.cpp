#include "verbs/memory_left.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <vector>

namespace tutti::verbs {
namespace {

/// The number that a file begins with.
std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// Sum of the numbers that follow `names` in a file of names and numbers; empty if it has none.
std::optional<std::size_t> sum_in(const std::string& path, std::span<const char* const> names) {
  std::ifstream file(path);
  std::optional<std::size_t> sum;
  std::size_t number = 0;
  for (std::string word; file >> word;)
    if (std::find(names.begin(), names.end(), word) != names.end() && file >> number)
      sum = sum.value_or(0) + number;
  return sum;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// Names of the files and values in which the control groups of one version say what they use.
struct Version {
  const char* line;  // text before the group in a line of /proc/self/cgroup
  const char* folder;
  const char* limit;  // without one, version 2 says "max" and version 1 a huge number
  const char* used;
  std::array<const char*, 3> idle;  // reclaimable memory in memory.stat, mostly pages of files
};
/// From here on a number means that there is no limit: no machine has that much memory.
constexpr std::size_t no_limit_from = std::size_t{1} << 62;

constexpr Version versions[] = {
    {"0::",
     "",
     "memory.max",
     "memory.current",
     {"inactive_file", "active_file", "slab_reclaimable"}},
    {":memory:",
     "/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file", ""}},
};

/// Finds "/some/group" in the line "0::/some/group" or "9:memory:/some/group".
std::string own_group(std::span<const std::string> lines, const std::string& before) {
  for (const std::string& line : lines) {
    const std::size_t found = line.find(before);
    if (found != std::string::npos && line.find('/') == found + before.size())
      return line.substr(found + before.size());
  }
  return {};
}

/// Memory that a control group leaves to its members, if that is less than `least`.  Reads no more
/// files than it must, because an arena calls it many times.
std::optional<std::size_t> left_in(const std::string& folder, const Version& version,
                                   std::size_t least) {
  const auto limit = number_in(folder + '/' + version.limit);
  if (!limit || *limit >= no_limit_from) return std::nullopt;
  const auto used = number_in(folder + '/' + version.used);
  if (!used || (*used <= *limit && *limit - *used >= least)) return std::nullopt;
  const std::size_t idle = sum_in(folder + "/memory.stat", version.idle).value_or(0);
  const std::size_t needed = *used > idle ? *used - idle : 0;
  const std::size_t left = *limit > needed ? *limit - needed : 0;
  assert(left <= *limit);
  return left < least ? std::optional(left) : std::nullopt;
}

}  // namespace

MemoryLeft memory_left(const MemoryFiles& files) {
  MemoryLeft left{.bytes = SIZE_MAX, .limited_by = "this host"};
  constexpr const char* available[] = {"MemAvailable:"};
  if (const auto kibibytes = sum_in(files.meminfo, available)) left.bytes = *kibibytes * 1024;
  const auto look_at = [&](const Version& version, const std::string& group) {
    if (const auto bytes = left_in(files.cgroups + version.folder + group, version, left.bytes))
      left = {*bytes,
              std::string(version.limit) + " of control group " + (group.empty() ? "/" : group)};
  };
  assert(left.bytes == SIZE_MAX || left.bytes % 1024 == 0);
  const std::vector<std::string> groups = lines_of(files.own_cgroup);
  for (const Version& version : versions) {
    std::string group = own_group(groups, version.line);
    for (; group.size() > 1; group.erase(group.rfind('/'))) look_at(version, group);
    // Inside a container its own group may be mounted here, whatever its name is outside.
    look_at(version, "");
  }
  return left;
}

}  // namespace tutti::verbs
