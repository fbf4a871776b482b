// See scan.hpp.  In a doubling_scan() of K rounds the message of round k lands in slot k, and the
// credit for it lands in slot K + k.
#include "plan/allreduce/scan.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/core/nodes.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {

Plan doubling_scan(Rank self, std::uint32_t rank_count, Prefix prefix) {
  assert(index_of(self) < rank_count);
  const auto rounds = static_cast<std::uint16_t>(std::bit_width(rank_count - 1));
  Plan plan{.self = self, .rank_count = rank_count, .algorithm = "doubling"};
  plan.per_round.assign(rounds, 1);
  StepWriter steps{plan};
  const bool inclusive = prefix == Prefix::inclusive;
  if (rank_count == 1) {
    if (inclusive) steps.copy(source_register, target_register);
    return plan;
  }
  plan.all_alike = false;
  plan.flow_control = FlowControl::one_way;
  plan.slot_count = static_cast<std::uint16_t>(2 * rounds);
  plan.line_slot_count = rounds;
  const auto credit_of = [&](std::uint16_t round) {
    return static_cast<std::uint16_t>(rounds + round);
  };
  const std::uint32_t rank = index_of(self);
  const auto tells = [&](std::uint16_t round) {
    return round < rounds && rank + (1u << round) < rank_count;
  };
  const auto hears = [&](std::uint16_t round) { return rank >= 1u << round; };
  for (std::uint16_t round = 0; tells(round); ++round)
    steps.await_credit(Rank{rank + (1u << round)}, credit_of(round));
  // The sum of the 2^round ranks up to this one, in a new partial whenever the last one was put.
  Register held = partial_register(plan.partial_count++);
  steps.copy(source_register, held);
  if (inclusive) steps.copy(source_register, target_register);
  for (std::uint16_t round = 0; round < rounds; ++round) {
    steps.set_round(round);
    if (tells(round)) steps.put(Rank{rank + (1u << round)}, round, 1, held);
    if (!hears(round)) continue;
    const Rank behind{rank - (1u << round)};
    steps.await(behind, round, 1);
    if (inclusive || round > 0)
      steps.combine(slot_register(round), target_register);
    else
      steps.copy(slot_register(round), target_register);
    if (tells(static_cast<std::uint16_t>(round + 1))) {
      const Register grown = partial_register(plan.partial_count++);
      steps.copy(held, grown);
      steps.combine(slot_register(round), grown);
      held = grown;
    }
    steps.put(behind, credit_of(round), 0);
  }
  return plan;
}

namespace {

std::uint16_t rounds_for(std::size_t count) {
  return static_cast<std::uint16_t>(std::bit_width(count - 1));
}

/// Slots: one for each round inside a node, for each round across, and for the sum of the nodes
/// before; then the credits in the same order, where each member has its own for the last one.
class NodeScan {
 public:
  NodeScan(Rank self, std::span<const Node> node_of, Prefix prefix)
      : nodes_(members_of_nodes(static_cast<std::uint32_t>(node_of.size()), node_of)),
        node_(index_of(node_of[index_of(self)])),
        place_(index_of(self) - index_of(nodes_[node_].front())),
        inclusive_(prefix == Prefix::inclusive) {
    const std::size_t largest = largest_node_of(node_of);
    inside_ = rounds_for(largest);
    across_ = rounds_for(nodes_.size());
    plan_ = {.self = self,
             .rank_count = static_cast<std::uint32_t>(node_of.size()),
             .algorithm = "node_doubling"};
    plan_.per_round.assign(std::size_t{inside_} + across_, 1);
    plan_.per_round.push_back(std::max(static_cast<std::uint32_t>(largest) - 1, 1u));
    plan_.all_alike = false;
    plan_.flow_control = FlowControl::one_way;
    plan_.line_slot_count = static_cast<std::uint16_t>(inside_ + across_ + largest);
    plan_.slot_count = static_cast<std::uint16_t>(told() + 1 + plan_.line_slot_count);
  }

  Plan build() && {
    await_credits();
    const Register own = inside_the_node();
    if (is_last())
      across_nodes(own);
    else if (node_ > 0)
      hear_what_is_before();
    return std::move(plan_);
  }

