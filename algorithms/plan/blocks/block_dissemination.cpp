// See block_dissemination.hpp.  At every rank, the block of rank p comes into slot p; slots of
// entries, one for each rank of the largest node, and of answers follow.  The age of a block is how
// far its node is behind.
#include "plan/blocks/block_dissemination.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/blocks/blocks.hpp"
#include "plan/core/node_shares.hpp"
#include "plan/core/peer_stream.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

/// Says in which round blocks of which age are sent how far.
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

  /// The number of ages that are there when a round begins, or after the last one.
  std::uint32_t length(std::uint32_t round) const { return lengths_[round]; }
  /// The i-th age that comes.
  std::uint32_t age(std::uint32_t i) const { return ages_[i]; }

  /// The round in which the i-th age comes, from as many lengths of it behind as are whole in it.
  std::uint32_t round_of(std::uint32_t i) const {
    const auto later = std::upper_bound(lengths_.begin(), lengths_.end(), i);
    return static_cast<std::uint32_t>(later - lengths_.begin()) - 1;
  }

  /// Whether blocks of an age go so far ahead in a round; they do not if they would come twice.
  bool goes(std::uint32_t round, std::uint32_t age, std::uint64_t distance) const {
    return age + distance < lengths_[round + 1];
  }
  template <class F>
  void for_distances(std::uint32_t round, std::uint32_t age, F&& f) const {
    if (round == rounds()) return;
    for (std::uint64_t distance = lengths_[round]; goes(round, age, distance);
         distance += lengths_[round])
      f(static_cast<std::uint32_t>(distance));
  }

 private:
  std::vector<std::uint32_t> lengths_;  // of the rounds, then of the whole circle
  std::vector<std::uint32_t> ages_;
};

