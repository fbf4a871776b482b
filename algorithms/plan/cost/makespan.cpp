// See makespan.hpp.  Messages are numbered by sender, then in the order of its puts, which is also
// the order of events at one instant.
#include "plan/cost/makespan.hpp"

#include <algorithm>
#include <cassert>
#include <deque>
#include <limits>
#include <tuple>
#include <utility>

#include "plan/cost/step_bytes.hpp"

namespace tutti::plan {
namespace {

constexpr Picoseconds unknown = std::numeric_limits<Picoseconds>::max();
/// Of a node of one rank, which has no message inside.
constexpr NodeMemory alone_in_node{.latency = 1};

struct Message {
  std::uint32_t from;
  std::uint32_t to;
  std::uint16_t slot;
  std::uint64_t bytes;
  Picoseconds leaves = unknown;
};

/// A message at its receiver: when it comes to the port, then when it has got through.
struct Arrival {
  Picoseconds at;
  std::size_t number;
  friend bool operator<(const Arrival& a, const Arrival& b) {
    return std::tie(a.at, a.number) < std::tie(b.at, b.number);
  }
};

/// One rank, given when messages get to it.
class RankRun {
 public:
  RankRun(const Plan& plan, const LogGP& network, const Call& call,
          std::span<const Message> messages, std::span<const Arrival> deliveries)
      : plan_(plan),
        network_(network),
        call_(call),
        messages_(messages),
        deliveries_(deliveries),
        clock_(call.starts.empty() ? 0 : call.starts[index_of(plan.self)]),
        seen_(plan.slot_count) {}

  /// Runs the rank as far as the known deliveries reach; true if that is the end.  Tells `on_put`
  /// when each put leaves.
  template <class OnPut>
  bool run(const OnPut& on_put) {
    for (std::size_t at = 0; at < plan_.steps.size(); ++at) {
      const Step& step = plan_.steps[at];
      switch (step.action) {
        case Action::put:
          on_put(put(step));
          break;
        case Action::await:
          if (const std::size_t end = end_of_unordered_run(at); end > at) {
            if (!take_as_seen(at, end)) return false;
            at = end - 1;
          } else if (!await(step.slot)) {
            return false;
          }
          break;
        case Action::await_credit:  // of one call: nothing to wait for
        case Action::await_sent:    // what is sent leaves before it arrives
        case Action::copy:
          break;
        case Action::combine:
        case Action::take_out:
          clock_ += work(step);
          break;
      }
    }
    return true;
  }

  Picoseconds clock() const { return clock_; }

 private:
  static constexpr std::size_t not_seen = 0;

  Picoseconds put(const Step& step) {
    const Picoseconds leaves = std::max(clock_, transmit_free_);
    const std::uint64_t bytes = message_bytes(plan_, call_, step);
    transmit_free_ = leaves + network_.port_time(bytes);
    return leaves;
  }

  Picoseconds work(const Step& step) const {
    return network_.work_time(part_bytes(plan_, call_, step.part));
  }

  bool await(std::uint16_t slot) {
    while (seen_[slot] == not_seen)
      if (!poll()) return false;
    return true;
  }

  /// Sees what was delivered by the end of the wait; false if nothing is known to come.
  bool poll() {
    if (next_ == deliveries_.size()) return false;
    const Picoseconds at = std::max(clock_, deliveries_[next_].at);
    const std::size_t first = next_;
    do {
      const Message& message = messages_[deliveries_[next_].number];
      seen_[message.slot] = ++next_;
    } while (next_ < deliveries_.size() && is_seen_at(at, deliveries_[next_]));
    clock_ = at + static_cast<Picoseconds>(next_ - first) * network_.receive_overhead;
    return true;
  }

  bool is_seen_at(Picoseconds at, const Arrival& delivery) const {
    const bool from_lower = messages_[delivery.number].from < index_of(plan_.self);
    return delivery.at < at || (delivery.at == at && from_lower);
  }

  std::size_t end_of_unordered_run(std::size_t begin) const {
    return call_.order == CombineOrder::as_seen ? end_of_run(plan_.steps, begin) : begin;
  }

  /// The first one that was seen takes the place of the first of the run, and so on.
  bool take_as_seen(std::size_t begin, std::size_t end) {
    std::vector<std::uint16_t> missing;
    for (std::size_t at = begin; at < end; at += 2) missing.push_back(plan_.steps[at].slot);
    for (std::size_t at = begin; at < end; at += 2) {
      const auto earlier = [&](std::uint16_t a, std::uint16_t b) {  // not seen: last
        return seen_[a] - 1 < seen_[b] - 1;
      };
      auto first = std::min_element(missing.begin(), missing.end(), earlier);
      for (; seen_[*first] == not_seen;
           first = std::min_element(missing.begin(), missing.end(), earlier))
        if (!poll()) return false;
      missing.erase(first);
      if (plan_.steps[at + 1].action == Action::combine) clock_ += work(plan_.steps[at + 1]);
    }
    return true;
  }

