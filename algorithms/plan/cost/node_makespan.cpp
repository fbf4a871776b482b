// See makespan.hpp.  Ranks that share a port depend on each other at every instant, so this follows
// the events in the order of time.
#include <algorithm>
#include <cassert>
#include <limits>
#include <queue>

#include "plan/cost/makespan.hpp"
#include "plan/cost/step_bytes.hpp"

namespace tutti::plan {
namespace {

/// One past the last step of a run of pairs, an await and a copy or combine of what it awaited, all
/// into the same register.
std::size_t end_of_run(const std::vector<Step>& steps, std::size_t begin) {
  const auto is_pair = [&](std::size_t at) {
    if (at + 1 >= steps.size() || steps[at].action != Action::await) return false;
    const Step& taken = steps[at + 1];
    const bool takes = taken.action == Action::combine || taken.action == Action::copy;
    return takes && taken.from == Register{.place = Place::slot, .index = steps[at].slot} &&
           taken.into == steps[begin + 1].into && taken.part == steps[begin].part;
  };
  std::size_t end = begin;
  while (is_pair(end)) end += 2;
  return end;
}

enum class EventKind : std::uint8_t {
  turn,       // the rank goes on
  at_port,    // a message comes to the port of its receiver's node
  delivered,  // a message has got through that port
  visible,    // a message inside the node can be seen
};

/// What happens at one instant is ordered by rank: what the rank has sent, in the order of its
/// puts, then its own turn, with nothing of another rank in between.
struct Event {
  Picoseconds at;
  std::uint32_t number;  // that of the message, or of_turn
  std::uint32_t rank;    // whose turn it is, or who has sent the message
  Picoseconds taken;     // of the port of its receiver, at that port
  std::uint32_t to;
  std::uint16_t slot;
  EventKind kind;
  bool is_line;

  static constexpr std::uint32_t of_turn = UINT32_MAX;

  /// As one number, without a branch: which event is the later one, nobody can predict.
  friend bool operator>(const Event& a, const Event& b) {
    __extension__ typedef unsigned __int128 Wide;
    const auto key = [](const Event& event) {
      return static_cast<Wide>(static_cast<std::uint64_t>(event.at)) << 64 | event.order();
    };
    return key(a) > key(b);
  }
  std::uint64_t order() const { return std::uint64_t{rank} << 32 | number; }
};

struct Port {
  Picoseconds transmit_free = 0;
  Picoseconds receive_free = 0;
};

enum class SlotState : std::uint8_t { empty, arrived, taken };

/// What part_bytes() gives, for all parts of a plan.
class PartBytes {
 public:
  PartBytes(const Plan& plan, const Call& call)
      : longer_(part_bytes(plan, call, 0)),
        shorter_(part_bytes(plan, call, static_cast<std::uint16_t>(plan.parts - 1))),
        longer_count_(call.payload_bytes / call.element_bytes % plan.parts) {}
  std::uint64_t of(std::uint16_t part) const { return part < longer_count_ ? longer_ : shorter_; }
  /// As message_bytes().
  std::uint64_t of_message(const Step& put) const {
    return put.payloads == 0 ? 0 : (put.payloads - std::uint64_t{1}) * longer_ + of(put.part);
  }

