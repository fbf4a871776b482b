// See tree_blocks.hpp.  Block p is in slot p wherever it passes, and slot P + p says that it was
// taken.
#include "plan/blocks/tree_blocks.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/blocks/blocks.hpp"
#include "plan/core/node_shares.hpp"
#include "plan/core/peer_stream.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

enum class Direction : std::uint8_t { to_root, from_root };

/// The owners of the blocks that go between two ranks, in their order.
struct Edge {
  Rank peer = no_rank;
  std::vector<Rank> blocks;
};

/// Nodes lo .. hi-1, counted from the root's.
struct Nodes {
  std::uint32_t lo, hi;
};

/// The part of the tree that one rank sees.
class Tree {
 public:
  struct Passing {
    std::size_t child;
    std::uint32_t i;  // which block of that edge
  };

  Tree(Rank self, std::uint32_t rank_count, std::span<const Node> node_of, Rank root,
       Direction direction)
      : shares_(rank_count, node_of), root_(root) {
    for (const Nodes& below : children_of(all()))
      most_below_ = std::max(most_below_, ranks_of(below));
    find(self);
    if (direction == Direction::from_root) turn_round();
  }

  const std::vector<Edge>& children() const { return children_; }
  /// The edge to the parent, which the root does not have; its blocks are this rank's own and all
  /// below it.
  const Edge& parent() const { return parent_; }
  /// The children's blocks in the order in which they pass.
  const std::vector<Passing>& passing() const { return passing_; }
  /// The most blocks that pass between any two ranks.
  std::size_t most_below() const { return most_below_; }

 private:
  Nodes all() const { return {0, shares_.node_count()}; }
  /// The number of the node that is so far from the root's.
  std::uint32_t node_at(std::uint32_t distance) const {
    return shares_.ahead(shares_.node_of(root_), distance);
  }
  Rank head(const Nodes& nodes) const { return shares_.head(node_at(nodes.lo), root_); }

  std::size_t ranks_of(const Nodes& nodes) const {
    std::size_t count = 0;
    for (std::uint32_t node = nodes.lo; node < nodes.hi; ++node)
      count += shares_.members(node_at(node)).size();
    return count;
  }

  /// The children of the head of `nodes`, the one with the fewest nodes first.
  static std::vector<Nodes> children_of(Nodes nodes) {
    std::vector<Nodes> children;
    while (nodes.hi - nodes.lo > 1) {
      const std::uint32_t half = (nodes.hi - nodes.lo) / 2;
      children.push_back({nodes.hi - half, nodes.hi});
      nodes.hi -= half;
    }
    std::reverse(children.begin(), children.end());
    return children;
  }

  std::vector<Edge> edges_below(const Nodes& nodes) const {
    std::vector<Edge> edges;
    for (const Rank member : shares_.members(node_at(nodes.lo)))
      if (member != head(nodes)) edges.push_back({member, {member}});
    for (const Nodes& below : children_of(nodes))
      edges.push_back({head(below), blocks_of(head(below), edges_below(below))});
    return edges;
  }

  /// Blocks in the order in which they pass to the root: the i-th of each edge before the next one
  /// of any.
  static std::vector<Passing> passing_of(const std::vector<Edge>& edges) {
    std::vector<Passing> passing;
    std::vector<std::size_t> left(edges.size());  // edges with blocks that have not passed
    for (std::size_t edge = 0; edge < edges.size(); ++edge) left[edge] = edge;
    for (std::uint32_t i = 0; !left.empty(); ++i) {
      std::erase_if(left, [&](std::size_t edge) { return edges[edge].blocks.size() <= i; });
      for (const std::size_t edge : left) passing.push_back({edge, i});
    }
    return passing;
  }

  /// The blocks of a rank and of all below it.
  static std::vector<Rank> blocks_of(Rank rank, const std::vector<Edge>& below) {
    std::vector<Rank> blocks{rank};
    for (const Passing& one : passing_of(below)) blocks.push_back(below[one.child].blocks[one.i]);
    return blocks;
  }

  void find(Rank self) {
    const std::uint32_t node = shares_.distance(shares_.node_of(root_), shares_.node_of(self));
    if (const Rank own_head = head({node, node + 1}); self != own_head) {
      parent_ = {own_head, {self}};
      return;
    }
    Nodes nodes = all();
    while (nodes.lo != node)
      for (const Nodes& below : children_of(nodes))
        if (below.lo <= node && node < below.hi) {
          parent_.peer = head(nodes);
          nodes = below;
          break;
        }
    children_ = edges_below(nodes);
    parent_.blocks = blocks_of(self, children_);
    passing_ = passing_of(children_);
  }

  void turn_round() {
    std::reverse(parent_.blocks.begin(), parent_.blocks.end());
    std::reverse(passing_.begin(), passing_.end());
    for (Passing& one : passing_)
      one.i = static_cast<std::uint32_t>(children_[one.child].blocks.size()) - 1 - one.i;
    for (Edge& edge : children_) std::reverse(edge.blocks.begin(), edge.blocks.end());
  }

