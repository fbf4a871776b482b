#include "support/event_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace tutti::test {
namespace {

using plan::Action;
using plan::Step;
using Time = std::int64_t;

constexpr std::size_t line_bytes = 64;
constexpr Time never = std::numeric_limits<Time>::max();

/// A message that its sender has posted.
struct Message {
  Time due;  // when something happens to it
  std::uint64_t number;
  std::uint32_t to;
  std::uint16_t slot;
  std::size_t bytes;
  bool is_inside;
  bool is_line;
  bool has_passed_port = false;
};

struct RankState {
  const plan::Plan* plan;
  std::vector<Step> steps;
  Time clock;
  Time wake;  // when the program goes on; never: something has to arrive first
  std::size_t next = 0;
  std::vector<Message> posted = {};
  std::vector<bool> there = {};            // by slot: seen by a poll, or visible in the node
  std::vector<std::uint16_t> unseen = {};  // arrived over the network, not polled
  Time next_due = never;                   // the earliest of `posted`

  Time next_turn() const { return std::min(wake, next_due); }
  void post(const Message& message) {
    posted.push_back(message);
    next_due = std::min(next_due, message.due);
  }
};

struct Ports {
  Time transmit_free = 0;
  Time receive_free = 0;
};

/// The rank with the earliest turn runs, the lowest one of several.  In its turn it first delivers
/// what of its messages is due, then its program goes on if its time has come.
class Simulation {
 public:
  Simulation(const std::vector<plan::Plan>& plans, const Network& network,
             const SimulatedCall& call)
      : network_(network), call_(call), ports_(plans.size()) {
    for (const plan::Plan& plan : plans) {
      const Time start = call.starts.empty() ? 0 : call.starts[ranks_.size()];
      ranks_.push_back({.plan = &plan, .steps = plan.steps, .clock = start, .wake = start});
      ranks_.back().there.resize(plan.slot_count);
    }
  }

  std::vector<Time> run() {
    for (;;) {
      const auto first = std::min_element(
          ranks_.begin(), ranks_.end(),
          [](const RankState& a, const RankState& b) { return a.next_turn() < b.next_turn(); });
      const Time now = first->next_turn();
      if (now == never) break;
      deliver(*first, now);
      if (first->wake > now) continue;
      first->clock = std::max(first->clock, now);
      first->wake = never;
      run_program(*first);
    }
    std::vector<Time> ends;
    for (const RankState& rank : ranks_)
      ends.push_back(rank.next == rank.steps.size() ? rank.clock : never);
    return ends;
  }

 private:
  static Time rounded(double time) { return std::llround(time); }
  static Time of(double per_byte, std::size_t bytes) {
    return rounded(static_cast<double>(bytes) * per_byte);
  }
  Time wire(std::size_t bytes) const { return of(network_.per_byte, bytes); }
  Time port(std::size_t bytes) const { return std::max(network_.gap, wire(bytes)); }

  std::uint32_t rank_of(const RankState& rank) const {
    return static_cast<std::uint32_t>(&rank - ranks_.data());
  }
  Ports& ports_of(std::uint32_t rank) {
    return ports_[network_.node_of.empty() ? rank : index_of(network_.node_of[rank])];
  }
  bool share_node(const RankState& rank, Rank peer) const {
    return !network_.node_of.empty() && peer != no_rank &&
           network_.node_of[rank_of(rank)] == network_.node_of[index_of(peer)];
  }

  /// The longer parts come first.
  std::size_t bytes_of_part(const RankState& rank, const Step& step) const {
    const std::size_t all = call_.payload_bytes / call_.element_bytes;
    std::size_t elements = all / rank.plan->parts;
    if (all - elements * rank.plan->parts > step.part) ++elements;
    return elements * call_.element_bytes;
  }

  /// Payloads before the last one of a message are as long as the longest part.
  std::size_t bytes_of_message(const RankState& rank, const Step& step) const {
    const std::size_t all = call_.payload_bytes / call_.element_bytes;
    const std::size_t longest =
        (all + rank.plan->parts - 1) / rank.plan->parts * call_.element_bytes;
    return step.payloads == 0 ? 0 : step.payloads * longest - (longest - bytes_of_part(rank, step));
  }

  void deliver(RankState& rank, Time now) {
    for (;;) {
      const auto next = std::min_element(
          rank.posted.begin(), rank.posted.end(), [](const Message& a, const Message& b) {
            return std::tie(a.due, a.number) < std::tie(b.due, b.number);
          });
      rank.next_due = next == rank.posted.end() ? never : next->due;
      if (rank.next_due > now) return;
      if (!next->is_inside && !next->has_passed_port) {
        Ports& ports = ports_of(next->to);
        next->has_passed_port = true;
        next->due = std::max(next->due, ports.receive_free);
        ports.receive_free = next->due + port(next->bytes);
        continue;
      }
      RankState& receiver = ranks_[next->to];
      if (next->is_inside || next->is_line)
        receiver.there[next->slot] = true;
      else
        receiver.unseen.push_back(next->slot);
      // A rank that waits goes on now; the wake of any other one is later.
      if (receiver.wake == never && receiver.next < receiver.steps.size()) receiver.wake = now;
      rank.posted.erase(next);
    }
  }

