// See zero_copy_reduce.hpp.  Here: which register holds what, on a worker.
//
//   partials   the pieces of its lane; the root has none, and combines in its target
//   slots      over several nodes, one for each piece that comes from the node behind
//   lines      references to sources, by the place of the giver in its node and then by piece;
//              references to results (used on the root only), by lane and then by piece;
//              acknowledgements of workers of the node, by lane; that of the node ahead
#include "plan/rooted/zero_copy_reduce.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "plan/core/node_shares.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

enum class Round : std::uint32_t { given, across, combined, acknowledged };

struct Sizes {
  explicit Sizes(const ZeroCopyReduce& shape)
      : counts(counts_of_nodes(shape.rank_count, shape.node_of)),
        parts(std::uint64_t{counts.smallest} * shape.pieces),
        messages_across(counts.nodes > 1 ? shape.pieces : 0),
        slots(messages_across + std::uint64_t{counts.largest} * shape.pieces + parts +
              counts.smallest + 1) {}
  NodeCounts counts;
  std::uint64_t parts, messages_across, slots;
};

class Builder {
 public:
  Builder(Rank self, const ZeroCopyReduce& shape)
      : sizes_(shape),
        shares_(shape.rank_count, shape.node_of),
        self_(self),
        root_(shape.root),
        node_(shares_.node_of(self)),
        behind_(shares_.distance(shares_.node_of(root_), node_)),
        members_(shares_.members(node_)),
        lanes_(shares_.smallest()),
        lane_(lane_of(self)),
        pieces_(shape.pieces) {
    plan_ = {.self = self, .rank_count = shape.rank_count, .algorithm = "lanes_zero_copy"};
    plan_.all_alike = false;
    plan_.zero_copy = true;
    plan_.flow_control = FlowControl::acknowledged;
    plan_.parts = static_cast<std::uint16_t>(sizes_.parts);
    plan_.partial_count = has_lane() && self != root_ ? pieces_ : std::uint16_t{0};
    plan_.partials_max = pieces_;
    plan_.slot_count = static_cast<std::uint16_t>(sizes_.slots);
    plan_.line_slot_count = static_cast<std::uint16_t>(sizes_.slots - sizes_.messages_across);
    if (sizes_.messages_across > 0) plan_.incoming_max = std::max<std::uint32_t>(pieces_, 2);
    plan_.per_round = messages_max();
  }

  Plan build() && {
    give();
    // The root takes a result a piece later where there are several nodes, as it comes from afar.
    const std::uint32_t ahead = nodes_behind();
    const std::uint32_t late = self_ == root_ && has_several_nodes() ? 1 : 0;
    for (std::uint32_t turn = 0; turn < pieces_ + ahead + late; ++turn) {
      if (has_lane() && turn < pieces_) combine_over_node(piece(turn));
      if (has_lane() && turn >= ahead && turn - ahead < pieces_) pass_on(piece(turn - ahead));
      if (self_ == root_ && turn >= ahead + late) take(piece(turn - ahead - late));
    }
    acknowledge();
    return std::move(plan_);
  }

 private:
  static std::uint16_t piece(std::uint32_t number) { return static_cast<std::uint16_t>(number); }

  bool has_several_nodes() const { return shares_.node_count() > 1; }
  bool is_of_root() const { return behind_ == 0; }
  bool has_lane() const { return lane_ < lanes_; }
  std::uint32_t nodes_behind() const { return shares_.node_count() - 1 - behind_; }

  /// Lanes are counted from the root on in its own node, elsewhere from the lowest rank on.
  std::uint32_t lane_of(Rank rank) const {
    const std::uint32_t size = static_cast<std::uint32_t>(members_.size());
    return (shares_.place_of(rank) + size - first_place(node_)) % size;
  }
  std::uint32_t first_place(std::uint32_t node) const {
    return shares_.place_of(shares_.head(node, root_));
  }
  Rank worker(std::uint32_t node, std::uint32_t lane) const {
    const std::span<const Rank> there = shares_.members(node);
    return there[(first_place(node) + lane) % there.size()];
  }
  /// The chain runs from higher to lower numbers of nodes, modulo their count.
  Rank behind() const { return worker(shares_.ahead(node_, 1), lane_); }
  Rank ahead() const { return worker(shares_.behind(node_, 1), lane_); }

  /// f(rank) for the other ranks of the node, around.
  template <class F>
  void for_others(F&& f) const {
    for (std::uint32_t i = 1; i < members_.size(); ++i)
      f(members_[(shares_.place_of(self_) + i) % members_.size()]);
  }

  void begin(Round round, std::uint32_t lane, std::uint16_t piece) {
    steps_.begin_part(static_cast<std::uint16_t>(piece * lanes_ + lane));
    set_round(round);
  }
  /// In a single node there is no round across.
  void set_round(Round round) {
    const auto number = static_cast<std::uint32_t>(round);
    steps_.set_round(round < Round::across || has_several_nodes() ? number : number - 1);
  }

