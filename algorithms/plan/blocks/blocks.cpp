// See blocks.hpp.  Where all ranks are alike, what comes from the rank i + 1 behind has slot i; at
// a root, or from it, what is about rank p has slot p.  References come before their answers.
#include "plan/blocks/blocks.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

Plan empty_plan(Rank self, std::uint32_t rank_count, const char* algorithm) {
  assert(is_block_exchange(rank_count) && index_of(self) < rank_count);
  Plan plan{.self = self, .rank_count = rank_count, .algorithm = algorithm};
  plan.parts = static_cast<std::uint16_t>(rank_count);
  return plan;
}

const char* name_of(Transport transport) {
  return transport == Transport::by_reference ? "single_copy" : "direct";
}

void keep_own_block(const Plan& plan, StepWriter& steps) {
  steps.begin_part(part_of(plan.self));
  steps.copy(source_register, target_register);
}

/// Allgather and alltoall, which differ in what is sent to each rank.
class Symmetric {
 public:
  Symmetric(Rank self, std::uint32_t rank_count, Transport transport, bool swaps)
      : plan_(empty_plan(self, rank_count, name_of(transport))),
        others_(static_cast<std::uint16_t>(rank_count - 1)) {
    plan_.swaps_blocks = swaps;
  }

  Plan copied() && {
    plan_.slot_count = others_;
    plan_.partial_count = plan_.swaps_blocks ? others_ : std::min<std::uint16_t>(others_, 1);
    if (others_ > 0) steps_.begin_round(others_);
    for (std::uint16_t i = 0; i < others_; ++i) {
      const Register from = partial_register(plan_.swaps_blocks ? i : std::uint16_t{0});
      steps_.begin_part(part_for(ahead(i)));
      if (plan_.swaps_blocks || i == 0) steps_.copy(source_register, from);
      steps_.put(ahead(i), i, 1, from);
    }
    keep_own_block(plan_, steps_);
    for (std::uint16_t i = 0; i < others_; ++i) {
      steps_.begin_part(part_of(behind(i)));
      steps_.await(behind(i), i, 1);
      steps_.copy(slot_register(i), target_register);
    }
    return std::move(plan_);
  }

  Plan by_reference() && {
    plan_.slot_count = plan_.line_slot_count = static_cast<std::uint16_t>(2 * others_);
    if (others_ == 0) {
      keep_own_block(plan_, steps_);
      return std::move(plan_);
    }
    plan_.flow_control = FlowControl::acknowledged;
    steps_.begin_round(others_);
    for (std::uint16_t i = 0; i < others_; ++i) {
      steps_.begin_part(part_for(ahead(i)));
      steps_.put_reference(ahead(i), i, source_register);
    }
    keep_own_block(plan_, steps_);
    for (std::uint16_t i = 0; i < others_; ++i) {
      steps_.begin_part(part_of(behind(i)));
      steps_.await_reference(behind(i), i);
      steps_.copy_referenced(behind(i), i, target_register);
    }
    steps_.begin_round(others_);
    for (std::uint16_t i = 0; i < others_; ++i) steps_.put(behind(i), answer_slot(i), 0);
    for (std::uint16_t i = 0; i < others_; ++i) steps_.await(ahead(i), answer_slot(i), 0);
    return std::move(plan_);
  }

 private:
  Rank ahead(std::uint16_t i) const { return rank_ahead(plan_.self, i + 1u, plan_.rank_count); }
  Rank behind(std::uint16_t i) const { return rank_behind(plan_.self, i + 1u, plan_.rank_count); }
  /// The part of the source that is for a peer.
  std::uint16_t part_for(Rank peer) const {
    return part_of(plan_.swaps_blocks ? peer : plan_.self);
  }
  std::uint16_t answer_slot(std::uint16_t i) const {
    return static_cast<std::uint16_t>(others_ + i);
  }

  Plan plan_;
  StepWriter steps_{plan_};
  std::uint16_t others_;
};

/// A plan of gather or scatter that has no steps yet.  Where blocks are copied, the first
/// `data_slots` slots receive blocks, and the slots after them receive credits and answers.
Plan empty_rooted_plan(Rank self, std::uint32_t rank_count, Transport transport,
                       std::uint32_t data_slots) {
  Plan plan = empty_plan(self, rank_count, name_of(transport));
  if (rank_count == 1) return plan;
  const bool copied = transport == Transport::copied;
  plan.per_round = {rank_count - 1};
  plan.all_alike = false;
  plan.flow_control = copied ? FlowControl::one_way : FlowControl::acknowledged;
  plan.slot_count = static_cast<std::uint16_t>(rank_count + 1);
  plan.line_slot_count =
      static_cast<std::uint16_t>(copied ? plan.slot_count - data_slots : plan.slot_count);
  return plan;
}