  const Plan& plan_;
  const LogGP& network_;
  const Call& call_;
  std::span<const Message> messages_;
  std::span<const Arrival> deliveries_;
  std::size_t next_ = 0;  // delivery
  Picoseconds clock_;
  Picoseconds transmit_free_ = std::numeric_limits<Picoseconds>::min();
  std::vector<std::size_t> seen_;  // by slot: as which delivery, counted from 1
};

/// All ranks, relaxed until nothing changes.
class Relaxation {
 public:
  Relaxation(std::span<const Plan> plans, const LogGP& network, const Call& call)
      : plans_(plans),
        network_(network),
        call_(call),
        incoming_(plans.size()),
        completion_(plans.size(), unknown),
        is_waiting_(plans.size(), true) {
    assert(network.send_overhead + network.latency > 0);
    assert(network.ranks_at_port == 1);  // each rank has ports of its own
    assert(call.starts.empty() || call.starts.size() == plans.size());
    assert(call.element_bytes > 0 && call.payload_bytes % call.element_bytes == 0);
    for (std::uint32_t rank = 0; rank < plans.size(); ++rank) {
      first_message_.push_back(messages_.size());
      waiting_.push_back(rank);
      for (const Step& step : plans[rank].steps)
        if (step.action == Action::put) add_message(rank, step);
    }
  }

  std::vector<Picoseconds> solve() && {
    while (!waiting_.empty()) {
      const std::uint32_t rank = waiting_.front();
      waiting_.pop_front();
      is_waiting_[rank] = false;
      run(rank);
    }
    assert(std::find(completion_.begin(), completion_.end(), unknown) == completion_.end());
    return std::move(completion_);
  }

 private:
  void add_message(std::uint32_t rank, const Step& step) {
    const std::uint32_t peer = index_of(step.peer);
    assert(peer < plans_.size());
    incoming_[peer].push_back(messages_.size());
    messages_.push_back({.from = rank,
                         .to = peer,
                         .slot = step.slot,
                         .bytes = message_bytes(plans_[rank], call_, step)});
  }

  void run(std::uint32_t rank) {
    const std::vector<Arrival> deliveries = deliveries_to(rank);
    RankRun run(plans_[rank], network_, call_, messages_, deliveries);
    std::size_t number = first_message_[rank];
    const bool finished = run.run([&](Picoseconds leaves) {
      Message& message = messages_[number++];
      if (message.leaves == leaves) return;
      message.leaves = leaves;
      wait_again(message.to);
    });
    if (finished) completion_[rank] = run.clock();
  }

  void wait_again(std::uint32_t rank) {
    if (is_waiting_[rank]) return;
    is_waiting_[rank] = true;
    waiting_.push_back(rank);
  }

  /// The known arrivals, in the order of the receiver's port.
  std::vector<Arrival> deliveries_to(std::uint32_t rank) const {
    std::vector<Arrival> arrivals;
    for (const std::size_t number : incoming_[rank]) {
      const Message& message = messages_[number];
      if (message.leaves != unknown)
        arrivals.push_back({message.leaves + network_.travel_time(message.bytes), number});
    }
    std::sort(arrivals.begin(), arrivals.end());
    Picoseconds free = std::numeric_limits<Picoseconds>::min();
    for (Arrival& arrival : arrivals) {
      arrival.at = std::max(arrival.at, free);
      free = arrival.at + network_.port_time(messages_[arrival.number].bytes);
    }
    std::sort(arrivals.begin(), arrivals.end());  // where one takes its port no time
    return arrivals;
  }

  std::span<const Plan> plans_;
  const LogGP& network_;
  const Call& call_;
  std::vector<Message> messages_;
  std::vector<std::size_t> first_message_;          // of each rank
  std::vector<std::vector<std::size_t>> incoming_;  // of each rank
  std::vector<Picoseconds> completion_;
  std::deque<std::uint32_t> waiting_;  // ranks, each at most once
  std::vector<bool> is_waiting_;
};

bool moves(const Step& step) {
  return step.action == Action::put || step.action == Action::await;
}

}  // namespace

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

std::vector<Picoseconds> completion_times(std::span<const Plan> plans, const LogGP& network,
                                          const Call& call) {
  // The relaxation knows messages that are polled one after the other.
  if (call.lines) return completion_times(plans, Network{network, alone_in_node}, {}, call);
  return Relaxation(plans, network, call).solve();
}

Picoseconds makespan(std::span<const Plan> plans, const LogGP& network, const Call& call) {
  const std::vector<Picoseconds> times = completion_times(plans, network, call);
  return *std::max_element(times.begin(), times.end());
}

bool is_circulant(const Plan& plan) {
  if (plan.parts > 1) return false;
  std::vector<std::uint32_t> ahead(plan.slot_count), behind(plan.slot_count);
  const std::uint64_t ranks = plan.rank_count;
  for (const Step& step : plan.steps) {
    if (!moves(step)) continue;
    const std::uint64_t distance = index_of(step.peer) + ranks - index_of(plan.self);
    if (step.payloads != plan.payloads) return false;
    if (step.action == Action::put)
      ahead[step.slot] = static_cast<std::uint32_t>(distance % ranks);
    else
      behind[step.slot] = static_cast<std::uint32_t>((2 * ranks - distance) % ranks);
  }
  return ahead == behind;
}

Picoseconds circulant_makespan(const Plan& plan, const LogGP& network, const Call& call) {
  assert(is_circulant(plan));
  assert(call.starts.empty() && !call.lines);
  Plan alone = plan;
  alone.self = Rank{0};
  for (Step& step : alone.steps)
    if (moves(step)) step.peer = Rank{0};
  return makespan({&alone, 1}, network, call);
}

}  // namespace tutti::plan
