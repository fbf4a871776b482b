// Who of a node works for whom, the same on all ranks.  A schedule for ranks that share nodes deals
// the work of a node out to its ranks by one of three rules:
//
//   holds    what belongs to rank w has one holder in every node: the rank that stands there where
//            w stands in its own node, counted modulo their number
//   heads    one rank of a node talks for it: the root in its own node, elsewhere the lowest rank
//   carries  what goes from node a to the node d ahead belongs to member d - 1 of a, modulo their
//            number
//
//   nodes {0 1} {2 3 4}, root 3     holders in {0 1} of 2, 3, 4: 0, 1, 0     heads: 0, 3
#pragma once

#include <cassert>
#include <cstdint>
#include <span>
#include <tutti/types.hpp>
#include <vector>

namespace tutti::plan {

class NodeShares {
 public:
  /// `node_of`: of each rank, numbered by lowest rank; empty: each rank is a node of its own.
  NodeShares(std::uint32_t rank_count, std::span<const Node> node_of);

  std::uint32_t rank_count() const { return static_cast<std::uint32_t>(places_.size()); }
  std::uint32_t node_count() const { return static_cast<std::uint32_t>(first_.size() - 1); }
  std::uint32_t smallest() const { return smallest_; }  // ranks of the smallest node
  std::uint32_t largest() const { return largest_; }
  bool are_of_one_size() const { return smallest_ == largest_; }

  /// The ranks of a node, in rank order.
  std::span<const Rank> members(std::uint32_t node) const {
    assert(node < node_count());
    return std::span(members_).subspan(first_[node], first_[node + 1] - first_[node]);
  }
  std::uint32_t node_of(Rank rank) const { return at(rank).node; }
  /// Where a rank stands among the ranks of its node.
  std::uint32_t place_of(Rank rank) const { return at(rank).place; }

  // Nodes stand in a circle, in the order of their numbers.

  std::uint32_t ahead(std::uint32_t node, std::uint32_t distance) const {
    assert(node < node_count() && distance <= node_count());
    return (node + distance) % node_count();
  }
  std::uint32_t behind(std::uint32_t node, std::uint32_t distance) const {
    return ahead(node, node_count() - distance);
  }
  /// How far `to` is ahead of `from`.
  std::uint32_t distance(std::uint32_t from, std::uint32_t to) const { return behind(to, from); }

  /// The rank of `node` that holds what belongs to `whose`.
  Rank holder(Rank whose, std::uint32_t node) const {
    const std::span<const Rank> there = members(node);
    return there[place_of(whose) % there.size()];
  }
  /// f(whose) for the ranks of `node` for which `holder` holds in its own node, in rank order.
  template <class F>
  void for_held(Rank holder, std::uint32_t node, F&& f) const {
    const std::size_t apart = members(node_of(holder)).size();
    for (std::size_t at = place_of(holder); at < members(node).size(); at += apart)
      f(members(node)[at]);
  }

  Rank head(std::uint32_t node, Rank root) const {
    return node == node_of(root) ? root : members(node).front();
  }

  struct Carrier {
    Rank rank;
    std::uint32_t turn;  // which of the nodes that it carries to
  };
  Carrier carrier(std::uint32_t from, std::uint32_t to) const {
    assert(from != to);
    const std::span<const Rank> here = members(from);
    const std::uint32_t before = distance(from, to) - 1;
    const auto size = static_cast<std::uint32_t>(here.size());
    return {here[before % size], before / size};
  }
  /// The nodes that a rank carries to, by turns.
  std::vector<std::uint32_t> carried_by(Rank rank) const;

 private:
  struct Standing {
    std::uint32_t node = 0;
    std::uint32_t place = 0;
  };
  const Standing& at(Rank rank) const {
    assert(index_of(rank) < places_.size());
    return places_[index_of(rank)];
  }

  std::vector<Rank> members_;         // of one node after the other
  std::vector<std::uint32_t> first_;  // of each node among them; and how many they are
  std::vector<Standing> places_;      // of each rank
  std::uint32_t smallest_ = 1, largest_ = 1;
};

}  // namespace tutti::plan
