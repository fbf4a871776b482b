// See makespan.hpp.  Ranks that share a port depend on each other at every instant, so this follows
// the events in the order of time.
#include <algorithm>
#include <cassert>
#include <limits>
#include <queue>
#include <tuple>

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
  std::uint32_t rank;    // whose turn it is, or who has sent the message
  std::uint64_t number;  // that of the message, or of_turn
  EventKind kind = EventKind::turn;
  std::uint32_t to = 0;
  std::uint16_t slot = 0;
  std::uint64_t bytes = 0;
  bool is_line = false;

  static constexpr std::uint64_t of_turn = UINT64_MAX;

  friend bool operator>(const Event& a, const Event& b) {
    return std::tie(a.at, a.rank, a.number) > std::tie(b.at, b.rank, b.number);
  }
};

struct Port {
  Picoseconds transmit_free = 0;
  Picoseconds receive_free = 0;
};

enum class SlotState : std::uint8_t { empty, arrived, taken };

struct RankState {
  const Plan* plan;
  std::uint32_t node;
  Picoseconds clock = 0;
  std::size_t next = 0;                    // step
  std::vector<SlotState> slots = {};       // arrived: to be taken without a poll
  std::vector<std::uint16_t> unseen = {};  // slots of messages that the next poll sees
  std::vector<Step> steps = {};            // in the order in which they are run
  bool waits = false;                      // else its turn is among the events
};

