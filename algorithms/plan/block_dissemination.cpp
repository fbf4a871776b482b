// See block_dissemination.hpp.  At every rank, the block of rank p comes into slot p.  The age of a
// block is how far its node is behind.
#include "plan/block_dissemination.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/blocks.hpp"
#include "plan/nodes.hpp"
#include "plan/steps.hpp"
#include "plan/two_partial.hpp"

namespace tutti::plan {
namespace {

using Members = std::vector<Rank>;

std::uint16_t number_of(Rank rank) {
  return static_cast<std::uint16_t>(index_of(rank));
}

/// In which round blocks of which age are sent how far.
class Circle {
 public:
  Circle(std::uint32_t node_count, const PerRound& per_round) : ages_{0} {
    for (const Round& round : two_partial_rounds(node_count, per_round))
      lengths_.push_back(round.length);
    lengths_.push_back(node_count);
    ages_.reserve(node_count);
    for (std::uint32_t round = 0; round < rounds(); ++round)
      for (std::uint32_t i = 0; i < lengths_[round]; ++i)
        for_distances(round, ages_[i],
                      [&](std::uint32_t distance) { ages_.push_back(ages_[i] + distance); });
  }

  std::uint32_t rounds() const { return static_cast<std::uint32_t>(lengths_.size() - 1); }

  /// Ages that were there before the messages of the round before came.
  std::uint32_t begin_of_new(std::uint32_t round) const {
    return round == 0 ? 0 : lengths_[round - 1];
  }
  /// Ages that are there when a round begins, or after the last one.
  std::uint32_t length(std::uint32_t round) const { return lengths_[round]; }
  /// In the order in which they come.
  std::uint32_t age(std::uint32_t i) const { return ages_[i]; }

  /// How far ahead blocks of an age go in a round: not where they would come twice.
  template <class F>
  void for_distances(std::uint32_t round, std::uint32_t age, F&& f) const {
    if (round == rounds()) return;
    const std::uint64_t step = lengths_[round];
    for (std::uint64_t distance = step; age + distance < lengths_[round + 1]; distance += step)
      f(static_cast<std::uint32_t>(distance));
  }

 private:
  std::vector<std::uint32_t> lengths_;  // of the rounds, then of the whole circle
  std::vector<std::uint32_t> ages_;
};

/// Who holds what, the same on all ranks.
class Deal {
 public:
  Deal(std::uint32_t rank_count, std::span<const Node> node_of)
      : members_(members_of_nodes(rank_count, node_of)), node_(rank_count), place_(rank_count) {
    for (std::uint32_t node = 0; node < members_.size(); ++node)
      for (std::uint32_t place = 0; place < members_[node].size(); ++place) {
        node_[index_of(members_[node][place])] = node;
        place_[index_of(members_[node][place])] = place;
      }
  }

  std::uint32_t rank_count() const { return static_cast<std::uint32_t>(node_.size()); }
  std::uint32_t node_count() const { return static_cast<std::uint32_t>(members_.size()); }
  std::uint32_t node_of(Rank rank) const { return node_[index_of(rank)]; }
  const Members& members(std::uint32_t node) const { return members_[node]; }
  std::uint32_t ahead(std::uint32_t node, std::uint32_t distance) const {
    return (node + distance) % node_count();
  }
  std::uint32_t behind(std::uint32_t node, std::uint32_t age) const {
    return (node + node_count() - age) % node_count();
  }

  /// The rank of `node` that has the block of `whose` first.
  Rank holder(Rank whose, std::uint32_t node) const {
    const Members& there = members(node);
    return there[place_[index_of(whose)] % there.size()];
  }

  bool is_even() const {
    return std::all_of(members_.begin(), members_.end(),
                       [&](const Members& node) { return node.size() == members_.front().size(); });
  }

 private:
  std::vector<Members> members_;
  std::vector<std::uint32_t> node_, place_;  // of each rank, and in its node
};

/// Messages of each round, of the rank that sends most.
PerRound messages_max(const Deal& deal, const Circle& circle, std::uint32_t round_count) {
  // Of one block of each age; then of all blocks of a rank.
  std::vector<PerRound> far(deal.node_count(), PerRound(round_count));
  for (std::uint32_t round = 0; round < circle.rounds(); ++round)
    for (std::uint32_t i = 0; i < circle.length(round); ++i)
      circle.for_distances(round, circle.age(i), [&](std::uint32_t) { ++far[i][round]; });
  std::vector<PerRound> sent(deal.rank_count(), PerRound(round_count));
  for (std::uint32_t node = 0; node < deal.node_count(); ++node)
    for (std::uint32_t round = 0; round <= circle.rounds(); ++round)
      for (std::uint32_t i = circle.begin_of_new(round); i < circle.length(round); ++i)
        for (const Rank whose : deal.members(deal.behind(node, circle.age(i)))) {
          PerRound& counts = sent[index_of(deal.holder(whose, node))];
          counts[round] += static_cast<std::uint32_t>(deal.members(node).size() - 1);
          for (std::uint32_t later = round; later < circle.rounds(); ++later)
            counts[later] += far[i][later];
        }
  PerRound most(round_count);
  for (const PerRound& counts : sent)
    for (std::uint32_t round = 0; round < round_count; ++round)
      most[round] = std::max(most[round], counts[round]);
  return most;
}

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, const PerRound& per_round,
          std::span<const Node> node_of)
      : deal_(rank_count, node_of),
        circle_(deal_.node_count(), per_round),
        node_(deal_.node_of(self)),
        others_(deal_.members(node_)),
        partial_of_(rank_count, no_partial) {
    std::erase(others_, self);
    const bool shares = deal_.node_count() < rank_count;
    plan_.self = self;
    plan_.rank_count = rank_count;
    plan_.algorithm = shares ? "node_allgather" : "block_dissemination";
    plan_.all_alike = !shares;
    plan_.parts = plan_.slot_count = static_cast<std::uint16_t>(rank_count);
    plan_.per_round.assign(circle_.rounds() + (shares ? 1 : 0), 0);
  }

