// See lane_turns.hpp.
//
//   partials   of each turn: sums and results, both of the range that this rank has of the first
//              digit; then, as they are given, the ranges of the other ranks of the node
//   slots      of each turn: sums of the node by how far ahead of this rank their sender is, then
//              results likewise; behind those of all turns, short ones: of each turn, sums by digit
//              and by how far ahead their sender is in this digit, then results likewise
//
// The source is read before the target is written, part by part, so they may be the same memory.
#include "plan/allreduce/lane_turns.hpp"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "plan/core/node_shares.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

std::uint64_t messages_across(const LaneTurns& shape) {
  return std::accumulate(shape.per_round.begin(), shape.per_round.end(), std::uint64_t{0});
}

std::uint32_t digits_of(const LaneTurns& shape) {
  return static_cast<std::uint32_t>(1 + shape.per_round.size());
}

/// Calls visit(turn, stage) for the stages of all turns, in the order in which a rank runs them.
template <class F>
void for_each_stage(const LaneTurns& shape, F&& visit) {
  const std::uint32_t stages = 2 * digits_of(shape) + 1;
  const auto visit_at = [&](std::uint32_t now, std::uint32_t stage) {
    if (now >= stage && now - stage < shape.turns) visit(now - stage, stage);
  };
  for (std::uint32_t now = 0; now + 1 < shape.turns + stages; ++now) {
    visit_at(now, 1);
    visit_at(now, 0);
    for (std::uint32_t stage = 2; stage < stages; ++stage) visit_at(now, stage);
  }
}

/// The most messages of one peer on another node that can be on their way to this rank.  The peer
/// runs the same stages and waits for the messages of this rank, so its lead is bounded.  The bound
/// is reached within three calls.
std::uint32_t on_their_way_max(const LaneTurns& shape, std::uint32_t digit) {
  const std::uint32_t digits = digits_of(shape);
  struct Event {
    bool is_put;
    std::size_t match;  // of a message that is taken, where this rank has sent its own
  };
  std::vector<Event> events;
  std::vector<std::size_t> sums_sent(shape.turns), results_sent(shape.turns);
  for (int call = 0; call < 3; ++call)
    for_each_stage(shape, [&](std::uint32_t turn, std::uint32_t stage) {
      if (stage == digit + 1) events.push_back({false, sums_sent[turn]});
      if (stage == 2 * digits - digit) events.push_back({false, results_sent[turn]});
      if (stage == digit) {
        sums_sent[turn] = events.size();
        events.push_back({true, 0});
      }
      if (stage == 2 * digits - 1 - digit) {
        results_sent[turn] = events.size();
        events.push_back({true, 0});
      }
    });
  std::uint32_t most = 0, sent = 0, taken = 0;
  std::size_t there = 0;  // where the other rank is at most, if this one is `here`
  for (std::size_t here = 0; here < events.size(); ++here) {
    for (; there < events.size() && (events[there].is_put || events[there].match < here); ++there)
      sent += events[there].is_put ? 1u : 0u;
    most = std::max(most, sent - taken);
    taken += events[here].is_put ? 0u : 1u;
  }
  return most;
}

