// See lanes.hpp for the schedule.  Here: which register holds what.
//
//   partials   own parts for the other ranks with a lane, in the order in which they are sent
//              for a rank with a lane: its part combined over the node, its part of the result
//              those of the schedule across
//   slots      0 .. L-2        own part, from the other ranks of the node, in rank order
//              L-1 ..          those of the schedule across
//              behind them     results, by lane: without room for one where targets are shared
//              with a root     what the root gives instead of what all others do, for a broadcast;
//                              results before those of the schedule across; behind these a
//                              credit of each rank of the node
//
// Where the schedule across cuts the part again, all but its own registers exist once for each of
// its pieces.
//
// The source is read before the target is written, part by part, so they may be the same memory.
#include "plan/allreduce/lanes.hpp"

#include <algorithm>
#include <cassert>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/core/node_shares.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

std::string name_of(const LaneShape& shape, const Plan& across) {
  return std::string(shape.lane_count == 1 ? shape.one_lane : "lanes") + "/" + across.algorithm;
}

/// One rank alone may give its parts, or get the results.  At most one of them is there.
struct Roots {
  Rank of_broadcast = no_rank;
  Rank of_reduce = no_rank;

  bool are_none() const { return of_broadcast == no_rank && of_reduce == no_rank; }
  bool gives(Rank rank) const { return of_broadcast == no_rank || of_broadcast == rank; }
  bool is_told(Rank rank) const {
    return of_reduce == no_rank ? rank != of_broadcast : rank == of_reduce;
  }
};

class Builder {
 public:
  Builder(Rank self, const LaneShape& shape, const NodeShares& shares, Order order,
          const Plan& across, Target target, const Roots& roots)
      : shares_(shares),
        roots_(roots),
        members_(shares.members(shares.node_of(self))),
        member_count_(static_cast<std::uint16_t>(members_.size())),
        seat_(static_cast<std::uint16_t>(shares.place_of(self))),
        others_max_(static_cast<std::uint16_t>(shares.largest() - 1)),
        givers_max_(roots.of_broadcast == no_rank ? others_max_ : std::uint16_t{1}),
        lane_count_(static_cast<std::uint16_t>(shape.lane_count)),
        piece_count_(shares.node_count() == 1 ? std::uint16_t{1} : across.parts),
        combined_(piece_count_),
        results_(piece_count_),
        order_(order),
        shares_target_(target == Target::of_node),
        has_credits_(!roots.are_none() && !all_wait_for_all(shape, shares, roots)),
        across_(across) {
    plan_ = {.self = self, .rank_count = shape.rank_count, .algorithm = name_of(shape, across)};
    plan_.per_round = across.per_round;
    const std::uint32_t messages_in_node = others_max_ * piece_count_;
    plan_.per_round.insert(plan_.per_round.begin(), messages_in_node);
    plan_.per_round.push_back(messages_in_node);
    plan_.n = across.n;  // per_round may not show it
    plan_.all_alike = false;
    plan_.parts = static_cast<std::uint16_t>(lane_count_ * piece_count_);
    plan_.is_pipeline = piece_count_ > 1 && across.is_pipeline;
    plan_.incoming_max = across.incoming_max;  // from other nodes it alone sends
    plan_.payloads = across.payloads;
    plan_.slot_count = first_slot_behind();
    if (has_credits_) {
      plan_.flow_control = FlowControl::one_way;
      plan_.slot_count = static_cast<std::uint16_t>(first_slot_behind() + shares.largest());
      plan_.line_slot_count = static_cast<std::uint16_t>(across.line_slot_count + shares.largest());
    }
    plan_.shares_target = shares_target_;
    // Two ranks answer each other (lanes.hpp): the result of a part arrives in partial 0, from
    // which the receiving rank has sent its contribution to that part.
    if (shape.rank_count == 2 && shares.node_count() == 1 && lane_count_ == 2 && has_payload() &&
        !shares_target_ && roots.are_none())
      plan_.answers = {{.slot = slot_of_result(0, 0), .partial = 0},
                       {.slot = slot_of_result(1, 0), .partial = 0}};
    if (shares_target_) {
      plan_.algorithm += "_shared_target";
      plan_.line_slot_count = plan_.parts;
    }
  }

  Plan build() && {
    if (seat_ >= lane_count_) {
      for (const std::uint16_t piece : order_of_pieces()) give(piece);
      for (const std::uint16_t piece : order_of_pieces()) hear_results(piece);
    } else if (shares_.node_count() == 1) {
      give(0);
      combine_own(0);
      results_[0] = combined_[0];
      tell(0);
      hear_results(0);
    } else {
      go_across();
    }
    if (has_credits_) add_credits();
    return std::move(plan_);
  }

