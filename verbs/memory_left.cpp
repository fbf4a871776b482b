#include "verbs/memory_left.hpp"

#include <array>
#include <cstdint>
#include <fstream>
#include <optional>

namespace tutti::verbs {
namespace {

/// The number behind `name` in a file of names and numbers, or the first one of a file.
std::optional<std::size_t> number_in(const std::string& path, const std::string& name = {}) {
  std::ifstream file(path);
  std::size_t number = 0;
  if (name.empty()) return file >> number ? std::optional(number) : std::nullopt;
  for (std::string word; file >> word;)
    if (word == name && file >> number) return number;
  return std::nullopt;
}

/// Where control groups of a version say what they use.
struct Version {
  const char* line;  // of /proc/self/cgroup: what stands before the group
  const char* folder;
  const char* limit;  // in the second version "max" if there is none, in the first a huge number
  const char* used;
  std::array<const char*, 3> idle;  // in memory.stat: what can be had back, pages of files mostly
};
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

/// "/some/group" of "0::/some/group" or "9:memory:/some/group".
std::string own_group(const std::string& path, const std::string& before) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t found = line.find(before);
    if (found != std::string::npos && line.find('/') == found + before.size())
      return line.substr(found + before.size());
  }
  return {};
}

/// What a control group leaves to its members.  Nothing if it has no limit.
std::optional<std::size_t> left_in(const std::string& folder, const Version& version) {
  const auto limit = number_in(folder + '/' + version.limit);
  const auto used = number_in(folder + '/' + version.used);
  if (!limit || !used) return std::nullopt;
  std::size_t idle = 0;
  for (const char* const name : version.idle)
    if (*name != '\0') idle += number_in(folder + "/memory.stat", name).value_or(0);
  const std::size_t needed = *used > idle ? *used - idle : 0;
  return *limit > needed ? *limit - needed : 0;
}

}  // namespace

MemoryLeft memory_left(const MemoryFiles& files) {
  MemoryLeft left{.bytes = SIZE_MAX, .limited_by = "this host"};
  if (const auto kibibytes = number_in(files.meminfo, "MemAvailable:"))
    left.bytes = *kibibytes * 1024;
  const auto look_at = [&](const Version& version, const std::string& group) {
    const auto bytes = left_in(files.cgroups + version.folder + group, version);
    if (bytes && *bytes < left.bytes)
      left = {*bytes,
              std::string(version.limit) + " of control group " + (group.empty() ? "/" : group)};
  };
  for (const Version& version : versions) {
    std::string group = own_group(files.own_cgroup, version.line);
    for (; group.size() > 1; group.erase(group.rfind('/'))) look_at(version, group);
    // Inside a container, what is mounted may be its own group, whatever that is called outside.
    look_at(version, "");
  }
  return left;
}

}  // namespace tutti::verbs
