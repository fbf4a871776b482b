// See verify.hpp.  First each plan is looked at alone (plan_shape.hpp), then all run together
// (Run): a rank runs until it awaits a message that has not been put; the put wakes it up.
#include "plan/core/verify.hpp"

#include <algorithm>
#include <cassert>
#include <vector>

#include "plan/core/plan_shape.hpp"
#include "plan/core/symbolic_value.hpp"
#include "plan/core/violation.hpp"

namespace tutti::plan {
namespace {

/// The history of one slot of one rank.
struct Arrival {
  enum class State : std::uint8_t { empty, written, awaited } state = State::empty;
  std::uint16_t payloads = 0;
  bool by_reference = false;
  bool into_target = false;
  Rank writer = no_rank;
  Value heard;                     // what the writer had heard when it put
  std::vector<bool> entered = {};  // where targets are shared, or written by peers: who had entered
                                   // then, as it knew
  Rank creditor = no_rank;         // the rank whose credit it takes, awaited in a later call
};

class Run {
 public:
  Run(std::span<const Plan> plans, Promise promise, Rank root)
      : plans_(plans),
        promise_(promise),
        root_(root),
        pool_(promise == Promise::barrier || promise == Promise::at_least_once,
              static_cast<std::uint32_t>(plans.size())),
        ranks_(plans.size()) {
    std::size_t values = 0;
    for (std::uint32_t i = 0; i < plans.size(); ++i) {
      const Plan& plan = plans[i];
      ranks_[i].heard = pool_.contribution(i);
      for (std::uint16_t part = 0; part < plan.parts; ++part)
        ranks_[i].sources.push_back(pool_.contribution(i, part));
      ranks_[i].targets.resize(plan.parts);
      ranks_[i].target_written.resize(plan.parts);
      ranks_[i].is_sent.resize(plan.parts);
      ranks_[i].is_arriving.resize(plan.parts);
      ranks_[i].partials = values;
      values += std::size_t{plan.partial_count} * plan.payloads;
      ranks_[i].slots = values;
      values += std::size_t{plan.slot_count} * plan.payloads;
      ranks_[i].was_put.resize(std::size_t{plan.partial_count} * plan.payloads);
      ranks_[i].arrivals.resize(plan.slot_count);
      if (plan.shares_target || plan.zero_copy) {
        ranks_[i].entered.resize(plans.size());
        ranks_[i].entered[i] = true;
      }
    }
    values_.resize(values);
  }

  Violation violation() {
    // The last one is taken first: start at rank 0.
    for (auto rank = static_cast<std::uint32_t>(plans_.size()); rank > 0;)
      runnable_.push_back(--rank);
    while (!runnable_.empty()) {
      const std::uint32_t rank = runnable_.back();
      runnable_.pop_back();
      if (Violation violation = run(rank)) return violation;
    }
    for (std::uint32_t rank = 0; rank < plans_.size(); ++rank)
      if (Violation violation = end_violation(rank)) return violation;
    for (std::uint32_t rank = 0; rank < plans_.size(); ++rank)
      if (Violation violation = left_over(rank)) return violation;
    return {};
  }

 private:
  struct State {  // of one rank
    std::size_t next = 0;
    std::vector<Value> sources;  // by part
    std::vector<Value> targets;
    Value heard;                // ranks that have certainly entered; kept for the barrier only
    std::vector<bool> entered;  // the same; kept where targets are shared or written only
    std::vector<bool> target_written;
    std::vector<bool> is_sent;  // by part: source or target was put from where it is
    std::vector<bool>
        is_arriving;           // by part: the target was written by a peer, and not awaited yet
    std::size_t partials = 0;  // where they begin in values_
    std::size_t slots = 0;
    std::vector<bool> was_put;
    std::vector<Arrival> arrivals;
  };

  /// Runs `rank` until it has to wait.
  Violation run(std::uint32_t rank) {
    const Plan& plan = plans_[rank];
    State& state = ranks_[rank];
    for (; state.next < plan.steps.size(); ++state.next) {
      const Step& step = plan.steps[state.next];
      if (step.action == Action::await && state.arrivals[step.slot].state == Arrival::State::empty)
        return {};
      if (Violation violation = execute(rank, step)) return at(plan, state.next, *violation);
    }
    return {};
  }

