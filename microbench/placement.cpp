#include "microbench/placement.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "microbench/together.hpp"
#include "runtime/neighbourhood.hpp"
#include "runtime/settings.hpp"

namespace tutti::bench {
namespace {

/// Ranks under the same boot share the CPUs, whatever namespaces they are in.
std::vector<std::size_t> neighbours_of(const std::vector<Whereabouts>& ranks, std::size_t self) {
  std::vector<std::size_t> neighbours;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].host.boot == ranks[self].host.boot) neighbours.push_back(rank);
  return neighbours;
}

bool is_oversubscribed(const std::vector<Whereabouts>& ranks, std::size_t self) {
  const std::vector<std::size_t> neighbours = neighbours_of(ranks, self);
  CpuSet together;
  for (const std::size_t rank : neighbours)
    for (const unsigned cpu : ranks[rank].cpus.list()) together.add(cpu);
  return neighbours.size() > together.list().size();
}

std::string bind_self(const std::vector<Whereabouts>& ranks, std::size_t self) {
  const std::vector<std::size_t> neighbours = neighbours_of(ranks, self);
  const bool alike = std::all_of(neighbours.begin(), neighbours.end(), [&](std::size_t rank) {
    return ranks[rank].cpus == ranks[self].cpus;
  });
  if (!alike) {
    std::string found;
    for (const std::size_t rank : neighbours)
      found += fmt::format("{}{}", found.empty() ? "" : "; ", text_of(ranks[rank].cpus));
    return "left as found: ranks to CPUs " + found;
  }
  const std::vector<unsigned> cpus = by_core(ranks[self].cpus);
  if (neighbours.size() > cpus.size()) return "none: more ranks than CPUs";
  std::string bound;
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    if (neighbours[i] == self && !bind_to(cpus[i]))
      return "none: the system refused sched_setaffinity";
    bound += fmt::format("{}{}", bound.empty() ? "" : ", ", cpus[i]);
  }
  return "by this program: ranks to CPUs " + bound;
}

}  // namespace

Placement place_ranks(Exchange& exchange, bool bind) {
  const std::size_t self = index_of(exchange.self());
  const Whereabouts own{
      .host = bootstrap::host_identity(), .cpus = allowed_cpus(), .pid = ::getpid()};
  Placement placement;
  placement.ranks = gather(exchange, own);
  for (std::size_t rank = 0; rank < placement.ranks.size(); ++rank) {
    placement.oversubscribed = placement.oversubscribed || is_oversubscribed(placement.ranks, rank);
    placement.one_machine =
        placement.one_machine && placement.ranks[rank].host.boot == placement.ranks[self].host.boot;
  }
  placement.binding = bind ? bind_self(placement.ranks, self) : "none: --bind none";
  return placement;
}

ContextOptions context_options_of(const RankOptions& options) {
  ContextOptions context;
  if (!options.ranks_per_node.empty()) context.ranks_per_node = options.ranks_per_node;
  context.placement = options.placement;
  return context;
}

std::vector<std::uint32_t> nodes_of_ranks(const RankOptions& options) {
  const runtime::ContextSettings settings = runtime::context_settings(context_options_of(options));
  std::vector<std::uint32_t> node_of;
  for (const Node node : runtime::imposed_nodes(*options.local, settings).node)
    node_of.push_back(index_of(node));
  return node_of;
}

}  // namespace tutti::bench
