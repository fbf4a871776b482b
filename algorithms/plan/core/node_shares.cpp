#include "plan/core/node_shares.hpp"

#include <algorithm>
#include <numeric>

#include "plan/core/nodes.hpp"

namespace tutti::plan {

NodeShares::NodeShares(std::uint32_t rank_count, std::span<const Node> node_of)
    : members_(rank_count), first_(node_count_of(node_of, rank_count) + 1), places_(rank_count) {
  assert(rank_count > 0 && (node_of.empty() || node_of.size() == rank_count));
  // Until all are counted, first_[node + 1] is the size of that node.
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    const std::uint32_t node = node_of.empty() ? rank : index_of(node_of[rank]);
    places_[rank] = {node, first_[node + 1]++};
  }
  const auto [smallest, largest] = std::minmax_element(first_.begin() + 1, first_.end());
  smallest_ = *smallest;
  largest_ = *largest;
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    members_[first_[places_[rank].node] + places_[rank].place] = Rank{rank};
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