  Violation execute(std::uint32_t rank, const Step& step) {
    switch (step.action) {
      case Action::put:
        return put(rank, step);
      case Action::await:
        return await(rank, step);
      case Action::await_credit:
        ranks_[rank].arrivals[step.slot].creditor = step.peer;
        return {};
      case Action::await_sent:
        return {};
      case Action::copy:
        for (std::uint16_t i = 0; i < step.payloads; ++i)
          if (Violation violation = write(rank, step, i)) return violation;
        return {};
      case Action::combine:
      case Action::take_out:
        return write(rank, step, 0);
    }
    return "unknown action";
  }

  Violation put(std::uint32_t rank, const Step& step) {
    State& state = ranks_[rank];
    const std::uint32_t peer = index_of(step.peer);
    if (plans_[rank].swaps_blocks && step.payloads > 0 && !step.forwards && step.part != peer)
      return "sends a block that is for another rank";
    Arrival& arrival = ranks_[peer].arrivals[step.slot];
    if (arrival.state != Arrival::State::empty)
      return "writes slot " + std::to_string(step.slot) + " of " + name_of(step.peer) + ", which " +
             name_of(arrival.writer) + " has written";
    for (std::uint16_t payload = 0; payload < step.payloads; ++payload) {
      const Register from = moved(step.from, payload);
      const Value value = *place(rank, from, step.part);
      if (!value.defined()) return "puts " + name_of(from) + ", which is undefined";
      if (payload + 1 == step.payloads && value.part != step.part)
        return other_part(from, value, step);
      if (from.place == Place::source && state.target_written[step.part])
        return "tells of its source, or sends it, after target was written";
      if (from.place == Place::target && state.is_arriving[step.part])
        return "sends its target, which was not awaited";
      if (!step.into_target)
        *place(peer, {Place::slot, payload, step.slot}, step.part) = value;
      else if (Violation violation = write_target(rank, peer, step.part, value))
        return violation;
      if (from.place == Place::partial)
        state.was_put[mark_of(rank, from)] = true;
      else if (!step.by_reference)
        state.is_sent[step.part] = true;
    }
    arrival = {.state = Arrival::State::written,
               .payloads = step.payloads,
               .by_reference = step.by_reference,
               .into_target = step.into_target,
               .writer = Rank{rank},
               .heard = state.heard,
               .entered = state.entered,
               .creditor = arrival.creditor};
    const State& other = ranks_[peer];
    if (other.next < plans_[peer].steps.size() && waits_for(plans_[peer].steps[other.next], step))
      runnable_.push_back(peer);
    return {};
  }

  /// A put of `rank` into the target of `peer`.
  Violation write_target(std::uint32_t rank, std::uint32_t peer, std::uint16_t part, Value value) {
    State& other = ranks_[peer];
    const bool has_entered =
        ranks_[rank].entered[peer] || (!plans_[rank].shares_target && holds(value, peer));
    if (promise_ != Promise::barrier && !has_entered)
      return "writes the target of " + name_of(Rank{peer}) + ", which may not have entered";
    if (other.target_written[part])
      return "writes the target of " + name_of(Rank{peer}) + ", which was written";
    other.targets[part] = value;
    other.target_written[part] = true;
    other.is_arriving[part] = true;
    return {};
  }

  bool holds(Value value, std::uint32_t rank) const {
    const std::span<const Span> spans = pool_.spans(value);
    return std::any_of(spans.begin(), spans.end(),
                       [&](Span span) { return span.first <= rank && rank <= span.last; });
  }

  static bool waits_for(const Step& waiting, const Step& put) {
    return waiting.action == Action::await && waiting.slot == put.slot;
  }

  Violation await(std::uint32_t rank, const Step& step) {
    State& state = ranks_[rank];
    Arrival& arrival = state.arrivals[step.slot];
    const std::string slot = "slot " + std::to_string(step.slot);
    if (arrival.state == Arrival::State::awaited) return slot + " is awaited twice";
    if (arrival.writer != step.peer)
      return slot + " is awaited from " + name_of(step.peer) + " but written by " +
             name_of(arrival.writer);
    if (arrival.payloads != step.payloads)
      return slot + " is awaited with " + std::to_string(step.payloads) +
             " payloads but put with " + std::to_string(arrival.payloads);
    if (arrival.by_reference != step.by_reference || arrival.into_target != step.into_target)
      return slot + " is awaited as another kind of message than it is put";
    arrival.state = Arrival::State::awaited;
    if (step.into_target && !is_entry(step)) state.is_arriving[step.part] = false;
    for (std::size_t one = 0; one < state.entered.size(); ++one)
      if (arrival.entered[one]) state.entered[one] = true;
    if (promise_ == Promise::barrier) state.heard = pool_.combined(arrival.heard, state.heard);
    return {};
  }