class Builder {
 public:
  Builder(Rank self, const LaneTurns& shape)
      : shape_(shape), shares_(shape.rank_count, shape.node_of), digit_count_(digits_of(shape)) {
    extents_ = {shares_.largest()};
    for (const std::uint32_t messages : shape.per_round) extents_.push_back(messages + 1);
    own_.resize(digit_count_);
    own_[0] = shares_.place_of(self);
    std::uint32_t left = shares_.node_of(self);
    for (std::uint32_t digit = digit_count_; --digit > 0; left /= extents_[digit])
      own_[digit] = left % extents_[digit];
    const LaneTurnsExtent extent = lane_turns_extent(shape, {.nodes = shares_.node_count(),
                                                             .smallest = shares_.smallest(),
                                                             .largest = shares_.largest()});
    plan_ = {.self = self, .rank_count = shape.rank_count, .algorithm = "lanes/turns"};
    plan_.parts = static_cast<std::uint16_t>(extent.parts);
    plan_.payloads = static_cast<std::uint16_t>(extent.payloads);
    plan_.slot_count = static_cast<std::uint16_t>(extent.slots);
    plan_.short_slot_count = static_cast<std::uint16_t>(extent.short_slots);
    plan_.short_payloads = static_cast<std::uint16_t>(extent.short_payloads);
    plan_.partials_max = static_cast<std::uint16_t>(extent.partials);
    for (const std::uint32_t count : extents_) {
      first_slots_.push_back(messages_);
      messages_ += count - 1;
      plan_.per_round.push_back((count - 1) * shape.turns);
    }
    for (std::uint32_t digit = digit_count_; digit-- > 0;)
      plan_.per_round.push_back(plan_.per_round[digit]);
    for (std::uint32_t digit = 1; digit < digit_count_; ++digit)
      plan_.incoming_max = std::max(plan_.incoming_max, on_their_way_max(shape, digit));
    plan_.partial_count = static_cast<std::uint16_t>(2 * shape.turns);
  }

  Plan build() && {
    for_each_stage(shape_,
                   [&](std::uint32_t turn, std::uint32_t stage) { run_stage(turn, stage); });
    assert(plan_.partial_count == plan_.partials_max);
    return std::move(plan_);
  }

 private:
  void run_stage(std::uint32_t turn, std::uint32_t stage) {
    if (stage == 0) return give(turn);
    if (stage <= digit_count_) {
      take_sums(turn, stage - 1);
      return stage < digit_count_ ? put_sums(turn, stage) : put_results(turn, stage - 1);
    }
    const std::uint32_t digit = 2 * digit_count_ - stage;
    take_results(turn, digit);
    if (digit > 0) put_results(turn, digit - 1);
  }

  /// Parts of a range of that digit.
  std::uint16_t width(std::uint32_t digit) const {
    return static_cast<std::uint16_t>(std::accumulate(extents_.begin() + digit + 1, extents_.end(),
                                                      std::uint32_t{1}, std::multiplies<>()));
  }
  /// Where a range of this rank begins among the parts of a turn, if it had that digit `there`.
  std::uint32_t begin_of(std::uint32_t digit, std::uint32_t there) const {
    std::uint32_t begin = there * width(digit);
    for (std::uint32_t before = 0; before < digit; ++before) begin += own_[before] * width(before);
    return begin;
  }
  std::uint16_t part_at(std::uint32_t turn, std::uint32_t at) const {
    return static_cast<std::uint16_t>(turn * shape_.rank_count + at);
  }
  void begin_part(std::uint32_t turn, std::uint32_t at) { steps_.begin_part(part_at(turn, at)); }
  /// A register for a range of the first digit of this rank, at one of its parts.
  Register at_part(std::uint32_t partial, std::uint32_t at) const {
    return partial_register(static_cast<std::uint16_t>(partial),
                            static_cast<std::uint16_t>(at - begin_of(0, own_[0])));
  }
  static std::uint32_t sums_of(std::uint32_t turn) { return 2 * turn; }
  static std::uint32_t results_of(std::uint32_t turn) { return 2 * turn + 1; }

  /// The digit `ahead` of that of this rank, around.
  std::uint32_t ahead_of(std::uint32_t digit, std::uint32_t ahead) const {
    return (own_[digit] + ahead) % extents_[digit];
  }
  /// The rank that has another digit than this one.
  Rank peer_of(std::uint32_t digit, std::uint32_t there) const {
    std::uint32_t node = 0;
    for (std::uint32_t i = 1; i < digit_count_; ++i)
      node = node * extents_[i] + (i == digit ? there : own_[i]);
    return shares_.members(node)[digit == 0 ? there : own_[0]];
  }
  /// The slot of a message from the rank `ahead` of its receiver.
  std::uint16_t slot_of(std::uint32_t turn, std::uint32_t digit, std::uint32_t ahead,
                        bool is_result) const {
    const std::uint32_t inside = extents_[0] - 1, which = 2 * turn + (is_result ? 1u : 0u);
    if (digit == 0) return static_cast<std::uint16_t>(which * inside + ahead - 1);
    return static_cast<std::uint16_t>(2 * shape_.turns * inside + which * (messages_ - inside) +
                                      first_slots_[digit] - inside + ahead - 1);
  }

