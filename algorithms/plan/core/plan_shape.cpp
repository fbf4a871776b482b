#include "plan/core/plan_shape.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "plan/core/violation.hpp"

namespace tutti::plan {
namespace {

/// Looks at one plan after the other; the marks are kept so that each costs only its own steps.
class ShapeCheck {
 public:
  ShapeCheck(std::size_t rank_count, std::size_t parts)
      : put_marks_(rank_count * parts),
        await_marks_(rank_count * parts),
        credit_marks_(rank_count) {}

  Violation violation(const Plan& plan, const Plan& first, std::uint32_t index) {
    if (index_of(plan.self) != index)
      return "plan " + std::to_string(index) + " belongs to " + name_of(plan.self);
    if (plan.rank_count != credit_marks_.size()) return name_of(plan.self) + ": wrong rank count";
    // Slots and notifications are laid out alike everywhere, or a put would miss its slot.
    if (plan.payloads != first.payloads || plan.slot_count != first.slot_count ||
        plan.parts != first.parts || plan.owners != first.owners ||
        plan.line_slot_count != first.line_slot_count || plan.swaps_blocks != first.swaps_blocks ||
        plan.short_slot_count != first.short_slot_count ||
        plan.short_payloads != first.short_payloads || plan.zero_copy != first.zero_copy ||
        plan.shares_target != first.shares_target || plan.is_pipeline != first.is_pipeline ||
        plan.partials_max != first.partials_max)
      return name_of(plan.self) + ": slots are not laid out as on rank 0";
    if (plan.line_slot_count + plan.short_slot_count > plan.slot_count ||
        plan.short_payloads > plan.payloads)
      return name_of(plan.self) + ": more short slots than slots, or longer ones";
    if (plan.partials_max > 0 && plan.partial_count > plan.partials_max)
      return name_of(plan.self) + ": more partials than any rank has";
    if (!plan.owners.empty() && plan.owners.size() != plan.parts)
      return name_of(plan.self) + ": " + std::to_string(plan.owners.size()) + " owners of " +
             std::to_string(plan.parts) + " parts";
    if (plan.parts == 0) return name_of(plan.self) + ": a payload has one part at least";
    if (plan.flow_control != first.flow_control)
      return name_of(plan.self) + ": declares another flow control than rank 0";
    puts_.assign(plan.per_round.size(), 0);
    awaits_.assign(plan.per_round.size(), 0);
    rounds_.assign(plan.parts, 0);
    round_ = 0;
    ++plan_mark_;
    const Step* on_its_way = nullptr;
    for (std::size_t step = 0; step < plan.steps.size(); ++step) {
      if (Violation violation = step_violation(plan, plan.steps[step]))
        return at(plan, step, *violation);
      if (plan.steps[step].action == Action::await_sent) on_its_way = nullptr;
      if (plan.zero_copy && is_awaited_sent(plan, plan.steps[step])) on_its_way = &plan.steps[step];
    }
    if (on_its_way != nullptr)
      return name_of(plan.self) + ": ends while its " + name_of(on_its_way->from) +
             " may be on its way";
    if (!counts_are_right(plan, first))
      return name_of(plan.self) + ": messages of a round are not as many as per_round says";
    return {};
  }

 private:
  bool counts_are_right(const Plan& plan, const Plan& first) const {
    if (plan.all_alike != first.all_alike) return false;
    // A message that is needed late may be awaited in a later round than it is put.
    if (plan.all_alike) return puts_ == plan.per_round && sum_of(awaits_) == sum_of(plan.per_round);
    if (plan.per_round != first.per_round) return false;
    std::uint64_t sent = 0, awaited = 0;  // at most, and so far
    for (std::size_t round = 0; round < plan.per_round.size(); ++round) {
      sent += plan.per_round[round];
      awaited += awaits_[round];
      if (puts_[round] > plan.per_round[round] || awaited > sent) return false;
    }
    return true;
  }

  static std::uint64_t sum_of(const std::vector<std::uint32_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }

  Violation step_violation(const Plan& plan, const Step& step) {
    if (step.part >= plan.parts) return "part " + std::to_string(step.part) + " does not exist";
    if (step.round < rounds_[step.part]) return "rounds go backwards";
    if (step.round != round_ || &step == plan.steps.data()) ++mark_;
    round_ = rounds_[step.part] = step.round;
    switch (step.action) {
      case Action::put:
        if (step.by_reference ? !is_told_of(step) : !is_sent(plan, step))
          return std::string("a put ") +
                 (step.by_reference ? "by reference tells of a source, target or partial, not of "
                                    : "sends partials, not ") +
                 name_of(step.from);
        if (plan.flow_control == FlowControl::acknowledged && !is_answered(plan, step.peer))
          return "puts to " + name_of(step.peer) + " without hearing from it";
        if (is_credit(plan, step)) return credit_violation(plan, step);
        if (Violation violation = message_violation(plan, step, puts_, put_marks_))
          return violation;
        if (plan.flow_control == FlowControl::one_way && !is_entry(step) &&
            credit_marks_[index_of(step.peer)] != plan_mark_)
          return "puts without a credit of " + name_of(step.peer);
        return {};
      case Action::await:
        // Who has entered does not read what was put to it in the call before.
        if (is_entry(step) && index_of(step.peer) < plan.rank_count)
          credit_marks_[index_of(step.peer)] = plan_mark_;
        return message_violation(plan, step, awaits_, await_marks_);
      case Action::await_sent:
        return {};
      case Action::await_credit:
        if (plan.flow_control != FlowControl::one_way) return "awaits a credit, and is not one-way";
        if (Violation violation = credit_violation(plan, step)) return violation;
        credit_marks_[index_of(step.peer)] = plan_mark_;
        return {};
      case Action::copy:
      case Action::combine:
      case Action::take_out:
        if (step.into.place == Place::source || step.into.place == Place::slot)
          return "writes " + name_of(step.into);
        if (step.from == step.into) return "reads and writes " + name_of(step.into);
        if (step.action == Action::copy && step.payloads == 0) return "copies nothing";
        if (step.by_reference && (step.action == Action::take_out ||
                                  step.from.place != Place::slot || step.payloads > 1))
          return "reads by reference in another way than by a copy or combine from a slot";
        if (step.grows && !(step.by_reference && step.action == Action::combine))
          return "grows in another way than by a combine by reference";
        if (Violation violation = range_violation(plan, step.into, width_of(step)))
          return violation;
        return range_violation(plan, step.from, width_of(step));
    }
    return "unknown action";
  }

