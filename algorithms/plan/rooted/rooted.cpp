// See rooted.hpp.  A reduce has a slot for each piece of each edge, a broadcast one for each piece,
// which comes from the parent; the slots of credits are the last ones.
#include "plan/rooted/rooted.hpp"

#include <algorithm>
#include <cassert>

#include "plan/core/nodes.hpp"
#include "plan/core/steps.hpp"
#include "plan/rooted/rooted_tree.hpp"

namespace tutti::plan {
namespace {

/// Pieces that pass through two ranks while a credit is on its way back (a first guess).
constexpr std::uint16_t pieces_of_chain = 4;

/// `rounds` holds the most messages that a rank sends or receives in each.
Plan empty_plan(Rank self, const RootedShape& shape, const TreePlace& place, PerRound rounds) {
  Plan plan{.self = self, .rank_count = shape.rank_count, .algorithm = tree_name(place)};
  plan.per_round = std::move(rounds);
  plan.all_alike = false;
  if (shape.fans.is_chain && shape.rank_count > 1) {
    plan.algorithm = "pipelined_chain";
    plan.parts = pieces_of_chain;
    plan.is_pipeline = true;
    plan.per_round.assign(pieces_of_chain, place.edge_count);
  }
  plan.flow_control = shape.rank_count > 1 ? FlowControl::one_way : FlowControl::synchronising;
  return plan;
}

/// Makes the targets of a broadcast those of nodes, if ranks share some.  In a single node nobody
/// ends a call before all have entered, and no payload needs a slot.
void share_target(Plan& plan, const TreePlace& place) {
  if (place.edge_count_in_node == 0) return;
  plan.shares_target = true;
  plan.algorithm += "_shared_target";
  plan.per_round.insert(plan.per_round.begin(), place.edge_count_in_node);
  if (place.edge_count != place.edge_count_in_node) return;
  plan.flow_control = FlowControl::synchronising;
  plan.line_slot_count = plan.slot_count;
}

/// Writes the steps of one piece after the other.  A round is a level of the tree, or a piece.
class Pieces {
 public:
  Pieces(const Plan& plan, StepWriter& steps, std::uint32_t first_round = 0)
      : plan_(plan), steps_(steps), first_round_(first_round) {}

  template <class F>
  void for_each(F&& f) {
    for (std::uint16_t piece = 0; piece < plan_.parts; ++piece) {
      steps_.begin_part(piece);
      if (plan_.is_pipeline) steps_.set_round(first_round_ + piece);
      f(piece);
    }
  }
  void set_level(std::uint32_t round) {
    if (!plan_.is_pipeline) steps_.set_round(round);
  }

 private:
  const Plan& plan_;
  StepWriter& steps_;
  std::uint32_t first_round_;
};

}  // namespace

Plan tree_broadcast(Rank self, const RootedShape& shape) {
  const TreePlace place =
      nested_tree(self, shape.root, shape.rank_count, shape.node_of, shape.fans);
  Plan plan = empty_plan(self, shape, place, {place.fans.rbegin(), place.fans.rend()});
  if (place.fans.size() == 1 && !plan.is_pipeline && shape.target == Target::of_rank) {
    plan.parts = shape.pieces;
    plan.per_round[0] *= shape.pieces;
  }
  const std::uint16_t count = plan.parts;
  if (shape.rank_count > 1) {
    plan.line_slot_count = place.edge_count;
    plan.slot_count = static_cast<std::uint16_t>(count + place.edge_count);
  }
  if (shape.target == Target::of_node) share_target(plan, place);
  // Entries have a round of their own.
  const std::uint32_t first_round = plan.shares_target ? 1 : 0;
  const auto is_sharer = [&](const TreeEdge& edge) {
    return plan.shares_target &&
           shape.node_of[index_of(edge.peer)] == shape.node_of[index_of(self)];
  };
  const auto credit_of = [&](const TreeEdge& edge) {
    return static_cast<std::uint16_t>(count + edge.number);
  };
  const auto round_of = [&](const TreeEdge& edge) {
    return static_cast<std::uint32_t>(first_round + place.fans.size() - 1 - edge.level);
  };
  StepWriter steps{plan};
  Pieces pieces(plan, steps, first_round);
  bool sends = false, tells = false;
  for (const TreeEdge& child : place.children) {
    (is_sharer(child) ? tells : sends) = true;
    if (!is_sharer(child)) steps.await_credit(child.peer, credit_of(child));
  }
  const bool is_told = place.parent && is_sharer(*place.parent);
  const auto await_entries = [&] {
    for (const TreeEdge& child : place.children)
      if (is_sharer(child)) steps.await_entry(child.peer, credit_of(child));
  };
  if (is_told) {
    await_entries();
    steps.put_entry(place.parent->peer, credit_of(*place.parent));
  }
  if (sends) plan.partial_count = count;
  // The largest subtree first.
  const auto for_children = [&](bool sharers, auto&& f) {
    for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
      if (is_sharer(*child) != sharers) continue;
      pieces.set_level(round_of(*child));
      f(child->peer);
    }
  };
  pieces.for_each([&](std::uint16_t piece) {
    if (place.parent) {
      pieces.set_level(round_of(*place.parent));
      if (is_told)
        steps.await_in_target(place.parent->peer, piece);
      else
        steps.await(place.parent->peer, piece, 1);
    }
    if (sends) {
      const Register held = partial_register(piece);
      steps.copy(place.parent ? slot_register(piece) : source_register, held);
      for_children(false, [&](Rank peer) { steps.put(peer, piece, 1, held); });
    }
    if (!is_told && tells && piece == 0) await_entries();
    if (place.parent && !is_told) steps.copy(slot_register(piece), target_register);
    for_children(true, [&](Rank peer) {
      steps.put_into_target(peer, piece, place.parent ? target_register : source_register);
    });
  });
  if (place.parent && !is_told) steps.put(place.parent->peer, credit_of(*place.parent), 0);
  return plan;
}

