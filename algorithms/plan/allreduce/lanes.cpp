// See lanes.hpp for the schedule.  Here: which register holds what.
//
//   partials   own parts for the other ranks with a lane, in the order in which they are sent
//              for a rank with a lane: its part combined over the node, its part of the result
//              those of the schedule across
//   slots      0 .. L-2        own part, from the other ranks of the node, in rank order
//              L-1 ..          those of the schedule across
//              behind them     results, by lane: without room for one where targets are shared
//
// The source is read before the target is written, part by part, so they may be the same memory.
#include "plan/allreduce/lanes.hpp"

#include <cassert>
#include <utility>

#include "plan/core/node_shares.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

std::string name_of(const LaneShape& shape, const Plan& across) {
  return std::string(shape.lane_count == 1 ? shape.one_lane : "lanes") + "/" + across.algorithm;
}

class Builder {
 public:
  Builder(Rank self, const LaneShape& shape, const NodeShares& shares, Order order,
          const Plan& across, Target target)
      : shares_(shares),
        members_(shares.members(shares.node_of(self))),
        member_count_(static_cast<std::uint16_t>(members_.size())),
        seat_(static_cast<std::uint16_t>(shares.place_of(self))),
        others_max_(static_cast<std::uint16_t>(shares.largest() - 1)),
        lane_count_(static_cast<std::uint16_t>(shape.lane_count)),
        order_(order),
        shares_target_(target == Target::of_node),
        across_(across) {
    plan_.self = self;
    plan_.rank_count = shape.rank_count;
    plan_.algorithm = name_of(shape, across);
    plan_.per_round = across.per_round;
    plan_.per_round.insert(plan_.per_round.begin(), others_max_);
    plan_.per_round.push_back(others_max_);
    plan_.n = across.n;  // per_round may not show it
    plan_.all_alike = false;
    plan_.parts = lane_count_;
    plan_.payloads = across.payloads;
    plan_.slot_count = static_cast<std::uint16_t>(slot_of_result(lane_count_));
    plan_.shares_target = shares_target_;
    // Two ranks answer each other (lanes.hpp): the result of a part arrives in partial 0, from
    // which the receiving rank has sent its contribution to that part.
    if (shape.rank_count == 2 && shares.node_count() == 1 && lane_count_ == 2 && has_payload() &&
        !shares_target_)
      plan_.answers = {{.slot = static_cast<std::uint16_t>(slot_of_result(0)), .partial = 0},
                       {.slot = static_cast<std::uint16_t>(slot_of_result(1)), .partial = 0}};
    if (shares_target_) {
      plan_.algorithm += "_shared_target";
      plan_.line_slot_count = lane_count_;
    }
  }

  Plan build() && {
    give_parts();
    if (seat_ < lane_count_) {
      steps_.begin_part(seat_);
      const Register combined = combine_own_part();
      const Register result = go_across(combined);
      tell(result);
    }
    hear_results();
    return std::move(plan_);
  }

 private:
  bool has_payload() const { return plan_.payloads > 0; }
  std::uint16_t payloads() const { return has_payload() ? 1 : 0; }

  /// The i-th rank of the node after this one, around.
  std::uint16_t seat_ahead(std::uint32_t i) const {
    return static_cast<std::uint16_t>((seat_ + i) % member_count_);
  }
  static std::uint16_t slot_of_part(std::uint16_t giver, std::uint16_t lane) {
    return static_cast<std::uint16_t>(giver < lane ? giver : giver - 1);
  }
  std::uint16_t slot_of_result(std::uint16_t lane) const {
    return static_cast<std::uint16_t>(others_max_ + across_.slot_count + lane);
  }
  std::uint16_t first_slot_across() const { return others_max_; }
  Register new_partial() {
    return has_payload() ? partial_register(plan_.partial_count++) : Register{};
  }

  void give_parts() {
    for (std::uint16_t i = 1; i < member_count_; ++i) {
      const std::uint16_t lane = seat_ahead(i);
      if (lane >= lane_count_) continue;
      steps_.begin_part(lane);
      const Register part = new_partial();
      if (has_payload()) steps_.copy(source_register, part);
      steps_.put(members_[lane], slot_of_part(seat_, lane), payloads(), part);
    }
  }

  /// The register of this rank's part, combined over the node.
  Register combine_own_part() {
    if (member_count_ == 1) return source_register;
    const Register combined = new_partial();
    if (order_ == Order::rank_order) {
      for (std::uint16_t seat = member_count_; seat-- > 0;)
        join(seat, combined, seat + 1 == member_count_);
    } else {
      join(seat_, combined, true);
      // In the order of arrival: the rank before this one has sent to it first.
      for (std::uint16_t i = member_count_; --i > 0;) join(seat_ahead(i), combined, false);
    }
    return combined;
  }

