// Which pieces of which blocks nodes pass on to whom, and when (piecewise_allgather.hpp).
//
// Timetable.  In each unit of time a node sends one piece, which comes a hop later, and takes all
// that have come.  Along rings what has waited longest goes first, in trees that of which most of
// the same block are left.  Messages on a link go in windows (windows.hpp): for an answer a node
// waits two hops.  As ranks follow it step by step, and each waits only for what was sent at an
// earlier time of the table, a piece or an answer, nobody waits in a circle, however long messages
// take.
//
// Why a simulation: what has the least to wait for depends on all blocks.  Rejected: one rule for
// the order of a ring's steps (by the recurrence of makespan.hpp, 32 nodes, 1 MiB: with two long
// blocks 292 us instead of 200, with one 236 instead of 210); to each node one message at a time
// (some wait for their turn: 219 us instead of 183 in two trees, virtual time).
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>
#include <vector>

#include "plan/core/node_shares.hpp"

namespace tutti::plan {

enum class PieceRoute : std::uint8_t { ring, two_trees };

/// A block's pieces take turns in so many trees; those of a ring are the same.
inline constexpr std::uint32_t tree_count = 2;

/// Whom the node so far from the owner of a block tells of pieces that go down that tree, also by
/// their distance from the owner: two at most.
std::vector<std::uint32_t> told_in_tree(PieceRoute route, std::uint32_t tree,
                                        std::uint32_t distance, std::uint32_t node_count);

/// Which pieces there are, numbered by their owners, and on which lane they are passed on: those of
/// a block are dealt out to the ranks of its node, beginning with its owner.  Nodes are of one
/// size.
class LanePieces {
 public:
  /// `pieces` of each rank's block, 1 at least.
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
  /// Of a node, in rank order: one of each lane.
  const std::vector<Rank>& members(std::uint32_t node) const { return shares_.members(node); }

  /// f(piece, lane) for the pieces of a rank's block.
  template <class F>
  void for_pieces(Rank owner, F&& f) const {
    const std::uint32_t begin = first_[index_of(owner)], end = first_[index_of(owner) + 1];
    for (std::uint32_t piece = begin; piece < end; ++piece)
      f(static_cast<std::uint16_t>(piece), (lane_of(owner) + piece - begin) % lane_count());
  }

  /// f(piece, owner) for those of a node's blocks that are on that lane.
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

/// Which node of a lane tells which, and how often.
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
  /// At its sender, the answers on a link follow those on the links before it.
  std::uint32_t first_answer(std::size_t link) const;

  struct Sums {
    std::uint32_t messages = 0;
    std::uint32_t answers = 0;  // to these
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
  std::vector<std::uint32_t> offsets_;            // from who tells to who is told
  std::vector<std::uint32_t> messages_;           // on each link
};

/// A line of a node's timetable: it sends a piece, or takes it.
struct PieceEvent {
  bool is_sent = false;
  std::uint16_t piece = 0;
  std::uint32_t node = 0;  // to or from which
};

/// What a node does about the pieces of a lane, in this order.
std::vector<PieceEvent> timetable_of(std::uint32_t node, const LanePieces& pieces,
                                     const PieceLinks& links, std::uint32_t lane);

}  // namespace tutti::plan