class Events {
 public:
  Events(std::span<const Plan> plans, const Network& network, NodesOfRanks node_of,
         const Call& call)
      : network_(network), node_of_(node_of), call_(call) {
    assert(network.between.send_overhead + network.between.latency > 0);
    assert(node_of.empty() || network.inside.send_overhead + network.inside.latency > 0);
    assert(network.between.ranks_at_port == 1);  // the events tell who sends when
    assert(node_of.empty() || node_of.size() == plans.size());
    assert(call.starts.empty() || call.starts.size() == plans.size());
    assert(call.element_bytes > 0 && call.payload_bytes % call.element_bytes == 0);
    for (std::uint32_t rank = 0; rank < plans.size(); ++rank) {
      const std::uint32_t node = node_of.empty() ? rank : index_of(node_of[rank]);
      if (node >= ports_.size()) ports_.resize(node + 1);
      RankState state{.plan = &plans[rank], .node = node};
      state.clock = call.starts.empty() ? 0 : call.starts[rank];
      state.slots.resize(plans[rank].slot_count);
      state.steps = plans[rank].steps;
      ranks_.push_back(std::move(state));
      take_turn_at(rank, ranks_.back().clock);
    }
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
    }
    std::vector<Picoseconds> ends;
    for (const RankState& state : ranks_) {
      const bool has_finished = state.next == state.steps.size();
      assert(has_finished);  // else the plans do not match
      ends.push_back(has_finished ? state.clock : std::numeric_limits<Picoseconds>::max());
    }
    return ends;
  }

 private:
  void take_turn_at(std::uint32_t rank, Picoseconds at) {
    ranks_[rank].waits = false;
    events_.push({.at = at, .rank = rank, .number = Event::of_turn});
  }

  void wake(std::uint32_t rank, Picoseconds at) {
    if (ranks_[rank].waits) take_turn_at(rank, at);
  }

  void handle(Event event) {
    RankState& receiver = ranks_[event.to];
    switch (event.kind) {
      case EventKind::turn:
        ranks_[event.rank].clock = std::max(ranks_[event.rank].clock, event.at);
        take_turn(event.rank);
        return;
      case EventKind::at_port: {
        Picoseconds& free = ports_[receiver.node].receive_free;
        const Picoseconds begin = std::max(event.at, free);
        free = begin + network_.between.port_time(event.bytes);
        event.kind = EventKind::delivered;
        if (begin == event.at) return handle(event);
        event.at = begin;
        events_.push(event);
        return;
      }
      case EventKind::delivered:
        if (event.is_line)
          receiver.slots[event.slot] = SlotState::arrived;
        else
          receiver.unseen.push_back(event.slot);
        wake(event.to, event.at);
        return;
      case EventKind::visible:
        receiver.slots[event.slot] = SlotState::arrived;
        wake(event.to, event.at);
        return;
    }
  }

  /// Runs the rank until something takes its time, after which it goes on, or until it has to wait.
  void take_turn(std::uint32_t rank) {
    RankState& state = ranks_[rank];
    for (;;) {
      while (state.next < state.steps.size()) {
        const Step& step = state.steps[state.next];
        if (step.action == Action::await && !may_take(state)) break;
        const Picoseconds taken = run(rank, state.steps[state.next++]);
        if (taken > 0) return pass(rank, taken);
      }
      if (state.next == state.steps.size()) return;
      if (state.unseen.empty()) {
        state.waits = true;
        return;
      }
      const auto count = static_cast<Picoseconds>(state.unseen.size());
      for (const std::uint16_t slot : state.unseen) state.slots[slot] = SlotState::arrived;
      state.unseen.clear();
      if (const Picoseconds taken = count * network_.between.receive_overhead; taken > 0)
        return pass(rank, taken);
    }
  }

  void pass(std::uint32_t rank, Picoseconds time) {
    ranks_[rank].clock += time;
    take_turn_at(rank, ranks_[rank].clock);
  }

  /// Whether the await that is next can be done.  Taken as they are seen, the first message of a
  /// run that is there takes the place of the one that is next.
  bool may_take(RankState& state) {
    std::vector<Step>& steps = state.steps;
    const std::size_t here = state.next;
    if (state.slots[steps[here].slot] == SlotState::arrived) return true;
    if (call_.order != CombineOrder::as_seen) return false;
    const std::size_t end = end_of_run(steps, here);
    for (std::size_t there = here + 2; there < end; there += 2) {
      if (state.slots[steps[there].slot] != SlotState::arrived) continue;
      std::swap(steps[here], steps[there]);
      std::swap(steps[here + 1].from, steps[there + 1].from);
      return true;
    }
    return false;
  }

  bool is_neighbour(std::uint32_t rank, Rank peer) const {
    return !node_of_.empty() && peer != no_rank && node_of_[rank] == node_of_[index_of(peer)];
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
        return step.by_reference ? network_.inside.read_time(bytes_of(state, step)) : 0;
      case Action::combine:
      case Action::take_out:
        return (step.by_reference ? network_.inside.read_time(bytes_of(state, step)) : 0) +
               network_.between.work_time(bytes_of(state, step));
    }
    __builtin_unreachable();
  }

  std::uint64_t bytes_of(const RankState& state, const Step& step) const {
    return part_bytes(*state.plan, call_, step.part);
  }

  /// What it takes to find a message in memory; others are paid for by the poll that sees them.
  Picoseconds time_of_line(const RankState& state, const Step& await) const {
    return goes_as_line(*state.plan, call_, await) ? network_.between.receive_overhead : 0;
  }

  Picoseconds store(std::uint32_t rank, const Step& step) {
    const RankState& state = ranks_[rank];
    const Picoseconds taken =
        network_.inside.store_time(message_bytes_in_node(*state.plan, call_, step));
    events_.push({.at = state.clock + taken + network_.inside.latency,
                  .rank = rank,
                  .number = ++messages_,
                  .kind = EventKind::visible,
                  .to = index_of(step.peer),
                  .slot = step.slot});
    return taken;
  }

  Picoseconds send(std::uint32_t rank, const Step& step) {
    const RankState& state = ranks_[rank];
    const bool is_line = goes_as_line(*state.plan, call_, step);
    const std::uint64_t bytes =
        is_line ? bytes_of_line(*state.plan, call_, step) : message_bytes(*state.plan, call_, step);
    Picoseconds& free = ports_[state.node].transmit_free;
    const Picoseconds leaves = std::max(state.clock, free);
    free = leaves + network_.between.port_time(bytes);
    events_.push({.at = leaves + network_.between.travel_time(bytes),
                  .rank = rank,
                  .number = ++messages_,
                  .kind = EventKind::at_port,
                  .to = index_of(step.peer),
                  .slot = step.slot,
                  .bytes = bytes,
                  .is_line = is_line});
    return 0;
  }

  Network network_;
  NodesOfRanks node_of_;
  Call call_;
  std::vector<RankState> ranks_;
  std::vector<Port> ports_;  // of each node
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t messages_ = 0;
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

std::vector<Picoseconds> completion_times(std::span<const Plan> plans, const LogGP& network,
                                          const Call& call) {
  return completion_times(plans, {.between = network}, {}, call);
}

Picoseconds makespan(std::span<const Plan> plans, const LogGP& network, const Call& call) {
  return makespan(plans, {.between = network}, {}, call);
}

}  // namespace tutti::plan
