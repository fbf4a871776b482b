// See verify.hpp.  First each plan is looked at alone (shape), then all run together (Run): a rank
// runs until it awaits a message that has not been put; the put wakes it up.  Values are immutable
// and live in one pool, so that copying a value, which is what a message does, costs nothing.
#include "plan/verify.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti::plan {
namespace {

using Violation = std::optional<std::string>;

std::string name_of(Rank rank) {
  return "rank " + std::to_string(index_of(rank));
}

std::string name_of(const Register& where) {
  switch (where.place) {
    case Place::source:
      return "source";
    case Place::target:
      return "target";
    case Place::partial:
      return "partial " + std::to_string(where.index) + "." + std::to_string(where.segment);
    case Place::slot:
      return "slot " + std::to_string(where.index) + "." + std::to_string(where.segment);
  }
  return "?";
}

/// Where it happened, then what.
std::string at(const Plan& plan, std::size_t step, const std::string& what) {
  return name_of(plan.self) + ", step " + std::to_string(step) + " (round " +
         std::to_string(plan.steps[step].round) + "): " + what;
}

/// Whether a put says that a message was read, instead of being one.
bool is_credit(const Plan& plan, const Step& step) {
  return plan.flow_control == FlowControl::one_way && step.action == Action::put &&
         step.segments == 0;
}

// ---- One plan alone ---------------------------------------------------------------------------

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
    if (plan.segments != first.segments || plan.slot_count != first.slot_count ||
        plan.parts != first.parts || plan.line_slot_count != first.line_slot_count ||
        plan.swaps_blocks != first.swaps_blocks || plan.zero_copy != first.zero_copy ||
        plan.shares_target != first.shares_target || plan.is_pipeline != first.is_pipeline)
      return name_of(plan.self) + ": slots are not laid out as on rank 0";
    if (plan.parts == 0 || (plan.parts > 1 && plan.segments > 1))
      return name_of(plan.self) + ": a plan of several parts has registers of one payload";
    if (plan.flow_control != first.flow_control)
      return name_of(plan.self) + ": declares another flow control than rank 0";
    puts_.assign(plan.per_round.size(), 0);
    awaits_.assign(plan.per_round.size(), 0);
    round_ = 0;
    ++plan_mark_;
    bool awaits_sent = true;
    for (std::size_t step = 0; step < plan.steps.size(); ++step) {
      if (Violation violation = step_violation(plan, plan.steps[step]))
        return at(plan, step, *violation);
      if (plan.steps[step].action == Action::await_sent) awaits_sent = true;
      if (plan.zero_copy && is_sent_from_target(plan.steps[step])) awaits_sent = false;
    }
    if (!awaits_sent) return name_of(plan.self) + ": ends while its target may be on its way";
    if (!counts_are_right(plan, first))
      return name_of(plan.self) + ": messages of a round are not as many as per_round says";
    return {};
  }

 private:
  bool counts_are_right(const Plan& plan, const Plan& first) const {
    if (plan.all_alike != first.all_alike) return false;
    // What is needed late may be awaited in a later round than it is put.
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
    if (step.round < round_) return "rounds go backwards";
    if (step.part >= plan.parts) return "part " + std::to_string(step.part) + " does not exist";
    if (step.round > round_ || &step == plan.steps.data()) ++mark_;
    round_ = step.round;
    switch (step.action) {
      case Action::put:
        if (step.by_reference ? !is_lent(step) : !is_sent(plan, step))
          return std::string("a put ") +
                 (step.by_reference ? "by reference tells of a source or target, not of "
                                    : "sends partials, not ") +
                 name_of(step.from);
        if (plan.flow_control == FlowControl::acknowledged && !is_answered(plan, step.peer))
          return "puts to " + name_of(step.peer) + " without hearing from it";
        if (is_credit(plan, step)) return credit_violation(plan, step);
        if (Violation violation = message_violation(plan, step, puts_, put_marks_))
          return violation;
        if (plan.flow_control == FlowControl::one_way &&
            credit_marks_[index_of(step.peer)] != plan_mark_)
          return "puts without a credit of " + name_of(step.peer);
        return {};
      case Action::await:
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
        if (step.action == Action::copy && step.segments == 0) return "copies nothing";
        if (step.by_reference && (step.action == Action::take_out ||
                                  step.from.place != Place::slot || step.segments > 1))
          return "reads by reference in another way than by a copy or combine from a slot";
        if (Violation violation = range_violation(plan, step.into, width_of(step)))
          return violation;
        return range_violation(plan, step.from, width_of(step));
    }
    return "unknown action";
  }

  static bool is_sent(const Plan& plan, const Step& step) {
    return step.segments == 0 || step.from.place == Place::partial ||
           (plan.zero_copy && is_lent(step)) || is_told_in_target(plan, step);
  }
  static bool is_told_in_target(const Plan& plan, const Step& step) {
    return plan.shares_target && step.into_target && step.from.place == Place::target;
  }
  static bool is_sent_from_target(const Step& step) {
    return step.action == Action::put && step.segments > 0 && !step.by_reference &&
           step.from.place == Place::target;
  }
  static bool is_lent(const Step& step) {
    return step.segments == 1 &&
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
        (!(plan.zero_copy || plan.shares_target) || step.by_reference || step.segments != 1))
      return "lands in a target in another way than as one payload of a zero-copy plan";
    const bool is_payload = step.segments > 0 && !step.by_reference && !step.into_target;
    if (is_payload && step.slot + plan.line_slot_count >= plan.slot_count)
      return "slot " + std::to_string(step.slot) + " has no room for a message";
    if (step.segments > plan.segments) return "more payloads than a slot has";
    if (step.round >= counts.size()) return "a round that per_round does not know";
    ++counts[step.round];
    std::uint64_t& mark = marks[index_of(step.peer) * plan.parts + step.part];
    if (mark == mark_)
      return name_of(step.peer) + " is a peer twice in one round" +
             (plan.parts > 1 ? ", about part " + std::to_string(step.part) : "");
    mark = mark_;
    if (step.action == Action::put && step.segments > 0)
      return range_violation(plan, step.from, step.segments);
    return {};
  }

  /// Payloads that a step on registers touches.
  static std::uint32_t width_of(const Step& step) {
    return step.action == Action::copy ? step.segments : 1;
  }

  static Violation range_violation(const Plan& plan, const Register& where, std::uint32_t width) {
    std::uint16_t count = 1;
    std::uint16_t segments = 1;
    if (where.place == Place::partial || where.place == Place::slot) {
      count = where.place == Place::partial ? plan.partial_count : plan.slot_count;
      segments = plan.segments;
    }
    if (where.index < count && where.segment + width <= segments) return {};
    return name_of(where) + (width > 1 ? " does not have " + std::to_string(width) + " payloads"
                                       : " does not exist");
  }

  std::vector<std::uint64_t>
      put_marks_;  // by peer and part: the (rank, round) in which it was last told
  std::vector<std::uint64_t> await_marks_;   // and last awaited
  std::vector<std::uint64_t> credit_marks_;  // the plan in which its credit was last awaited
  std::uint64_t plan_mark_ = 0;
  std::uint64_t mark_ = 0;
  std::uint32_t round_ = 0;
  std::vector<std::uint32_t> puts_;
  std::vector<std::uint32_t> awaits_;
};