  Plan build() && {
    for (std::uint32_t round = 0; round <= circle_.rounds(); ++round) {
      const bool is_end = round == circle_.rounds();
      set_round(round);
      for (std::uint32_t i = is_end ? circle_.begin_of_new(round) : 0; i < circle_.length(round);
           ++i) {
        if (round == 1 && i == 1)  // before it waits for other nodes
          for (const Rank other : others_) take(other, other);
        for_held(plan_.self, i, [&](Rank whose) { send(whose, i, round); });
      }
    }
    if (circle_.rounds() == 0)
      for (const Rank other : others_) take(other, other);
    for (std::uint32_t i = 1; i < deal_.node_count(); ++i)
      for (const Rank other : others_) for_held(other, i, [&](Rank whose) { take(other, whose); });
    if (!deal_.is_even())
      plan_.per_round =
          messages_max(deal_, circle_, static_cast<std::uint32_t>(plan_.per_round.size()));
    else  // every rank sends as many as this one
      for (const Step& step : plan_.steps)
        if (step.action == Action::put) ++plan_.per_round[step.round];
    return std::move(plan_);
  }

 private:
  static constexpr std::uint16_t no_partial = UINT16_MAX;

  void set_round(std::uint32_t round) {
    const std::size_t last = std::max<std::size_t>(plan_.per_round.size(), 1) - 1;
    steps_.set_round(std::min(round, static_cast<std::uint32_t>(last)));
  }

  /// Whose blocks of the i-th age a rank of this node has before the others.
  template <class F>
  void for_held(Rank rank, std::uint32_t i, F&& f) const {
    for (const Rank whose : deal_.members(deal_.behind(node_, circle_.age(i))))
      if (deal_.holder(whose, node_) == rank) f(whose);
  }

  /// To other nodes and, where it has just come, to this one.
  void send(Rank whose, std::uint32_t i, std::uint32_t round) {
    const bool is_own = whose == plan_.self;
    const bool is_new = i >= circle_.begin_of_new(round);
    steps_.begin_part(number_of(whose));
    if (is_new && !is_own)
      steps_.await(deal_.holder(whose, sender_of(i, round)), number_of(whose), 1);
    circle_.for_distances(round, circle_.age(i), [&](std::uint32_t distance) {
      put(deal_.holder(whose, deal_.ahead(node_, distance)), whose);
    });
    if (!is_new) return;
    for (const Rank other : others_) put(other, whose);
    steps_.copy(is_own ? source_register : slot_register(number_of(whose)), target_register);
  }

  void put(Rank peer, Rank whose) {
    const bool is_own = whose == plan_.self;
    std::uint16_t& partial = partial_of_[index_of(whose)];
    if (partial == no_partial) {
      partial = plan_.partial_count++;
      steps_.copy(is_own ? source_register : slot_register(number_of(whose)),
                  partial_register(partial));
    }
    if (is_own)
      steps_.put(peer, number_of(whose), 1, partial_register(partial));
    else
      steps_.forward(peer, number_of(whose), partial_register(partial));
  }

  void take(Rank from, Rank whose) {
    steps_.begin_part(number_of(whose));
    steps_.await(from, number_of(whose), 1);
    steps_.copy(slot_register(number_of(whose)), target_register);
  }

  /// The node from which what is new in `round` has come, in the one before: as many lengths of
  /// that behind as are whole in the age.
  std::uint32_t sender_of(std::uint32_t i, std::uint32_t round) const {
    const std::uint32_t step = circle_.begin_of_new(round);
    return deal_.behind(node_, circle_.age(i) / step * step);
  }

  Deal deal_;
  Circle circle_;
  std::uint32_t node_;
  Members others_;                         // of the own node
  std::vector<std::uint16_t> partial_of_;  // of the block of each rank, if it was sent
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

Plan dissemination_allgather(Rank self, std::uint32_t rank_count, const PerRound& per_round,
                             std::span<const Node> node_of) {
  assert(is_block_exchange(rank_count) && index_of(self) < rank_count);
  return Builder(self, rank_count, per_round, node_of).build();
}

}  // namespace tutti::plan
