// See lane_turns.hpp.
//
//   partials   of each turn: sums and results, both of the range that this rank has of the first
//              digit; then, as they are given, the ranges of the other ranks of the node; then, of
//              each turn, what comes between two exchanges, of one part
//   slots      of each turn: sums of the node by piece and by how far ahead of this rank their
//              sender is, then results likewise; behind those of all turns: of each turn, sums by
//              digit and by how far ahead their sender is in this digit, then results likewise, of
//              the digits that are not exchanged
//
// In a range of the first digit, the parts are in blocks, one for each value of the second digit,
// in the order of how far ahead of this rank's own the value is.  The own block is the last one of
// sums, and the first one of results, because pieces of sums go from the first block on, but those
// of results from the last one on, as they come.
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

/// The number of messages with results that a rank sends in a turn.
std::uint32_t messages_of_results(const LaneTurns& shape) {
  return std::accumulate(shape.per_round.begin(), shape.per_round.end() - shape.exchanges,
                         std::uint32_t{0});
}

std::uint32_t digits_of(const LaneTurns& shape) {
  return static_cast<std::uint32_t>(1 + shape.per_round.size());
}

/// The digits whose ranges are cut: all but those of the exchanges, which are the last ones.
std::uint32_t cut_digits_of(const LaneTurns& shape) {
  return digits_of(shape) - shape.exchanges;
}

/// The stage in which results are sent to the ranks that differ in a digit.
std::uint32_t stage_of_results(const LaneTurns& shape, std::uint32_t digit) {
  return digits_of(shape) + cut_digits_of(shape) - 1 - digit;
}

std::uint32_t stages_of(const LaneTurns& shape) {
  return stage_of_results(shape, 0) + 2;
}

/// Some blocks of a range of the first digit.
struct Piece {
  std::uint32_t index = 0;  // in the order in which they go
  std::uint32_t begin = 0, end = 0;
  bool holds(std::uint32_t block) const { return begin <= block && block < end; }
};

std::uint32_t blocks_of(const LaneTurns& shape) {
  return shape.per_round.front() + 1;
}

Piece piece_of(const LaneTurns& shape, std::uint32_t index, bool is_result) {
  const std::uint32_t place = is_result ? shape.pieces - 1 - index : index;
  const std::uint64_t blocks = blocks_of(shape);
  return {.index = index,
          .begin = static_cast<std::uint32_t>(blocks * place / shape.pieces),
          .end = static_cast<std::uint32_t>(blocks * (place + 1) / shape.pieces)};
}

/// Calls visit(turn, stage, piece) for the stages of all turns, in the order in which a rank runs
/// them.  Stages whose messages all go to other nodes are about one piece alone, the first; but the
/// results that go across last are sent piece by piece.
template <class F>
void for_each_stage(const LaneTurns& shape, F&& visit) {
  const std::uint32_t stages = stages_of(shape), across_last = stage_of_results(shape, 1);
  const std::uint32_t pieces = shape.turns * shape.pieces;
  const auto visit_at = [&](std::uint32_t now, std::uint32_t stage, std::uint32_t behind) {
    if (now < behind || now - behind >= pieces) return;
    const std::uint32_t index = (now - behind) % shape.pieces;
    if (index == 0 || stage < 2 || stage >= across_last)
      visit((now - behind) / shape.pieces, stage, piece_of(shape, index, stage >= across_last));
  };
  if (shape.pieces == 1) {
    for (std::uint32_t now = 0; now + 1 < shape.turns + stages; ++now) {
      visit_at(now, 1, 1);
      visit_at(now, 0, 0);
      for (std::uint32_t stage = 2; stage < stages; ++stage) visit_at(now, stage, stage);
    }
    return;
  }
  const auto behind = [&](std::uint32_t stage) { return shape.pieces + stage - 2; };
  for (std::uint32_t now = 0; now < pieces + behind(stages); ++now) {
    for (std::uint32_t stage = 2; stage <= across_last; ++stage)
      visit_at(now, stage, behind(stage));
    for (const std::uint32_t stage : {0u, 1u}) visit_at(now, stage, 0);
    for (std::uint32_t stage = across_last + 1; stage < stages; ++stage)
      visit_at(now, stage, behind(stage));
  }
}

