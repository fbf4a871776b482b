#include "microbench/plan_trace.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <stdexcept>
#include <string>

namespace tutti::bench {
namespace {

using plan::Action;
using plan::Place;
using plan::Register;
using plan::Step;

std::size_t registers_of(const plan::Plan& plan) {
  return (std::size_t{plan.partial_count} + plan.slot_count) * plan.payloads;
}

std::size_t size_of(const plan::Plan& plan) {
  return plan.steps.size() + registers_of(plan) + plan.slot_count + plan.parts;
}

/// The begins and ends of a multiset's steps, each as often as the step is high.
struct Edges {
  std::vector<std::uint32_t> starts;
  std::vector<std::uint32_t> ends;  // one past the last rank
  std::uint32_t open = 0;           // how often rank P-1 is in it
};

Edges edges_of(std::span<const Change> multiset, std::uint32_t rank_count) {
  Edges edges;
  std::uint32_t before = 0;
  for (const Change& change : multiset)
    if (change.from < rank_count) before = change.times;
  edges.open = before;
  const auto step_to = [&](std::uint32_t at, std::uint32_t times) {
    edges.starts.insert(edges.starts.end(), times > before ? times - before : 0, at);
    edges.ends.insert(edges.ends.end(), before > times ? before - times : 0, at);
    before = times;
  };
  if (multiset.empty() || multiset.front().from > 0) step_to(0, 0);
  for (const Change& change : multiset)
    if (change.from < rank_count) step_to(change.from, change.times);
  return edges;
}

std::uint32_t times_most(std::span<const Change> multiset) {
  std::uint32_t most = 0;
  for (const Change& change : multiset) most = std::max(most, change.times);
  return most;
}

/// Pairs starts and ends in circular order: start i gets end i + open, so that `open` intervals go
/// on past rank P-1.  No interval holds a rank twice if no rank is held more often than there are
/// starts.
Cover matched(const Edges& edges, std::uint32_t open, std::uint32_t rank_count) {
  Cover cover;
  const std::size_t count = edges.starts.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t end = edges.ends[(i + open) % count];
    const std::uint64_t length = (end + rank_count - edges.starts[i]) % rank_count;
    cover.push_back({edges.starts[i], static_cast<std::uint32_t>(length)});
  }
  return cover;
}

}  // namespace

Cover cover_of(std::span<const Change> multiset, std::uint32_t rank_count) {
  const Edges edges = edges_of(multiset, rank_count);
  // No interval contains a rank twice.  So a rank that is in the multiset more often than there are
  // starts needs whole circles, and these suffice, as heights differ by no more than the starts.
  const std::size_t starts = edges.starts.size();
  const std::uint32_t most = times_most(multiset);
  const auto circles = static_cast<std::uint32_t>(most > starts ? most - starts : 0);
  Cover cover(circles, {0, rank_count});
  const Cover others = matched(edges, edges.open - circles, rank_count);
  cover.insert(cover.end(), others.begin(), others.end());
  return cover;
}

bool is_traceable(const plan::Plan& plan) noexcept {
  return size_of(plan) <= trace_size_max / plan.rank_count;
}

// ---- All plans together -----------------------------------------------------------------------