  NodeShares shares_;
  Rank root_;
  Edge parent_;
  std::vector<Edge> children_;
  std::vector<Passing> passing_;
  std::size_t most_below_ = 1;
};

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, std::span<const Node> node_of, Rank root,
          Direction direction)
      : tree_(self, rank_count, node_of, root, direction) {
    assert(is_block_exchange(rank_count) && index_of(self) < rank_count);
    plan_ = {.self = self,
             .rank_count = rank_count,
             .algorithm = direction == Direction::to_root ? "tree_gather" : "tree_scatter"};
    plan_.parts = static_cast<std::uint16_t>(rank_count);
    if (rank_count == 1) return;
    plan_.all_alike = false;
    plan_.flow_control = FlowControl::one_way;
    plan_.slot_count = static_cast<std::uint16_t>(2 * rank_count);
    plan_.line_slot_count = static_cast<std::uint16_t>(rank_count);
    const auto below = static_cast<std::uint32_t>(tree_.most_below());
    plan_.per_round = {std::max(rank_count - 1, below + answer_count(below))};
    plan_.incoming_max = incoming_of_windows_one_way;
  }

  Plan gather() && {
    const Edge& up = tree_.parent();
    const bool is_root = up.peer == no_rank;
    OutgoingStream above(steps_, up.peer, taken_lines());
    std::vector<IncomingStream> below;
    for (const Edge& down : tree_.children()) below.push_back(incoming(down));
    if (is_root) {
      begin_part(plan_.self);
      steps_.copy(source_register, target_register);
    } else {
      await_credit(up);
      above.begin(part_of(plan_.self));
      above.put(part_of(plan_.self), sendable(source_register));
    }
    for (const Tree::Passing& one : tree_.passing()) {
      const std::uint16_t block = part_of(tree_.children()[one.child].blocks[one.i]);
      IncomingStream& in = below[one.child];
      in.await(block, block);
      if (is_root) {
        steps_.copy(slot_register(block), target_register);
        finish(in, block);
        continue;
      }
      const Register from = sendable(slot_register(block));
      finish(in, block);
      above.begin(block);
      above.put(block, from, true);
    }
    return std::move(plan_);
  }

  Plan scatter() && {
    const Edge& up = tree_.parent();
    const bool is_root = up.peer == no_rank;
    IncomingStream above = incoming(up);
    std::vector<OutgoingStream> below;
    for (const Edge& down : tree_.children()) below.push_back({steps_, down.peer, taken_lines()});
    for (const Tree::Passing& one : tree_.passing()) {
      const Edge& down = tree_.children()[one.child];
      const std::uint16_t block = part_of(down.blocks[one.i]);
      OutgoingStream& out = below[one.child];
      if (one.i == 0) await_credit(down);
      out.begin(block);
      if (is_root) {
        out.put(block, sendable(source_register));
        continue;
      }
      above.await(block, block);
      const Register from = sendable(slot_register(block));
      finish(above, block);
      out.put(block, from, true);
    }
    if (is_root) {
      begin_part(plan_.self);
      steps_.copy(source_register, target_register);
      return std::move(plan_);
    }
    const std::uint16_t own = part_of(plan_.self);
    above.await(own, own);
    steps_.copy(slot_register(own), target_register);
    finish(above, own);
    return std::move(plan_);
  }

 private:
  /// Each block has a line that says it was taken.
  AnswerLines taken_lines() const { return {.first = plan_.parts, .by_part = true}; }
  void begin_part(Rank block) { steps_.begin_part(part_of(block)); }

  IncomingStream incoming(const Edge& edge) {
    return {steps_, edge.peer, taken_lines(), static_cast<std::uint32_t>(edge.blocks.size())};
  }

  Register sendable(Register from) {
    const Register partial = partial_register(plan_.partial_count++);
    steps_.copy(from, partial);
    return partial;
  }

  /// The credit of an edge comes in the line of its last block.
  void await_credit(const Edge& edge) {
    begin_part(edge.blocks.back());
    steps_.await_credit(edge.peer, taken_lines().line(0, part_of(edge.blocks.back())));
  }

  /// To be called after a block was read.  Answers if the sender waits for that, and, after the
  /// last block, gives the credit for a later call.
  void finish(IncomingStream& in, std::uint16_t block) {
    in.finish();
    if (in.taken() == in.count()) steps_.put(in.peer(), taken_lines().line(0, block), 0);
  }

  Tree tree_;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

Plan tree_gather(Rank self, std::uint32_t rank_count, std::span<const Node> node_of, Rank root) {
  return Builder(self, rank_count, node_of, root, Direction::to_root).gather();
}

Plan tree_scatter(Rank self, std::uint32_t rank_count, std::span<const Node> node_of, Rank root) {
  return Builder(self, rank_count, node_of, root, Direction::from_root).scatter();
}

}  // namespace tutti::plan