  std::uint16_t slot_of_source(Rank giver, std::uint16_t piece) const {
    return static_cast<std::uint16_t>(sizes_.messages_across +
                                      std::uint64_t{shares_.place_of(giver)} * pieces_ + piece);
  }
  std::uint16_t slot_of_result(std::uint32_t lane, std::uint16_t piece) const {
    return static_cast<std::uint16_t>(sizes_.messages_across +
                                      std::uint64_t{shares_.largest() + lane} * pieces_ + piece);
  }
  std::uint16_t slot_of_reader(std::uint32_t lane) const {
    return static_cast<std::uint16_t>(slot_of_result(lanes_, 0) + lane);
  }
  std::uint16_t slot_of_end_across() const { return slot_of_reader(lanes_); }

  /// Where this worker combines a piece.
  Register into(std::uint16_t piece) const {
    return self_ == root_ ? target_register : partial_register(piece);
  }

  void give() {
    for (std::uint16_t piece = 0; piece < pieces_; ++piece)
      for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
        if (lane == lane_) continue;
        begin(Round::given, lane, piece);
        steps_.put_reference(worker(node_, lane), slot_of_source(self_, piece), source_register);
      }
  }

  void combine_over_node(std::uint16_t piece) {
    begin(Round::given, lane_, piece);
    bool grows = false;
    for_others([&](Rank giver) {
      const std::uint16_t slot = slot_of_source(giver, piece);
      steps_.await_reference(giver, slot);
      if (std::exchange(grows, true))
        steps_.grow_by_referenced(giver, slot, into(piece));
      else
        steps_.combine_referenced(giver, slot, into(piece));
    });
  }

  void pass_on(std::uint16_t piece) {
    if (has_several_nodes()) begin(Round::across, lane_, piece);
    if (nodes_behind() > 0) {
      steps_.await(behind(), piece, 1);
      steps_.combine(slot_register(piece), into(piece));
    }
    if (!is_of_root()) return steps_.put(ahead(), piece, 1, into(piece));
    if (self_ == root_) return;
    begin(Round::combined, lane_, piece);
    steps_.put_reference(root_, slot_of_result(lane_, piece), into(piece));
  }

  void take(std::uint16_t piece) {
    for (std::uint32_t lane = 1; lane < lanes_; ++lane) {
      const std::uint16_t slot = slot_of_result(lane, piece);
      begin(Round::combined, lane, piece);
      steps_.await_reference(worker(node_, lane), slot);
      steps_.copy_referenced(worker(node_, lane), slot, target_register);
    }
  }

  void acknowledge() {
    begin(Round::acknowledged, 0, 0);
    if (has_lane() && nodes_behind() > 0) steps_.put(behind(), slot_of_end_across(), 0);
    for_others([&](Rank giver) {
      if (acknowledges(self_, giver)) steps_.put(giver, slot_of_reader(lane_), 0);
    });
    for_others([&](Rank reader) {
      if (acknowledges(reader, self_)) steps_.await(reader, slot_of_reader(lane_of(reader)), 0);
    });
    if (has_lane() && !is_of_root()) steps_.await(ahead(), slot_of_end_across(), 0);
  }

  /// Whether worker `reader` tells `giver`, of the same node, that it has read its source.  In the
  /// root's node only the root tells other workers: it has their results, for which all sources
  /// were read.  Ranks of that node without a lane are told by each worker.
  bool acknowledges(Rank reader, Rank giver) const {
    if (lane_of(reader) >= lanes_) return false;
    return !is_of_root() || reader == root_ || lane_of(giver) >= lanes_;
  }

  /// Messages of each round, of the rank that sends or takes most in it.
  PerRound messages_max() const {
    const std::uint32_t others = sizes_.counts.largest - 1;
    PerRound counts{others * pieces_};
    if (has_several_nodes()) counts.push_back(pieces_);
    counts.push_back((lanes_ - 1) * pieces_);
    counts.push_back(others + (has_several_nodes() ? 1 : 0));
    return counts;
  }

  Sizes sizes_;
  NodeShares shares_;
  Rank self_, root_;
  std::uint32_t node_;
  std::uint32_t behind_;           // how many nodes this one is behind that of the root
  std::span<const Rank> members_;  // of the own node
  std::uint32_t lanes_;
  std::uint32_t lane_;  // of this rank; a rank without one has a number that is no lane
  std::uint16_t pieces_;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

std::uint32_t zero_copy_parts(const ZeroCopyReduce& shape) {
  return static_cast<std::uint32_t>(Sizes(shape).parts);
}

bool is_zero_copy_reduce(const ZeroCopyReduce& shape) {
  const Sizes sizes(shape);
  return sizes.counts.smallest > 1 && shape.pieces > 0 && sizes.slots <= slots_max;
}

Plan zero_copy_reduce(Rank self, const ZeroCopyReduce& shape) {
  assert(is_zero_copy_reduce(shape) && index_of(self) < shape.rank_count &&
         index_of(shape.root) < shape.rank_count);
  return Builder(self, shape).build();
}

}  // namespace tutti::plan