/// Messages of each round that the rank with most of them sends.
PerRound messages_max(const NodeShares& shares, const Circle& circle, std::uint32_t round_count) {
  // First the messages that a block of each age causes, then those of all blocks that a rank holds.
  std::vector<PerRound> far(shares.node_count(), PerRound(round_count));
  for (std::uint32_t round = 0; round < circle.rounds(); ++round)
    for (std::uint32_t i = 0; i < circle.length(round); ++i)
      circle.for_distances(round, circle.age(i), [&](std::uint32_t) { ++far[i][round]; });
  std::vector<PerRound> sent(shares.rank_count(), PerRound(round_count));
  for (std::uint32_t node = 0; node < shares.node_count(); ++node)
    for (std::uint32_t round = 0, i = 0; round <= circle.rounds(); ++round)
      for (; i < circle.length(round); ++i)  // what has come before that round
        for (const Rank whose : shares.members(shares.behind(node, circle.age(i)))) {
          PerRound& counts = sent[index_of(shares.holder(whose, node))];
          counts[round] += static_cast<std::uint32_t>(shares.members(node).size() - 1);
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
          std::span<const Node> node_of, Target target)
      : shares_(rank_count, node_of),
        circle_(shares_.node_count(), per_round),
        node_(shares_.node_of(self)),
        others_(shares_.members(node_).begin(), shares_.members(node_).end()),
        is_even_(shares_.are_of_one_size()),
        exchanges_(circle_.rounds()),
        partial_of_(rank_count, no_partial) {
    std::erase(others_, self);
    const bool shares = shares_.node_count() < rank_count;
    plan_ = {.self = self,
             .rank_count = rank_count,
             .algorithm = shares ? "node_allgather" : "block_dissemination"};
    plan_.all_alike = !shares;
    plan_.parts = plan_.slot_count = static_cast<std::uint16_t>(rank_count);
    plan_.shares_target = shares && target == Target::of_node;
    if (plan_.shares_target) share_target();
    plan_.per_round.assign(first_round_ + circle_.rounds() + (shares ? 1 : 0), 0);
  }

  Plan build() && {
    const std::uint32_t rounds = circle_.rounds();
    if (plan_.shares_target) tell_of_entry();
    for (std::uint32_t round = 0; round < rounds; ++round) {
      set_round(round);
      build_round(round);
    }
    set_round(rounds);
    if (rounds == 1) take_from_others();
    while (come_ < shares_.node_count()) take_next();
    if (rounds == 0) take_from_others();
    for (std::uint32_t i = 1; i < shares_.node_count(); ++i)
      for (const Rank other : others_) for_held(other, i, [&](Rank whose) { take(other, whose); });
    count_messages();
    return std::move(plan_);
  }

 private:
  static constexpr std::uint16_t no_partial = UINT16_MAX;

  void set_round(std::uint32_t round) {
    const std::size_t last = std::max<std::size_t>(plan_.per_round.size(), 1) - 1;
    round_ = std::min(first_round_ + round, static_cast<std::uint32_t>(last));
    steps_.set_round(round_);
  }

  /// Entries have a round of their own.
  void share_target() {
    plan_.algorithm += "_shared_target";
    first_round_ = 1;
    first_entry_ = plan_.slot_count;
    plan_.line_slot_count = static_cast<std::uint16_t>(shares_.largest());
    plan_.slot_count = static_cast<std::uint16_t>(plan_.slot_count + plan_.line_slot_count);
    if (shares_.node_count() == 1) plan_.line_slot_count = plan_.slot_count;
  }

  std::uint16_t slot_of_entry(Rank of) const {
    return static_cast<std::uint16_t>(first_entry_ + shares_.place_of(of));
  }

  void tell_of_entry() {
    steps_.set_round(0);
    steps_.begin_part(part_of(plan_.self));
    for (const Rank other : others_) steps_.put_entry(other, slot_of_entry(plan_.self));
  }

  /// Waits until nobody in this node reads the last result: once, before the target is written.
  void await_entries(Rank whose) {
    if (!std::exchange(awaits_entries_, false)) return;
    steps_.set_round(0);  // nothing was done about parts of the others before
    for (const Rank other : others_) {
      steps_.begin_part(part_of(other));
      steps_.await_entry(other, slot_of_entry(other));
    }
    steps_.begin_part(part_of(whose));
    steps_.set_round(round_);
  }

  void build_round(std::uint32_t round) {
    if (is_even_) begin_exchanges(round);
    for (std::uint32_t i = 0; i < circle_.length(round); ++i) {
      if (round == 1 && i == 1) take_from_others();  // before it waits for other nodes
      if (is_even_) take_for(i, round);
      pass_on(i, round);
    }
  }

  /// The streams to and from the nodes at one distance, in one round.
  struct Exchange {
    OutgoingStream out;
    IncomingStream in;
  };

  void begin_exchanges(std::uint32_t round) {
    const std::uint32_t length = circle_.length(round);
    circle_.for_distances(round, 0, [&](std::uint32_t distance) {
      std::uint32_t count = 0;
      for (std::uint32_t i = 0; i < length; ++i)
        count += circle_.goes(round, circle_.age(i), distance) ? 1 : 0;
      const AnswerLines answers{.first = plan_.slot_count};
      exchanges_[round].push_back(
          {{steps_, alike(shares_.ahead(node_, distance)), answers},
           {steps_, alike(shares_.behind(node_, distance)), answers, count}});
      const auto lines = static_cast<std::uint16_t>(answer_count(count));
      plan_.slot_count = static_cast<std::uint16_t>(plan_.slot_count + lines);
      plan_.line_slot_count = static_cast<std::uint16_t>(plan_.line_slot_count + lines);
      if (lines > 0) plan_.incoming_max = incoming_of_windows;
    });
  }

  /// Takes the blocks whose answers peers wait for, a window before they wait, when this rank is
  /// about to send the i-th age.  All ranks do so at the same points, and what they
  /// take was sent before: nobody waits in a circle.
  void take_for(std::uint32_t i, std::uint32_t round) {
    circle_.for_distances(round, circle_.age(i), [&](std::uint32_t distance) {
      Exchange& exchange = exchange_at(round, distance);
      const std::uint32_t soon = exchange.out.count() + window;
      if (soon >= exchange.in.count()) return;
      while (exchange.in.taken() < taken_before(soon)) take_next();
    });
  }

  Exchange& exchange_at(std::uint32_t round, std::uint32_t distance) {
    return exchanges_[round][distance / circle_.length(round) - 1];
  }
  Exchange& exchange_of(std::uint32_t i) {
    const std::uint32_t round = circle_.round_of(i);
    return exchange_at(round, circle_.age(i) - circle_.age(i) % circle_.length(round));
  }

  /// Sends the i-th age to other nodes and, if it was not taken yet, takes it for this one.
  void pass_on(std::uint32_t i, std::uint32_t round) {
    const bool is_new = i >= come_;
    for_held(plan_.self, i, [&](Rank whose) {
      steps_.begin_part(part_of(whose));
      const bool is_awaited = is_new && whose != plan_.self;
      if (is_awaited) await(i, whose);
      circle_.for_distances(round, circle_.age(i), [&](std::uint32_t distance) {
        if (!is_even_) return put(shares_.holder(whose, shares_.ahead(node_, distance)), whose);
        OutgoingStream& out = exchange_at(round, distance).out;
        out.begin(part_of(whose));
        out.put(part_of(whose), sendable(whose), whose != plan_.self);
      });
      if (is_new) share(whose);
      if (is_awaited) finish(i);
    });
    if (is_new) ++come_;
  }

  /// Takes the next age for this node alone: it goes to other nodes in its round.
  void take_next() { pass_on(come_, circle_.rounds()); }

  /// The rank of another node that stands where this one does; nodes are even.
  Rank alike(std::uint32_t node) const { return shares_.holder(plan_.self, node); }

  /// f(whose) for the blocks of the i-th age that a rank of this node has before the others.
  template <class F>
  void for_held(Rank rank, std::uint32_t i, F&& f) const {
    shares_.for_held(rank, shares_.behind(node_, circle_.age(i)), f);
  }

  void await(std::uint32_t i, Rank whose) {
    if (is_even_) return exchange_of(i).in.await(part_of(whose), part_of(whose));
    const std::uint32_t step = circle_.length(circle_.round_of(i));
    const std::uint32_t from = shares_.behind(node_, circle_.age(i) / step * step);
    steps_.begin_part(part_of(whose));
    steps_.await(shares_.holder(whose, from), part_of(whose), 1);
  }
  void finish(std::uint32_t i) {
    if (is_even_) exchange_of(i).in.finish();
  }

  Register sendable(Rank whose) {
    std::uint16_t& partial = partial_of_[index_of(whose)];
    if (partial == no_partial) {
      partial = plan_.partial_count++;
      steps_.copy(register_of(whose), partial_register(partial));
    }
    return partial_register(partial);
  }

  void put(Rank peer, Rank whose) {
    steps_.put(peer, part_of(whose), 1, sendable(whose), whose != plan_.self);
  }

  /// Gives a block to the ranks of this node.
  void share(Rank whose) {
    if (plan_.shares_target) {
      await_entries(whose);
      steps_.copy(register_of(whose), target_register);
      for (const Rank other : others_)
        steps_.put_into_target(other, part_of(whose), target_register);
      return;
    }
    for (const Rank other : others_) put(other, whose);
    steps_.copy(register_of(whose), target_register);
  }

  void take(Rank from, Rank whose) {
    steps_.begin_part(part_of(whose));
    if (plan_.shares_target) return steps_.await_in_target(from, part_of(whose));
    steps_.await(from, part_of(whose), 1);
    steps_.copy(register_of(whose), target_register);
  }

  /// Takes the own blocks of the others of this node.
  void take_from_others() {
    for (const Rank other : others_) take(other, other);
  }

  Register register_of(Rank whose) const {
    return whose == plan_.self ? source_register : slot_register(part_of(whose));
  }

  void count_messages() {
    if (!is_even_) {
      const auto rounds = static_cast<std::uint32_t>(plan_.per_round.size());
      plan_.per_round = messages_max(shares_, circle_, rounds - first_round_);
      plan_.per_round.insert(plan_.per_round.begin(), first_round_, shares_.largest() - 1);
    } else  // every rank sends as many as this one
      for (const Step& step : plan_.steps)
        if (step.action == Action::put) ++plan_.per_round[step.round];
  }

  NodeShares shares_;
  Circle circle_;
  std::uint32_t node_;
  std::vector<Rank> others_;  // of the own node
  bool is_even_;
  std::uint32_t first_round_ = 0;  // after that of entries
  std::uint32_t round_ = 0;
  std::uint16_t first_entry_ = 0;  // slots of entries
  bool awaits_entries_ = true;
  std::uint32_t come_ = 0;                        // ages, so far
  std::vector<std::vector<Exchange>> exchanges_;  // of each round, by distance; nodes are even
  std::vector<std::uint16_t> partial_of_;         // of the block of each rank, if it was sent
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

Plan dissemination_allgather(Rank self, std::uint32_t rank_count, const PerRound& per_round,
                             std::span<const Node> node_of, Target target) {
  assert(is_block_exchange(rank_count) && index_of(self) < rank_count);
  return Builder(self, rank_count, per_round, node_of, target).build();
}

}  // namespace tutti::plan
