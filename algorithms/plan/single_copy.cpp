// See single_copy.hpp.  What comes from rank q has slot q of its round.
#include "plan/single_copy.hpp"

#include <cassert>
#include <vector>

#include "plan/per_round.hpp"
#include "plan/steps.hpp"

namespace tutti::plan {
namespace {

constexpr std::uint32_t rounds_max = 3;

Plan empty_plan(Rank self, std::uint32_t rank_count, std::uint16_t rounds, FlowControl flow) {
  assert(is_single_copy(rank_count));
  Plan plan;
  plan.self = self;
  plan.rank_count = rank_count;
  plan.algorithm = "single_copy";
  plan.flow_control = rank_count > 1 ? flow : FlowControl::synchronising;
  if (rank_count == 1) return plan;
  plan.per_round.assign(rounds, rank_count - 1);
  plan.slot_count = static_cast<std::uint16_t>(rounds * rank_count);
  plan.line_slot_count = plan.slot_count;
  return plan;
}

/// In cyclic order, so that not all begin with the same one.
std::vector<Rank> others(Rank self, std::uint32_t rank_count) {
  std::vector<Rank> ranks;
  for (std::uint32_t offset = 1; offset < rank_count; ++offset)
    ranks.push_back(rank_ahead(self, offset, rank_count));
  return ranks;
}

}  // namespace

bool is_single_copy(std::uint32_t rank_count) noexcept {
  return rank_count < slots_max / rounds_max;
}

Plan single_copy_broadcast(Rank self, std::uint32_t rank_count, Rank root) {
  Plan plan = empty_plan(self, rank_count, 1, FlowControl::acknowledged);
  plan.all_alike = false;
  const auto slot_of = [](Rank rank) { return static_cast<std::uint16_t>(index_of(rank)); };
  StepWriter steps{plan};
  if (self != root) {
    steps.await_reference(root, slot_of(root));
    steps.copy_referenced(root, slot_of(root), target_register);
    steps.put(root, slot_of(self), 0);
    return plan;
  }
  for (const Rank leaf : others(self, rank_count))
    steps.put_reference(leaf, slot_of(self), source_register);
  for (const Rank leaf : others(self, rank_count)) steps.await(leaf, slot_of(leaf), 0);
  return plan;
}

Plan single_copy_reduce(Rank self, std::uint32_t rank_count, Rank root) {
  Plan plan = empty_plan(self, rank_count, 1, FlowControl::acknowledged);
  plan.all_alike = false;
  const auto slot_of = [](Rank rank) { return static_cast<std::uint16_t>(index_of(rank)); };
  StepWriter steps{plan};
  if (self != root) {
    steps.put_reference(root, slot_of(self), source_register);
    steps.await(root, slot_of(root), 0);
    return plan;
  }
  steps.copy(source_register, target_register);
  for (const Rank leaf : others(self, rank_count)) {
    steps.await_reference(leaf, slot_of(leaf));
    steps.combine_referenced(leaf, slot_of(leaf), target_register);
    steps.put(leaf, slot_of(self), 0);
  }
  return plan;
}

Plan single_copy_allreduce(Rank self, std::uint32_t rank_count) {
  Plan plan = empty_plan(self, rank_count, rounds_max, FlowControl::synchronising);
  plan.parts = static_cast<std::uint16_t>(rank_count);
  const std::vector<Rank> peers = others(self, rank_count);
  const auto part_of = [](Rank rank) { return static_cast<std::uint16_t>(index_of(rank)); };
  const auto slot_of = [&](std::uint32_t round, Rank rank) {
    return static_cast<std::uint16_t>(round * rank_count + index_of(rank));
  };
  StepWriter steps{plan};
  for (const Rank peer : peers) {
    steps.begin_part(part_of(peer));
    steps.put_reference(peer, slot_of(0, self), source_register);
  }
  steps.begin_part(part_of(self));
  steps.copy(source_register, target_register);
  for (const Rank peer : peers) {
    steps.await_reference(peer, slot_of(0, peer));
    steps.combine_referenced(peer, slot_of(0, peer), target_register);
  }
  if (rank_count == 1) return plan;
  steps.set_round(1);
  for (const Rank peer : peers) steps.put_reference(peer, slot_of(1, self), target_register);
  // A peer that tells of its part has read all that it needs of this rank's source.
  for (const Rank peer : peers) {
    steps.begin_part(part_of(peer));
    steps.await_reference(peer, slot_of(1, peer));
    steps.copy_referenced(peer, slot_of(1, peer), target_register);
  }
  steps.begin_part(0);
  steps.set_round(2);
  for (const Rank peer : peers) steps.put(peer, slot_of(2, self), 0);
  for (const Rank peer : peers) steps.await(peer, slot_of(2, peer), 0);
  return plan;
}

}  // namespace tutti::plan
