#include "plan/rooted_tree.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

#include "plan/nodes.hpp"

namespace tutti::plan {
namespace {

/// ceil(log2(count)).
std::uint16_t levels_of(std::uint32_t count) {
  return static_cast<std::uint16_t>(std::bit_width(count - 1));
}

/// Levels and rounds before those of an edge.
struct Before {
  std::uint16_t levels = 0;
  std::uint16_t rounds = 0;

  TreeEdge edge(Rank peer, std::uint16_t level) const {
    return {.peer = peer,
            .level = static_cast<std::uint16_t>(levels + level),
            .round = static_cast<std::uint16_t>(rounds + level)};
  }
};

/// Of a binomial tree over `count` vertices, of which `rank_at` tells the ranks.
template <class RankAt>
void add_edges(TreePlace& place, std::uint32_t count, std::uint32_t vertex, const Before& before,
               const RankAt& rank_at) {
  const auto own_level =
      static_cast<std::uint16_t>(vertex == 0 ? levels_of(count) : std::countr_zero(vertex));
  if (vertex != 0) place.parent = before.edge(rank_at(vertex & (vertex - 1)), own_level);
  for (std::uint16_t level = 0; level < own_level; ++level) {
    const std::uint64_t child = vertex + (std::uint64_t{1} << level);
    if (child >= count) break;
    place.children.push_back(before.edge(rank_at(static_cast<std::uint32_t>(child)), level));
  }
}

/// Of a tree whose root is everybody's parent.
template <class RankAt>
void add_flat_edges(TreePlace& place, std::uint32_t count, std::uint32_t vertex,
                    const RankAt& rank_at) {
  const auto level_of = [](std::uint32_t child) { return static_cast<std::uint16_t>(child - 1); };
  if (vertex != 0) {
    place.parent = {.peer = rank_at(0), .level = level_of(vertex)};
    return;
  }
  for (std::uint32_t child = 1; child < count; ++child)
    place.children.push_back({.peer = rank_at(child), .level = level_of(child)});
}

/// Members of a cycle of `count`, counted from the member `root`.
std::uint32_t vertex_of(std::uint32_t member, std::uint32_t root, std::uint32_t count) {
  return member >= root ? member - root : member + (count - root);
}
std::uint32_t member_of(std::uint32_t vertex, std::uint32_t root, std::uint32_t count) {
  return vertex < count - root ? vertex + root : vertex - (count - root);
}

std::uint32_t position_of(Rank rank, std::span<const Rank> members) {
  return static_cast<std::uint32_t>(std::find(members.begin(), members.end(), rank) -
                                    members.begin());
}

}  // namespace

TreePlace binomial_tree(Rank self, Rank root, std::uint32_t rank_count,
                        std::span<const Node> node_of, InNode in_node) {
  assert(index_of(self) < rank_count && index_of(root) < rank_count);
  TreePlace place;
  if (node_of.empty()) {
    place.level_count = place.round_count = levels_of(rank_count);
    add_edges(
        place, rank_count, vertex_of(index_of(self), index_of(root), rank_count), {},
        [&](std::uint32_t vertex) { return Rank{member_of(vertex, index_of(root), rank_count)}; });
    return place;
  }
  const std::vector<std::vector<Rank>> nodes = members_of_nodes(rank_count, node_of);
  std::size_t largest = 1;
  for (const std::vector<Rank>& node : nodes) largest = std::max(largest, node.size());
  const auto node_count = static_cast<std::uint32_t>(nodes.size());
  const bool is_flat = in_node == InNode::flat;
  Before across{.levels = levels_of(static_cast<std::uint32_t>(largest))};
  across.rounds = across.levels;
  if (is_flat)
    across = {.levels = static_cast<std::uint16_t>(largest - 1),
              .rounds = static_cast<std::uint16_t>(largest > 1 ? 1 : 0)};
  place.level_count = static_cast<std::uint16_t>(across.levels + levels_of(node_count));
  place.round_count = static_cast<std::uint16_t>(across.rounds + levels_of(node_count));

  // The tree of the own node, then, for its representative, that of the nodes.
  const std::uint32_t root_node = index_of(node_of[index_of(root)]);
  const std::uint32_t node = index_of(node_of[index_of(self)]);
  const std::vector<Rank>& members = nodes[node];
  const auto count = static_cast<std::uint32_t>(members.size());
  const std::uint32_t first = node == root_node ? position_of(root, members) : 0;
  const std::uint32_t vertex = vertex_of(position_of(self, members), first, count);
  const auto member_at = [&](std::uint32_t other) {
    return members[member_of(other, first, count)];
  };
  if (is_flat)
    add_flat_edges(place, count, vertex, member_at);
  else
    add_edges(place, count, vertex, {}, member_at);
  if (vertex != 0) return place;
  add_edges(place, node_count, vertex_of(node, root_node, node_count), across,
            [&](std::uint32_t other) {
              return other == 0 ? root : nodes[member_of(other, root_node, node_count)].front();
            });
  return place;
}

}  // namespace tutti::plan
