// See zero_copy_allgather.hpp.  A piece has the slot of its number, whether it is written into the
// target or told of; behind these are a slot for the entry from each node, and one for what each
// rank of the own node acknowledges.  All slots are lines.
#include "plan/blocks/zero_copy_allgather.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/core/node_shares.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

enum Round : std::uint32_t { entries, own_blocks, other_blocks, acknowledgements, round_count };

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, std::span<const Node> node_of, std::uint16_t pieces)
      : shares_(rank_count, node_of),
        self_(self),
        node_(shares_.node_of(self)),
        others_(shares_.members(node_).begin(), shares_.members(node_).end()),
        pieces_(pieces) {
    std::erase(others_, self);
    plan_ = {.self = self, .rank_count = rank_count};
    plan_.algorithm =
        shares_.largest() > 1 ? "node_allgather_zero_copy" : "direct_allgather_zero_copy";
    plan_.all_alike = false;
    plan_.zero_copy = true;
    plan_.flow_control = FlowControl::acknowledged;
    plan_.parts = static_cast<std::uint16_t>(rank_count * pieces);
    for (std::uint32_t rank = 0; rank < rank_count; ++rank)
      plan_.owners.insert(plan_.owners.end(), pieces, Rank{rank});
    plan_.slot_count = plan_.line_slot_count =
        static_cast<std::uint16_t>(plan_.parts + shares_.node_count() + shares_.largest());
    plan_.incoming_max = pieces + 2u;
    plan_.per_round = messages_max();
  }

  Plan build() && {
    tell_of_entry();
    send_own();
    take_own_of_others();
    take_from_nodes();
    take_held_by_others();
    acknowledge();
    return std::move(plan_);
  }

 private:
  std::uint16_t part(Rank whose, std::uint32_t piece) const {
    return static_cast<std::uint16_t>(index_of(whose) * pieces_ + piece);
  }
  std::uint16_t slot_of_entry(Rank from) const {
    return static_cast<std::uint16_t>(plan_.parts + shares_.node_of(from));
  }
  std::uint16_t slot_of_reader(Rank reader) const {
    return static_cast<std::uint16_t>(plan_.parts + shares_.node_count() +
                                      shares_.place_of(reader));
  }
  void begin(Round round, Rank whose, std::uint32_t piece = 0) {
    steps_.begin_part(part(whose, piece));
    steps_.set_round(round);
  }

  /// f(node) for the other nodes, around, so that not all send to the same node first.
  template <class F>
  void for_nodes_ahead(F&& f) const {
    for (std::uint32_t distance = 1; distance < shares_.node_count(); ++distance)
      f(shares_.ahead(node_, distance));
  }
  template <class F>
  void for_nodes_behind(F&& f) const {
    for (std::uint32_t distance = 1; distance < shares_.node_count(); ++distance)
      f(shares_.behind(node_, distance));
  }
  /// f(whose) for the blocks of other nodes that a rank of this node holds.
  template <class F>
  void for_held(Rank holder, F&& f) const {
    for_nodes_behind([&](std::uint32_t node) { shares_.for_held(holder, node, f); });
  }

  void tell_of_entry() {
    begin(entries, self_);
    for_held(self_, [&](Rank whose) { steps_.put_entry(whose, slot_of_entry(self_)); });
  }

  void send_own() {
    for (std::uint32_t piece = 0; piece < pieces_; ++piece) {
      begin(own_blocks, self_, piece);
      steps_.copy(source_register, target_register);
      tell_others(self_, piece);
      for_nodes_ahead([&](std::uint32_t node) {
        const Rank holder = shares_.holder(self_, node);
        if (piece == 0) steps_.await_entry(holder, slot_of_entry(holder));
        steps_.put_into_target(holder, part(self_, piece), target_register);
      });
    }
  }

  void tell_others(Rank whose, std::uint32_t piece) {
    for (const Rank other : others_)
      steps_.put_reference(other, part(whose, piece), target_register);
  }

  void read(Round round, Rank from, Rank whose, std::uint32_t piece) {
    begin(round, whose, piece);
    steps_.await_reference(from, part(whose, piece));
    steps_.copy_referenced(from, part(whose, piece), target_register);
  }

  void take_own_of_others() {
    for (const Rank other : others_)
      for (std::uint32_t piece = 0; piece < pieces_; ++piece) read(own_blocks, other, other, piece);
  }

  void take_from_nodes() {
    for (std::uint32_t piece = 0; piece < pieces_; ++piece)
      for_held(self_, [&](Rank whose) {
        begin(other_blocks, whose, piece);
        steps_.await_in_target(whose, part(whose, piece));
        tell_others(whose, piece);
      });
  }

  void take_held_by_others() {
    for (std::uint32_t piece = 0; piece < pieces_; ++piece)
      for (const Rank other : others_)
        for_held(other, [&](Rank whose) { read(other_blocks, other, whose, piece); });
  }

  void acknowledge() {
    begin(acknowledgements, self_);
    for (const Rank other : others_) steps_.put(other, slot_of_reader(self_), 0);
    for (const Rank other : others_) steps_.await(other, slot_of_reader(other), 0);
    for_nodes_ahead([&](std::uint32_t node) {
      if (shares_.distance(node_, node) + 1 == shares_.node_count())
        steps_.await_sent(shares_.holder(self_, node));
    });
  }

  /// Messages of each round, of the rank that sends most in it.
  PerRound messages_max() const {
    std::uint32_t held_max = 0;
    for (std::uint32_t rank = 0; rank < shares_.rank_count(); ++rank) {
      std::uint32_t held = 0;
      for (std::uint32_t node = 0; node < shares_.node_count(); ++node)
        if (node != shares_.node_of(Rank{rank}))
          shares_.for_held(Rank{rank}, node, [&](Rank) { ++held; });
      held_max = std::max(held_max, held);
    }
    const std::uint32_t others = shares_.largest() - 1;
    PerRound counts(round_count);
    counts[entries] = held_max;
    counts[own_blocks] = pieces_ * (others + shares_.node_count() - 1);
    counts[other_blocks] = pieces_ * held_max * others;
    counts[acknowledgements] = others;
    return counts;
  }

  NodeShares shares_;
  Rank self_;
  std::uint32_t node_;
  std::vector<Rank> others_;  // of the own node
  std::uint32_t pieces_;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

Plan zero_copy_allgather(Rank self, std::uint32_t rank_count, std::span<const Node> node_of,
                         std::uint16_t pieces) {
  assert(pieces > 0 && index_of(self) < rank_count);
  return Builder(self, rank_count, node_of, pieces).build();
}

}  // namespace tutti::plan
