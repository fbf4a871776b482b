// See scan.hpp.
#include "plan/allreduce/scan.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/core/nodes.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {

namespace {

std::uint16_t rounds_for(std::size_t count) {
  return static_cast<std::uint16_t>(std::bit_width(count - 1));
}

/// Consecutive ranks, which share a node.
struct Run {
  std::uint32_t first;
  std::uint32_t count;
  Rank last() const { return Rank{first + count - 1}; }
};

std::vector<Run> runs_of(std::span<const Node> node_of) {
  std::vector<Run> runs;
  for (std::uint32_t rank = 0; rank < node_of.size(); ++rank) {
    if (rank == 0 || node_of[rank] != node_of[rank - 1]) runs.push_back({rank, 0});
    ++runs.back().count;
  }
  return runs;
}

/// Slots: one for each round inside a node, for each round across, and for the sum of the nodes
/// before, if there are several; then the credits in the same order, where each member has its own
/// for the last one.
class Builder {
 public:
  Builder(Rank self, std::vector<Run> nodes, Prefix prefix, const char* algorithm)
      : nodes_(std::move(nodes)), inclusive_(prefix == Prefix::inclusive) {
    while (node_ + 1 < nodes_.size() && nodes_[node_ + 1].first <= index_of(self)) ++node_;
    place_ = index_of(self) - members().first;
    std::uint32_t largest = 0;
    for (const Run& node : nodes_) largest = std::max(largest, node.count);
    inside_ = rounds_for(largest);
    across_ = rounds_for(nodes_.size());
    plan_ = {
        .self = self, .rank_count = index_of(nodes_.back().last()) + 1, .algorithm = algorithm};
    plan_.per_round.assign(std::size_t{inside_} + across_, 1);
    plan_.all_alike = false;
    plan_.flow_control = FlowControl::one_way;
    first_credit_ = plan_.line_slot_count = told();
    if (nodes_.size() > 1) {
      plan_.per_round.push_back(std::max(largest - 1, 1u));
      plan_.line_slot_count = static_cast<std::uint16_t>(told() + largest);
      ++first_credit_;
    }
    plan_.slot_count = static_cast<std::uint16_t>(first_credit_ + plan_.line_slot_count);
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
  const Run& members() const { return nodes_[node_]; }
  Rank member(std::uint32_t place) const { return Rank{members().first + place}; }
  Rank last() const { return members().last(); }
  bool is_last() const { return plan_.self == last(); }
  std::uint16_t told() const { return static_cast<std::uint16_t>(inside_ + across_); }
  std::uint16_t credit_of(std::size_t slot) const {
    return static_cast<std::uint16_t>(first_credit_ + slot);
  }
  bool tells_inside(std::uint16_t round) const {
    return round < inside_ && place_ + (1u << round) < members().count;
  }
  bool tells_across(std::uint16_t round) const {
    return round < across_ && node_ + (std::size_t{1} << round) < nodes_.size();
  }

  void await_credits() {
    for (std::uint16_t round = 0; tells_inside(round); ++round)
      steps_.await_credit(member(place_ + (1u << round)), credit_of(round));
    if (!is_last()) return;
    for (std::uint16_t round = 0; tells_across(round); ++round)
      steps_.await_credit(nodes_[node_ + (1u << round)].last(),
                          credit_of(std::size_t{inside_} + round));
    for (std::uint32_t place = 0; node_ > 0 && place < place_; ++place)
      steps_.await_credit(member(place), credit_of(std::size_t{told()} + place));
  }

  Register new_copy_of(Register from) {
    const Register copy = partial_register(plan_.partial_count++);
    steps_.copy(from, copy);
    return copy;
  }

  /// The sum of the node up to this rank; for the last rank of one of several nodes that of the
  /// whole node.
  Register inside_the_node() {
    const bool sums_up = is_last() && nodes_.size() > 1;
    Register held = new_copy_of(source_register);
    if (inclusive_) steps_.copy(source_register, target_register);
    for (std::uint16_t round = 0; round < inside_; ++round) {
      steps_.set_round(round);
      if (tells_inside(round)) steps_.put(member(place_ + (1u << round)), round, 1, held);
      if (place_ < 1u << round) continue;
      const Rank behind = member(place_ - (1u << round));
      steps_.await(behind, round, 1);
      if (inclusive_ || round > 0)
        steps_.combine(slot_register(round), target_register);
      else
        steps_.copy(slot_register(round), target_register);
      if (sums_up || tells_inside(static_cast<std::uint16_t>(round + 1))) {
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
      if (tells_across(round)) steps_.put(nodes_[node_ + (1u << round)].last(), slot, 1, held);
      if (node_ < 1u << round) continue;
      const Rank behind = nodes_[node_ - (1u << round)].last();
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
    for (std::uint32_t place = 0; place < place_; ++place)
      steps_.put(member(place), told(), 1, before);
    join(before);
  }

  void hear_what_is_before() {
    steps_.set_round(told());
    steps_.await(last(), told(), 1);
    join(slot_register(told()));
    steps_.put(last(), credit_of(std::size_t{told()} + place_), 0);
  }

  void join(Register before) {
    if (!inclusive_ && place_ == 0)
      steps_.copy(before, target_register);
    else
      steps_.combine(before, target_register);
  }

  std::vector<Run> nodes_;
  bool inclusive_;
  std::size_t node_ = 0;
  std::uint32_t place_ = 0;                // in the node
  std::uint16_t inside_ = 0, across_ = 0;  // rounds
  std::uint16_t first_credit_ = 0;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

Plan doubling_scan(Rank self, std::uint32_t rank_count, Prefix prefix) {
  assert(index_of(self) < rank_count);
  if (rank_count > 1) return Builder(self, {{0, rank_count}}, prefix, "doubling").build();
  Plan plan{.self = self, .rank_count = rank_count, .algorithm = "doubling"};
  if (prefix == Prefix::inclusive) StepWriter(plan).copy(source_register, target_register);
  return plan;
}

Plan node_scan(Rank self, std::span<const Node> node_of, Prefix prefix) {
  assert(nodes_are_runs(node_of) && index_of(self) < node_of.size());
  return Builder(self, runs_of(node_of), prefix, "node_doubling").build();
}

}  // namespace tutti::plan