Plan tree_reduce(Rank self, const RootedShape& shape, Order order) {
  // What arrives is the left operand, which is what two ranks with root 1 need.
  const bool is_left = shape.rank_count == 2 && shape.root == Rank{1};
  const bool ordered = order == Order::rank_order && !is_left;
  const Rank top = ordered ? Rank{0} : shape.root;
  const bool by_nodes = !ordered || nodes_are_runs(shape.node_of);
  TreePlace place = nested_tree(self, top, shape.rank_count,
                                by_nodes ? shape.node_of : std::span<const Node>(), shape.fans);
  const bool forwards = top != shape.root;
  PerRound rounds = place.fans;
  const TreeEdge last_edge{.peer = top,
                           .number = place.edge_count,
                           .level = static_cast<std::uint16_t>(place.fans.size())};
  if (forwards) {  // from the top of the tree to the root
    ++place.edge_count;
    rounds.push_back(1);
    if (self == top) {
      place.parent = last_edge;
      place.parent->peer = shape.root;
    }
  }
  Plan plan = empty_plan(self, shape, place, std::move(rounds));
  const std::uint16_t count = plan.parts;
  const auto slot_of = [&](const TreeEdge& edge, std::uint16_t piece) {
    return static_cast<std::uint16_t>(edge.number * count + piece);
  };
  const auto from_parent = static_cast<std::uint16_t>(place.edge_count * count);
  if (shape.rank_count > 1) {
    plan.line_slot_count = 1;
    plan.slot_count = static_cast<std::uint16_t>(from_parent + 1);
  }
  StepWriter steps{plan};
  Pieces pieces(plan, steps);
  if (place.parent) steps.await_credit(place.parent->peer, from_parent);
  pieces.for_each([&](std::uint16_t piece) {
    // What is sent has to be a partial; the last combination of the root is one in its target.
    Register held = place.parent ? partial_register(plan.partial_count++) : target_register;
    if (ordered && !place.parent && !place.children.empty())
      held = partial_register(plan.partial_count++);
    steps.copy(source_register, held);
    for (std::size_t i = 0; i < place.children.size(); ++i) {
      const TreeEdge& child = place.children[i];
      pieces.set_level(child.level);
      steps.await(child.peer, slot_of(child, piece), 1);
      const Register arrived = slot_register(slot_of(child, piece));
      if (!ordered) {
        steps.combine(arrived, held);
        continue;
      }
      // The child's ranks are the higher ones, so the own value is the left operand.
      const bool last = i + 1 == place.children.size() && !place.parent;
      const Register grown = last ? target_register : partial_register(plan.partial_count++);
      steps.copy(arrived, grown);
      steps.combine(held, grown);
      held = grown;
    }
    if (place.parent) {
      pieces.set_level(place.parent->level);
      steps.put(place.parent->peer, slot_of(*place.parent, piece), 1, held);
    }
  });
  if (forwards && self == shape.root) {
    // All pieces were sent before, in their rounds.
    pieces.set_level(last_edge.level);
    for (std::uint16_t piece = 0; piece < count; ++piece) {
      steps.begin_part(piece);
      steps.await(top, slot_of(last_edge, piece), 1);
      steps.copy(slot_register(slot_of(last_edge, piece)), target_register);
    }
    place.children.push_back(last_edge);
  }
  for (const TreeEdge& child : place.children) steps.put(child.peer, from_parent, 0);
  return plan;
}

Plan tree_reduce_of(std::uint32_t participant_count, Rank self, const RootedShape& shape,
                    Order order) {
  assert(participant_count > 0 && participant_count <= shape.rank_count);
  std::vector<Rank> participants;
  for (std::uint32_t offset = 0; offset < participant_count; ++offset)
    participants.push_back(rank_ahead(shape.root, offset, shape.rank_count));
  std::sort(participants.begin(), participants.end());
  const auto place_of = [&](Rank rank) {
    return static_cast<std::uint32_t>(std::find(participants.begin(), participants.end(), rank) -
                                      participants.begin());
  };
  // Their nodes, numbered by the lowest of them.
  std::vector<Node> node_of, seen;
  if (!shape.node_of.empty())
    for (const Rank rank : participants) {
      const Node node = shape.node_of[index_of(rank)];
      const auto found = std::find(seen.begin(), seen.end(), node);
      node_of.push_back(Node{static_cast<std::uint32_t>(found - seen.begin())});
      if (found == seen.end()) seen.push_back(node);
    }
  const bool takes_part = place_of(self) < participant_count;
  Plan plan = tree_reduce(Rank{place_of(takes_part ? self : shape.root)},
                          {.root = Rank{place_of(shape.root)},
                           .rank_count = participant_count,
                           .node_of = node_of,
                           .fans = shape.fans},
                          order);
  if (!takes_part) {
    plan.steps.clear();
    plan.partial_count = 0;
  }
  for (Step& step : plan.steps)
    if (step.peer != no_rank) step.peer = participants[index_of(step.peer)];
  plan.self = self;
  plan.rank_count = shape.rank_count;
  plan.algorithm += " of " + std::to_string(participant_count) + " ranks";
  return plan;
}

}  // namespace tutti::plan
