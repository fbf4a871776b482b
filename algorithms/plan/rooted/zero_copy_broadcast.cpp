// See zero_copy_broadcast.hpp.  Piece p has slot p, whether it is written into the target or told
// of; what a child tells its parent has the slot of their edge, and behind these are slots for its
// answers to windows of pieces.  All slots are lines.
#include "plan/rooted/zero_copy_broadcast.hpp"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "plan/core/steps.hpp"
#include "plan/core/windows.hpp"
#include "plan/rooted/rooted_tree.hpp"

namespace tutti::plan {
namespace {

class Builder {
 public:
  Builder(Rank self, const RootedShape& shape, std::uint16_t pieces)
      : place_(nested_tree(self, shape.root, shape.rank_count, shape.node_of, shape.fans)) {
    plan_ = {.self = self, .rank_count = shape.rank_count};
    plan_.algorithm = (shape.fans.is_chain ? "pipelined_chain" : tree_name(place_)) + "_zero_copy";
    plan_.parts = pieces;
    plan_.zero_copy = true;
    plan_.all_alike = false;
    plan_.flow_control = FlowControl::acknowledged;
    // And an answer.
    plan_.per_round.assign(pieces + std::size_t{2}, place_.edge_count + 1u);
    const std::uint32_t far_edges = place_.edge_count - std::uint32_t{place_.edge_count_in_node};
    plan_.slot_count = plan_.line_slot_count =
        static_cast<std::uint16_t>(pieces + place_.edge_count + far_edges * answer_count(pieces));
    plan_.incoming_max = std::min<std::uint32_t>(pieces, windows_in_flight * window);
  }

  Plan build() && {
    if (place_.parent && is_far(*place_.parent))
      steps_.put_entry(place_.parent->peer, slot_of(*place_.parent));
    for (std::uint16_t piece = 0; piece < plan_.parts; ++piece) {
      steps_.begin_part(piece);
      steps_.set_round(1u + piece);
      if (place_.parent) take(*place_.parent, piece);
      // The largest subtree first; other nodes before the own one.
      for (auto child = place_.children.rbegin(); child != place_.children.rend(); ++child)
        give(*child, piece);
    }
    acknowledge();
    return std::move(plan_);
  }

 private:
  /// Edges inside nodes have the first numbers.
  bool is_far(const TreeEdge& edge) const { return edge.number >= place_.edge_count_in_node; }
  std::uint16_t slot_of(const TreeEdge& edge) const {
    return static_cast<std::uint16_t>(plan_.parts + edge.number);
  }

  std::uint16_t slot_of_answer(const TreeEdge& edge, std::uint32_t answer) const {
    const std::uint32_t far = edge.number - std::uint32_t{place_.edge_count_in_node};
    return static_cast<std::uint16_t>(plan_.parts + place_.edge_count +
                                      far * answer_count(plan_.parts) + answer);
  }

  void take(const TreeEdge& parent, std::uint16_t piece) {
    if (is_far(parent)) {
      steps_.await_in_target(parent.peer, piece);
      if (is_answered(piece, plan_.parts))
        steps_.put(parent.peer, slot_of_answer(parent, piece / window), 0);
      return;
    }
    steps_.await_reference(parent.peer, piece);
    steps_.copy_referenced(parent.peer, piece, target_register);
  }

  void give(const TreeEdge& child, std::uint16_t piece) {
    const Register held = place_.parent ? target_register : source_register;
    if (!is_far(child)) return steps_.put_reference(child.peer, piece, held);
    if (piece == 0) steps_.await_entry(child.peer, slot_of(child));
    if (awaits_answer(piece))
      steps_.await(child.peer, slot_of_answer(child, answer_before(piece)), 0);
    steps_.put_into_target(child.peer, piece, held);
    last_far_ = child.peer;
  }

  void acknowledge() {
    steps_.set_round(1u + plan_.parts);
    if (place_.parent && !is_far(*place_.parent))
      steps_.put(place_.parent->peer, slot_of(*place_.parent), 0);
    for (const TreeEdge& child : place_.children)
      if (!is_far(child)) steps_.await(child.peer, slot_of(child), 0);
    if (last_far_ != no_rank) steps_.await_sent(last_far_);
  }

  TreePlace place_;
  Rank last_far_ = no_rank;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

Plan zero_copy_broadcast(Rank self, const RootedShape& shape, std::uint16_t pieces) {
  assert(pieces > 0 && shape.target == Target::of_rank);
  return Builder(self, shape, pieces).build();
}

}  // namespace tutti::plan
