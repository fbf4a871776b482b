#include "bootstrap/domain.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "tutti/detail/check.hpp"

namespace tutti::bootstrap {
namespace {

using detail::CpuSet;
using detail::first_line;

bool is_within(const CpuSet& part, const CpuSet& whole) {
  for (std::size_t i = 0; i < part.words.size(); ++i)
    if ((part.words[i] & ~whole.words[i]) != 0) return false;
  return true;
}

CpuSet common(CpuSet one, const CpuSet& other) {
  for (std::size_t i = 0; i < one.words.size(); ++i) one.words[i] &= other.words[i];
  return one;
}

/// The entries of a folder whose names are `prefix` and a number.
std::vector<std::filesystem::path> numbered(const std::string& folder, std::string_view prefix) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_one = name.size() > prefix.size() && name.starts_with(prefix) &&
                        name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    if (is_one) found.push_back(entry->path());
  }
  return found;
}

/// The CPUs that share the last cache with `cpu`; empty if only its own core uses that cache.
CpuSet sharers_of_last_cache(unsigned cpu, const std::string& sys) {
  CpuSet first, last;
  unsigned lowest = UINT32_MAX, highest = 0;
  for (const std::filesystem::path& cache :
       numbered(sys + "/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache", "index")) {
    if (first_line(cache / "type") == "Instruction") continue;
    const std::string text = first_line(cache / "level");
    unsigned level = 0;
    std::from_chars(text.data(), text.data() + text.size(), level);
    const CpuSet sharers = detail::parse_cpu_list(first_line(cache / "shared_cpu_list"));
    if (level == 0 || !sharers.contains(cpu)) continue;
    if (level < lowest) {
      lowest = level;
      first = sharers;
    }
    if (level > highest) {
      highest = level;
      last = sharers;
    }
  }
  return last == first ? CpuSet() : last;
}

CpuSet numa_node_of(unsigned cpu, const std::string& sys) {
  for (const std::filesystem::path& node : numbered(sys + "/devices/system/node", "node"))
    if (const CpuSet cpus = detail::parse_cpu_list(first_line(node / "cpulist"));
        cpus.contains(cpu))
      return cpus;
  return {};
}

/// Numbers each (node, name) by its lowest rank.
std::vector<Node> numbered_by_lowest_rank(std::span<const std::pair<Node, std::uint32_t>> names) {
  std::map<std::pair<Node, std::uint32_t>, Node> numbers;
  std::vector<Node> map;
  for (const auto& name : names)
    map.push_back(
        numbers.try_emplace(name, Node{static_cast<std::uint32_t>(numbers.size())}).first->second);
  return map;
}

}  // namespace

std::uint32_t CpuDomain::name() const noexcept {
  for (unsigned cpu = 0; cpu < CpuSet::cpus_max; ++cpu)
    if (cpus.contains(cpu)) return cpu;
  return no_domain;
}

CpuDomain domain_of(const CpuSet& allowed, const std::string& sys) {
  if (allowed.empty()) return {.reason = "the allowed CPUs are not known"};
  const unsigned cpu = CpuDomain{.cpus = allowed}.name();
  const CpuSet cache = sharers_of_last_cache(cpu, sys);
  const CpuSet node = numa_node_of(cpu, sys);
  if (cache.empty() && node.empty())
    return {.reason = "/sys names no shared cache and no NUMA node"};
  CpuDomain domain;
  if (cache.empty() || (!node.empty() && !is_within(cache, node))) {
    domain.cpus = cache.empty() ? node : common(cache, node);
    domain.reason = "NUMA node";
  } else {
    domain.cpus = cache;
    domain.reason = "last-level cache";
  }
  if (is_within(allowed, domain.cpus)) return domain;
  return {.reason = "the allowed CPUs belong to several domains"};
}

std::vector<Node> domain_map(const NodeMap& nodes, std::span<const std::uint32_t> names,
                             std::size_t ranks_above) {
  detail::check(names.size() == nodes.node.size(), "every rank has said its domain");
  struct Members {
    std::size_t ranks = 0;
    bool all_have_one = true, two_share_one = false;
    std::vector<std::uint32_t> seen = {};
  };
  std::vector<Members> members(nodes.node_count);
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    Members& node = members[index_of(nodes.node[rank])];
    ++node.ranks;
    node.all_have_one = node.all_have_one && names[rank] != no_domain;
    if (std::find(node.seen.begin(), node.seen.end(), names[rank]) != node.seen.end())
      node.two_share_one = true;
    else
      node.seen.push_back(names[rank]);
  }
  std::vector<std::pair<Node, std::uint32_t>> domains;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    const Members& node = members[index_of(nodes.node[rank])];
    const bool is_divided = node.all_have_one && node.two_share_one && node.ranks > ranks_above;
    domains.emplace_back(nodes.node[rank], is_divided ? names[rank] : no_domain);
  }
  return numbered_by_lowest_rank(domains);
}

std::vector<Node> imposed_domain_map(const NodeMap& nodes,
                                     std::span<const std::uint32_t> ranks_per_domain) {
  detail::check(!ranks_per_domain.empty(), "a shape has a size of domains");
  std::vector<std::uint32_t> names;
  for (const LocalRank rank : nodes.local_rank) {
    std::uint32_t domain = 0, left = index_of(rank);
    for (std::size_t i = 0;; i = std::min(i + 1, ranks_per_domain.size() - 1), ++domain) {
      detail::check(ranks_per_domain[i] > 0, "a domain holds at least one rank");
      if (left < ranks_per_domain[i]) break;
      left -= ranks_per_domain[i];
    }
    names.push_back(domain);
  }
  return domain_map(nodes, names, 0);
}

}  // namespace tutti::bootstrap
