// See single_copy.hpp.  A message from rank q has slot q; in an allreduce the reference to the
// target of q has slot 2 + q, and its acknowledgement slot 4 + q.
#include "plan/rooted/single_copy.hpp"

#include <cassert>

#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {

bool is_single_copy(std::uint32_t rank_count) noexcept {
  return rank_count < slots_max;
}

Plan single_copy_broadcast(Rank self, std::uint32_t rank_count, Rank root) {
  assert(is_single_copy(rank_count));
  Plan plan{.self = self, .rank_count = rank_count, .algorithm = "single_copy"};
  if (rank_count == 1) return plan;
  plan.per_round = {rank_count - 1};
  plan.all_alike = false;
  plan.flow_control = FlowControl::acknowledged;
  plan.slot_count = plan.line_slot_count = static_cast<std::uint16_t>(rank_count);
  StepWriter steps{plan};
  if (self != root) {
    steps.await_reference(root, part_of(root));
    steps.copy_referenced(root, part_of(root), target_register);
    steps.put(root, part_of(self), 0);
    return plan;
  }
  for (std::uint32_t offset = 1; offset < rank_count; ++offset)
    steps.put_reference(rank_ahead(root, offset, rank_count), part_of(root), source_register);
  for (std::uint32_t offset = 1; offset < rank_count; ++offset) {
    const Rank leaf = rank_ahead(root, offset, rank_count);
    steps.await(leaf, part_of(leaf), 0);
  }
  return plan;
}

Plan single_copy_allreduce(Rank self) {
  const Rank peer{1 - index_of(self)};
  Plan plan{.self = self, .rank_count = 2, .algorithm = "single_copy"};
  plan.flow_control = FlowControl::acknowledged;
  plan.parts = 2;
  plan.slot_count = plan.line_slot_count = 6;
  enum Kind : std::uint16_t { source, target, done };
  const auto slot_of = [&](Kind kind, Rank rank) {
    return static_cast<std::uint16_t>(2 * kind + part_of(rank));
  };
  StepWriter steps{plan};
  steps.begin_round(1);
  steps.begin_part(part_of(peer));
  steps.put_reference(peer, slot_of(source, self), source_register);
  steps.begin_part(part_of(self));
  steps.await_reference(peer, slot_of(source, peer));
  steps.combine_referenced(peer, slot_of(source, peer), target_register);
  steps.begin_round(1);
  steps.put_reference(peer, slot_of(target, self), target_register);
  steps.begin_part(part_of(peer));
  steps.await_reference(peer, slot_of(target, peer));
  steps.copy_referenced(peer, slot_of(target, peer), target_register);
  steps.begin_round(1);
  steps.put(peer, slot_of(done, self), 0);
  steps.await(peer, slot_of(done, peer), 0);
  return plan;
}

Plan single_copy_reduce(Rank self, Rank root) {
  const Rank leaf{1 - index_of(root)};
  Plan plan{.self = self, .rank_count = 2, .algorithm = "single_copy"};
  plan.per_round = {1};
  plan.all_alike = true;
  plan.flow_control = FlowControl::acknowledged;
  plan.slot_count = plan.line_slot_count = 2;
  StepWriter steps{plan};
  if (self == root) {
    steps.await_reference(leaf, part_of(leaf));
    steps.combine_referenced(leaf, part_of(leaf), target_register);
    steps.put(leaf, part_of(root), 0);
  } else {
    steps.put_reference(root, part_of(leaf), source_register);
    steps.await(root, part_of(root), 0);
  }
  return plan;
}

}  // namespace tutti::plan