  /// Runs a step on registers; a copy of several payloads is run for each of them.
  Violation write(std::uint32_t rank, const Step& step, std::uint16_t payload) {
    State& state = ranks_[rank];
    const Register source = moved(step.from, payload);
    const Register destination = moved(step.into, payload);
    if (source.place == Place::source && state.target_written[step.part])
      return "reads source after target was written";
    if (source.place == Place::slot) {
      const Arrival& arrival = state.arrivals[source.index];
      if (arrival.state != Arrival::State::awaited)
        return "reads " + name_of(source) + ", which was not awaited";
      if (arrival.by_reference != step.by_reference || arrival.into_target)
        return "reads " + name_of(source) + " as another kind of message than it is put";
      if (step.by_reference && arrival.writer != step.peer)
        return "reads memory of " + name_of(step.peer) + ", of which " + name_of(arrival.writer) +
               " has told";
    }
    if (destination.place == Place::partial && state.was_put[mark_of(rank, destination)])
      return "writes " + name_of(destination) + ", which was put";
    if (destination.place == Place::target && state.is_sent[step.part])
      return "writes target, which was put, or the source";
    if ((source.place == Place::target || destination.place == Place::target) &&
        state.is_arriving[step.part])
      return "touches its target, which was not awaited";
    Value from = *place(rank, source, step.part);
    Value& into = *place(rank, destination, step.part);
    if (!from.defined()) return "reads " + name_of(source) + ", which is undefined";
    if (plans_[rank].swaps_blocks && destination.place == Place::target) {
      if (from.part != rank)
        return name_of(source) + " holds a block for " + name_of(Rank{from.part});
      from.part = step.part;  // the promise says which rank it has to come from
    }
    const bool is_last = step.action != Action::copy || payload + 1 == step.payloads;
    if (is_last && from.part != step.part) return other_part(source, from, step);
    if (step.by_reference && step.action == Action::combine) {
      if (is_ordered()) return "combines by reference, in either order";
      if (!step.grows) {
        if (state.target_written[step.part]) return "reads source after target was written";
        into = state.sources[step.part];
      }
    }
    if (step.action != Action::copy) {
      if (!into.defined()) return "combines into " + name_of(destination) + ", which is undefined";
      if (into.part != step.part) return other_part(destination, into, step);
    }
    if (destination.place == Place::target) state.target_written[step.part] = true;
    if (step.action == Action::take_out) return take_out(from, into, destination);
    into = step.action == Action::combine ? pool_.combined(from, into) : from;
    return {};
  }

  Violation take_out(Value from, Value& into, const Register& destination) {
    if (promise_ == Promise::barrier) return {};  // who has entered stays known
    if (promise_ == Promise::at_least_once) return "takes out what may have entered more than once";
    const std::optional<Value> rest = pool_.without(from, into);
    if (!rest)
      return "takes contributions out of " + name_of(destination) + " which it does not have";
    into = *rest;
    return {};
  }

  static Register moved(Register where, std::uint16_t payload) {
    where.payload = static_cast<std::uint16_t>(where.payload + payload);
    return where;
  }
  static std::string other_part(const Register& where, Value value, const Step& step) {
    return name_of(where) + " holds part " + std::to_string(value.part) + ", the step is about " +
           std::to_string(step.part);
  }
  std::size_t mark_of(std::uint32_t rank, const Register& where) const {
    return std::size_t{where.index} * plans_[rank].payloads + where.payload;
  }

  Value* place(std::uint32_t rank, const Register& where, std::uint16_t part) {
    State& state = ranks_[rank];
    assert(part < state.sources.size());  // plan_shape.hpp has looked
    const std::size_t offset = mark_of(rank, where);
    assert(where.place != Place::slot || where.index < plans_[rank].slot_count);
    assert(where.place != Place::partial || where.index < plans_[rank].partial_count);
    switch (where.place) {
      case Place::source:
        return &state.sources[part];
      case Place::target:
        return &state.targets[part];
      case Place::partial:
        return &values_[state.partials + offset];
      case Place::slot:
        return &values_[state.slots + offset];
    }
    return nullptr;
  }