// ---- Values -----------------------------------------------------------------------------------

/// Consecutive ranks, both ends included.
struct Span {
  std::uint32_t first;
  std::uint32_t last;
};

/// Spans of the pool, leftmost operand first; none: undefined.
struct Value {
  std::size_t begin = 0;
  std::uint32_t count = 0;
  std::uint32_t expression = 0;  // equal for equal trees: operands, their order, association
  std::uint16_t part = 0;        // of the payload
  bool defined() const { return count > 0; }
};

class Pool {
 public:
  /// Where order and repetition say nothing, values are kept as sets: they stay short.
  Pool(bool as_sets, std::uint32_t rank_count) : as_sets_(as_sets), rank_count_(rank_count) {}

  std::span<const Span> spans(Value value) const {
    return {spans_.data() + value.begin, value.count};
  }

  Value contribution(std::uint32_t rank, std::uint16_t part = 0) {
    spans_.push_back({rank, rank});
    return {spans_.size() - 1, 1, rank, part};
  }

  /// left o right.
  Value combined(Value left, Value right) {
    scratch_.assign(spans(left).begin(), spans(left).end());
    scratch_.insert(scratch_.end(), spans(right).begin(), spans(right).end());
    if (as_sets_) std::sort(scratch_.begin(), scratch_.end(), by_first);
    const std::size_t begin = spans_.size();
    for (const Span span : scratch_) append(begin, span);
    return {begin, static_cast<std::uint32_t>(spans_.size() - begin),
            expression(left.expression, right.expression), right.part};
  }