 private:
  const std::vector<Rank>& members() const { return nodes_[node_]; }
  Rank last() const { return members().back(); }
  bool is_last() const { return plan_.self == last(); }
  std::uint16_t told() const { return static_cast<std::uint16_t>(inside_ + across_); }
  std::uint16_t credit_of(std::size_t slot) const {
    return static_cast<std::uint16_t>(told() + 1 + slot);
  }
  bool tells_inside(std::uint16_t round) const {
    return round < inside_ && place_ + (std::size_t{1} << round) < members().size();
  }
  bool tells_across(std::uint16_t round) const {
    return round < across_ && node_ + (std::size_t{1} << round) < nodes_.size();
  }

  void await_credits() {
    for (std::uint16_t round = 0; tells_inside(round); ++round)
      steps_.await_credit(members()[place_ + (1u << round)], credit_of(round));
    if (!is_last()) return;
    for (std::uint16_t round = 0; tells_across(round); ++round)
      steps_.await_credit(nodes_[node_ + (1u << round)].back(),
                          credit_of(std::size_t{inside_} + round));
    for (std::size_t place = 0; node_ > 0 && place < place_; ++place)
      steps_.await_credit(members()[place], credit_of(told() + place));
  }

  Register new_copy_of(Register from) {
    const Register copy = partial_register(plan_.partial_count++);
    steps_.copy(from, copy);
    return copy;
  }

  /// The sum of the node up to this rank, which for the last rank is that of the whole node.
  Register inside_the_node() {
    Register held = new_copy_of(source_register);
    if (inclusive_) steps_.copy(source_register, target_register);
    for (std::uint16_t round = 0; round < inside_; ++round) {
      steps_.set_round(round);
      if (tells_inside(round)) steps_.put(members()[place_ + (1u << round)], round, 1, held);
      if (place_ < 1u << round) continue;
      const Rank behind = members()[place_ - (1u << round)];
      steps_.await(behind, round, 1);
      if (inclusive_ || round > 0)
        steps_.combine(slot_register(round), target_register);
      else
        steps_.copy(slot_register(round), target_register);
      if (is_last() || tells_inside(static_cast<std::uint16_t>(round + 1))) {
        held = new_copy_of(held);
        steps_.combine(slot_register(round), held);
      }
      steps_.put(behind, credit_of(round), 0);
    }
    return held;
  }

  /// The last rank of a node gets the sum of the nodes before, and sends it to the others.
  void across_nodes(Register held) {
    Register before{};
    for (std::uint16_t round = 0; round < across_; ++round) {
      const auto slot = static_cast<std::uint16_t>(inside_ + round);
      steps_.set_round(slot);
      if (tells_across(round)) steps_.put(nodes_[node_ + (1u << round)].back(), slot, 1, held);
      if (node_ < 1u << round) continue;
      const Rank behind = nodes_[node_ - (1u << round)].back();
      steps_.await(behind, slot, 1);
      if (round == 0)
        before = new_copy_of(slot_register(slot));
      else
        steps_.combine(slot_register(slot), before);
      if (tells_across(static_cast<std::uint16_t>(round + 1))) {
        held = new_copy_of(held);
        steps_.combine(slot_register(slot), held);
      }
      steps_.put(behind, credit_of(slot), 0);
    }
    if (node_ == 0) return;
    steps_.set_round(told());
    for (std::size_t place = 0; place < place_; ++place)
      steps_.put(members()[place], told(), 1, before);
    join(before);
  }

  void hear_what_is_before() {
    steps_.set_round(told());
    steps_.await(last(), told(), 1);
    join(slot_register(told()));
    steps_.put(last(), credit_of(told() + place_), 0);
  }

  void join(Register before) {
    if (!inclusive_ && place_ == 0)
      steps_.copy(before, target_register);
    else
      steps_.combine(before, target_register);
  }

  std::vector<std::vector<Rank>> nodes_;
  std::uint32_t node_;
  std::size_t place_;  // in the node
  bool inclusive_;
  std::uint16_t inside_ = 0, across_ = 0;  // rounds
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

Plan node_scan(Rank self, std::span<const Node> node_of, Prefix prefix) {
  assert(nodes_are_runs(node_of) && index_of(self) < node_of.size());
  return NodeScan(self, node_of, prefix).build();
}

}  // namespace tutti::plan