  Violation end_violation(std::uint32_t rank) {
    const Plan& plan = plans_[rank];
    const State& state = ranks_[rank];
    if (state.next < plan.steps.size())
      return at(plan, state.next,
                "waits for ever for slot " + std::to_string(plan.steps[state.next].slot) +
                    " from " + name_of(plan.steps[state.next].peer));
    if (promise_ == Promise::barrier) {
      if (Violation violation = value_violation(state.heard, 0))
        return name_of(plan.self) + ": " + *violation;
      return {};
    }
    if (root_ != no_rank && promise_ != Promise::scatter &&
        (plan.self == root_) == (promise_ == Promise::broadcast)) {
      if (std::find(state.target_written.begin(), state.target_written.end(), true) !=
          state.target_written.end())
        return name_of(plan.self) + ": writes its target, where no result belongs";
      return {};
    }
    for (std::uint16_t part = 0; part < plan.parts; ++part)
      if (Violation violation = target_violation(rank, part))
        return name_of(plan.self) + (plan.parts > 1 ? ", part " + std::to_string(part) : "") +
               ": " + *violation;
    return {};
  }

  Violation left_over(std::uint32_t rank) const {
    for (const Arrival& arrival : ranks_[rank].arrivals) {
      if (arrival.creditor != no_rank &&
          (arrival.state != Arrival::State::written || arrival.writer != arrival.creditor))
        return name_of(Rank{rank}) + ": " + name_of(arrival.creditor) +
               " never gives the credit that a later call awaits";
      if (arrival.creditor == no_rank && arrival.state == Arrival::State::written)
        return name_of(Rank{rank}) + ": a message from " + name_of(arrival.writer) +
               " is never awaited";
    }
    return {};
  }

  /// Says what is wrong with a part of the target, by the promise.
  Violation target_violation(std::uint32_t rank, std::uint16_t part) {
    const Value result = ranks_[rank].targets[part];
    const bool untouched = ((promise_ == Promise::scatter || promise_ == Promise::reduce_scatter ||
                             promise_ == Promise::reduce_scatter_any_order) &&
                            part != rank) ||
                           (promise_ == Promise::exscan && rank == 0);
    if (untouched)
      return ranks_[rank].target_written[part] ? Violation("is written, where no result belongs")
                                               : std::nullopt;
    if (promise_ == Promise::broadcast || promise_ == Promise::scatter)
      return ranks_violation(result, index_of(root_), index_of(root_));
    if (promise_ == Promise::gather) {
      const std::vector<Rank>& owners = plans_[rank].owners;
      const std::uint32_t owner = owners.empty() ? part : index_of(owners[part]);
      return ranks_violation(result, owner, owner);
    }
    if (promise_ == Promise::scan) return ranks_violation(result, 0, rank);
    if (promise_ == Promise::exscan) return ranks_violation(result, 0, rank - 1);
    return value_violation(result, part);
  }

  /// Whether `result` holds the contributions of the ranks first .. last, in rank order.
  Violation ranks_violation(Value result, std::uint32_t first, std::uint32_t last) const {
    if (!result.defined()) return "target is undefined";
    const std::span<const Span> spans = pool_.spans(result);
    if (spans.size() == 1 && spans[0].first == first && spans[0].last == last) return {};
    return "target does not hold the contribution" +
           (first == last ? " of rank " + std::to_string(first)
                          : "s of the ranks " + std::to_string(first) + " to " +
                                std::to_string(last) + " in their order");
  }

  /// Whether `result`, of all contributions, keeps the promise.
  Violation value_violation(Value result, std::uint16_t part) {
    if (!result.defined()) return "target is undefined";
    scratch_.assign(pool_.spans(result).begin(), pool_.spans(result).end());
    std::sort(scratch_.begin(), scratch_.end(), Pool::by_first);
    std::uint32_t expected = 0;
    for (const Span span : scratch_) {
      if (span.first > expected) break;
      if (span.first < expected)
        return "contribution " + std::to_string(span.first) + " enters more than once";
      expected = span.last + 1;
    }
    if (expected < plans_.size()) return "contribution " + std::to_string(expected) + " is missing";
    if (is_ordered() && result.count > 1)
      return "operands are out of order: " + std::to_string(pool_.spans(result)[0].first) +
             " comes first";
    if ((promise_ == Promise::same_expression || promise_ == Promise::same_result) &&
        result.expression != ranks_.front().targets[part].expression)
      return "operands are ordered or associated otherwise than on rank 0";
    if ((promise_ == Promise::canonical_tree || promise_ == Promise::reduce_scatter) &&
        result.expression != canonical_expression())
      return "operands are not associated along the canonical tree";
    return {};
  }

