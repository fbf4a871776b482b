// See rooted.hpp.  What comes from a child has the slot of its level, what comes from the parent
// one more; those of credits are the last ones.
#include "plan/rooted.hpp"

#include <algorithm>
#include <cassert>

#include "plan/nodes.hpp"
#include "plan/rooted_tree.hpp"
#include "plan/steps.hpp"

namespace tutti::plan {
namespace {

std::string name_of(const TreePlace& place) {
  if (place.rule == Branching::Rule::binary) return "binary_tree";
  if (place.rule == Branching::Rule::fibonacci) return "fibonacci_tree";
  const PerRound& fans = place.fans;
  const auto is_one = [](std::uint32_t fan) { return fan == 1; };
  if (std::all_of(fans.begin(), fans.end(), is_one)) return "binomial_tree";
  return fans.size() == 1 ? "flat_tree" : "knomial_tree";
}

/// `rounds`: by what a rank sends or hears in them at most.
Plan empty_plan(Rank self, const RootedShape& shape, const TreePlace& place, PerRound rounds) {
  Plan plan;
  plan.self = self;
  plan.rank_count = shape.rank_count;
  plan.algorithm = name_of(place);
  plan.per_round = std::move(rounds);
  plan.all_alike = false;
  plan.flow_control = shape.rank_count > 1 ? FlowControl::one_way : FlowControl::synchronising;
  plan.slot_count =
      shape.rank_count > 1 ? static_cast<std::uint16_t>(place.edge_count + 1) : std::uint16_t{0};
  return plan;
}

}  // namespace

Plan tree_broadcast(Rank self, const RootedShape& shape) {
  const TreePlace place =
      nested_tree(self, shape.root, shape.rank_count, shape.node_of, shape.fans);
  Plan plan = empty_plan(self, shape, place, {place.fans.rbegin(), place.fans.rend()});
  plan.line_slot_count = place.edge_count;
  constexpr std::uint16_t from_parent = 0;
  const auto credit_of = [](const TreeEdge& edge) {
    return static_cast<std::uint16_t>(edge.number + 1);
  };
  const auto round_of = [&](const TreeEdge& edge) {
    return static_cast<std::uint32_t>(place.fans.size() - 1 - edge.level);
  };
  StepWriter steps{plan};
  for (const TreeEdge& child : place.children) steps.await_credit(child.peer, credit_of(child));
  const Register held = partial_register(0);
  if (place.parent) {
    steps.set_round(round_of(*place.parent));
    steps.await(place.parent->peer, from_parent, 1);
  }
  if (!place.children.empty()) {
    plan.partial_count = 1;
    steps.copy(place.parent ? slot_register(from_parent) : source_register, held);
    // The largest subtree first.
    for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
      steps.set_round(round_of(*child));
      steps.put(child->peer, from_parent, 1, held);
    }
  }
  if (place.parent) {
    steps.copy(slot_register(from_parent), target_register);
    steps.put(place.parent->peer, credit_of(*place.parent), 0);
  }
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
  plan.line_slot_count = shape.rank_count > 1 ? 1 : 0;
  const std::uint16_t from_parent = place.edge_count;
  StepWriter steps{plan};
  if (place.parent) steps.await_credit(place.parent->peer, from_parent);
  // What is sent has to be a partial; the last combination of the root is one in its target.
  Register held = place.parent ? partial_register(plan.partial_count++) : target_register;
  if (ordered && !place.parent && !place.children.empty())
    held = partial_register(plan.partial_count++);
  steps.copy(source_register, held);
  for (std::size_t i = 0; i < place.children.size(); ++i) {
    const TreeEdge& child = place.children[i];
    steps.set_round(child.level);
    steps.await(child.peer, child.number, 1);
    const Register arrived = slot_register(child.number);
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
    steps.set_round(place.parent->level);
    steps.put(place.parent->peer, place.parent->number, 1, held);
  }
  if (forwards && self == shape.root) {
    steps.set_round(last_edge.level);
    steps.await(top, last_edge.number, 1);
    steps.copy(slot_register(last_edge.number), target_register);
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