  /// Until the program spends time, or waits.
  void run_program(RankState& rank) {
    while (rank.next < rank.steps.size()) {
      if (is_missing(rank)) {
        if (rank.unseen.empty()) return;
        const Time spent = network_.receive_overhead * static_cast<Time>(rank.unseen.size());
        for (const std::uint16_t slot : rank.unseen) rank.there[slot] = true;
        rank.unseen.clear();
        if (spend(rank, spent)) return;
        continue;
      }
      const Step step = rank.steps[rank.next++];
      if (spend(rank, run_step(rank, step))) return;
    }
  }

  bool spend(RankState& rank, Time time) {
    if (time == 0) return false;
    rank.clock += time;
    rank.wake = rank.clock;
    return true;
  }

  /// Whether the next step awaits a message that is not there.  In any order, another message that
  /// is treated alike changes places with it.
  bool is_missing(RankState& rank) {
    const std::size_t here = rank.next;
    std::vector<Step>& steps = rank.steps;
    if (steps[here].action != Action::await || rank.there[steps[here].slot]) return false;
    const auto joins = [&](std::size_t at) {
      return at + 1 < steps.size() && steps[at].action == Action::await &&
             (steps[at + 1].action == Action::combine || steps[at + 1].action == Action::copy) &&
             steps[at + 1].from.place == plan::Place::slot &&
             steps[at + 1].from.index == steps[at].slot && steps[at + 1].from.payload == 0;
    };
    if (!call_.any_order || !joins(here)) return true;
    for (std::size_t at = here + 2; joins(at) && steps[at + 1].into == steps[here + 1].into &&
                                    steps[at + 1].part == steps[here + 1].part;
         at += 2) {
      if (!rank.there[steps[at].slot]) continue;
      std::swap(steps[here], steps[at]);
      std::swap(steps[here + 1].from, steps[at + 1].from);
      return false;
    }
    return true;
  }

  Time run_step(RankState& rank, const Step& step) {
    const bool is_inside = share_node(rank, step.peer);
    const std::size_t part = bytes_of_part(rank, step);
    const Time reading =
        step.by_reference ? network_.inside.read_overhead + of(network_.inside.read_per_byte, part)
                          : 0;
    switch (step.action) {
      case Action::put:
        return put(rank, step, is_inside);
      case Action::await:
      case Action::await_credit:
        return is_inside             ? network_.inside.receive_overhead
               : is_line(rank, step) ? network_.receive_overhead
                                     : 0;
      case Action::copy:
        return reading;
      case Action::combine:
      case Action::take_out:
        return reading + network_.work + of(network_.work_per_byte, part);
      case Action::await_sent:
        break;
    }
    return 0;
  }

  /// One line of memory ends in a number of 8 bytes, and slots for credits are lines.
  bool is_line(const RankState& rank, const Step& step) const {
    const plan::Plan& plan = *rank.plan;
    const bool is_credit = step.slot + plan.line_slot_count >= plan.slot_count;
    const std::size_t largest = payloads_of_slot(plan, step.slot) * bytes_of_part(rank, Step{});
    return call_.lines && !plan.zero_copy && !step.into_target &&
           (is_credit || largest + 8 <= line_bytes);
  }

  Time put(RankState& rank, const Step& step, bool is_inside) {
    Message message{.due = rank.clock,
                    .number = ++messages_,
                    .to = index_of(step.peer),
                    .slot = step.slot,
                    .bytes = bytes_of_message(rank, step),
                    .is_inside = is_inside,
                    .is_line = !is_inside && is_line(rank, step)};
    // The number of a message without payload is written alone.
    if (message.is_line) message.bytes = message.bytes == 0 ? 8 : line_bytes;
    if (is_inside) {
      const std::size_t moved = step.by_reference ? 8 : step.into_target ? 0 : message.bytes;
      const Time taken = network_.inside.send_overhead + of(network_.inside.per_byte, moved);
      message.due += taken + network_.inside.latency;
      rank.post(message);
      return taken;
    }
    Ports& ports = ports_of(rank_of(rank));
    const Time leaves = std::max(rank.clock, ports.transmit_free);
    ports.transmit_free = leaves + port(message.bytes);
    message.due = leaves + network_.send_overhead + network_.latency + wire(message.bytes);
    rank.post(message);
    return network_.rank_gap;
  }

  Network network_;
  SimulatedCall call_;
  std::vector<RankState> ranks_;
  std::vector<Ports> ports_;  // by node
  std::uint64_t messages_ = 0;
};

}  // namespace

std::vector<std::int64_t> completion_times(const std::vector<plan::Plan>& plans,
                                           const Network& network, const SimulatedCall& call) {
  return Simulation(plans, network, call).run();
}

std::int64_t makespan(const std::vector<plan::Plan>& plans, std::size_t payload_bytes,
                      const Network& network) {
  const std::vector<Time> ends = completion_times(plans, network, {.payload_bytes = payload_bytes});
  return *std::max_element(ends.begin(), ends.end());
}

}  // namespace tutti::test