/// What passes between a rank and the one that is so far ahead of it in a digit.
class Passed {
 public:
  Passed(const LaneTurns& shape, std::uint32_t digit, std::uint32_t extent, std::uint32_t ahead) {
    const bool is_cut = digit < cut_digits_of(shape);
    const std::uint32_t results = is_cut ? stage_of_results(shape, digit) : 0;
    const std::uint32_t calls = 3;
    put_at_.resize(std::size_t{calls} * shape.turns * 2);
    for (std::uint32_t call = 0; call < calls; ++call)
      for_each_stage(shape, [&](std::uint32_t turn, std::uint32_t stage, const Piece& piece) {
        const auto is_of = [&](std::uint32_t block) {
          return digit > 1 ? piece.index == 0 : piece.holds(block);
        };
        const std::size_t sums = (std::size_t{call} * shape.turns + turn) * 2;
        if (stage == digit + 1 && piece.index == 0) take(sums);
        if (is_cut && stage == results + 1 && is_of(ahead)) take(sums + 1);
        if (stage == digit && is_of(ahead - 1)) put(sums);
        if (is_cut && stage == results && is_of(extent - ahead)) put(sums + 1);
      });
  }

  /// The most messages of the other rank that can be on their way to this one, if that one is as
  /// far as it can be.
  std::uint32_t on_their_way_max(const Passed& other) const {
    std::uint32_t most = 0, sent = 0, taken = 0;
    std::size_t there = 0;  // where the other rank is at most, if this one is `here`
    for (std::size_t here = 0; here < events_.size(); ++here) {
      for (; there < other.events_.size() &&
             (other.events_[there].is_put || put_at_[other.events_[there].message] < here);
           ++there)
        sent += other.events_[there].is_put ? 1u : 0u;
      most = std::max(most, sent - taken);
      taken += events_[here].is_put ? 0u : 1u;
    }
    return most;
  }

 private:
  struct Event {
    bool is_put;
    std::size_t message;
  };
  void take(std::size_t message) { events_.push_back({false, message}); }
  void put(std::size_t message) {
    put_at_[message] = events_.size();
    events_.push_back({true, message});
  }

  std::vector<Event> events_;
  std::vector<std::size_t> put_at_;  // of each message of this rank
};

/// The most messages of one peer on another node that can be on their way to this rank.  The peer
/// runs the same stages and waits for the messages of this rank, so its lead is bounded.  The bound
/// is reached within three calls.
std::uint32_t on_their_way_max(const LaneTurns& shape, std::uint32_t digit, std::uint32_t extent) {
  std::vector<Passed> passed;
  const bool all_alike = shape.pieces == 1 || digit > 1;
  for (std::uint32_t ahead = 1; ahead < (all_alike ? 2 : extent); ++ahead)
    passed.emplace_back(shape, digit, extent, ahead);
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < passed.size(); ++i)
    most = std::max(most, passed[i].on_their_way_max(passed[passed.size() - 1 - i]));
  return most;
}

