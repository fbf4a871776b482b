#include "plan/core/nodes.hpp"

#include <algorithm>
#include <cassert>

namespace tutti::plan {

std::vector<std::vector<Rank>> members_of_nodes(std::uint32_t rank_count,
                                                std::span<const Node> node_of) {
  assert(node_of.empty() || node_of.size() == rank_count);
  std::vector<std::vector<Rank>> nodes;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    const std::size_t node = node_of.empty() ? rank : index_of(node_of[rank]);
    assert(node <= nodes.size());  // numbered by lowest rank
    if (node == nodes.size()) nodes.emplace_back();
    nodes[node].push_back(Rank{rank});
  }
  return nodes;
}

std::uint32_t node_count_of(std::span<const Node> node_of, std::uint32_t rank_count) {
  if (node_of.empty()) return rank_count;
  return 1 + index_of(*std::max_element(node_of.begin(), node_of.end()));
}

std::size_t largest_node_of(std::span<const Node> node_of) {
  std::vector<std::size_t> size(node_count_of(node_of, 0));
  for (const Node node : node_of) ++size[index_of(node)];
  return size.empty() ? 1 : *std::max_element(size.begin(), size.end());
}

NodeCounts counts_of_nodes(std::uint32_t rank_count, std::span<const Node> node_of) {
  if (node_of.empty()) return {.nodes = rank_count};
  std::vector<std::uint32_t> size(node_count_of(node_of, rank_count));
  for (const Node node : node_of) ++size[index_of(node)];
  const auto [smallest, largest] = std::minmax_element(size.begin(), size.end());
  return {.nodes = static_cast<std::uint32_t>(size.size()),
          .smallest = *smallest,
          .largest = *largest,
          .are_runs = nodes_are_runs(node_of)};
}

bool nodes_are_runs(std::span<const Node> node_of) {
  for (std::size_t rank = 1; rank < node_of.size(); ++rank)
    if (index_of(node_of[rank]) < index_of(node_of[rank - 1])) return false;
  return true;
}

std::vector<Node> nodes_of_domains(std::span<const Node> node_of, std::span<const Node> domain_of) {
  assert(node_of.size() == domain_of.size());
  std::vector<Node> nodes;
  for (std::size_t rank = 0; rank < domain_of.size(); ++rank) {
    assert(index_of(domain_of[rank]) <= nodes.size());  // numbered by lowest rank
    if (index_of(domain_of[rank]) == nodes.size()) nodes.push_back(node_of[rank]);
    assert(nodes[index_of(domain_of[rank])] == node_of[rank]);
  }
  return nodes;
}

}  // namespace tutti::plan
