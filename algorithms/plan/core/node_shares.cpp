#include "plan/core/node_shares.hpp"

#include <algorithm>

#include "plan/core/nodes.hpp"

namespace tutti::plan {

NodeShares::NodeShares(std::uint32_t rank_count, std::span<const Node> node_of)
    : members_(members_of_nodes(rank_count, node_of)), places_(rank_count) {
  assert(rank_count > 0);
  smallest_ = rank_count;
  for (std::uint32_t node = 0; node < node_count(); ++node) {
    const auto size = static_cast<std::uint32_t>(members_[node].size());
    smallest_ = std::min(smallest_, size);
    largest_ = std::max(largest_, size);
    for (std::uint32_t place = 0; place < size; ++place)
      places_[index_of(members_[node][place])] = {node, place};
  }
}

std::vector<std::uint32_t> NodeShares::carried_by(Rank rank) const {
  const std::uint32_t node = node_of(rank);
  std::vector<std::uint32_t> nodes;
  for (std::size_t distance = place_of(rank) + 1; distance < node_count();
       distance += members(node).size())
    nodes.push_back(ahead(node, static_cast<std::uint32_t>(distance)));
  return nodes;
}

}  // namespace tutti::plan