 private:
  /// Whether, in a reduce of a single node, every rank but the root has a lane, which combines what
  /// all give, and the root waits for all lanes: no rank completes before all have entered.
  static bool all_wait_for_all(const LaneShape& shape, const NodeShares& shares,
                               const Roots& roots) {
    if (roots.of_reduce == no_rank || shares.node_count() != 1) return false;
    return shape.lane_count == shape.rank_count || (shape.lane_count + 1 == shape.rank_count &&
                                                    index_of(roots.of_reduce) >= shape.lane_count);
  }
  bool has_payload() const { return plan_.payloads > 0; }
  std::uint16_t payloads() const { return has_payload() ? 1 : 0; }

  /// The i-th rank of the node after this one, around.
  std::uint16_t seat_ahead(std::uint32_t i) const {
    return static_cast<std::uint16_t>((seat_ + i) % member_count_);
  }
  std::uint16_t part_of(std::uint16_t lane, std::uint16_t piece) const {
    return static_cast<std::uint16_t>(lane * piece_count_ + piece);
  }
  std::uint16_t slot_of_part(std::uint16_t giver, std::uint16_t lane, std::uint16_t piece) const {
    const int place = roots_.of_broadcast != no_rank ? 0 : giver < lane ? giver : giver - 1;
    return static_cast<std::uint16_t>(place * piece_count_ + piece);
  }
  std::uint16_t first_slot_across() const {
    const int results = roots_.are_none() ? 0 : part_of(lane_count_, 0);
    return static_cast<std::uint16_t>(givers_max_ * piece_count_ + results);
  }
  std::uint16_t slot_of_result(std::uint16_t lane, std::uint16_t piece) const {
    const int before =
        roots_.are_none() ? first_slot_across() + across_.slot_count : givers_max_ * piece_count_;
    return static_cast<std::uint16_t>(before + part_of(lane, piece));
  }
  std::uint16_t first_slot_behind() const {
    return roots_.are_none() ? slot_of_result(lane_count_, 0)
                             : static_cast<std::uint16_t>(first_slot_across() + across_.slot_count);
  }
  Register new_partial() {
    return has_payload() ? partial_register(plan_.partial_count++) : Register{};
  }

  /// The order in which the schedule across needs pieces, which is that of the node.
  std::vector<std::uint16_t> order_of_pieces() const {
    std::vector<std::uint16_t> order;
    if (shares_.node_count() == 1) return {0};
    for (const Step& step : across_.steps)
      if (std::find(order.begin(), order.end(), step.part) == order.end())
        order.push_back(step.part);
    assert(order.size() == piece_count_);
    return order;
  }

  /// Gives a piece of their parts to the ranks of all lanes.
  void give(std::uint16_t piece) {
    if (!roots_.gives(plan_.self)) return;
    steps_.set_round(0);
    for (std::uint16_t i = 1; i < member_count_; ++i) {
      const std::uint16_t lane = seat_ahead(i);
      if (lane >= lane_count_) continue;
      steps_.begin_part(part_of(lane, piece));
      const Register part = new_partial();
      if (has_payload()) steps_.copy(source_register, part);
      steps_.put(members_[lane], slot_of_part(seat_, lane, piece), payloads(), part);
    }
  }

  /// Combines a piece of this rank's part over the node.  In a broadcast the root has it.
  void combine_own(std::uint16_t piece) {
    const Rank root = roots_.of_broadcast;
    if (root != no_rank && !is_neighbour(root)) return;
    steps_.set_round(0);
    steps_.begin_part(part_of(seat_, piece));
    Register& combined = combined_[piece];
    if (combines_in_target()) {
      combined = target_register;
      return combine_two_in_target();
    }
    combined = member_count_ == 1 ? source_register : new_partial();
    if (member_count_ == 1) return;
    if (root != no_rank) {
      join(static_cast<std::uint16_t>(shares_.place_of(root)), piece, combined, true);
      results_[piece] = combined;
    } else if (order_ == Order::rank_order) {
      for (std::uint16_t seat = member_count_; seat-- > 0;)
        join(seat, piece, combined, seat + 1 == member_count_);
    } else {
      join(seat_, piece, combined, true);
      // In the order of arrival: the rank before this one has sent to it first.
      for (std::uint16_t i = member_count_; --i > 0;) join(seat_ahead(i), piece, combined, false);
    }
  }

  /// Whether the target of the node takes the place of the register that is combined in.  Among
  /// three ranks it would be written before the last one has entered, which may still read it; and
  /// where the source comes last, a source that is the target would be overwritten before.
  bool combines_in_target() const {
    return shares_target_ && shares_.node_count() == 1 && member_count_ == 2 && has_payload() &&
           (order_ == Order::commutative || seat_ == 1);
  }

