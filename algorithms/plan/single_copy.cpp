// See single_copy.hpp.  What comes from rank q has slot q.
#include "plan/single_copy.hpp"

#include <cassert>

#include "plan/per_round.hpp"
#include "plan/steps.hpp"

namespace tutti::plan {

bool is_single_copy(std::uint32_t rank_count) noexcept {
  return rank_count < slots_max;
}

Plan single_copy_broadcast(Rank self, std::uint32_t rank_count, Rank root) {
  assert(is_single_copy(rank_count));
  Plan plan;
  plan.self = self;
  plan.rank_count = rank_count;
  plan.algorithm = "single_copy";
  if (rank_count == 1) return plan;
  plan.per_round = {rank_count - 1};
  plan.all_alike = false;
  plan.flow_control = FlowControl::acknowledged;
  plan.slot_count = plan.line_slot_count = static_cast<std::uint16_t>(rank_count);
  const auto slot_of = [](Rank rank) { return static_cast<std::uint16_t>(index_of(rank)); };
  StepWriter steps{plan};
  if (self != root) {
    steps.await_reference(root, slot_of(root));
    steps.copy_referenced(root, slot_of(root), target_register);
    steps.put(root, slot_of(self), 0);
    return plan;
  }
  for (std::uint32_t offset = 1; offset < rank_count; ++offset)
    steps.put_reference(rank_ahead(root, offset, rank_count), slot_of(root), source_register);
  for (std::uint32_t offset = 1; offset < rank_count; ++offset) {
    const Rank leaf = rank_ahead(root, offset, rank_count);
    steps.await(leaf, slot_of(leaf), 0);
  }
  return plan;
}

Plan single_copy_reduce(Rank self, Rank root) {
  const Rank leaf{1 - index_of(root)};
  Plan plan;
  plan.self = self;
  plan.rank_count = 2;
  plan.algorithm = "single_copy";
  plan.per_round = {1};
  plan.all_alike = true;
  plan.flow_control = FlowControl::acknowledged;
  plan.slot_count = plan.line_slot_count = 2;
  const auto slot_of = [](Rank rank) { return static_cast<std::uint16_t>(index_of(rank)); };
  StepWriter steps{plan};
  if (self == root) {
    steps.await_reference(leaf, slot_of(leaf));
    steps.combine_referenced(leaf, slot_of(leaf), target_register);
    steps.put(leaf, slot_of(root), 0);
  } else {
    steps.put_reference(root, slot_of(leaf), source_register);
    steps.await(root, slot_of(root), 0);
  }
  return plan;
}

}  // namespace tutti::plan
