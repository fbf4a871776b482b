// The timetable of a piecewise allgather (piecewise_allgather.hpp): which node passes on which
// piece to which node, and when.
//
// Timetable.  In each unit of time a node sends one piece, which arrives a hop later, and takes all
// pieces that have arrived.  Along rings the piece that has waited longest goes first, in trees the
// one with the most successors of its block.  Messages on a link go in windows (core/windows.hpp),
// and an answer takes two hops.  Ranks follow the table step by step, and each waits only for a
// piece or an answer that was sent at an earlier time of the table; so nobody waits in a circle,
// however long messages take.
//
// Why a simulation: the order in which nothing waits depends on all blocks.  Rejected: one rule for
// the order of a ring's steps (by the recurrence of cost/makespan.hpp, 32 nodes, 1 MiB: with two
// long blocks 292 us instead of 200, with one 236 instead of 210); one message at a time to each
// node (in virtual time 219 us instead of 183 in two trees, because some wait for their turn).
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>
#include <vector>

#include "plan/core/node_shares.hpp"

namespace tutti::plan {

enum class PieceRoute : std::uint8_t { ring, two_trees };

/// A block's pieces take turns in so many trees; the trees of a ring are the same.
inline constexpr std::uint32_t tree_count = 2;

/// The nodes to which the node `distance` from a block's owner sends pieces of that tree, by their
/// distance from the owner: at most two.
std::vector<std::uint32_t> told_in_tree(PieceRoute route, std::uint32_t tree,
                                        std::uint32_t distance, std::uint32_t node_count);

/// The pieces, numbered by their owners, and the lanes on which they are passed on: the pieces of a
/// block are dealt out to the ranks of its node, beginning with its owner.  Nodes have one size.
class LanePieces {
 public:
  /// `pieces` holds the number of pieces of each rank's block, at least 1.
  LanePieces(std::span<const std::uint16_t> pieces, std::span<const Node> node_of);

  std::uint32_t node_count() const { return shares_.node_count(); }
  std::uint32_t lane_count() const { return shares_.largest(); }
  std::uint32_t rank_count() const { return shares_.rank_count(); }
  std::uint32_t piece_count() const { return first_.back(); }
  std::uint32_t piece_count_of(Rank owner) const {
    return first_[index_of(owner) + 1] - first_[index_of(owner)];
  }
  std::uint32_t node_of(Rank rank) const { return shares_.node_of(rank); }
  std::uint32_t lane_of(Rank rank) const { return shares_.place_of(rank); }
  /// The ranks of a node, in rank order: one of each lane.
  std::span<const Rank> members(std::uint32_t node) const { return shares_.members(node); }

  /// f(piece, lane) for the pieces of a rank's block.
  template <class F>
  void for_pieces(Rank owner, F&& f) const {
    const std::uint32_t begin = first_[index_of(owner)], end = first_[index_of(owner) + 1];
    for (std::uint32_t piece = begin; piece < end; ++piece)
      f(static_cast<std::uint16_t>(piece), (lane_of(owner) + piece - begin) % lane_count());
  }

  /// f(piece, owner) for the pieces of a node's blocks that are on the lane `wanted`.
  template <class F>
  void for_lane(std::uint32_t node, std::uint32_t wanted, F&& f) const {
    for (const Rank owner : members(node))
      for_pieces(owner, [&](std::uint16_t piece, std::uint32_t lane) {
        if (lane == wanted) f(piece, owner);
      });
  }

 private:
  NodeShares shares_;
  std::vector<std::uint32_t> first_;  // piece of each rank's block, and the number of all
};

/// The links between the nodes of a lane, and the number of messages on each.
class PieceLinks {
 public:
  PieceLinks(const LanePieces& pieces, std::uint32_t lane, PieceRoute route);

  PieceRoute route() const { return route_; }
  std::uint32_t node_count() const { return node_count_; }
  std::uint32_t ahead(std::uint32_t node, std::uint32_t distance) const {
    return (node + distance) % node_count_;
  }
  const std::vector<std::uint32_t>& told_at(std::uint32_t tree, std::uint32_t distance) const {
    return told_[tree * node_count_ + distance];
  }

  std::size_t count() const { return messages_.size(); }
  std::size_t link(std::uint32_t from, std::uint32_t to) const;
  std::uint32_t messages(std::size_t link) const { return messages_[link]; }
  /// The first answer on a link, counted at its sender: they follow those on the links before it.
  std::uint32_t first_answer(std::size_t link) const;

  struct Sums {
    std::uint32_t messages = 0;
    std::uint32_t answers = 0;  // to these messages
  };
  Sums sent_by(std::uint32_t node) const;
  Sums heard_by(std::uint32_t node) const;

 private:
  std::uint32_t offset(std::uint32_t from, std::uint32_t to) const {
    return ahead(to, node_count_ - from);
  }
  void add(Sums& sums, std::size_t link) const;

  PieceRoute route_;
  std::uint32_t node_count_;
  std::vector<std::vector<std::uint32_t>> told_;  // in each tree, by distance
  std::vector<std::uint32_t> offsets_;            // from sender to receiver
  std::vector<std::uint32_t> messages_;           // on each link
};

/// A line of a node's timetable: it sends a piece, or takes it.
struct PieceEvent {
  bool is_sent = false;
  std::uint16_t piece = 0;
  std::uint32_t node = 0;  // the other side
};

/// The events of a node, about the pieces of a lane, in their order.
std::vector<PieceEvent> timetable_of(std::uint32_t node, const LanePieces& pieces,
                                     const PieceLinks& links, std::uint32_t lane);

}  // namespace tutti::plan