 private:
  std::uint64_t longer_, shorter_, longer_count_;
};

struct RankState {
  const Plan* plan;
  PartBytes bytes;
  std::uint32_t node;
  bool shares_port = false;
  Picoseconds clock = 0;
  std::size_t next = 0;                    // step
  std::size_t end_of_run = 0;              // where `next` is before it
  SlotState* slots = nullptr;              // arrived: to be taken without a poll
  std::vector<std::uint16_t> unseen = {};  // slots of messages that the next poll sees
  const Step* steps = nullptr;             // in the order in which they are run
  std::vector<Step> reordered = {};        // these, if that may be another one than in the plan
  bool waits = false;                      // else its turn is among the events
};

/// A rank goes on with what the others cannot change: until it awaits a message that has not come
/// yet, or wants the port that it shares.  Then its turn is an event, at the time of its clock.
class Events {
 public:
  /// `is_one_node`: of all ranks, the plans are those of a node, and `place_of` says which of them
  /// stands for a rank; empty: the first one.
  Events(std::span<const Plan> plans, const Network& network, NodesOfRanks node_of,
         const Call& call, bool is_one_node = false, std::span<const std::uint32_t> place_of = {})
      : network_(network),
        node_of_(node_of),
        call_(call),
        is_one_node_(is_one_node),
        place_of_(place_of) {
    assert(network.between.send_overhead + network.between.latency > 0);
    assert(node_of.empty() || network.inside.send_overhead + network.inside.latency > 0);
    assert(network.between.ranks_at_port == 1);  // the events tell who sends when
    assert(node_of.empty() || is_one_node || node_of.size() == plans.size());
    assert(call.starts.empty() || call.starts.size() == plans.size());
    assert(call.element_bytes > 0 && call.payload_bytes % call.element_bytes == 0);
    std::vector<std::uint32_t> ranks_of;  // of each node
    std::size_t slot_count = 0;
    ranks_.reserve(plans.size());
    for (std::uint32_t rank = 0; rank < plans.size(); ++rank) {
      const std::uint32_t self = is_one_node ? index_of(plans[rank].self) : rank;
      const std::uint32_t node = !node_of.empty() ? index_of(node_of[self])
                                 : is_one_node    ? 0
                                                  : rank;
      if (node >= ranks_of.size()) ranks_of.resize(node + 1);
      ++ranks_of[node];
      ranks_.push_back({.plan = &plans[rank], .bytes = {plans[rank], call}, .node = node});
      slot_count += plans[rank].slot_count;
    }
    ports_.resize(ranks_of.size());
    slots_.resize(slot_count);
    SlotState* slots = slots_.data();
    for (std::uint32_t rank = 0; rank < plans.size(); ++rank) {
      RankState& state = ranks_[rank];
      state.shares_port = ranks_of[state.node] > 1;
      state.clock = call.starts.empty() ? 0 : call.starts[rank];
      state.slots = slots;
      slots += plans[rank].slot_count;
      if (call.order == CombineOrder::as_seen || is_one_node) state.reordered = plans[rank].steps;
      state.steps = (state.reordered.empty() ? plans[rank].steps : state.reordered).data();
      take_turn_at(rank, state.clock);
    }
    if (is_one_node)
      for (std::uint32_t rank = 0; rank < plans.size(); ++rank) number_slots(rank);
  }

  std::vector<Picoseconds> run() && {
    std::vector<Event> together;
    while (!events_.empty()) {
      together.clear();
      do {
        together.push_back(events_.top());
        events_.pop();
      } while (!events_.empty() && events_.top().at == together[0].at &&
               events_.top().rank == together[0].rank);
      for (const Event& event : together) handle(event);
      take_turns_now(together[0].at);
    }
    std::vector<Picoseconds> ends;
    for (const RankState& state : ranks_) {
      const bool has_finished = state.next == state.plan->steps.size();
      assert(has_finished || is_one_node_);  // else the plans do not match
      ends.push_back(has_finished ? state.clock : std::numeric_limits<Picoseconds>::max());
    }
    return ends;
  }

 private:
  /// What so many bytes take.  Most messages are as long as the one before.
  class Time {
   public:
    template <class F>
    Picoseconds of(std::uint64_t bytes, F&& compute) {
      if (bytes != bytes_) time_ = compute();
      bytes_ = bytes;
      return time_;
    }

   private:
    std::uint64_t bytes_ = UINT64_MAX;
    Picoseconds time_ = 0;
  };

  /// Messages for other nodes come back to this one, and have to land in slots that it awaits.
  /// Where slots are numbered by senders, they would not.  Then the messages of a round get the
  /// slots that are awaited in it, in reverse: for some rank that is the order in which they come.
  void number_slots(std::uint32_t rank) {
    std::vector<Step>& steps = ranks_[rank].reordered;
    std::vector<Step*> puts;
    std::vector<const Step*> awaits;
    for (Step& step : steps) {
      if (step.peer == no_rank || is_neighbour(rank, step.peer)) continue;
      if (step.action == Action::put && receiver_of(step.peer) == rank) puts.push_back(&step);
      if (step.action == Action::await && receiver_of(step.peer) == rank) awaits.push_back(&step);
    }
    const auto slots_of = [](const auto& some) {
      std::vector<std::uint16_t> slots;
      slots.reserve(some.size());
      for (const Step* const step : some) slots.push_back(step->slot);
      std::sort(slots.begin(), slots.end());
      return slots;
    };
    if (puts.size() != awaits.size() || slots_of(puts) == slots_of(awaits)) return;
    const auto by_round = [](const Step* left, const Step* right) {
      return left->round < right->round;
    };
    std::stable_sort(puts.begin(), puts.end(), by_round);
    std::reverse(awaits.begin(), awaits.end());
    std::stable_sort(awaits.begin(), awaits.end(), by_round);
    for (std::size_t i = 0; i < puts.size(); ++i) puts[i]->slot = awaits[i]->slot;
  }

