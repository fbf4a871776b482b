#include "plan/blocks/node_blocks.hpp"

#include <algorithm>
#include <cassert>
#include <span>
#include <vector>

#include "plan/core/node_shares.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

std::uint16_t count_of(std::span<const Rank> members) {
  return static_cast<std::uint16_t>(members.size());
}

/// The heads of all nodes, as seen by one rank.
class Heads {
 public:
  Heads(Rank self, std::span<const Node> node_of, Rank root)
      : shares_(static_cast<std::uint32_t>(node_of.size()), node_of), self_(self), root_(root) {}

  std::uint32_t rank_count() const { return shares_.rank_count(); }
  std::uint16_t nodes() const { return static_cast<std::uint16_t>(shares_.node_count()); }
  std::uint16_t largest() const { return static_cast<std::uint16_t>(shares_.largest()); }
  std::uint16_t node() const { return static_cast<std::uint16_t>(shares_.node_of(self_)); }
  std::span<const Rank> members() const { return members(node()); }
  std::span<const Rank> members(std::uint16_t node) const { return shares_.members(node); }
  Rank head() const { return head(node()); }
  Rank head(std::uint16_t node) const { return shares_.head(node, root_); }
  std::uint16_t place() const { return static_cast<std::uint16_t>(shares_.place_of(self_)); }

  /// f(member, place) for the others of the own node.
  template <class F>
  void for_others_here(F&& f) const {
    for (std::uint16_t place = 0; place < count_of(members()); ++place)
      if (members()[place] != self_) f(members()[place], place);
  }
  /// f(node) for all but the root's.
  template <class F>
  void for_other_nodes(F&& f) const {
    for (std::uint16_t node = 0; node < nodes(); ++node)
      if (node != shares_.node_of(root_)) f(node);
  }

 private:
  NodeShares shares_;
  Rank self_, root_;
};

Plan empty_plan(Rank self, const Heads& heads, const char* algorithm) {
  assert(heads.nodes() > 1);
  Plan plan{.self = self, .rank_count = heads.rank_count(), .algorithm = algorithm};
  plan.parts = static_cast<std::uint16_t>(heads.rank_count());
  plan.payloads = heads.largest();
  plan.all_alike = false;
  plan.flow_control = FlowControl::one_way;
  return plan;
}

}  // namespace

Plan node_gather(Rank self, std::span<const Node> node_of, Rank root) {
  const Heads heads(self, node_of, root);
  Plan plan = empty_plan(self, heads, "node_gather");
  const auto slot_of_node = [&](std::uint16_t node) {
    return static_cast<std::uint16_t>(heads.largest() + node);
  };
  const auto from_head = static_cast<std::uint16_t>(heads.largest() + heads.nodes());
  const auto from_root = static_cast<std::uint16_t>(from_head + 1);
  plan.line_slot_count = 2;
  plan.slot_count = static_cast<std::uint16_t>(from_root + 1);
  plan.per_round = {std::max(heads.largest() - 1u, 1u), heads.nodes() - 1u};
  StepWriter steps{plan};

  if (self != heads.head()) {
    plan.partial_count = 1;
    steps.begin_part(part_of(self));
    steps.await_credit(heads.head(), from_head);
    steps.copy(source_register, partial_register(0));
    steps.put(heads.head(), heads.place(), 1, partial_register(0));
    return plan;
  }
  const bool is_root = self == root;
  steps.begin_part(part_of(self));
  if (!is_root) {
    plan.partial_count = 1;
    steps.await_credit(root, from_root);
  }
  steps.copy(source_register, is_root ? target_register : partial_register(0, heads.place()));
  heads.for_others_here([&](Rank member, std::uint16_t place) {
    steps.begin_part(part_of(member));
    steps.await(member, place, 1);
    steps.copy(slot_register(place), is_root ? target_register : partial_register(0, place));
    steps.put(member, from_head, 0);
  });
  steps.set_round(1);
  if (!is_root) {
    const std::span<const Rank> members = heads.members();
    const std::uint16_t slot = slot_of_node(heads.node());
    steps.begin_part(part_of(members.back()));
    steps.put(root, slot, count_of(members), partial_register(0), members.size() > 1);
    return plan;
  }
  heads.for_other_nodes([&](std::uint16_t node) {
    const std::span<const Rank> members = heads.members(node);
    steps.begin_part(part_of(members.back()));
    steps.await(heads.head(node), slot_of_node(node), count_of(members));
    for (std::uint16_t place = 0; place < count_of(members); ++place) {
      steps.begin_part(part_of(members[place]));
      steps.copy(slot_register(slot_of_node(node), place), target_register);
    }
    steps.put(heads.head(node), from_root, 0);
  });
  return plan;
}