  bool is_ordered() const {
    return promise_ == Promise::rank_order || promise_ == Promise::same_expression ||
           promise_ == Promise::canonical_tree || promise_ == Promise::reduce_scatter ||
           promise_ == Promise::scan || promise_ == Promise::exscan;
  }

  /// Computed once, because P^2 values of a plan of P parts are compared with it.
  std::uint32_t canonical_expression() {
    if (!canonical_)
      canonical_ = pool_.canonical_expression(0, static_cast<std::uint32_t>(plans_.size()));
    return *canonical_;
  }

  std::span<const Plan> plans_;
  Promise promise_;
  Rank root_;
  Pool pool_;
  std::optional<std::uint32_t> canonical_;
  std::vector<State> ranks_;
  std::vector<Value> values_;  // partials and slots of all ranks
  std::vector<std::uint32_t> runnable_;
  std::vector<Span> scratch_;
};

bool touches(const Step& step, const Register& where) {
  const auto is_there = [&](const Register& one) {
    return one.place == where.place && one.index == where.index;
  };
  const bool moves = step.action == Action::copy || step.action == Action::combine ||
                     step.action == Action::take_out;
  const bool sends = step.action == Action::put && step.payloads > 0;
  return ((moves || sends) && is_there(step.from)) || (moves && is_there(step.into));
}

/// Step `put` of `plan` is an answer, which overwrites `partial` of its receiver.  Says what is
/// wrong if that partial is still needed there.
Violation answer_violation(std::span<const Plan> plans, const Plan& plan, std::size_t put,
                           std::uint16_t partial) {
  const Step& answer = plan.steps[put];
  const Plan& other = plans[index_of(answer.peer)];
  const std::string text =
      "answers into partial " + std::to_string(partial) + " of " + name_of(other.self) + ", which ";
  const Register room{.place = Place::partial, .index = partial};
  const Step* sent = nullptr;
  for (const Step& step : other.steps) {
    if (sent != nullptr && touches(step, room)) return text + "uses it after it was sent";
    if (step.action == Action::put && touches(step, room)) sent = &step;
  }
  if (sent == nullptr || sent->peer != plan.self) return text + "does not send it here";
  bool has_come = false;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (i < put && step.action == Action::await && step.slot == sent->slot) has_come = true;
    if (i > put && touches(step, {.place = Place::slot, .index = sent->slot}))
      return text + "is read here later";
  }
  if (!has_come) return text + "was not awaited before";
  return {};
}

Violation answers_violation(std::span<const Plan> plans) {
  for (const Plan& plan : plans)
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      if (step.action != Action::put) continue;
      const Answer* const there = answer_in(plans[index_of(step.peer)], step.slot);
      const Answer* const here = answer_in(plan, step.slot);
      if ((there == nullptr) != (here == nullptr) ||
          (there != nullptr && there->partial != here->partial))
        return at(plan, i, "is an answer into one partial by one rank's plan alone");
      if (here == nullptr) continue;
      if (Violation violation = answer_violation(plans, plan, i, here->partial))
        return at(plan, i, *violation);
    }
  return {};
}

}  // namespace

std::optional<std::string> first_violation(std::span<const Plan> plans, Promise promise,
                                           Rank root) {
  if (Violation violation = shape_violation(plans)) return violation;
  if (Violation violation = answers_violation(plans)) return violation;
  if (Violation violation = Run(plans, promise, root).violation()) return violation;
  // Acknowledged plans keep each pair of peers in step, whoever else has entered.
  if (plans[0].flow_control == FlowControl::acknowledged) return {};
  const bool one_way = plans[0].flow_control == FlowControl::one_way;
  // Plans without a root give every rank something of all the others, so the run above has already
  // shown that no rank completes before all have entered; but prefixes are of the ranks before.
  const bool is_prefix = promise == Promise::scan || promise == Promise::exscan;
  if (!one_way && root == no_rank && !is_prefix) return {};
  const Violation not_synchronising = Run(plans, Promise::barrier, no_rank).violation();
  if (one_way && !not_synchronising)
    return "is declared one-way, but no rank completes before all have entered: synchronising";
  if (!one_way && not_synchronising)
    return "is declared synchronising, but a rank completes before all have entered: " +
           *not_synchronising;
  return {};
}

std::optional<std::string> first_violation(std::uint32_t rank_count,
                                           const std::function<Plan(Rank)>& plan_of,
                                           Promise promise, Rank root) {
  std::vector<Plan> plans;
  plans.reserve(rank_count);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) plans.push_back(plan_of(Rank{rank}));
  return first_violation(plans, promise, root);
}

}  // namespace tutti::plan