  /// Gives the other ranks of the node their ranges of a turn.
  void give(std::uint32_t turn) {
    steps_.set_round(0);
    const std::uint16_t count = width(0);
    for (std::uint32_t i = 1; i < extents_[0]; ++i) {
      const std::uint32_t there = ahead_of(0, i), begin = begin_of(0, there);
      const std::uint16_t given = plan_.partial_count++;
      for (std::uint16_t one = 0; one < count; ++one) {
        begin_part(turn, begin + one);
        steps_.copy(source_register, partial_register(given, one));
      }
      steps_.put(peer_of(0, there), slot_of(turn, 0, extents_[0] - i, false), count,
                 partial_register(given));
    }
  }

  /// Adds up this rank's range of a digit.  After the last digit the sums are results.
  void take_sums(std::uint32_t turn, std::uint32_t digit) {
    steps_.set_round(digit);
    const std::uint32_t begin = begin_of(digit, own_[digit]);
    const std::uint16_t count = width(digit);
    const bool is_last = digit + 1 == digit_count_;
    const std::uint32_t into = is_last ? results_of(turn) : sums_of(turn);
    if (digit == 0) {
      for (std::uint16_t one = 0; one < count; ++one) {
        begin_part(turn, begin + one);
        steps_.copy(source_register, at_part(into, begin + one));
      }
    } else if (is_last) {
      assert(count == 1);
      begin_part(turn, begin);
      steps_.copy(at_part(sums_of(turn), begin), at_part(into, begin));
    }
    // In the order of arrival: the rank before this one has sent to it first.
    for (std::uint32_t i = extents_[digit]; --i > 0;) {
      const std::uint16_t slot = slot_of(turn, digit, i, false);
      begin_part(turn, begin + count - 1);
      steps_.await(peer_of(digit, ahead_of(digit, i)), slot, count);
      for (std::uint16_t one = 0; one < count; ++one) {
        begin_part(turn, begin + one);
        steps_.combine(slot_register(slot, one), at_part(into, begin + one));
      }
    }
  }

  void put_sums(std::uint32_t turn, std::uint32_t digit) {
    steps_.set_round(digit);
    const std::uint16_t count = width(digit);
    for (std::uint32_t i = 1; i < extents_[digit]; ++i) {
      const std::uint32_t there = ahead_of(digit, i), begin = begin_of(digit, there);
      begin_part(turn, begin + count - 1);
      steps_.put(peer_of(digit, there), slot_of(turn, digit, extents_[digit] - i, false), count,
                 at_part(sums_of(turn), begin));
    }
  }

  std::uint32_t round_of_results(std::uint32_t digit) const { return 2 * digit_count_ - 1 - digit; }

  /// Sends what there is of the results to the ranks that differ in a digit, and keeps it after the
  /// first digit.
  void put_results(std::uint32_t turn, std::uint32_t digit) {
    steps_.set_round(round_of_results(digit));
    const std::uint32_t begin = begin_of(digit, own_[digit]);
    const std::uint16_t count = width(digit);
    begin_part(turn, begin + count - 1);
    for (std::uint32_t i = 1; i < extents_[digit]; ++i)
      steps_.put(peer_of(digit, ahead_of(digit, i)),
                 slot_of(turn, digit, extents_[digit] - i, true), count,
                 at_part(results_of(turn), begin));
    if (digit > 0) return;
    for (std::uint16_t one = 0; one < count; ++one) {
      begin_part(turn, begin + one);
      steps_.copy(at_part(results_of(turn), begin + one), target_register);
    }
  }