class PlanTrace::Run {
 public:
  Run(PlanTrace& trace, std::span<const Node> node_of)
      : trace_(trace), ranks_(trace.plans_.size()) {
    const auto rank_count = static_cast<std::uint32_t>(ranks_.size());
    for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
      const plan::Plan& plan = trace.plans_[rank];
      ranks_[rank].registers.resize(registers_of(plan));
      ranks_[rank].own = ranks_[rank].known = contribution(rank);
      trace.ranks_[rank].messages.resize(plan.slot_count);
      trace.ranks_[rank].rounds.resize(plan.slot_count);
      trace.ranks_[rank].targets.resize(plan.parts);
      trace.ranks_[rank].owner = rank;
    }
    if (trace.plans_.front().shares_target) {
      std::map<Node, std::uint32_t> first_of;
      for (std::uint32_t rank = 0; rank < node_of.size(); ++rank)
        trace.ranks_[rank].owner = first_of.try_emplace(node_of[rank], rank).first->second;
    }
    // The last entry is taken first, so rank 0 comes last into the list.
    for (std::uint32_t rank = rank_count; rank > 0;) runnable_.push_back(--rank);
  }

  /// Runs all plans to their end; false if that would take more than trace_size_max.
  bool finish() {
    while (!runnable_.empty() && trace_.changes_.size() <= trace_size_max) {
      const std::uint32_t rank = runnable_.back();
      runnable_.pop_back();
      run(rank);
    }
    if (trace_.changes_.size() > trace_size_max) return false;
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].next < trace_.plans_[rank].steps.size())
        throw std::logic_error("rank " + std::to_string(rank) + " of the plan waits for ever");
      if (is_barrier()) trace_.ranks_[rank].targets[0] = ranks_[rank].known;
    }
    return true;
  }

 private:
  struct State {
    std::size_t next = 0;
    Value own = {};
    Value known = {};              // in a barrier: ranks that have certainly entered
    std::vector<Value> registers;  // partials, then slots
  };

  bool is_barrier() const { return trace_.plans_[0].payloads == 0; }

  Value contribution(std::uint32_t rank) {
    trace_.changes_.push_back({rank, 1});
    trace_.changes_.push_back({rank + 1, 0});
    return {trace_.changes_.size() - 2, 2};
  }

  /// Runs `rank` until it has to wait.
  void run(std::uint32_t rank) {
    State& state = ranks_[rank];
    for (const std::vector<Step>& steps = trace_.plans_[rank].steps; state.next < steps.size();
         ++state.next) {
      const Step& step = steps[state.next];
      if (step.action == Action::await && !trace_.ranks_[rank].messages[step.slot]) return;
      execute(rank, step);
    }
  }

  void execute(std::uint32_t rank, const Step& step) {
    switch (step.action) {
      case Action::put:
        return put(rank, step);
      case Action::await:
        if (is_barrier())
          ranks_[rank].known =
              merged(ranks_[rank].known, *trace_.ranks_[rank].messages[step.slot], in_either);
        return;
      case Action::await_credit:
      case Action::await_sent:
        return;
      case Action::copy:
        for (std::uint16_t i = 0; i < step.payloads; ++i)
          place(rank, step.into, i, step.part) = place(rank, step.from, i, step.part);
        return;
      case Action::combine:
        return write(rank, step, sum);
      case Action::take_out:
        return write(rank, step, difference);
    }
  }

  void put(std::uint32_t rank, const Step& step) {
    const std::uint32_t peer = index_of(step.peer);
    Value message = is_barrier() ? ranks_[rank].known : Value{};
    for (std::uint16_t i = 0; i < step.payloads; ++i) {
      const Value payload = place(rank, step.from, i, step.part);
      place(peer, {Place::slot, 0, step.slot}, i, step.part) = payload;
      message = i == 0 ? payload : merged(message, payload, sum);
    }
    trace_.ranks_[peer].messages[step.slot] = message;
    trace_.ranks_[peer].rounds[step.slot] = step.round;
    const std::vector<Step>& steps = trace_.plans_[peer].steps;
    const std::size_t next = ranks_[peer].next;
    if (next < steps.size() && steps[next].action == Action::await && steps[next].slot == step.slot)
      runnable_.push_back(peer);
  }

  using Times = std::uint32_t (*)(std::uint32_t from, std::uint32_t into);
  static std::uint32_t sum(std::uint32_t from, std::uint32_t into) { return from + into; }
  static std::uint32_t in_either(std::uint32_t from, std::uint32_t into) {
    return std::max(from, into);
  }
  static std::uint32_t difference(std::uint32_t from, std::uint32_t into) {
    if (from > into) throw std::logic_error("the plan takes out what it does not have");
    return into - from;
  }

  void write(std::uint32_t rank, const Step& step, Times times) {
    Value& into = place(rank, step.into, 0, step.part);
    into = merged(place(rank, step.from, 0, step.part), into, times);
  }

  /// A new value: `times` of both, rank by rank.
  Value merged(Value from, Value into, Times times) {
    std::vector<Change>& changes = trace_.changes_;
    const std::size_t begin = changes.size();
    std::uint32_t from_times = 0;
    std::uint32_t into_times = 0;
    std::uint32_t last = 0;
    while (from.count > 0 || into.count > 0) {
      const std::uint32_t from_at = from.count > 0 ? changes[from.begin].from : UINT32_MAX;
      const std::uint32_t into_at = into.count > 0 ? changes[into.begin].from : UINT32_MAX;
      if (from_at <= into_at) from_times = taken(from);
      if (into_at <= from_at) into_times = taken(into);
      const std::uint32_t now = times(from_times, into_times);
      if (now != last) changes.push_back({std::min(from_at, into_at), now});
      last = now;
    }
    return {begin, static_cast<std::uint32_t>(changes.size() - begin)};
  }

  /// The first change of `value`, which is then without it.
  std::uint32_t taken(Value& value) const {
    --value.count;
    return trace_.changes_[value.begin++].times;
  }

  Value& place(std::uint32_t rank, const Register& where, std::uint16_t payload,
               std::uint16_t part) {
    State& state = ranks_[rank];
    const plan::Plan& plan = trace_.plans_[rank];
    const std::size_t first = where.place == Place::slot ? plan.partial_count : 0u;
    switch (where.place) {
      case Place::source:
        return state.own;
      case Place::target:
        return trace_.ranks_[trace_.ranks_[rank].owner].targets[part];
      case Place::partial:
      case Place::slot:
        break;
    }
    assert(where.payload + payload < plan.payloads);
    return state.registers[(first + where.index) * plan.payloads + where.payload + payload];
  }

  PlanTrace& trace_;
  std::vector<State> ranks_;
  std::vector<std::uint32_t> runnable_;
};

std::optional<PlanTrace> PlanTrace::of(std::uint32_t rank_count,
                                       const std::function<plan::Plan(Rank)>& plan_of,
                                       std::span<const Node> node_of) {
  const auto until = std::chrono::steady_clock::now() + trace_time_max;
  PlanTrace trace;
  std::size_t size = 0;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    trace.plans_.push_back(plan_of(Rank{rank}));
    size += size_of(trace.plans_.back());
    if (size > trace_size_max || std::chrono::steady_clock::now() > until) return {};
  }
  trace.ranks_.resize(rank_count);
  if (!Run(trace, node_of).finish()) return {};
  return trace;
}

Cover PlanTrace::cover(Value value) const {
  return cover_of(std::span(changes_).subspan(value.begin, value.count),
                  static_cast<std::uint32_t>(plans_.size()));
}

Cover PlanTrace::brought(Rank receiver, std::uint16_t slot) const {
  return cover(ranks_[index_of(receiver)].messages[slot].value_or(Value{}));
}

Cover PlanTrace::result(Rank rank, std::uint16_t part) const {
  return cover(ranks_[ranks_[index_of(rank)].owner].targets[part]);
}

}  // namespace tutti::bench