  /// `whole` without the contributions of `taken`, as an unordered collection; nullopt if it does
  /// not have them all.
  std::optional<Value> without(Value taken, Value whole) {
    std::vector<int> counts(rank_count_);
    for (const Span span : spans(whole))
      for (std::uint32_t rank = span.first; rank <= span.last; ++rank) ++counts[rank];
    for (const Span span : spans(taken))
      for (std::uint32_t rank = span.first; rank <= span.last; ++rank)
        if (--counts[rank] < 0) return {};
    const std::size_t begin = spans_.size();
    for (std::uint32_t rank = 0; rank < rank_count_; ++rank)
      for (; counts[rank] > 0; --counts[rank]) append(begin, {rank, rank});
    // A tree of its own: sums of floating-point numbers do not get back what was added.
    const auto tree = expression(UINT32_MAX - taken.expression, whole.expression);
    return Value{begin, static_cast<std::uint32_t>(spans_.size() - begin), tree, whole.part};
  }

  /// The fixed tree over `count` ranks from `first` on: the largest power of two below `count` to
  /// the left, the rest to the right.
  std::uint32_t canonical_expression(std::uint32_t first, std::uint32_t count) {
    if (count == 1) return first;
    const std::uint32_t left = std::bit_floor(count - 1);
    const std::uint32_t left_tree = canonical_expression(first, left);
    return expression(left_tree, canonical_expression(first + left, count - left));
  }

  static bool by_first(Span left, Span right) { return left.first < right.first; }

 private:
  /// The number of the tree (left o right); the ranks have the first numbers.
  std::uint32_t expression(std::uint32_t left, std::uint32_t right) {
    const auto number = static_cast<std::uint32_t>(rank_count_ + expressions_.size());
    return expressions_.try_emplace({left, right}, number).first->second;
  }

  void append(std::size_t begin, Span span) {
    const bool joins = spans_.size() > begin && (as_sets_ ? span.first <= spans_.back().last + 1
                                                          : span.first == spans_.back().last + 1);
    if (joins)
      spans_.back().last = std::max(spans_.back().last, span.last);
    else
      spans_.push_back(span);
  }

  bool as_sets_;
  std::uint32_t rank_count_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> expressions_;
  std::vector<Span> spans_;
  std::vector<Span> scratch_;
};

// ---- All plans together -----------------------------------------------------------------------

