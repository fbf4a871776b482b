// See node_allgather.hpp.  At every rank, the block of rank p comes into slot p.
#include "plan/node_allgather.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

#include "plan/blocks.hpp"
#include "plan/nodes.hpp"
#include "plan/steps.hpp"

namespace tutti::plan {
namespace {

using Members = std::vector<Rank>;

std::uint16_t number_of(Rank rank) {
  return static_cast<std::uint16_t>(index_of(rank));
}

/// Who receives what, the same on all ranks.
class Deal {
 public:
  explicit Deal(std::span<const Node> node_of)
      : node_of_(node_of),
        members_(members_of_nodes(static_cast<std::uint32_t>(node_of.size()), node_of)),
        place_(node_of.size()) {
    for (const Members& node : members_)
      for (std::size_t place = 0; place < node.size(); ++place)
        place_[index_of(node[place])] = place;
  }

  std::uint32_t rank_count() const { return static_cast<std::uint32_t>(node_of_.size()); }
  std::uint32_t node_count() const { return static_cast<std::uint32_t>(members_.size()); }
  Node node_of(Rank rank) const { return node_of_[index_of(rank)]; }
  const Members& members(Node node) const { return members_[index_of(node)]; }

  /// The rank of `node` that receives what comes from `sender`, who is on another one.
  Rank receiver(Rank sender, Node node) const {
    const Members& there = members(node);
    return there[place_[index_of(sender)] % there.size()];
  }

  /// Ranks of other nodes from which this one receives, those that follow it first.
  Members senders_to(Rank receiver_rank) const {
    Members senders;
    for (std::uint32_t offset = 1; offset < rank_count(); ++offset) {
      const Rank sender = rank_ahead(receiver_rank, offset, rank_count());
      if (node_of(sender) != node_of(receiver_rank) &&
          receiver(sender, node_of(receiver_rank)) == receiver_rank)
        senders.push_back(sender);
    }
    return senders;
  }

  /// Messages of the two rounds, of the rank that sends most.
  std::pair<std::uint32_t, std::uint32_t> messages_max() const {
    std::vector<std::uint32_t> received(rank_count());
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank)
      for (std::uint32_t node = 0; node < node_count(); ++node)
        if (Node{node} != node_of(Rank{rank}))
          ++received[index_of(receiver(Rank{rank}, Node{node}))];
    std::uint32_t first = 0, second = 0;
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
      const auto others = static_cast<std::uint32_t>(members(node_of(Rank{rank})).size() - 1);
      first = std::max(first, node_count() - 1 + others);
      second = std::max(second, received[rank] * others);
    }
    return {first, second};
  }

 private:
  std::span<const Node> node_of_;
  std::vector<Members> members_;
  std::vector<std::size_t> place_;  // of each rank, in its node
};

}  // namespace

Plan node_allgather(Rank self, std::span<const Node> node_of) {
  const Deal deal(node_of);
  assert(is_block_exchange(deal.rank_count()) && index_of(self) < deal.rank_count());
  const Node own_node = deal.node_of(self);
  const Members senders = deal.senders_to(self);
  Members others = deal.members(own_node);
  std::erase(others, self);

  Plan plan;
  plan.self = self;
  plan.rank_count = deal.rank_count();
  plan.algorithm = "node_allgather";
  plan.all_alike = false;
  plan.parts = static_cast<std::uint16_t>(plan.rank_count);
  plan.slot_count = static_cast<std::uint16_t>(plan.rank_count);
  plan.partial_count = static_cast<std::uint16_t>(others.empty() ? 1 : 1 + senders.size());

  StepWriter steps(plan);
  const auto take = [&](Rank from, Rank whose) {
    steps.begin_part(number_of(whose));
    steps.await(from, number_of(whose), 1);
    steps.copy(slot_register(number_of(whose)), target_register);
  };
  const auto [first_round, second_round] = deal.messages_max();
  steps.begin_round(first_round);
  steps.begin_part(number_of(self));
  steps.copy(source_register, partial_register(0));
  for (std::uint32_t offset = 1; offset < deal.node_count(); ++offset) {
    const Node node{(index_of(own_node) + offset) % deal.node_count()};
    steps.put(deal.receiver(self, node), number_of(self), 1, partial_register(0));
  }
  for (const Rank other : others) steps.put(other, number_of(self), 1, partial_register(0));
  steps.copy(source_register, target_register);
  for (const Rank other : others) take(other, other);
  steps.begin_round(second_round);
  std::uint16_t next_partial = 1;
  for (const Rank sender : senders) {
    take(sender, sender);
    if (others.empty()) continue;
    const Register block = partial_register(next_partial++);
    steps.copy(slot_register(number_of(sender)), block);
    for (const Rank other : others) steps.forward(other, number_of(sender), block);
  }
  for (const Rank other : others)
    for (const Rank sender : deal.senders_to(other)) take(other, sender);
  return plan;
}

}  // namespace tutti::plan