  static bool is_sent(const Plan& plan, const Step& step) {
    return step.payloads == 0 || step.from.place == Place::partial ||
           (plan.zero_copy && is_lent(step)) || is_told_in_target(plan, step);
  }
  static bool is_told_in_target(const Plan& plan, const Step& step) {
    return plan.shares_target && step.into_target && is_lent(step);
  }
  static bool is_told_of(const Step& step) {
    return is_lent(step) || (step.payloads == 1 && step.from.place == Place::partial);
  }
  static bool is_lent(const Step& step) {
    return step.payloads == 1 &&
           (step.from.place == Place::source || step.from.place == Place::target);
  }
  static bool is_answered(const Plan& plan, Rank peer) {
    return std::any_of(plan.steps.begin(), plan.steps.end(), [&](const Step& step) {
      return step.action == Action::await && step.peer == peer;
    });
  }

  static Violation address_violation(const Plan& plan, const Step& step) {
    if (step.peer == plan.self) return "the peer is the rank itself";
    if (index_of(step.peer) >= plan.rank_count) return "the peer does not exist";
    if (step.slot >= plan.slot_count)
      return "slot " + std::to_string(step.slot) + " does not exist";
    return {};
  }

  static Violation credit_violation(const Plan& plan, const Step& step) {
    if (Violation violation = address_violation(plan, step)) return violation;
    if (step.slot + plan.line_slot_count < plan.slot_count)
      return "slot " + std::to_string(step.slot) + " is none of those for credits";
    return {};
  }

  Violation message_violation(const Plan& plan, const Step& step,
                              std::vector<std::uint32_t>& counts,
                              std::vector<std::uint64_t>& marks) const {
    if (Violation violation = address_violation(plan, step)) return violation;
    if (step.into_target &&
        (!(plan.zero_copy || plan.shares_target) || step.by_reference || step.payloads > 1))
      return "lands in a target in another way than as one payload of a zero-copy plan";
    const bool is_payload = step.payloads > 0 && !step.by_reference && !step.into_target;
    if (is_payload && step.slot + plan.line_slot_count >= plan.slot_count)
      return "slot " + std::to_string(step.slot) + " has no room for a message";
    if (step.payloads > plan.payloads) return "more payloads than a slot has";
    if (is_payload && step.payloads > payloads_of_slot(plan, step.slot))
      return "more payloads than slot " + std::to_string(step.slot) + " has";
    if (step.round >= counts.size()) return "a round that per_round does not know";
    ++counts[step.round];
    std::uint64_t& mark = marks[index_of(step.peer) * plan.parts + step.part];
    if (mark == mark_)
      return name_of(step.peer) + " is a peer twice in one round" +
             (plan.parts > 1 ? ", about part " + std::to_string(step.part) : "");
    mark = mark_;
    if (step.action == Action::put && step.payloads > 0)
      return range_violation(plan, step.from, step.payloads);
    return {};
  }

  /// Payloads that a step on registers touches.
  static std::uint32_t width_of(const Step& step) {
    return step.action == Action::copy ? step.payloads : 1;
  }

  static Violation range_violation(const Plan& plan, const Register& where, std::uint32_t width) {
    std::uint16_t count = 1;
    std::uint16_t payloads = 1;
    if (where.place == Place::partial || where.place == Place::slot) {
      count = where.place == Place::partial ? plan.partial_count : plan.slot_count;
      payloads = plan.payloads;
      if (where.place == Place::slot && where.index < plan.slot_count && plan.short_slot_count > 0)
        payloads = payloads_of_slot(plan, where.index);
    }
    if (where.index < count && where.payload + width <= payloads) return {};
    return name_of(where) + (width > 1 ? " does not have " + std::to_string(width) + " payloads"
                                       : " does not exist");
  }

  std::vector<std::uint64_t> put_marks_;     // by peer and part: the (rank, round) of the last put
  std::vector<std::uint64_t> await_marks_;   // by peer and part: that of the last await
  std::vector<std::uint64_t> credit_marks_;  // by peer: the plan in which its credit was awaited
  std::uint64_t plan_mark_ = 0;
  std::uint64_t mark_ = 0;
  std::uint32_t round_ = 0;
  std::vector<std::uint32_t> rounds_;  // of each part
  std::vector<std::uint32_t> puts_;
  std::vector<std::uint32_t> awaits_;
};

}  // namespace

std::optional<std::string> shape_violation(std::span<const Plan> plans) {
  ShapeCheck shape(plans.size(), std::max<std::size_t>(plans[0].parts, 1));
  for (std::uint32_t rank = 0; rank < plans.size(); ++rank)
    if (Violation violation = shape.violation(plans[rank], plans[0], rank)) return violation;
  return {};
}

}  // namespace tutti::plan
