#include "api/neighbourhood.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <tutti/status.hpp>

namespace tutti::api {
namespace {

constexpr std::uint64_t placement_seed = 1;  // of Placement::random

bootstrap::NodeMap imposed(std::size_t rank_count, const ContextSettings& settings) {
  return bootstrap::imposed_node_map({.rank_count = static_cast<std::uint32_t>(rank_count),
                                      .ranks_per_node = settings.ranks_per_node,
                                      .placement = settings.placement,
                                      .seed = placement_seed});
}

/// A rank of the same node that cannot be asked for its memory: on another host, or behind a
/// namespace in which its process id means nothing.
std::optional<std::uint32_t> out_of_reach(std::uint32_t self, std::span<const NeighbourCard> cards,
                                          const bootstrap::NodeMap& nodes) {
  for (std::uint32_t rank = 0; rank < cards.size(); ++rank)
    if (nodes.node[rank] == nodes.node[self] &&
        !(bootstrap::may_share_memory(cards[rank].host, cards[self].host) &&
          bootstrap::share_process_ids(cards[rank].host, cards[self].host)))
      return rank;
  return std::nullopt;
}

/// Maps the windows of this rank's node.  Empty, or why that is impossible.
std::string map_neighbours(Neighbourhood& all, std::uint32_t self,
                           std::span<const NeighbourCard> cards) {
  if (const auto other = out_of_reach(self, cards, all.nodes))
    return "rank " + std::to_string(*other) +
           " is on another host, or in another namespace (IPC, UTS or process ids)";
  for (std::uint32_t rank = 0; rank < cards.size(); ++rank) {
    if (rank == self || all.nodes.node[rank] != all.nodes.node[self]) continue;
    try {
      all.windows[rank] = {.mapping = shm::map_window(cards[rank].window),
                           .address = cards[rank].window.address};
    } catch (const Error& error) {
      return "rank " + std::to_string(rank) + ": " + error.what();
    }
  }
  return {};
}

}  // namespace

Neighbourhood meet_neighbours(Rank self, std::span<const NeighbourCard> cards,
                              const ContextSettings& settings, const GatherTexts& gather) {
  const bool is_imposed = !settings.ranks_per_node.empty();
  std::vector<bootstrap::HostIdentity> hosts;
  for (const NeighbourCard& card : cards) hosts.push_back(card.host);
  Neighbourhood all{
      .nodes = is_imposed ? imposed(cards.size(), settings) : bootstrap::node_map(hosts),
      .windows = std::vector<NeighbourWindow>(cards.size()),
      .remark = {}};
  if (all.nodes.node_count == cards.size()) return all;

  std::array<char, obstacle_bytes> mine{};
  const std::string obstacle = map_neighbours(all, index_of(self), cards);
  std::strncpy(mine.data(), obstacle.c_str(), mine.size() - 1);
  const std::vector<char> obstacles = gather(mine);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const char* const text = &obstacles[rank * obstacle_bytes];
    if (text[0] == '\0') continue;
    if (all.remark.empty())
      all.remark =
          "rank " + std::to_string(rank) + " shares no memory with its host's others: " + text;
    hosts[rank] = {};  // like nobody's
  }
  if (all.remark.empty()) return all;
  if (is_imposed)
    throw Error(ErrorCode::unsupported,
                "the node shape (TUTTI_RANKS_PER_NODE or code) cannot be had: " + all.remark);
  all.nodes = bootstrap::node_map(hosts);
  for (std::uint32_t rank = 0; rank < cards.size(); ++rank)
    if (all.nodes.node[rank] != all.nodes.node[index_of(self)]) all.windows[rank] = {};
  return all;
}

}  // namespace tutti::api