  void take_results(std::uint32_t turn, std::uint32_t digit) {
    steps_.set_round(round_of_results(digit));
    const std::uint16_t count = width(digit);
    for (std::uint32_t i = extents_[digit]; --i > 0;) {
      const std::uint32_t there = ahead_of(digit, i), begin = begin_of(digit, there);
      const std::uint16_t slot = slot_of(turn, digit, i, true);
      begin_part(turn, begin + count - 1);
      steps_.await(peer_of(digit, there), slot, count);
      if (digit > 0) {
        steps_.copy(slot_register(slot), at_part(results_of(turn), begin), count);
        continue;
      }
      for (std::uint16_t one = 0; one < count; ++one) {
        begin_part(turn, begin + one);
        steps_.copy(slot_register(slot, one), target_register);
      }
    }
  }

  const LaneTurns& shape_;
  NodeShares shares_;
  std::uint32_t digit_count_;
  std::vector<std::uint32_t> extents_;  // by digit: how many ranks differ in it alone
  std::vector<std::uint32_t> own_;      // digits of this rank
  std::uint32_t messages_ = 0;          // of a turn, one way
  std::vector<std::uint32_t> first_slots_;
  Plan plan_;
  StepWriter steps_{plan_};
};

/// The events of one rank; the others do the same at the same time.
class Events {
 public:
  Events(const LaneTurns& shape, std::uint32_t node_ranks, const Network& network,
         std::uint64_t payload_bytes)
      : between_(network.between),
        inside_(network.inside),
        digit_count_(digits_of(shape)),
        turn_bytes_(payload_bytes / shape.turns),
        given_(shape.turns),
        told_(shape.turns),
        first_sums_(std::size_t{shape.turns} * digit_count_),
        first_results_(first_sums_.size()) {
    between_.ranks_at_port *= node_ranks;
    extents_ = {node_ranks};
    for (const std::uint32_t messages : shape.per_round) extents_.push_back(messages + 1);
    std::uint64_t ranges = 1;
    std::uint64_t parts = shape.rank_count;
    for (const std::uint32_t count : extents_) {
      ranges *= count;
      parts /= count;
      bytes_.push_back(turn_bytes_ / ranges);
      widths_.push_back(static_cast<Picoseconds>(parts));
    }
  }

  Picoseconds end(const LaneTurns& shape) && {
    for_each_stage(shape, [&](std::uint32_t turn, std::uint32_t stage) {
      if (stage > 0)
        take(turn, stage <= digit_count_ ? stage - 1 : 2 * digit_count_ - stage,
             stage > digit_count_);
      if (stage < 2 * digit_count_)
        put(turn, stage < digit_count_ ? stage : 2 * digit_count_ - 1 - stage,
            stage >= digit_count_);
    });
    return clock_;
  }

 private:
  std::size_t& first_of(std::uint32_t turn, std::uint32_t digit, bool is_result) {
    return (is_result ? first_results_ : first_sums_)[std::size_t{turn} * digit_count_ + digit];
  }

  void put(std::uint32_t turn, std::uint32_t digit, bool is_result) {
    const Picoseconds count = extents_[digit] - 1;
    if (digit == 0) {  // what the others of the node store at the same time
      (is_result ? told_ : given_)[turn] = clock_;
      clock_ += count * inside_.store_time(bytes_[0]);
      return;
    }
    const Picoseconds taken = between_.port_time(bytes_[digit]);
    first_of(turn, digit, is_result) = delivered_.size();
    for (Picoseconds i = 0; i < count; ++i) {
      const Picoseconds leaves = std::max(clock_, transmit_free_);
      transmit_free_ = leaves + taken;
      const Picoseconds begin =
          std::max(leaves + between_.travel_time(bytes_[digit]), receive_free_);
      receive_free_ = begin + taken;
      delivered_.push_back(begin);
    }
  }