  /// The other rank has entered when its contribution is there.  Only then the target is written.
  void combine_two_in_target() {
    const std::uint16_t other = seat_ahead(1), slot = slot_of_part(other, seat_, 0);
    steps_.await(members_[other], slot, 1);
    steps_.copy(source_register, target_register);
    steps_.combine(slot_register(slot), target_register);
  }

  /// Joins the contribution of a rank of the node to the left of `combined`.
  void join(std::uint16_t seat, std::uint16_t piece, const Register& combined, bool is_first) {
    const std::uint16_t slot = slot_of_part(seat, seat_, piece);
    if (seat != seat_) steps_.await(members_[seat], slot, payloads());
    if (!has_payload()) return;
    const Register from = seat == seat_ ? source_register : slot_register(slot);
    if (is_first)
      steps_.copy(from, combined);
    else
      steps_.combine(from, combined);
  }

  /// The schedule across.  A piece is combined in the node right before the schedule needs it,
  /// after the next one was given, and its result goes to the node as soon as it is there: so
  /// network and memory work at the same time.
  void go_across() {
    std::vector<std::size_t> last_use(piece_count_);
    for (std::size_t at = 0; at < across_.steps.size(); ++at) last_use[across_.steps[at].part] = at;
    // Registers of the node first; the partials of the schedule across are behind them.
    const bool tells = member_count_ > 1 && plan_.self != roots_.of_reduce &&
                       !is_neighbour(roots_.of_broadcast) &&
                       (roots_.of_reduce == no_rank || is_neighbour(roots_.of_reduce));
    for (Register& result : results_) result = tells ? new_partial() : target_register;
    const std::vector<std::uint16_t> order = order_of_pieces();
    std::size_t combined_count = 0;
    give(order[0]);
    std::optional<std::uint16_t> told;
    first_partial_across_ = plan_.partial_count;
    plan_.partial_count = static_cast<std::uint16_t>(plan_.partial_count + across_.partial_count);
    for (std::size_t at = 0; at < across_.steps.size(); ++at) {
      const std::uint16_t piece = across_.steps[at].part;
      if (combined_count < order.size() && piece == order[combined_count]) {
        if (++combined_count < order.size()) give(order[combined_count]);
        combine_own(piece);
      }
      plan_.steps.push_back(step_here(across_.steps[at]));
      if (at != last_use[piece]) continue;
      tell(piece);
      // One piece behind, as the other lanes have it at about this time.
      if (told) hear_results(*told);
      told = piece;
    }
    if (told) hear_results(*told);
  }

  /// A step of the schedule across as one of this rank.
  Step step_here(Step step) const {
    const std::uint16_t piece = step.part;
    const auto here = [&](Register there) {
      switch (there.place) {
        case Place::source:
          return combined_[piece];
        case Place::target:
          return results_[piece];
        case Place::partial:
          there.index = static_cast<std::uint16_t>(there.index + first_partial_across_);
          return there;
        case Place::slot:
          there.index = static_cast<std::uint16_t>(there.index + first_slot_across());
          return there;
      }
      return there;
    };
    if (step.peer != no_rank) {
      step.peer = shares_.members(index_of(step.peer))[seat_];
      step.slot = static_cast<std::uint16_t>(step.slot + first_slot_across());
    }
    step.part = part_of(seat_, piece);
    ++step.round;
    step.from = here(step.from);
    step.into = here(step.into);
    return step;
  }

  void begin_last_round() {
    steps_.set_round(static_cast<std::uint32_t>(plan_.per_round.size() - 1));
  }

  void tell(std::uint16_t piece) {
    begin_last_round();
    steps_.begin_part(part_of(seat_, piece));
    const Register& result = results_[piece];
    const bool is_elsewhere = has_payload() && result != target_register;
    if (is_elsewhere && shares_target_) steps_.copy(result, target_register);
    for (std::uint16_t i = 1; i < member_count_; ++i) {
      if (!roots_.is_told(members_[seat_ahead(i)])) continue;
      if (shares_target_)
        steps_.put_into_target(members_[seat_ahead(i)], slot_of_result(seat_, piece),
                               target_register);
      else
        steps_.put(members_[seat_ahead(i)], slot_of_result(seat_, piece), payloads(), result);
    }
    if (is_elsewhere && !shares_target_ && roots_.is_told(plan_.self))
      steps_.copy(result, target_register);
  }

  void hear_results(std::uint16_t piece) {
    if (!roots_.is_told(plan_.self)) return;
    begin_last_round();
    for (std::uint16_t i = member_count_; --i > 0;) {
      const std::uint16_t lane = seat_ahead(i);
      if (lane >= lane_count_) continue;
      const std::uint16_t slot = slot_of_result(lane, piece);
      steps_.begin_part(part_of(lane, piece));
      if (shares_target_) {
        steps_.await_in_target(members_[lane], slot);
        continue;
      }
      steps_.await(members_[lane], slot, payloads());
      if (has_payload()) steps_.copy(slot_register(slot), target_register);
    }
  }