template <class F>
void for_others(const Plan& plan, F&& f) {
  for (std::uint32_t offset = 1; offset < plan.rank_count; ++offset)
    f(rank_ahead(plan.self, offset, plan.rank_count));
}

bool are_of_one_node(Rank one, Rank other, std::span<const Node> node_of) {
  return !node_of.empty() && node_of[index_of(one)] == node_of[index_of(other)];
}

}  // namespace

bool is_block_exchange(std::uint32_t rank_count) noexcept {
  return rank_count > 0 && 2 * std::uint64_t{rank_count} <= slots_max;
}

Plan direct_allgather(Rank self, std::uint32_t rank_count, Transport transport) {
  Symmetric plan(self, rank_count, transport, false);
  return transport == Transport::copied ? std::move(plan).copied() : std::move(plan).by_reference();
}

Plan direct_alltoall(Rank self, std::uint32_t rank_count, Transport transport) {
  Symmetric plan(self, rank_count, transport, true);
  return transport == Transport::copied ? std::move(plan).copied() : std::move(plan).by_reference();
}

Plan direct_gather(Rank self, std::uint32_t rank_count, Rank root, Transport transport) {
  Plan plan = empty_rooted_plan(self, rank_count, transport, rank_count);
  StepWriter steps{plan};
  const auto answer_slot = static_cast<std::uint16_t>(rank_count);
  if (self != root) {
    steps.begin_part(part_of(self));
    if (transport == Transport::by_reference) {
      steps.put_reference(root, part_of(self), source_register);
      steps.await(root, answer_slot, 0);
      return plan;
    }
    plan.partial_count = 1;
    steps.await_credit(root, answer_slot);
    steps.copy(source_register, partial_register(0));
    steps.put(root, part_of(self), 1, partial_register(0));
    return plan;
  }
  keep_own_block(plan, steps);
  for_others(plan, [&](Rank peer) {
    steps.begin_part(part_of(peer));
    if (transport == Transport::by_reference) {
      steps.await_reference(peer, part_of(peer));
      steps.copy_referenced(peer, part_of(peer), target_register);
    } else {
      steps.await(peer, part_of(peer), 1);
      steps.copy(slot_register(part_of(peer)), target_register);
    }
    steps.put(peer, answer_slot, 0);
  });
  return plan;
}

Plan direct_scatter(Rank self, std::uint32_t rank_count, Rank root, Transport transport,
                    std::span<const Node> node_of) {
  assert(node_of.empty() || node_of.size() == rank_count);
  Plan plan = empty_rooted_plan(self, rank_count, transport, 1);
  StepWriter steps{plan};
  constexpr std::uint16_t from_root = 0;
  const auto answer_slot = [](Rank peer) { return static_cast<std::uint16_t>(part_of(peer) + 1); };
  if (self != root) {
    steps.begin_part(part_of(self));
    if (transport == Transport::by_reference) {
      steps.await_reference(root, from_root);
      steps.copy_referenced(root, from_root, target_register);
    } else {
      steps.await(root, from_root, 1);
      steps.copy(slot_register(from_root), target_register);
    }
    steps.put(root, answer_slot(self), 0);
    return plan;
  }
  if (transport == Transport::copied)
    for_others(plan, [&](Rank peer) { steps.await_credit(peer, answer_slot(peer)); });
  for (const bool shares_node : {false, true})
    for_others(plan, [&](Rank peer) {
      if (are_of_one_node(root, peer, node_of) != shares_node) return;
      steps.begin_part(part_of(peer));
      if (transport == Transport::by_reference) {
        steps.put_reference(peer, from_root, source_register);
        return;
      }
      const Register block = partial_register(plan.partial_count++);
      steps.copy(source_register, block);
      steps.put(peer, from_root, 1, block);
    });
  keep_own_block(plan, steps);
  if (transport == Transport::by_reference)
    for_others(plan, [&](Rank peer) { steps.await(peer, answer_slot(peer), 0); });
  return plan;
}

}  // namespace tutti::plan