  void take(std::uint32_t turn, std::uint32_t digit, bool is_result) {
    const Picoseconds combine =
        is_result ? 0 : (widths_[digit] - 1) * between_.work + between_.work_time(bytes_[digit]);
    for (std::uint32_t i = 0; i + 1 < extents_[digit]; ++i) {
      if (digit > 0) {
        await(first_of(turn, digit, is_result) + i);
      } else {
        wait_until((is_result ? told_ : given_)[turn] + (i + 1) * inside_.store_time(bytes_[0]) +
                   inside_.latency);
        clock_ += inside_.receive_overhead;
      }
      clock_ += combine;
    }
  }

  /// A rank that waits sees the messages of other nodes that come meanwhile.
  void wait_until(Picoseconds time) {
    while (clock_ < time && seen_ < delivered_.size() && delivered_[seen_] < time) {
      clock_ = std::max(clock_, delivered_[seen_]);
      poll();
    }
    clock_ = std::max(clock_, time);
  }

  void await(std::size_t message) {
    while (seen_ <= message) {
      clock_ = std::max(clock_, delivered_[seen_]);
      poll();
    }
  }

  void poll() {
    const std::size_t before = seen_;
    while (seen_ < delivered_.size() && delivered_[seen_] <= clock_) ++seen_;
    clock_ += static_cast<Picoseconds>(seen_ - before) * between_.receive_overhead;
  }

  LogGP between_;
  NodeMemory inside_;
  std::uint32_t digit_count_;
  std::uint64_t turn_bytes_;
  std::vector<std::uint32_t> extents_;
  std::vector<std::uint64_t> bytes_;       // by digit: of a message
  std::vector<Picoseconds> widths_;        // by digit: parts of a message
  std::vector<Picoseconds> given_, told_;  // by turn: when that began
  std::vector<std::size_t> first_sums_, first_results_;
  std::vector<Picoseconds> delivered_;  // messages of other nodes, in their order
  std::size_t seen_ = 0;
  Picoseconds clock_ = 0, transmit_free_ = 0, receive_free_ = 0;
};

}  // namespace

bool is_lane_turns(const LaneTurns& shape, const NodeCounts& counts) {
  if (shape.turns == 0 || counts.nodes == 1 || counts.largest == 1 ||
      counts.smallest != counts.largest)
    return false;
  std::uint64_t nodes = 1;
  for (const std::uint32_t messages : shape.per_round) {
    if (messages == 0 || messages >= counts.nodes) return false;
    nodes *= messages + std::uint64_t{1};
    if (nodes > counts.nodes) return false;
  }
  if (nodes != counts.nodes) return false;
  const LaneTurnsExtent extent = lane_turns_extent(shape, counts);
  return extent.parts <= UINT16_MAX && extent.slots <= slots_max / 2 &&
         extent.partials <= UINT16_MAX;
}

LaneTurnsExtent lane_turns_extent(const LaneTurns& shape, const NodeCounts& counts) {
  const std::uint64_t turns = shape.turns, node_ranks = counts.largest;
  return {.parts = turns * shape.rank_count,
          .payloads = counts.nodes,
          .slots = 2 * turns * (node_ranks - 1 + messages_across(shape)),
          .short_slots = 2 * turns * messages_across(shape),
          .short_payloads = counts.nodes / (shape.per_round.front() + std::uint64_t{1}),
          .partials = turns * (node_ranks + 1)};
}

Plan lane_turns_allreduce(Rank self, const LaneTurns& shape) {
  assert(index_of(self) < shape.rank_count);
  assert(is_lane_turns(shape, counts_of_nodes(shape.rank_count, shape.node_of)));
  return Builder(self, shape).build();
}

Picoseconds lane_turns_time(const LaneTurns& shape, const NodeCounts& counts,
                            const Network& network, std::uint64_t payload_bytes) {
  return Events(shape, counts.largest, network, payload_bytes).end(shape);
}

}  // namespace tutti::plan