  /// Joins the contribution of a rank of the node to the left of `combined`.
  void join(std::uint16_t seat, const Register& combined, bool is_first) {
    const std::uint16_t slot = slot_of_part(seat, seat_);
    if (seat != seat_) steps_.await(members_[seat], slot, payloads());
    if (!has_payload()) return;
    const Register from = seat == seat_ ? source_register : slot_register(slot);
    if (is_first)
      steps_.copy(from, combined);
    else
      steps_.combine(from, combined);
  }

  /// The schedule across, from the part combined here to the returned register.
  Register go_across(const Register& combined) {
    if (shares_.node_count() == 1) return combined;
    const Register result = member_count_ == 1 ? target_register : new_partial();
    const std::uint16_t first_partial = plan_.partial_count;
    const auto here = [&](Register there) {
      switch (there.place) {
        case Place::source:
          return combined;
        case Place::target:
          return result;
        case Place::partial:
          there.index = static_cast<std::uint16_t>(there.index + first_partial);
          return there;
        case Place::slot:
          there.index = static_cast<std::uint16_t>(there.index + first_slot_across());
          return there;
      }
      return there;
    };
    for (Step step : across_.steps) {
      if (step.peer != no_rank) {
        step.peer = shares_.members(index_of(step.peer))[seat_];
        step.slot = static_cast<std::uint16_t>(step.slot + first_slot_across());
      }
      step.part = seat_;
      ++step.round;
      step.from = here(step.from);
      step.into = here(step.into);
      plan_.steps.push_back(step);
    }
    plan_.partial_count = static_cast<std::uint16_t>(plan_.partial_count + across_.partial_count);
    return result;
  }

  void begin_last_round() {
    steps_.set_round(static_cast<std::uint32_t>(plan_.per_round.size() - 1));
  }

  void tell(const Register& result) {
    begin_last_round();
    const bool is_elsewhere = has_payload() && result != target_register;
    if (is_elsewhere && shares_target_) steps_.copy(result, target_register);
    for (std::uint16_t i = 1; i < member_count_; ++i)
      if (shares_target_)
        steps_.put_into_target(members_[seat_ahead(i)], slot_of_result(seat_), target_register);
      else
        steps_.put(members_[seat_ahead(i)], slot_of_result(seat_), payloads(), result);
    if (is_elsewhere && !shares_target_) steps_.copy(result, target_register);
  }

  void hear_results() {
    begin_last_round();
    for (std::uint16_t i = member_count_; --i > 0;) {
      const std::uint16_t lane = seat_ahead(i);
      if (lane >= lane_count_) continue;
      steps_.begin_part(lane);
      if (shares_target_) {
        steps_.await_in_target(members_[lane], slot_of_result(lane));
        continue;
      }
      steps_.await(members_[lane], slot_of_result(lane), payloads());
      if (has_payload()) steps_.copy(slot_register(slot_of_result(lane)), target_register);
    }
  }

  const NodeShares& shares_;
  const std::vector<Rank>& members_;  // of the own node
  std::uint16_t member_count_;
  std::uint16_t seat_;        // of this rank among them
  std::uint16_t others_max_;  // one less than the ranks of the largest node
  std::uint16_t lane_count_;
  Order order_;
  bool shares_target_;
  const Plan& across_;
  Plan plan_;
  StepWriter steps_{plan_};
};

Plan build(Rank self, const LaneShape& shape, Order order, const PlanAcross& across,
           Target target) {
  assert(index_of(self) < shape.rank_count && is_lane_shape(shape));
  const NodeShares shares(shape.rank_count, shape.node_of);
  Plan plan = across(Rank{shares.node_of(self)}, shares.node_count());
  assert(plan.parts == 1 && (shape.lane_count == 1 || plan.payloads <= 1));
  assert(plan.flow_control == FlowControl::synchronising);
  if (shares.node_count() == shape.rank_count) return plan;
  return Builder(self, shape, shares, order, plan, target).build();
}

}  // namespace

std::uint32_t lanes_max(std::uint32_t rank_count, std::span<const Node> node_of) {
  return NodeShares(rank_count, node_of).smallest();
}

bool is_lane_shape(const LaneShape& shape) {
  const NodeShares shares(shape.rank_count, shape.node_of);
  return shape.lane_count >= 1 && shape.lane_count <= shares.smallest() &&
         std::uint64_t{shares.largest()} + shape.lane_count <= slots_max / 2;
}

Plan lanes_allreduce(Rank self, const LaneShape& shape, Order order, const PlanAcross& across,
                     Target target) {
  assert(order == Order::commutative || nodes_are_runs(shape.node_of));
  return build(self, shape, order, across, target);
}

Plan leader_barrier(Rank self, const LaneShape& shape, const PlanAcross& across) {
  assert(shape.lane_count == 1);
  return build(self, shape, Order::commutative, across, Target::of_rank);
}

}  // namespace tutti::plan