  static Event turn_of(std::uint32_t rank, Picoseconds at) {
    return {.at = at,
            .number = Event::of_turn,
            .rank = rank,
            .taken = 0,
            .to = rank,
            .slot = 0,
            .kind = EventKind::turn,
            .is_line = false};
  }
  void take_turn_at(std::uint32_t rank, Picoseconds at) {
    ranks_[rank].waits = false;
    events_.push(turn_of(rank, at));
  }
  /// Whether its turn at that time would be the next event: then it need not be among them.
  bool is_next(std::uint32_t rank, Picoseconds at) const {
    return woken_.empty() && (events_.empty() || events_.top() > turn_of(rank, at));
  }

  void wake(std::uint32_t rank) {
    if (!ranks_[rank].waits) return;
    ranks_[rank].waits = false;
    woken_.push_back(rank);
  }
  void take_turns_now(Picoseconds now) {
    while (woken_.size() > 1) {
      take_turn_at(woken_.back(), now);
      woken_.pop_back();
    }
    if (woken_.empty()) return;
    const std::uint32_t rank = woken_[0];
    woken_.clear();
    if (!is_next(rank, now)) return take_turn_at(rank, now);
    ranks_[rank].clock = std::max(ranks_[rank].clock, now);
    take_turn(rank, now);
  }

  void handle(const Event& event) {
    RankState& receiver = ranks_[event.to];
    switch (event.kind) {
      case EventKind::turn:
        receiver.clock = std::max(receiver.clock, event.at);
        take_turn(event.rank, event.at);
        return;
      case EventKind::at_port: {
        Picoseconds& free = ports_[receiver.node].receive_free;
        const Picoseconds begin = std::max(event.at, free);
        free = begin + event.taken;
        if (begin == event.at) return deliver(event);
        Event delivered = event;
        delivered.kind = EventKind::delivered;
        delivered.at = begin;
        events_.push(delivered);
        return;
      }
      case EventKind::delivered:
        deliver(event);
        return;
      case EventKind::visible:
        receiver.slots[event.slot] = SlotState::arrived;
        wake(event.to);
        return;
    }
  }

  void deliver(const Event& event) {
    RankState& receiver = ranks_[event.to];
    if (event.is_line)
      receiver.slots[event.slot] = SlotState::arrived;
    else
      receiver.unseen.push_back(event.slot);
    wake(event.to);
  }

  /// Runs the rank as far as what has happened until `now` decides what it does.
  void take_turn(std::uint32_t rank, Picoseconds now) {
    RankState& state = ranks_[rank];
    const std::size_t step_count = state.plan->steps.size();
    while (state.next < step_count) {
      const Step& step = state.steps[state.next];
      if (step.action == Action::await && state.slots[step.slot] != SlotState::arrived) {
        if (state.clock > now) {
          if (!is_next(rank, state.clock)) return take_turn_at(rank, state.clock);
          now = state.clock;
        }
        if (!takes_another(state)) {
          if (state.unseen.empty()) {
            state.waits = true;
            return;
          }
          for (const std::uint16_t slot : state.unseen) state.slots[slot] = SlotState::arrived;
          state.clock +=
              static_cast<Picoseconds>(state.unseen.size()) * network_.between.receive_overhead;
          state.unseen.clear();
          continue;
        }
      } else if (step.action == Action::put && state.shares_port && state.clock > now &&
                 !is_neighbour(rank, step.peer)) {
        if (!is_next(rank, state.clock)) return take_turn_at(rank, state.clock);
        now = state.clock;
      }
      state.clock += run(rank, state.steps[state.next++]);
    }
  }

  /// Taken as they are seen, the first message of a run that is there takes the place of the one
  /// that is next and has not come.  Returns whether there is one.
  bool takes_another(RankState& state) {
    if (call_.order != CombineOrder::as_seen) return false;
    std::vector<Step>& steps = state.reordered;
    const std::size_t here = state.next;
    if (here >= state.end_of_run) state.end_of_run = end_of_run(steps, here);
    for (std::size_t there = here + 2; there < state.end_of_run; there += 2) {
      if (state.slots[steps[there].slot] != SlotState::arrived) continue;
      std::swap(steps[here], steps[there]);
      std::swap(steps[here + 1].from, steps[there + 1].from);
      return true;
    }
    return false;
  }

  bool is_neighbour(std::uint32_t rank, Rank peer) const {
    return !node_of_.empty() && peer != no_rank &&
           ranks_[rank].node == index_of(node_of_[index_of(peer)]);
  }

  /// The rank to which a message for that one comes.
  std::uint32_t receiver_of(Rank peer) const {
    if (!is_one_node_) return index_of(peer);
    return place_of_.empty() ? 0 : place_of_[index_of(peer)];
  }