/// What one slot of one rank has been through.
struct Arrival {
  enum class State : std::uint8_t { empty, written, awaited } state = State::empty;
  std::uint16_t segments = 0;
  bool by_reference = false;
  bool into_target = false;
  Rank writer = no_rank;
  Value heard;              // by the writer, when it put
  Rank creditor = no_rank;  // whose credit it takes, awaited in a later call
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
      values += std::size_t{plan.partial_count} * plan.segments;
      ranks_[i].slots = values;
      values += std::size_t{plan.slot_count} * plan.segments;
      ranks_[i].was_put.resize(std::size_t{plan.partial_count} * plan.segments);
      ranks_[i].arrivals.resize(plan.slot_count);
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
    Value heard;  // ranks that have certainly entered; kept for the barrier only
    std::vector<bool> target_written;
    std::vector<bool> is_sent;      // source or target of a part, from where it is
    std::vector<bool> is_arriving;  // a part of the target, and is not awaited yet
    std::size_t partials = 0;       // where they begin in values_
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
        for (std::uint16_t i = 0; i < step.segments; ++i)
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
    const bool swaps = plans_[rank].swaps_blocks && step.segments > 0;
    if (swaps && step.part != peer) return "sends a block that is for another rank";
    Arrival& arrival = ranks_[peer].arrivals[step.slot];
    if (arrival.state != Arrival::State::empty)
      return "writes slot " + std::to_string(step.slot) + " of " + name_of(step.peer) + ", which " +
             name_of(arrival.writer) + " has written";
    for (std::uint16_t segment = 0; segment < step.segments; ++segment) {
      const Register from = moved(step.from, segment);
      Value value = *place(rank, from, step.part);
      if (!value.defined()) return "puts " + name_of(from) + ", which is undefined";
      if (value.part != step.part) return other_part(from, value, step);
      if (from.place == Place::source && state.target_written[step.part])
        return "tells of its source, or sends it, after target was written";
      if (from.place == Place::target && state.is_arriving[step.part])
        return "sends its target, which was not awaited";
      if (swaps) value.part = static_cast<std::uint16_t>(rank);
      if (!step.into_target)
        *place(peer, {Place::slot, segment, step.slot}, step.part) = value;
      else if (Violation violation = write_target(peer, step.part, value))
        return violation;
      if (from.place == Place::partial)
        state.was_put[mark_of(rank, from)] = true;
      else if (!step.by_reference)
        state.is_sent[step.part] = true;
    }
    arrival = {.state = Arrival::State::written,
               .segments = step.segments,
               .by_reference = step.by_reference,
               .into_target = step.into_target,
               .writer = Rank{rank},
               .heard = state.heard,
               .creditor = arrival.creditor};
    const State& other = ranks_[peer];
    if (other.next < plans_[peer].steps.size() && waits_for(plans_[peer].steps[other.next], step))
      runnable_.push_back(peer);
    return {};
  }

  /// A put into the target of `peer`.
  Violation write_target(std::uint32_t peer, std::uint16_t part, Value value) {
    State& other = ranks_[peer];
    if (promise_ != Promise::barrier && !holds(value, peer))
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
    if (arrival.segments != step.segments)
      return slot + " is awaited with " + std::to_string(step.segments) +
             " payloads but put with " + std::to_string(arrival.segments);
    if (arrival.by_reference != step.by_reference || arrival.into_target != step.into_target)
      return slot + " is awaited as another kind of message than it is put";
    arrival.state = Arrival::State::awaited;
    if (step.into_target) state.is_arriving[step.part] = false;
    if (promise_ == Promise::barrier) state.heard = pool_.combined(arrival.heard, state.heard);
    return {};
  }

  /// A step on registers; of a copy of several payloads, payload `segment`.
  Violation write(std::uint32_t rank, const Step& step, std::uint16_t segment) {
    State& state = ranks_[rank];
    const Register source = moved(step.from, segment);
    const Register destination = moved(step.into, segment);
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
    const Value from = *place(rank, source, step.part);
    Value& into = *place(rank, destination, step.part);
    if (!from.defined()) return "reads " + name_of(source) + ", which is undefined";
    if (from.part != step.part) return other_part(source, from, step);
    if (step.by_reference && step.action == Action::combine) {
      if (is_ordered()) return "combines by reference, in either order";
      if (state.target_written[step.part]) return "reads source after target was written";
      into = state.sources[step.part];
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

  static Register moved(Register where, std::uint16_t segment) {
    where.segment = static_cast<std::uint16_t>(where.segment + segment);
    return where;
  }
  static std::string other_part(const Register& where, Value value, const Step& step) {
    return name_of(where) + " holds part " + std::to_string(value.part) + ", the step is about " +
           std::to_string(step.part);
  }
  std::size_t mark_of(std::uint32_t rank, const Register& where) const {
    return std::size_t{where.index} * plans_[rank].segments + where.segment;
  }

  Value* place(std::uint32_t rank, const Register& where, std::uint16_t part) {
    State& state = ranks_[rank];
    const std::size_t offset = mark_of(rank, where);
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

  /// Whether a part of the target is as it was promised.
  Violation target_violation(std::uint32_t rank, std::uint16_t part) {
    const Value result = ranks_[rank].targets[part];
    const bool untouched =
        ((promise_ == Promise::scatter || promise_ == Promise::reduce_scatter) && part != rank) ||
        (promise_ == Promise::exscan && rank == 0);
    if (untouched)
      return ranks_[rank].target_written[part] ? Violation("is written, where no result belongs")
                                               : std::nullopt;
    if (promise_ == Promise::broadcast || promise_ == Promise::scatter)
      return ranks_violation(result, index_of(root_), index_of(root_));
    if (promise_ == Promise::gather) return ranks_violation(result, part, part);
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

  /// Found once: of a plan of P parts, P^2 values are compared with it.
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

}  // namespace

std::optional<std::string> first_violation(std::span<const Plan> plans, Promise promise,
                                           Rank root) {
  ShapeCheck shape(plans.size(), std::max<std::size_t>(plans[0].parts, 1));
  for (std::uint32_t rank = 0; rank < plans.size(); ++rank)
    if (Violation violation = shape.violation(plans[rank], plans[0], rank)) return violation;
  if (Violation violation = Run(plans, promise, root).violation()) return violation;
  // Those make sure of it pair by pair, whoever else has entered.
  if (plans[0].flow_control == FlowControl::acknowledged) return {};
  const bool one_way = plans[0].flow_control == FlowControl::one_way;
  // Where every rank gets everything, that has just been proved.
  if (!one_way && root == no_rank) return {};
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