class Builder {
 public:
  Builder(Rank self, const LaneTurns& shape)
      : shape_(shape),
        shares_(shape.rank_count, shape.node_of),
        digit_count_(digits_of(shape)),
        cut_count_(cut_digits_of(shape)) {
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
      const bool is_inside = plan_.per_round.empty();
      plan_.per_round.push_back((count - 1) * shape.turns * (is_inside ? shape.pieces : 1));
    }
    for (std::uint32_t digit = cut_count_; digit-- > 0;)
      plan_.per_round.push_back(plan_.per_round[digit]);
    for (std::uint32_t digit = 1; digit < digit_count_; ++digit)
      plan_.incoming_max =
          std::max(plan_.incoming_max, on_their_way_max(shape, digit, extents_[digit]));
    plan_.partial_count = plan_.partials_max;
  }

  Plan build() && {
    for_each_stage(shape_, [&](std::uint32_t turn, std::uint32_t stage, const Piece& piece) {
      run_stage(turn, stage, piece);
    });
    return std::move(plan_);
  }

 private:
  void run_stage(std::uint32_t turn, std::uint32_t stage, const Piece& piece) {
    const std::uint32_t stages = stages_of(shape_);
    if (stage == 0) return give(turn, piece);
    if (stage == 1) {
      take_given(turn, piece);
      return put_sums(turn, 1, piece);
    }
    if (stage == stages - 1) return hear(turn, piece);
    if (stage == stages - 2) {
      take_results(turn, 1, piece);
      return tell(turn, piece);
    }
    if (piece.index == 0) {
      const Piece whole{.end = extents_[1]};
      if (stage <= cut_count_)
        take_sums(turn, stage - 1);
      else if (stage <= digit_count_)
        take_exchanged(turn, stage - 1);
      else
        take_results(turn, digit_of_results(stage - 1), whole);
    }
    if (stage < cut_count_) return put_sums(turn, stage, piece);
    if (stage < digit_count_) return exchange(turn, stage);
    put_results(turn, digit_of_results(stage), piece);
  }

  /// The digit whose results a stage sends.
  std::uint32_t digit_of_results(std::uint32_t stage) const {
    return stage_of_results(shape_, 0) - stage;
  }

  /// Parts of a range of that digit, which is one that is cut.
  std::uint16_t width(std::uint32_t digit) const {
    return static_cast<std::uint16_t>(std::accumulate(extents_.begin() + digit + 1,
                                                      extents_.begin() + cut_count_,
                                                      std::uint32_t{1}, std::multiplies<>()));
  }
  /// Where a range of this rank begins among the parts of a turn, if it had that digit `there`.
  std::uint32_t begin_of(std::uint32_t digit, std::uint32_t there) const {
    std::uint32_t begin = there * width(digit);
    for (std::uint32_t before = 0; before < digit; ++before) begin += own_[before] * width(before);
    return begin;
  }
  std::uint16_t part_at(std::uint32_t turn, std::uint32_t at) const {
    return static_cast<std::uint16_t>(turn * extents_[0] * width(0) + at);
  }
  void begin_part(std::uint32_t turn, std::uint32_t at) { steps_.begin_part(part_at(turn, at)); }
  /// The part at a place of a range of the first digit of the rank that has this one `there`.
  std::uint32_t part_in(std::uint32_t there, std::uint32_t place, bool is_result) const {
    const std::uint32_t ahead = place / width(1) + (is_result ? 0 : 1);
    return there * width(0) + ahead_of(1, ahead) * width(1) + place % width(1);
  }
  /// A register for a range of the first digit of this rank, at one of its parts.
  Register at_part(std::uint32_t partial, std::uint32_t at) const {
    const bool is_result = partial % 2 == 1;
    const std::uint32_t inside = at - begin_of(0, own_[0]);
    const std::uint32_t ahead = inside / width(1) + extents_[1] - own_[1];
    const std::uint32_t block = (ahead - (is_result ? 0 : 1)) % extents_[1];
    return at_place(partial, block * width(1) + inside % width(1));
  }
  static Register at_place(std::uint32_t partial, std::uint32_t place) {
    return partial_register(static_cast<std::uint16_t>(partial), static_cast<std::uint16_t>(place));
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
  static std::uint32_t which(std::uint32_t turn, bool is_result) {
    return 2 * turn + (is_result ? 1u : 0u);
  }
  /// The slot of a message from the rank `ahead` of its receiver in their node.
  std::uint16_t slot_inside(std::uint32_t turn, std::uint32_t ahead, bool is_result,
                            const Piece& piece) const {
    const std::uint32_t number = which(turn, is_result) * shape_.pieces + piece.index;
    return static_cast<std::uint16_t>(number * (extents_[0] - 1) + ahead - 1);
  }
  /// The slot of a message from another node.
  std::uint16_t slot_across(std::uint32_t turn, std::uint32_t digit, std::uint32_t ahead,
                            bool is_result) const {
    const std::uint32_t inside = extents_[0] - 1;
    const std::uint32_t sums = messages_ - inside;
    return static_cast<std::uint16_t>(
        2 * shape_.turns * shape_.pieces * inside + turn * (sums + messages_of_results(shape_)) +
        (is_result ? sums : 0) + first_slots_[digit] - inside + ahead - 1);
  }

  /// Gives the other ranks of the node a piece of their ranges.
  void give(std::uint32_t turn, const Piece& piece) {
    steps_.set_round(0);
    const std::uint32_t begin = piece.begin * width(1), end = piece.end * width(1);
    const std::uint32_t others = extents_[0] - 1;
    for (std::uint32_t i = 1; i <= others; ++i) {
      const std::uint32_t there = ahead_of(0, i);
      const std::uint32_t given = 2 * shape_.turns + turn * others + i - 1;
      for (std::uint32_t place = begin; place < end; ++place) {
        begin_part(turn, part_in(there, place, false));
        steps_.copy(source_register, at_place(given, place));
      }
      steps_.put(peer_of(0, there), slot_inside(turn, extents_[0] - i, false, piece),
                 static_cast<std::uint16_t>(end - begin), at_place(given, begin));
    }
  }

  /// Adds up what the ranks of the node have given to this one.
  void take_given(std::uint32_t turn, const Piece& piece) {
    steps_.set_round(0);
    const std::uint32_t begin = piece.begin * width(1), end = piece.end * width(1);
    for (std::uint32_t place = begin; place < end; ++place) {
      begin_part(turn, part_in(own_[0], place, false));
      steps_.copy(source_register, at_place(sums_of(turn), place));
    }
    // In the order of arrival: the rank before this one has sent to it first.
    for (std::uint32_t i = extents_[0]; --i > 0;) {
      const std::uint16_t slot = slot_inside(turn, i, false, piece);
      begin_part(turn, part_in(own_[0], end - 1, false));
      steps_.await(peer_of(0, ahead_of(0, i)), slot, static_cast<std::uint16_t>(end - begin));
      for (std::uint32_t place = begin; place < end; ++place) {
        begin_part(turn, part_in(own_[0], place, false));
        steps_.combine(slot_register(slot, static_cast<std::uint16_t>(place - begin)),
                       at_place(sums_of(turn), place));
      }
    }
  }

  /// Adds up this rank's range of a digit across.  After the last one the sums are results.
  void take_sums(std::uint32_t turn, std::uint32_t digit) {
    steps_.set_round(digit);
    const std::uint32_t begin = begin_of(digit, own_[digit]);
    const std::uint16_t count = width(digit);
    const bool is_last = digit + 1 == digit_count_;
    const std::uint32_t into = is_last ? results_of(turn) : sums_of(turn);
    if (is_last) {
      assert(count == 1);
      begin_part(turn, begin);
      steps_.copy(at_part(sums_of(turn), begin), at_part(into, begin));
    }
    for (std::uint32_t i = extents_[digit]; --i > 0;) {
      const std::uint16_t slot = slot_across(turn, digit, i, false);
      begin_part(turn, begin + count - 1);
      steps_.await(peer_of(digit, ahead_of(digit, i)), slot, count);
      for (std::uint16_t one = 0; one < count; ++one) {
        begin_part(turn, begin + one);
        steps_.combine(slot_register(slot, one), at_part(into, begin + one));
      }
    }
  }

  /// Where this rank has its part before the exchange of a digit.
  Register before_exchange(std::uint32_t turn, std::uint32_t digit) const {
    if (digit == cut_count_) return at_part(sums_of(turn), own_part());
    if (digit == digit_count_) return at_part(results_of(turn), own_part());
    const std::uint32_t given = shape_.turns * (extents_[0] + 1);
    return at_place(given + turn * (shape_.exchanges - 1) + digit - cut_count_ - 1, 0);
  }
  std::uint32_t own_part() const { return begin_of(cut_count_ - 1, own_[cut_count_ - 1]); }

  /// Sends this rank's part to all that differ in a digit.
  void exchange(std::uint32_t turn, std::uint32_t digit) {
    steps_.set_round(digit);
    begin_part(turn, own_part());
    for (std::uint32_t i = 1; i < extents_[digit]; ++i)
      steps_.put(peer_of(digit, ahead_of(digit, i)),
                 slot_across(turn, digit, extents_[digit] - i, false), 1,
                 before_exchange(turn, digit));
  }

  /// Adds up what the ranks have that differ in a digit, in the order of the digit: all of them get
  /// the same bits.
  void take_exchanged(std::uint32_t turn, std::uint32_t digit) {
    steps_.set_round(digit);
    begin_part(turn, own_part());
    for (std::uint32_t i = extents_[digit]; --i > 0;)
      steps_.await(peer_of(digit, ahead_of(digit, i)), slot_across(turn, digit, i, false), 1);
    const auto sums_of_digit = [&](std::uint32_t there) {
      if (there == own_[digit]) return before_exchange(turn, digit);
      const std::uint32_t ahead = (there + extents_[digit] - own_[digit]) % extents_[digit];
      return slot_register(slot_across(turn, digit, ahead, false));
    };
    const Register into = before_exchange(turn, digit + 1);
    std::uint32_t there = extents_[digit] - 1;
    steps_.copy(sums_of_digit(there), into);
    while (there-- > 0) steps_.combine(sums_of_digit(there), into);
  }

  void put_sums(std::uint32_t turn, std::uint32_t digit, const Piece& piece) {
    steps_.set_round(digit);
    const std::uint16_t count = width(digit);
    for (std::uint32_t i = 1; i < extents_[digit]; ++i) {
      if (digit == 1 && !piece.holds(i - 1)) continue;
      const std::uint32_t there = ahead_of(digit, i), begin = begin_of(digit, there);
      begin_part(turn, begin + count - 1);
      steps_.put(peer_of(digit, there), slot_across(turn, digit, extents_[digit] - i, false), count,
                 at_part(sums_of(turn), begin));
    }
  }

  std::uint32_t round_of_results(std::uint32_t digit) const {
    return stage_of_results(shape_, digit);
  }

  /// Sends what there is of the results to the ranks that differ in a digit; of the second one, to
  /// those that await it in a piece.
  void put_results(std::uint32_t turn, std::uint32_t digit, const Piece& piece) {
    steps_.set_round(round_of_results(digit));
    const std::uint32_t begin = begin_of(digit, own_[digit]);
    const std::uint16_t count = width(digit);
    begin_part(turn, begin + count - 1);
    for (std::uint32_t i = 1; i < extents_[digit]; ++i)
      if (digit > 1 || piece.holds(extents_[digit] - i))
        steps_.put(peer_of(digit, ahead_of(digit, i)),
                   slot_across(turn, digit, extents_[digit] - i, true), count,
                   at_part(results_of(turn), begin));
  }

  void take_results(std::uint32_t turn, std::uint32_t digit, const Piece& piece) {
    steps_.set_round(round_of_results(digit));
    const std::uint16_t count = width(digit);
    for (std::uint32_t i = extents_[digit]; --i > 0;) {
      if (digit == 1 && !piece.holds(i)) continue;
      const std::uint32_t there = ahead_of(digit, i), begin = begin_of(digit, there);
      const std::uint16_t slot = slot_across(turn, digit, i, true);
      begin_part(turn, begin + count - 1);
      steps_.await(peer_of(digit, there), slot, count);
      steps_.copy(slot_register(slot), at_part(results_of(turn), begin), count);
    }
  }

  /// Sends a piece of the results to the other ranks of the node, and keeps it.
  void tell(std::uint32_t turn, const Piece& piece) {
    steps_.set_round(round_of_results(0));
    const std::uint32_t begin = piece.begin * width(1), end = piece.end * width(1);
    begin_part(turn, part_in(own_[0], end - 1, true));
    for (std::uint32_t i = 1; i < extents_[0]; ++i)
      steps_.put(peer_of(0, ahead_of(0, i)), slot_inside(turn, extents_[0] - i, true, piece),
                 static_cast<std::uint16_t>(end - begin), at_place(results_of(turn), begin));
    for (std::uint32_t place = begin; place < end; ++place) {
      begin_part(turn, part_in(own_[0], place, true));
      steps_.copy(at_place(results_of(turn), place), target_register);
    }
  }

  void hear(std::uint32_t turn, const Piece& piece) {
    steps_.set_round(round_of_results(0));
    const std::uint32_t begin = piece.begin * width(1), end = piece.end * width(1);
    for (std::uint32_t i = extents_[0]; --i > 0;) {
      const std::uint32_t there = ahead_of(0, i);
      const std::uint16_t slot = slot_inside(turn, i, true, piece);
      begin_part(turn, part_in(there, end - 1, true));
      steps_.await(peer_of(0, there), slot, static_cast<std::uint16_t>(end - begin));
      for (std::uint32_t place = begin; place < end; ++place) {
        begin_part(turn, part_in(there, place, true));
        steps_.copy(slot_register(slot, static_cast<std::uint16_t>(place - begin)),
                    target_register);
      }
    }
  }

  const LaneTurns& shape_;
  NodeShares shares_;
  std::uint32_t digit_count_, cut_count_;
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
      : shape_(shape),
        between_(network.between),
        inside_(network.inside),
        digit_count_(digits_of(shape)),
        cut_count_(cut_digits_of(shape)),
        turn_bytes_(payload_bytes / shape.turns),
        given_(std::size_t{shape.turns} * shape.pieces),
        told_(given_.size()),
        first_sums_(given_.size() * digit_count_),
        first_results_(first_sums_.size()) {
    between_.ranks_at_port *= node_ranks;
    extents_ = {node_ranks};
    for (const std::uint32_t messages : shape.per_round) extents_.push_back(messages + 1);
    std::uint64_t ranges = 1;
    std::uint64_t parts = std::accumulate(extents_.begin(), extents_.begin() + cut_count_,
                                          std::uint64_t{1}, std::multiplies<>());
    for (std::uint32_t digit = 0; digit < digit_count_; ++digit) {
      if (digit < cut_count_) {
        ranges *= extents_[digit];
        parts /= extents_[digit];
      }
      bytes_.push_back(turn_bytes_ / ranges);
      widths_.push_back(static_cast<Picoseconds>(parts));
    }
  }

  Picoseconds end() && {
    const std::uint32_t tells = stage_of_results(shape_, 0);
    for_each_stage(shape_, [&](std::uint32_t turn, std::uint32_t stage, const Piece& piece) {
      if (stage > 0 && stage <= digit_count_)
        stage == 1 ? take_inside(turn, piece, false) : take_sums(turn, stage - 1, piece);
      else if (stage > 0)
        stage > tells ? take_inside(turn, piece, true)
                      : take_results(turn, tells + 1 - stage, piece);
      if (stage == 0 || stage == tells)
        put_inside(turn, piece, stage > 0);
      else if (stage < tells)
        put_across(turn, stage < digit_count_ ? stage : tells - stage, piece,
                   stage >= digit_count_);
    });
    return clock_;
  }

 private:
  std::size_t& first_of(std::uint32_t turn, std::uint32_t digit, std::uint32_t index,
                        bool is_result) {
    const std::size_t at = (std::size_t{turn} * digit_count_ + digit) * shape_.pieces + index;
    return (is_result ? first_results_ : first_sums_)[at];
  }
  Picoseconds& begin_of(std::uint32_t turn, const Piece& piece, bool is_result) {
    return (is_result ? told_ : given_)[std::size_t{turn} * shape_.pieces + piece.index];
  }
  std::uint64_t bytes_inside(const Piece& piece) const {
    return bytes_[0] * (piece.end - piece.begin) / extents_[1];
  }
  /// Messages of a digit across, of the second one those of a piece: all of its blocks, but for
  /// this rank's own.
  std::size_t messages_of(std::uint32_t digit, const Piece& piece, bool is_result) const {
    if (digit > 1) return extents_[digit] - 1;
    return piece.end - piece.begin - (piece.holds(is_result ? 0 : extents_[1] - 1) ? 1 : 0);
  }

  /// What the others of the node store at the same time.
  void put_inside(std::uint32_t turn, const Piece& piece, bool is_result) {
    begin_of(turn, piece, is_result) = clock_;
    clock_ += Picoseconds{extents_[0] - 1} * inside_.store_time(bytes_inside(piece));
  }

  void take_inside(std::uint32_t turn, const Piece& piece, bool is_result) {
    const std::uint64_t bytes = bytes_inside(piece);
    const Picoseconds parts = Picoseconds{piece.end - piece.begin} * widths_[1];
    const Picoseconds combine =
        is_result ? 0 : (parts - 1) * between_.work + between_.work_time(bytes);
    const Picoseconds stored = inside_.store_time(bytes);
    Picoseconds visible = begin_of(turn, piece, is_result) + inside_.latency;
    for (std::uint32_t i = 1; i < extents_[0]; ++i) {
      visible += stored;
      wait_until(visible);
      clock_ += inside_.receive_overhead + combine;
    }
  }

  void put_across(std::uint32_t turn, std::uint32_t digit, const Piece& piece, bool is_result) {
    const Picoseconds taken = between_.port_time(bytes_[digit]);
    first_of(turn, digit, piece.index, is_result) = delivered_.size();
    for (std::size_t i = messages_of(digit, piece, is_result); i-- > 0;) {
      const Picoseconds leaves = std::max(clock_, transmit_free_);
      transmit_free_ = leaves + taken;
      clock_ += between_.rank_gap;
      const Picoseconds begin =
          std::max(leaves + between_.travel_time(bytes_[digit]), receive_free_);
      receive_free_ = begin + taken;
      delivered_.push_back(begin);
    }
  }

  void take_sums(std::uint32_t turn, std::uint32_t digit, const Piece& piece) {
    if (piece.index > 0) return;
    const Picoseconds combine =
        (widths_[digit] - 1) * between_.work + between_.work_time(bytes_[digit]);
    if (digit >= cut_count_) {  // all are awaited before the first one is added
      await_across(turn, digit, piece, false, 0);
      clock_ += Picoseconds{extents_[digit] - 1} * combine;
      return;
    }
    for (std::uint32_t index = 0; index < (digit == 1 ? shape_.pieces : 1); ++index)
      await_across(turn, digit, piece_of(shape_, index, false), false, combine);
  }

  void take_results(std::uint32_t turn, std::uint32_t digit, const Piece& piece) {
    if (digit == 1 || piece.index == 0) await_across(turn, digit, piece, true, 0);
  }

  void await_across(std::uint32_t turn, std::uint32_t digit, const Piece& piece, bool is_result,
                    Picoseconds combine) {
    const std::size_t first = first_of(turn, digit, piece.index, is_result);
    for (std::size_t i = 0; i < messages_of(digit, piece, is_result); ++i) {
      await(first + i);
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

  const LaneTurns& shape_;
  LogGP between_;
  NodeMemory inside_;
  std::uint32_t digit_count_, cut_count_;
  std::uint64_t turn_bytes_;
  std::vector<std::uint32_t> extents_;
  std::vector<std::uint64_t> bytes_;       // by digit: of a message
  std::vector<Picoseconds> widths_;        // by digit: parts of a message
  std::vector<Picoseconds> given_, told_;  // by piece: when that began
  std::vector<std::size_t> first_sums_, first_results_;
  std::vector<Picoseconds> delivered_;  // messages of other nodes, in their order
  std::size_t seen_ = 0;
  Picoseconds clock_ = 0, transmit_free_ = 0, receive_free_ = 0;
};

}  // namespace

bool is_lane_turns(const LaneTurns& shape, const NodeCounts& counts) {
  if (shape.turns == 0 || shape.pieces == 0 || counts.nodes == 1 || counts.largest == 1 ||
      counts.smallest != counts.largest)
    return false;
  std::uint64_t nodes = 1;
  for (const std::uint32_t messages : shape.per_round) {
    if (messages == 0 || messages >= counts.nodes) return false;
    nodes *= messages + std::uint64_t{1};
    if (nodes > counts.nodes) return false;
  }
  if (nodes != counts.nodes || shape.pieces > blocks_of(shape)) return false;
  if (shape.exchanges >= shape.per_round.size()) return false;
  const LaneTurnsExtent extent = lane_turns_extent(shape, counts);
  return extent.parts <= UINT16_MAX && extent.slots <= slots_max / 2 &&
         extent.partials <= UINT16_MAX;
}

LaneTurnsExtent lane_turns_extent(const LaneTurns& shape, const NodeCounts& counts) {
  const std::uint64_t turns = shape.turns, others = counts.largest - std::uint64_t{1};
  const std::uint64_t inside = 2 * turns * shape.pieces * others;
  const std::uint64_t across = turns * (messages_across(shape) + messages_of_results(shape));
  std::uint64_t ranges = 1;  // of the nodes
  for (std::size_t round = 0; round + shape.exchanges < shape.per_round.size(); ++round)
    ranges *= shape.per_round[round] + std::uint64_t{1};
  const std::uint64_t blocks = blocks_of(shape), block = ranges / blocks;
  const bool is_whole = shape.pieces == 1;
  return {.parts = turns * counts.largest * ranges,
          .payloads = ranges,
          .slots = inside + across,
          .short_slots = is_whole ? across : inside + across,
          .short_payloads = is_whole ? block : (blocks + shape.pieces - 1) / shape.pieces * block,
          .partials = turns * (others + 2 + (shape.exchanges > 1 ? shape.exchanges - 1 : 0))};
}

Plan lane_turns_allreduce(Rank self, const LaneTurns& shape) {
  assert(index_of(self) < shape.rank_count);
  assert(is_lane_turns(shape, counts_of_nodes(shape.rank_count, shape.node_of)));
  return Builder(self, shape).build();
}

Picoseconds lane_turns_time(const LaneTurns& shape, const NodeCounts& counts,
                            const Network& network, std::uint64_t payload_bytes) {
  return Events(shape, counts.largest, network, payload_bytes).end();
}

Picoseconds lane_turns_estimate(const LaneTurns& shape, const NodeCounts& counts,
                                const Network& network, std::uint64_t payload_bytes) {
  LogGP between = network.between;
  between.ranks_at_port *= counts.largest;
  const NodeMemory& inside = network.inside;
  const auto turns = Picoseconds{shape.turns}, others = Picoseconds{counts.largest - 1};
  const std::uint64_t range = payload_bytes / shape.turns / counts.largest;
  std::uint64_t bytes = range, parts = lane_turns_extent(shape, counts).payloads;
  const auto combine_time = [&] {
    return (static_cast<Picoseconds>(parts) - 1) * between.work + between.work_time(bytes);
  };
  // What a turn costs the port, and the rank that takes its messages.
  Picoseconds port = 0, rank = others * combine_time();
  const std::size_t cut = shape.per_round.size() - shape.exchanges;
  for (std::size_t round = 0; round < shape.per_round.size(); ++round) {
    const auto messages = Picoseconds{shape.per_round[round]};
    if (round < cut) {
      const std::uint64_t ranges = shape.per_round[round] + std::uint64_t{1};
      bytes /= ranges;
      parts /= ranges;
    }
    const Picoseconds both_ways = round < cut ? 2 * messages : messages;
    port += both_ways * between.sending_time(bytes);
    rank += both_ways * (between.rank_gap + between.receive_overhead) + messages * combine_time();
  }
  const std::uint32_t blocks = blocks_of(shape);
  const auto given = [&](std::uint32_t index) {
    const Piece piece = piece_of(shape, index, false);
    return others * inside.store_time(range * (piece.end - piece.begin) / blocks);
  };
  for (std::uint32_t index = 0; index < shape.pieces; ++index)
    rank += 2 * (given(index) + others * inside.receive_overhead);
  const std::uint32_t stages = stages_of(shape), steps = shape.turns * shape.pieces;
  const std::uint32_t behind = shape.pieces == 1 ? stages : shape.pieces + stages - 2;
  const Picoseconds travel = between.send_overhead + between.latency;
  const Picoseconds by_port = turns * port + 2 * given(0) + travel;
  const Picoseconds by_memory = turns * rank + (behind > steps ? (behind - steps) * travel : 0);
  // Each step awaits what was sent one step before.  A quarter of the rank's work is not hidden.
  const Picoseconds by_latency =
      Picoseconds{steps + stages - 4} * travel + 2 * given(0) + turns * rank / 4;
  // For beginning and end, a twentieth of a turn's time at the port for each stage.
  return std::max({by_port, by_memory, by_latency}) + port * Picoseconds{stages} / 20;
}

}  // namespace tutti::plan
