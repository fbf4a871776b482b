#include "plan/rooted/rooted_tree.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "plan/core/node_shares.hpp"

namespace tutti::plan {
namespace {

/// The part of one of the nested trees on which all ranks have to agree.
struct Levels {
  Branching branching;
  PerRound fans;
  std::uint16_t edge_count;  // numbers that there are
};

/// Adds the edges of a vertex of a k-nomial tree over `count` vertices, whose ranks `rank_at`
/// tells; `before` counts the numbers and levels of the trees below it.
template <class RankAt>
void add_knomial_edges(TreePlace& place, std::uint32_t count, std::uint32_t vertex,
                       const PerRound& fans, TreeEdge before, const RankAt& rank_at) {
  std::uint64_t stride = 1;
  for (const std::uint32_t fan : fans) {
    const auto edge = [&](std::uint64_t other, std::uint64_t digit) {
      return TreeEdge{.peer = rank_at(static_cast<std::uint32_t>(other)),
                      .number = static_cast<std::uint16_t>(before.number + digit - 1),
                      .level = before.level};
    };
    if (const std::uint64_t digit = vertex / stride % (fan + std::uint64_t{1}); digit != 0) {
      place.parent = edge(vertex - digit * stride, digit);
      return;
    }
    for (std::uint64_t digit = 1; digit <= fan && vertex + digit * stride < count; ++digit)
      place.children.push_back(edge(vertex + digit * stride, digit));
    stride *= fan + std::uint64_t{1};
    before.number = static_cast<std::uint16_t>(before.number + fan);
    ++before.level;
  }
}

/// add_knomial_edges() for a divided tree.  Vertices of one depth send to their children in one
/// round.
template <class RankAt>
void add_divided_edges(TreePlace& place, std::uint32_t count, std::uint32_t vertex,
                       const Levels& tree, const TreeEdge& before, const RankAt& rank_at) {
  std::uint32_t top = 0;  // of the subtree of `count` vertices that has `vertex`
  for (std::size_t level = tree.fans.size(); level-- > 0 && count > 1;) {
    const std::vector<std::uint32_t> sizes = subtree_sizes(count, tree.branching);
    const auto edge = [&](std::uint32_t other, std::size_t child) {
      return TreeEdge{.peer = rank_at(other),
                      .number = static_cast<std::uint16_t>(before.number + child),
                      .level = static_cast<std::uint16_t>(before.level + level)};
    };
    std::uint32_t below = top + 1;
    if (vertex == top) {
      for (std::size_t child = 0; child < sizes.size(); below += sizes[child++])
        place.children.push_back(edge(below, child));
      return;
    }
    std::size_t child = 0;
    while (vertex >= below + sizes[child]) below += sizes[child++];
    place.parent = edge(top, child);
    top = below;
    count = sizes[child];
  }
}

template <class RankAt>
void add_edges(TreePlace& place, std::uint32_t count, std::uint32_t vertex, const Levels& tree,
               const TreeEdge& before, const RankAt& rank_at) {
  if (tree.branching.rule == Branching::Rule::fans)
    add_knomial_edges(place, count, vertex, tree.fans, before, rank_at);
  else
    add_divided_edges(place, count, vertex, tree, before, rank_at);
}

/// add_knomial_edges() for a chain.
template <class RankAt>
void add_chain_edges(TreePlace& place, std::uint32_t count, std::uint32_t vertex, TreeEdge edge,
                     const RankAt& rank_at) {
  if (vertex > 0) {
    edge.peer = rank_at(vertex - 1);
    place.parent = edge;
  }
  if (vertex + 1 < count) {
    edge.peer = rank_at(vertex + 1);
    place.children.push_back(edge);
  }
}

/// The given fans, or ones if they are too few, without what is superfluous.
PerRound fans_for(const PerRound& given, std::uint32_t count) {
  PerRound fans = covers(count, given) ? given : uniform(count, 1);
  std::uint64_t covered = 1;
  std::size_t levels = 0;
  while (covered < count) {
    std::uint32_t& fan = fans[levels++];
    fan = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(fan, (count + covered - 1) / covered - 1));
    covered *= fan + std::uint64_t{1};
  }
  fans.resize(levels);
  return fans;
}

/// The levels of a tree over at most `count` vertices.  A k-nomial vertex has children of several
/// levels, a vertex of another tree has children of one level, and the root has the most.
Levels levels_of(const PerRound& given, const Branching& branching, std::uint32_t count) {
  const bool by_fans = branching.rule == Branching::Rule::fans;
  Levels tree{branching, by_fans ? fans_for(given, count) : children_by_level(count, branching), 0};
  const std::uint32_t edges = by_fans ? std::accumulate(tree.fans.begin(), tree.fans.end(), 0u)
                                      : (tree.fans.empty() ? 0 : tree.fans.back());
  tree.edge_count = static_cast<std::uint16_t>(edges);
  return tree;
}

/// The levels of the tree over so many nodes.
Levels levels_across(const TreeFans& fans, std::uint32_t count) {
  if (!fans.is_chain) return levels_of(fans.across, fans.across_by, count);
  const std::uint16_t edges = count > 1 ? 1 : 0;
  return {{}, PerRound(edges, 1), edges};
}

/// The number of a member of a cycle of `count`, counted from the member `root`, and back.
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

std::string tree_name(const TreePlace& place) {
  if (place.rule == Branching::Rule::fibonacci) return "fibonacci_tree";
  const PerRound& fans = place.fans;
  const auto is_one = [](std::uint32_t fan) { return fan == 1; };
  if (std::all_of(fans.begin(), fans.end(), is_one)) return "binomial_tree";
  return fans.size() == 1 ? "flat_tree" : "knomial_tree";
}

TreePlace nested_tree(Rank self, Rank root, std::uint32_t rank_count, std::span<const Node> node_of,
                      const TreeFans& fans) {
  assert(index_of(self) < rank_count && index_of(root) < rank_count);
  TreePlace place;
  const auto add_across = [&](std::uint32_t count, std::uint32_t vertex, const Levels& tree,
                              const TreeEdge& before, const auto& rank_at) {
    if (fans.is_chain)
      add_chain_edges(place, count, vertex, before, rank_at);
    else
      add_edges(place, count, vertex, tree, before, rank_at);
  };
  if (node_of.empty()) {
    const Levels tree = levels_across(fans, rank_count);
    place.fans = tree.fans;
    place.rule = tree.branching.rule;
    place.edge_count = tree.edge_count;
    add_across(
        rank_count, vertex_of(index_of(self), index_of(root), rank_count), tree, {},
        [&](std::uint32_t vertex) { return Rank{member_of(vertex, index_of(root), rank_count)}; });
    return place;
  }
  const NodeShares shares(rank_count, node_of);
  const std::uint32_t node_count = shares.node_count();
  const Levels local = levels_of(fans.in_node, fans.in_node_by, shares.largest());
  const Levels across = levels_across(fans, node_count);
  place.rule = (node_count > 1 ? across : local).branching.rule;
  place.fans = local.fans;
  place.fans.insert(place.fans.end(), across.fans.begin(), across.fans.end());
  place.edge_count = static_cast<std::uint16_t>(local.edge_count + across.edge_count);
  place.edge_count_in_node = local.edge_count;

  // The tree of the own node, then, for its representative, that of the nodes.
  const std::uint32_t root_node = index_of(node_of[index_of(root)]);
  const std::uint32_t node = index_of(node_of[index_of(self)]);
  const std::span<const Rank> members = shares.members(node);
  const auto count = static_cast<std::uint32_t>(members.size());
  const std::uint32_t first = node == root_node ? position_of(root, members) : 0;
  const std::uint32_t vertex = vertex_of(position_of(self, members), first, count);
  add_edges(place, count, vertex, local, {},
            [&](std::uint32_t other) { return members[member_of(other, first, count)]; });
  if (vertex != 0) return place;
  const TreeEdge before{.number = local.edge_count,
                        .level = static_cast<std::uint16_t>(local.fans.size())};
  add_across(
      node_count, vertex_of(node, root_node, node_count), across, before, [&](std::uint32_t other) {
        return other == 0 ? root : shares.members(member_of(other, root_node, node_count)).front();
      });
  return place;
}

}  // namespace tutti::plan
