// See zero_copy_allreduce.hpp.  Here: which register holds what.
//
//   partials   parts of this rank's lane for the other nodes, combined over the node, in the order
//              of the nodes behind it, piece by piece
//   slots      as many, from these nodes
//   lines      references to sources, by the rank of the node that gives them and then by part of
//              the lane; the result of each part, told of or written into the target;
//              acknowledgements, by rank of the node
//
// A rank that is alone on its node sends from its source.  The source is read before the target is
// written, part by part, so they may be the same memory.
#include "plan/allreduce/zero_copy_allreduce.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "plan/core/node_shares.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

enum Round : std::uint32_t { given, across, back, told, acknowledged, round_count };

struct Sizes {
  explicit Sizes(const ZeroCopyLanes& shape)
      : counts(counts_of_nodes(shape.rank_count, shape.node_of)),
        parts_of_lane(std::uint64_t{counts.nodes} * shape.pieces),
        parts(counts.smallest * parts_of_lane),
        messages_across((counts.nodes - std::uint64_t{1}) * shape.pieces),
        slots(messages_across + counts.largest * parts_of_lane + parts + counts.largest) {}
  NodeCounts counts;
  std::uint64_t parts_of_lane, parts, messages_across, slots;
};

class Builder {
 public:
  Builder(Rank self, const ZeroCopyLanes& shape)
      : sizes_(shape),
        shares_(shape.rank_count, shape.node_of),
        node_(shares_.node_of(self)),
        seat_(shares_.place_of(self)),
        members_(shares_.members(node_)),
        member_count_(static_cast<std::uint32_t>(members_.size())),
        lane_count_(shares_.smallest()),
        pieces_(shape.pieces) {
    plan_ = {.self = self, .rank_count = shape.rank_count, .algorithm = "lanes_zero_copy"};
    plan_.all_alike = false;
    plan_.zero_copy = true;
    plan_.flow_control = FlowControl::acknowledged;
    plan_.parts = static_cast<std::uint16_t>(sizes_.parts);
    plan_.partial_count = has_lane() && member_count_ > 1
                              ? static_cast<std::uint16_t>(sizes_.messages_across)
                              : std::uint16_t{0};
    plan_.partials_max = static_cast<std::uint16_t>(sizes_.messages_across);
    plan_.slot_count = static_cast<std::uint16_t>(sizes_.slots);
    plan_.line_slot_count = static_cast<std::uint16_t>(sizes_.slots - sizes_.messages_across);
    plan_.incoming_max = 2 * pieces_;
    plan_.per_round = messages_max();
  }

  Plan build() && {
    give();
    // Each stage is a piece behind the one before it, so that the network and the memory of the
    // nodes work at the same time.
    const bool is_one_node = shares_.node_count() == 1;
    const std::uint32_t stages = is_one_node ? 2 : 4;
    for (std::uint32_t turn = 0; turn + 1 < pieces_ + stages; ++turn)
      for (std::uint32_t stage = 0; stage < stages && stage <= turn; ++stage)
        if (turn - stage < pieces_)
          run(is_one_node && stage == 1 ? 3 : stage, static_cast<std::uint16_t>(turn - stage));
    acknowledge();
    return std::move(plan_);
  }

 private:
  bool has_lane() const { return seat_ < lane_count_; }

  std::uint16_t number(std::uint32_t node, std::uint16_t piece) const {
    return static_cast<std::uint16_t>(node * pieces_ + piece);
  }
  std::uint16_t part(std::uint32_t lane, std::uint32_t node, std::uint16_t piece) const {
    return static_cast<std::uint16_t>(lane * sizes_.parts_of_lane + number(node, piece));
  }
  /// The slot and the partial of what goes to the node so far ahead.
  std::uint16_t across_to(std::uint32_t distance, std::uint16_t piece) const {
    return number(distance - 1, piece);
  }
  std::uint16_t slot_of_source(std::uint32_t giver, std::uint32_t node, std::uint16_t piece) const {
    return static_cast<std::uint16_t>(sizes_.messages_across + giver * sizes_.parts_of_lane +
                                      number(node, piece));
  }
  std::uint16_t slot_of_result(std::uint16_t part) const {
    return static_cast<std::uint16_t>(slot_of_source(shares_.largest(), 0, 0) + part);
  }
  std::uint16_t slot_of_reader(std::uint32_t reader) const {
    return static_cast<std::uint16_t>(slot_of_result(plan_.parts) + reader);
  }

  void begin(Round round, std::uint16_t part) {
    steps_.begin_part(part);
    steps_.set_round(round);
  }

  /// f(seat) for the other ranks of the node, around.
  template <class F>
  void for_others(F&& f) const {
    for (std::uint32_t i = 1; i < member_count_; ++i) f((seat_ + i) % member_count_);
  }
  template <class F>
  void for_other_lanes(F&& f) const {
    for_others([&](std::uint32_t seat) {
      if (seat < lane_count_) f(seat);
    });
  }
  /// f(distance, node) for the other nodes, around.
  template <class F>
  void for_nodes_ahead(F&& f) const {
    for (std::uint32_t distance = 1; distance < shares_.node_count(); ++distance)
      f(distance, shares_.ahead(node_, distance));
  }
  template <class F>
  void for_nodes_behind(F&& f) const {
    for (std::uint32_t distance = 1; distance < shares_.node_count(); ++distance)
      f(distance, shares_.behind(node_, distance));
  }
  Rank of_my_lane(std::uint32_t node) const { return shares_.members(node)[seat_]; }

  void run(std::uint32_t stage, std::uint16_t piece) {
    if (stage == 3) return read_results(piece);
    if (!has_lane()) return;
    if (stage == 0) combine_over_node(piece);
    if (stage == 1) combine_over_nodes(piece);
    if (stage == 2) take_results(piece);
  }