  /// Runs a step that has not to wait; returns what it takes of the rank's time.
  Picoseconds run(std::uint32_t rank, const Step& step) {
    RankState& state = ranks_[rank];
    const bool is_inside = is_neighbour(rank, step.peer);
    switch (step.action) {
      case Action::put:
        return is_inside ? store(rank, step) : send(rank, step);
      case Action::await:
        state.slots[step.slot] = SlotState::taken;
        return is_inside ? network_.inside.receive_overhead : time_of_line(state, step);
      case Action::await_credit:  // came two calls ago
        return is_inside ? network_.inside.receive_overhead : time_of_line(state, step);
      case Action::await_sent:
        return 0;
      case Action::copy:
        return step.by_reference ? network_.inside.read_time(state.bytes.of(step.part)) : 0;
      case Action::combine:
      case Action::take_out:
        return (step.by_reference ? network_.inside.read_time(state.bytes.of(step.part)) : 0) +
               work_of(state.bytes.of(step.part));
    }
    __builtin_unreachable();
  }

  /// What it takes to find a message in memory; others are paid for by the poll that sees them.
  Picoseconds time_of_line(const RankState& state, const Step& await) const {
    return goes_as_line(*state.plan, call_, await) ? network_.between.receive_overhead : 0;
  }

  Picoseconds store(std::uint32_t rank, const Step& step) {
    const RankState& state = ranks_[rank];
    const std::uint64_t bytes = step.by_reference || step.into_target
                                    ? message_bytes_in_node(*state.plan, call_, step)
                                    : state.bytes.of_message(step);
    const Picoseconds taken = store_.of(bytes, [&] { return network_.inside.store_time(bytes); });
    events_.push({.at = state.clock + taken + network_.inside.latency,
                  .number = ++messages_,
                  .rank = rank,
                  .taken = 0,
                  .to = receiver_of(step.peer),
                  .slot = step.slot,
                  .kind = EventKind::visible,
                  .is_line = false});
    return taken;
  }

  Picoseconds send(std::uint32_t rank, const Step& step) {
    const RankState& state = ranks_[rank];
    const bool is_line = goes_as_line(*state.plan, call_, step);
    const std::uint64_t bytes =
        is_line ? bytes_of_line(*state.plan, call_, step) : state.bytes.of_message(step);
    const Picoseconds taken = port_.of(bytes, [&] { return network_.between.port_time(bytes); });
    Picoseconds& free = ports_[state.node].transmit_free;
    const Picoseconds leaves = std::max(state.clock, free);
    free = leaves + taken;
    const Picoseconds travels =
        travel_.of(bytes, [&] { return network_.between.travel_time(bytes); });
    events_.push({.at = leaves + travels,
                  .number = ++messages_,
                  .rank = rank,
                  .taken = taken,
                  .to = receiver_of(step.peer),
                  .slot = step.slot,
                  .kind = EventKind::at_port,
                  .is_line = is_line});
    return network_.between.rank_gap;
  }

  Picoseconds work_of(std::uint64_t bytes) {
    return work_.of(bytes, [&] { return network_.between.work_time(bytes); });
  }

  Network network_;
  NodesOfRanks node_of_;
  Call call_;
  bool is_one_node_;
  std::span<const std::uint32_t> place_of_;
  std::vector<RankState> ranks_;
  std::vector<Port> ports_;       // of each node
  std::vector<SlotState> slots_;  // of all ranks
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::uint32_t> woken_ = {};  // by the events of this instant
  std::uint32_t messages_ = 0;
  Time port_, travel_, store_, work_;
};

}  // namespace

std::vector<Picoseconds> completion_times(std::span<const Plan> plans, const Network& network,
                                          NodesOfRanks node_of, const Call& call) {
  return Events(plans, network, node_of, call).run();
}

Picoseconds makespan(std::span<const Plan> plans, const Network& network, NodesOfRanks node_of,
                     const Call& call) {
  const std::vector<Picoseconds> times = completion_times(plans, network, node_of, call);
  return *std::max_element(times.begin(), times.end());
}

Picoseconds makespan_of_node(std::span<const Plan> plans, const Network& network,
                             NodesOfRanks node_of, std::span<const std::uint32_t> place_of,
                             const Call& call) {
  const std::vector<Picoseconds> times =
      Events(plans, network, node_of, call, true, place_of).run();
  return *std::max_element(times.begin(), times.end());
}

std::vector<Picoseconds> completion_times(std::span<const Plan> plans, const LogGP& network,
                                          const Call& call) {
  return completion_times(plans, {.between = network}, {}, call);
}

Picoseconds makespan(std::span<const Plan> plans, const LogGP& network, const Call& call) {
  return makespan(plans, {.between = network}, {}, call);
}

}  // namespace tutti::plan
