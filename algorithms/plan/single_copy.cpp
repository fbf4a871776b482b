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

/// Each rank combines the part of its number.
std::uint16_t part_of(Rank rank) {
  return static_cast<std::uint16_t>(index_of(rank));
}
std::uint16_t slot_of(std::uint32_t round, Rank rank, std::uint32_t rank_count) {
  return static_cast<std::uint16_t>(round * rank_count + index_of(rank));
}

}  // namespace

bool is_single_copy(std::uint32_t rank_count) noexcept {
  return rank_count < slots_max / rounds_max;
}

Plan single_copy_broadcast(Rank self, std::uint32_t rank_count, Rank root) {
  Plan plan = empty_plan(self, rank_count, 1, FlowControl::acknowledged);
  plan.all_alike = false;
  const auto slot_of_one = [](Rank rank) { return slot_of(0, rank, 0); };
  StepWriter steps{plan};
  if (self != root) {
    steps.await_reference(root, slot_of_one(root));
    steps.copy_referenced(root, slot_of_one(root), target_register);
    steps.put(root, slot_of_one(self), 0);
    return plan;
  }
  for (const Rank leaf : others(self, rank_count))
    steps.put_reference(leaf, slot_of_one(self), source_register);
  for (const Rank leaf : others(self, rank_count)) steps.await(leaf, slot_of_one(leaf), 0);
  return plan;
}

namespace {

/// The first round of collectives that cut the payload into parts: every rank tells the others of
/// what they combine, and combines its own part into `into`.
void combine_own_part(StepWriter& steps, Rank self, std::uint32_t rank_count, Register into) {
  const std::vector<Rank> peers = others(self, rank_count);
  for (const Rank peer : peers) {
    steps.begin_part(part_of(peer));
    steps.put_reference(peer, slot_of(0, self, rank_count), source_register);
  }
  steps.begin_part(part_of(self));
  if (peers.empty()) steps.copy(source_register, into);
  for (const Rank peer : peers) {
    const std::uint16_t slot = slot_of(0, peer, rank_count);
    steps.await_reference(peer, slot);
    if (peer == peers.front())
      steps.combine_referenced_with_source(peer, slot, into);
    else
      steps.combine_referenced(peer, slot, into);
  }
}

}  // namespace

Plan single_copy_reduce(Rank self, std::uint32_t rank_count, Rank root) {
  Plan plan = empty_plan(self, rank_count, rounds_max, FlowControl::synchronising);
  plan.all_alike = rank_count == 1;
  plan.parts = static_cast<std::uint16_t>(rank_count);
  plan.partial_count = self == root ? 0 : 1;
  plan.segments = 1;
  const std::vector<Rank> peers = others(self, rank_count);
  StepWriter steps{plan};
  combine_own_part(steps, self, rank_count, self == root ? target_register : partial_register(0));
  if (rank_count == 1) return plan;
  // Who has combined its part reads no source any more.
  steps.set_round(1);
  for (const Rank peer : peers) {
    if (self == root) break;
    if (peer == root)
      steps.put_reference(root, slot_of(1, self, rank_count), partial_register(0));
    else
      steps.put(peer, slot_of(1, self, rank_count), 0);
  }
  for (const Rank peer : peers) {
    const std::uint16_t slot = slot_of(1, peer, rank_count);
    if (self != root) {
      if (peer != root) steps.await(peer, slot, 0);
      continue;
    }
    steps.begin_part(part_of(peer));
    steps.await_reference(peer, slot);
    steps.copy_referenced(peer, slot, target_register);
  }
  steps.begin_part(0);
  steps.set_round(2);
  if (self != root) {
    steps.await(root, slot_of(2, root, rank_count), 0);
    return plan;
  }
  for (const Rank peer : peers) steps.put(peer, slot_of(2, root, rank_count), 0);
  return plan;
}

Plan single_copy_allreduce(Rank self, std::uint32_t rank_count) {
  Plan plan = empty_plan(self, rank_count, rounds_max, FlowControl::synchronising);
  plan.parts = static_cast<std::uint16_t>(rank_count);
  const std::vector<Rank> peers = others(self, rank_count);
  StepWriter steps{plan};
  combine_own_part(steps, self, rank_count, target_register);
  if (rank_count == 1) return plan;
  steps.set_round(1);
  for (const Rank peer : peers)
    steps.put_reference(peer, slot_of(1, self, rank_count), target_register);
  // A peer that tells of its part has read all that it needs of this rank's source.
  for (const Rank peer : peers) {
    const std::uint16_t slot = slot_of(1, peer, rank_count);
    steps.begin_part(part_of(peer));
    steps.await_reference(peer, slot);
    steps.copy_referenced(peer, slot, target_register);
  }
  steps.begin_part(0);
  steps.set_round(2);
  for (const Rank peer : peers) steps.put(peer, slot_of(2, self, rank_count), 0);
  for (const Rank peer : peers) steps.await(peer, slot_of(2, peer, rank_count), 0);
  return plan;
}

}  // namespace tutti::plan