  void give() {
    for (std::uint16_t piece = 0; piece < pieces_; ++piece)
      for_other_lanes([&](std::uint32_t lane) {
        const auto tell = [&](std::uint32_t, std::uint32_t node) {
          begin(given, part(lane, node, piece));
          steps_.put_reference(members_[lane], slot_of_source(seat_, node, piece), source_register);
        };
        for_nodes_ahead(tell);
        tell(0, node_);
      });
  }

  /// into = the part, combined over the node.
  void combine(std::uint32_t node, std::uint16_t piece, Register into) {
    bool grows = false;
    for_others([&](std::uint32_t giver) {
      const std::uint16_t slot = slot_of_source(giver, node, piece);
      steps_.await_reference(members_[giver], slot);
      if (std::exchange(grows, true))
        steps_.grow_by_referenced(members_[giver], slot, into);
      else
        steps_.combine_referenced(members_[giver], slot, into);
    });
  }

  void combine_over_node(std::uint16_t piece) {
    for_nodes_ahead([&](std::uint32_t distance, std::uint32_t node) {
      const std::uint16_t slot = across_to(distance, piece);
      const bool is_alone = member_count_ == 1;
      const Register sent = is_alone ? source_register : partial_register(slot);
      begin(given, part(seat_, node, piece));
      if (!is_alone) combine(node, piece, sent);
      steps_.set_round(across);
      steps_.put(of_my_lane(node), slot, 1, sent);
    });
    begin(given, part(seat_, node_, piece));
    if (member_count_ == 1)
      steps_.copy(source_register, target_register);
    else
      combine(node_, piece, target_register);
    if (shares_.node_count() == 1) tell(node_, piece);
  }

  /// Completes the part of this node, and sends the result.
  void combine_over_nodes(std::uint16_t piece) {
    begin(across, part(seat_, node_, piece));
    for_nodes_behind([&](std::uint32_t distance, std::uint32_t node) {
      const std::uint16_t slot = across_to(distance, piece);
      steps_.await(of_my_lane(node), slot, 1);
      steps_.combine(slot_register(slot), target_register);
    });
    steps_.set_round(back);
    for_nodes_ahead([&](std::uint32_t, std::uint32_t node) {
      const Rank peer = of_my_lane(node);
      steps_.put_into_target(peer, slot_of_result(part(seat_, node_, piece)), target_register);
    });
    tell(node_, piece);
  }

  /// Passes on the results of other nodes.
  void take_results(std::uint16_t piece) {
    for_nodes_behind([&](std::uint32_t, std::uint32_t node) {
      begin(back, part(seat_, node, piece));
      steps_.await_in_target(of_my_lane(node), slot_of_result(part(seat_, node, piece)));
      tell(node, piece);
    });
  }

  void tell(std::uint32_t node, std::uint16_t piece) {
    const std::uint16_t what = part(seat_, node, piece);
    begin(told, what);
    for_others([&](std::uint32_t seat) {
      steps_.put_reference(members_[seat], slot_of_result(what), target_register);
    });
  }

  void read_results(std::uint16_t piece) {
    for_other_lanes([&](std::uint32_t lane) { read(lane, node_, piece); });
    for_nodes_behind([&](std::uint32_t, std::uint32_t node) {
      for_other_lanes([&](std::uint32_t lane) { read(lane, node, piece); });
    });
  }

  void read(std::uint32_t lane, std::uint32_t node, std::uint16_t piece) {
    const std::uint16_t what = part(lane, node, piece);
    begin(told, what);
    steps_.await_reference(members_[lane], slot_of_result(what));
    steps_.copy_referenced(members_[lane], slot_of_result(what), target_register);
  }

  void acknowledge() {
    begin(acknowledged, 0);
    for_other_lanes(
        [&](std::uint32_t lane) { steps_.put(members_[lane], slot_of_reader(seat_), 0); });
    if (!has_lane()) return;
    for_others([&](std::uint32_t seat) { steps_.await(members_[seat], slot_of_reader(seat), 0); });
    if (shares_.node_count() > 1) steps_.await_sent(of_my_lane(shares_.ahead(node_, 1)));
  }

  /// Messages of each round, of the rank that sends or takes most in it.
  PerRound messages_max() const {
    const std::uint32_t others = sizes_.counts.largest - 1;
    const auto parts_of_lane = static_cast<std::uint32_t>(sizes_.parts_of_lane);
    const auto messages_across = static_cast<std::uint32_t>(sizes_.messages_across);
    PerRound counts(round_count);
    counts[given] = counts[told] = others * parts_of_lane;
    counts[across] = counts[back] = messages_across;
    counts[acknowledged] = others;
    return counts;
  }

  Sizes sizes_;
  NodeShares shares_;
  std::uint32_t node_;
  std::uint32_t seat_;
  std::span<const Rank> members_;  // of the own node
  std::uint32_t member_count_;
  std::uint32_t lane_count_;
  std::uint16_t pieces_;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

std::uint32_t zero_copy_parts(const ZeroCopyLanes& shape) {
  return static_cast<std::uint32_t>(Sizes(shape).parts);
}

bool is_zero_copy_allreduce(const ZeroCopyLanes& shape) {
  const Sizes sizes(shape);
  return sizes.counts.largest > 1 && sizes.slots <= slots_max;
}

Plan zero_copy_allreduce(Rank self, const ZeroCopyLanes& shape) {
  assert(is_zero_copy_allreduce(shape) && index_of(self) < shape.rank_count && shape.pieces > 0);
  return Builder(self, shape).build();
}

}  // namespace tutti::plan