  bool is_neighbour(Rank rank) const {
    return rank != no_rank && shares_.node_of(rank) == shares_.node_of(plan_.self);
  }

  /// A rank to which others of its node send gives each of them one credit for all messages of a
  /// call, at its end.  The credits of all are awaited first, as in trees.
  void add_credits() {
    std::vector<bool> sends_to(member_count_), hears(member_count_);
    std::vector<Step> steps = std::exchange(plan_.steps, {});
    for (Step& step : steps) {
      if (step.action == Action::await_credit) step.round = 0;
      if (!is_neighbour(step.peer)) continue;
      (step.action == Action::put ? sends_to : hears)[shares_.place_of(step.peer)] = true;
    }
    steps_.begin_part(0);
    steps_.set_round(0);
    for (std::uint16_t seat = 0; seat < member_count_; ++seat)
      if (sends_to[seat]) steps_.await_credit(members_[seat], slot_of_credit(seat));
    std::stable_partition(steps.begin(), steps.end(),
                          [](const Step& step) { return step.action == Action::await_credit; });
    plan_.steps.insert(plan_.steps.end(), steps.begin(), steps.end());
    begin_last_round();
    for (std::uint16_t seat = 0; seat < member_count_; ++seat)
      if (hears[seat]) steps_.put(members_[seat], slot_of_credit(seat_), 0);
  }
  std::uint16_t slot_of_credit(std::uint16_t giver) const {
    return static_cast<std::uint16_t>(first_slot_behind() + giver);
  }

  const NodeShares& shares_;
  Roots roots_;
  std::span<const Rank> members_;  // of the own node
  std::uint16_t member_count_;
  std::uint16_t seat_;        // of this rank among them
  std::uint16_t others_max_;  // one less than the ranks of the largest node
  std::uint16_t givers_max_;  // of a part, but for the rank of the lane
  std::uint16_t lane_count_;
  std::uint16_t piece_count_;       // of a part: those of the schedule across
  std::vector<Register> combined_;  // by piece: the part combined over the node
  std::vector<Register> results_;   // by piece: the part of the result
  std::uint16_t first_partial_across_ = 0;
  Order order_;
  bool shares_target_;
  bool has_credits_;  // without credits, the plan is synchronising
  const Plan& across_;
  Plan plan_;
  StepWriter steps_{plan_};
};

Plan build(Rank self, const LaneShape& shape, Order order, const PlanAcross& across, Target target,
           const Roots& roots = {}) {
  assert(index_of(self) < shape.rank_count && is_lane_shape(shape));
  const NodeShares shares(shape.rank_count, shape.node_of);
  Plan plan = across(Rank{shares.node_of(self)}, shares.node_count());
  assert(plan.parts == 1 || plan.payloads == 1);
  assert(shape.lane_count == 1 || plan.payloads <= 1);
  assert(plan.flow_control == FlowControl::synchronising || !roots.are_none());
  if (shares.node_count() == shape.rank_count) return plan;
  return Builder(self, shape, shares, order, plan, target, roots).build();
}

}  // namespace

std::uint32_t lanes_max(std::uint32_t rank_count, std::span<const Node> node_of) {
  return counts_of_nodes(rank_count, node_of).smallest;
}

bool is_lane_shape(const LaneShape& shape) {
  return is_lane_shape(shape, counts_of_nodes(shape.rank_count, shape.node_of));
}

bool is_lane_shape(const LaneShape& shape, const NodeCounts& counts) {
  return shape.lane_count >= 1 && shape.lane_count <= counts.smallest &&
         (std::uint64_t{counts.largest} + shape.lane_count) * shape.pieces <= slots_max / 2;
}

Plan lanes_allreduce(Rank self, const LaneShape& shape, Order order, const PlanAcross& across,
                     Target target) {
  assert(order == Order::commutative || nodes_are_runs(shape.node_of));
  return build(self, shape, order, across, target);
}

Plan lanes_broadcast(Rank self, Rank root, const LaneShape& shape, const PlanAcross& across) {
  return build(self, shape, Order::commutative, across, Target::of_rank, {.of_broadcast = root});
}

Plan lanes_reduce(Rank self, Rank root, const LaneShape& shape, Order order,
                  const PlanAcross& across) {
  assert(order == Order::commutative || nodes_are_runs(shape.node_of));
  return build(self, shape, order, across, Target::of_rank, {.of_reduce = root});
}

Plan leader_barrier(Rank self, const LaneShape& shape, const PlanAcross& across) {
  assert(shape.lane_count == 1);
  return build(self, shape, Order::commutative, across, Target::of_rank);
}

}  // namespace tutti::plan