Plan node_scatter(Rank self, std::span<const Node> node_of, Rank root) {
  const Heads heads(self, node_of, root);
  Plan plan = empty_plan(self, heads, "node_scatter");
  constexpr std::uint16_t blocks = 0;
  const auto credit_of_node = [](std::uint16_t node) {
    return static_cast<std::uint16_t>(1 + node);
  };
  const auto credit_of_member = [&](std::uint16_t place) {
    return static_cast<std::uint16_t>(1 + heads.nodes() + place);
  };
  plan.line_slot_count = static_cast<std::uint16_t>(heads.nodes() + heads.largest());
  plan.slot_count = static_cast<std::uint16_t>(1 + plan.line_slot_count);
  plan.per_round = {heads.nodes() - 1u, std::max(heads.largest() - 1u, 1u)};
  StepWriter steps{plan};

  steps.begin_part(part_of(self));
  if (self != heads.head()) {
    steps.set_round(1);
    steps.await(heads.head(), blocks, 1);
    steps.copy(slot_register(blocks), target_register);
    steps.put(heads.head(), credit_of_member(heads.place()), 0);
    return plan;
  }
  const bool is_root = self == root;
  if (is_root)
    heads.for_other_nodes([&](std::uint16_t node) {
      steps.begin_part(part_of(heads.head(node)));
      steps.await_credit(heads.head(node), credit_of_node(node));
    });
  heads.for_others_here([&](Rank member, std::uint16_t place) {
    steps.begin_part(part_of(member));
    steps.await_credit(member, credit_of_member(place));
  });
  const auto from = [&](std::uint16_t place) {
    return is_root ? source_register : slot_register(blocks, place);
  };
  if (is_root) {
    heads.for_other_nodes([&](std::uint16_t node) {
      const std::span<const Rank> members = heads.members(node);
      const std::uint16_t together = plan.partial_count++;
      for (std::uint16_t place = 0; place < count_of(members); ++place) {
        steps.begin_part(part_of(members[place]));
        steps.copy(source_register, partial_register(together, place));
      }
      steps.put(heads.head(node), blocks, count_of(members), partial_register(together));
    });
  } else {
    steps.begin_part(part_of(heads.members().back()));
    steps.await(root, blocks, count_of(heads.members()));
  }
  steps.set_round(1);
  heads.for_others_here([&](Rank member, std::uint16_t place) {
    const Register block = partial_register(plan.partial_count++);
    steps.begin_part(part_of(member));
    steps.copy(from(place), block);
    steps.put(member, blocks, 1, block, !is_root);
  });
  steps.begin_part(part_of(self));
  steps.copy(from(heads.place()), target_register);
  if (!is_root) steps.put(root, credit_of_node(heads.node()), 0);
  return plan;
}

Plan leader_allgather(Rank self, std::span<const Node> node_of) {
  const Heads heads(self, node_of, Rank{0});
  Plan plan = empty_plan(self, heads, "leader_allgather");
  plan.payloads = static_cast<std::uint16_t>(heads.rank_count());
  plan.flow_control = FlowControl::synchronising;
  const auto slot_of_node = [&](std::uint16_t node) {
    return static_cast<std::uint16_t>(heads.largest() + node);
  };
  const auto from_head = static_cast<std::uint16_t>(heads.largest() + heads.nodes());
  plan.slot_count = static_cast<std::uint16_t>(from_head + 1);
  plan.per_round = {std::max(heads.largest() - 1u, 1u), heads.nodes() - 1u,
                    std::max(heads.largest() - 1u, 1u)};
  plan.partial_count = 1;
  StepWriter steps{plan};
  const Register blocks = partial_register(0);
  // Blocks stand node after node in the messages of all.
  const auto for_all = [&](auto&& f) {
    std::uint16_t at = 0;
    for (std::uint16_t node = 0; node < heads.nodes(); ++node)
      for (const Rank member : heads.members(node)) f(member, at++);
  };
  const auto place_of_node = [&](std::uint16_t node) {
    std::uint16_t before = 0;
    for (std::uint16_t other = 0; other < node; ++other)
      before = static_cast<std::uint16_t>(before + count_of(heads.members(other)));
    return before;
  };

  steps.begin_part(part_of(self));
  if (self != heads.head()) {
    steps.copy(source_register, blocks);
    steps.put(heads.head(), heads.place(), 1, blocks);
    steps.set_round(2);
    steps.begin_part(part_of(heads.members(static_cast<std::uint16_t>(heads.nodes() - 1)).back()));
    steps.await(heads.head(), from_head, plan.payloads);
    for_all([&](Rank owner, std::uint16_t at) {
      steps.begin_part(part_of(owner));
      steps.copy(slot_register(from_head, at), target_register);
    });
    return plan;
  }
  const std::uint16_t here = place_of_node(heads.node());
  const Register own_node = partial_register(0, here);
  steps.copy(source_register,
             partial_register(0, static_cast<std::uint16_t>(here + heads.place())));
  heads.for_others_here([&](Rank member, std::uint16_t place) {
    steps.begin_part(part_of(member));
    steps.await(member, place, 1);
    steps.copy(slot_register(place), partial_register(0, static_cast<std::uint16_t>(here + place)));
  });
  steps.set_round(1);
  // Around, so that not all send to the same head first.
  for (std::uint16_t i = 1; i < heads.nodes(); ++i) {
    const auto node = static_cast<std::uint16_t>((heads.node() + i) % heads.nodes());
    steps.begin_part(part_of(heads.members().back()));
    steps.put(heads.head(node), slot_of_node(heads.node()), count_of(heads.members()), own_node,
              heads.members().size() > 1);
  }
  for (std::uint16_t i = heads.nodes(); --i > 0;) {
    const auto node = static_cast<std::uint16_t>((heads.node() + i) % heads.nodes());
    const std::span<const Rank> members = heads.members(node);
    steps.begin_part(part_of(members.back()));
    steps.await(heads.head(node), slot_of_node(node), count_of(members));
    steps.copy(slot_register(slot_of_node(node)), partial_register(0, place_of_node(node)),
               count_of(members));
  }
  steps.set_round(2);
  heads.for_others_here([&](Rank member, std::uint16_t) {
    steps.begin_part(part_of(heads.members(static_cast<std::uint16_t>(heads.nodes() - 1)).back()));
    steps.put(member, from_head, plan.payloads, blocks, true);
  });
  for_all([&](Rank owner, std::uint16_t at) {
    steps.begin_part(part_of(owner));
    steps.copy(partial_register(0, at), target_register);
  });
  return plan;
}

}  // namespace tutti::plan
