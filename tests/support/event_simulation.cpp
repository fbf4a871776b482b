#include "support/event_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <set>
#include <tuple>

namespace tutti::test {
namespace {

using Time = std::int64_t;

/// What happens to a message at its receiver, in the order of time, sender, number.
struct Arrival {
  Time at;
  std::uint32_t from;
  std::uint64_t number;
  std::uint32_t to;
  std::uint16_t slot = 0;
  std::size_t bytes = 0;
  bool through_port = false;  // else it has come to the port, which may be taken
  bool is_poll = false;       // no message: the rank `to` looks for what has come
  bool operator>(const Arrival& other) const {
    return std::tie(at, from, number) > std::tie(other.at, other.from, other.number);
  }
};

struct RankState {
  const plan::Plan* plan;
  std::size_t next = 0;
  Time clock = 0;
  Time transmit_free = 0;
  Time receive_free = 0;
  std::vector<std::uint16_t> unseen = {};  // arrived, not polled
  std::set<std::uint16_t> seen = {};
};

class Simulation {
 public:
  Simulation(const std::vector<plan::Plan>& plans, std::size_t element_count,
             std::size_t element_bytes, const Network& network, const std::vector<Time>& starts)
      : element_count_(element_count), element_bytes_(element_bytes), network_(network) {
    for (const plan::Plan& plan : plans)
      ranks_.push_back({.plan = &plan, .clock = starts.empty() ? 0 : starts[ranks_.size()]});
  }

  std::vector<Time> run() {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) advance(rank);
    while (!arrivals_.empty()) {
      const Arrival arrival = arrivals_.top();
      arrivals_.pop();
      if (arrival.is_poll)
        poll(arrival);
      else if (arrival.through_port)
        deliver(arrival);
      else
        pass_port(arrival);
    }
    std::vector<Time> ends;
    for (const RankState& state : ranks_) ends.push_back(state.clock);
    return ends;
  }

 private:
  static Time rounded(double time) { return std::llround(time); }
  Time wire(std::size_t bytes) const {
    return rounded(static_cast<double>(bytes) * network_.per_byte);
  }
  Time work_time(std::size_t bytes) const {
    return network_.work + rounded(static_cast<double>(bytes) * network_.work_per_byte);
  }
  Time port(std::size_t bytes) const { return std::max(network_.gap, wire(bytes)); }

  /// Bytes of one segment; the longer parts come first.
  std::size_t bytes_of_part(const plan::Plan& plan, const plan::Step& step) const {
    std::size_t elements = element_count_ / plan.parts;
    if (element_count_ - elements * plan.parts > step.part) ++elements;
    return elements * element_bytes_;
  }

  void put(std::uint32_t rank, const plan::Step& step) {
    RankState& state = ranks_[rank];
    const std::size_t bytes = step.payloads * bytes_of_part(*state.plan, step);
    const Time leaves = std::max(state.clock, state.transmit_free);
    state.transmit_free = leaves + port(bytes);
    arrivals_.push({.at = leaves + network_.send_overhead + network_.latency + wire(bytes),
                    .from = rank,
                    .number = ++messages_,
                    .to = index_of(step.peer),
                    .slot = step.slot,
                    .bytes = bytes});
  }

  void pass_port(Arrival arrival) {
    RankState& state = ranks_[arrival.to];
    const Time begin = std::max(arrival.at, state.receive_free);
    state.receive_free = begin + port(arrival.bytes);
    arrival.through_port = true;
    if (begin == arrival.at) return deliver(arrival);
    arrival.at = begin;
    arrivals_.push(arrival);
  }

  /// A rank that waits polls now, one that is at work afterwards; either in its turn among all that
  /// happens at that time.
  void deliver(const Arrival& arrival) {
    RankState& state = ranks_[arrival.to];
    state.unseen.push_back(arrival.slot);
    arrivals_.push({.at = std::max(state.clock, arrival.at),
                    .from = arrival.to,
                    .number = 0,
                    .to = arrival.to,
                    .is_poll = true});
  }

  void poll(const Arrival& turn) {
    RankState& state = ranks_[turn.to];
    if (state.unseen.empty() || turn.at < state.clock) return;  // another turn is to come, or was
    state.clock = turn.at + static_cast<Time>(state.unseen.size()) * network_.receive_overhead;
    state.seen.insert(state.unseen.begin(), state.unseen.end());
    state.unseen.clear();
    advance(turn.to);
  }

  void advance(std::uint32_t rank) {
    RankState& state = ranks_[rank];
    for (; state.next < state.plan->steps.size(); ++state.next) {
      const plan::Step& step = state.plan->steps[state.next];
      if (step.action == plan::Action::await && !state.seen.contains(step.slot)) return;
      if (step.action == plan::Action::put) put(rank, step);
      if (step.action == plan::Action::combine || step.action == plan::Action::take_out)
        state.clock += work_time(bytes_of_part(*state.plan, step));
    }
  }

  std::size_t element_count_;
  std::size_t element_bytes_;
  Network network_;
  std::vector<RankState> ranks_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
  std::uint64_t messages_ = 0;
};

}  // namespace

std::vector<std::int64_t> completion_times(const std::vector<plan::Plan>& plans,
                                           std::size_t payload_bytes, std::size_t element_bytes,
                                           const Network& network,
                                           const std::vector<std::int64_t>& starts) {
  return Simulation(plans, payload_bytes / element_bytes, element_bytes, network, starts).run();
}

std::int64_t makespan(const std::vector<plan::Plan>& plans, std::size_t payload_bytes,
                      const Network& network) {
  const std::vector<Time> ends = completion_times(plans, payload_bytes, 1, network, {});
  return *std::max_element(ends.begin(), ends.end());
}

}  // namespace tutti::test
