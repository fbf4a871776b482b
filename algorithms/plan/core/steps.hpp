// Spells the steps of a plan, so that the builders read like the schedules they implement.  Most
// are circulant: every rank uses the same offsets, so the peer it tells is `ahead` by what the peer
// it hears from is `behind`.
#pragma once

#include <cassert>
#include <cstdint>
#include <limits>

#include "plan/core/plan.hpp"

namespace tutti::plan {

inline Rank rank_ahead(Rank self, std::uint64_t offset, std::uint32_t rank_count) {
  assert(offset < rank_count);
  return Rank{static_cast<std::uint32_t>((index_of(self) + offset) % rank_count)};
}

inline Rank rank_behind(Rank self, std::uint64_t offset, std::uint32_t rank_count) {
  assert(offset < rank_count);
  return Rank{static_cast<std::uint32_t>((index_of(self) + rank_count - offset) % rank_count)};
}

/// Where there is a part, a block or a slot for each rank: that of this one.
inline std::uint16_t part_of(Rank rank) {
  assert(index_of(rank) <= std::numeric_limits<std::uint16_t>::max());
  return static_cast<std::uint16_t>(index_of(rank));
}

inline constexpr Register source_register{.place = Place::source};
inline constexpr Register target_register{.place = Place::target};

inline Register partial_register(std::uint16_t index, std::uint16_t payload = 0) {
  return {.place = Place::partial, .payload = payload, .index = index};
}

inline Register slot_register(std::uint16_t index, std::uint16_t payload = 0) {
  return {.place = Place::slot, .payload = payload, .index = index};
}

/// Appends steps to a plan; `round` is the one being built.
class StepWriter {
 public:
  explicit StepWriter(Plan& plan) : plan_(plan) {}

  void begin_round(std::uint32_t messages) {
    plan_.per_round.push_back(messages);
    round_ = static_cast<std::uint32_t>(plan_.per_round.size() - 1);
  }

  /// Where the rounds are known beforehand, and a rank has not something to do in each.
  void set_round(std::uint32_t round) { round_ = round; }

  /// What the steps that follow work on.
  void begin_part(std::uint16_t part) { part_ = part; }

  /// `forwards`: blocks that are not this rank's own, or the last of which is not.
  void put(Rank peer, std::uint16_t slot, std::uint16_t payloads, Register from = {},
           bool forwards = false) {
    assert(peer != plan_.self);
    plan_.steps.push_back({.action = Action::put,
                           .payloads = payloads,
                           .slot = slot,
                           .part = part_,
                           .forwards = forwards,
                           .round = round_,
                           .peer = peer,
                           .from = from});
  }

  /// Into the peer's target; `slot` of it is notified.
  void put_into_target(Rank peer, std::uint16_t slot, Register from) {
    put(peer, slot, 1, from);
    plan_.steps.back().into_target = true;
  }

  /// Until the peer has put its payload into this rank's target.
  void await_in_target(Rank peer, std::uint16_t slot) {
    await(peer, slot, 1);
    plan_.steps.back().into_target = true;
  }

  void await_sent(Rank peer) {
    plan_.steps.push_back(
        {.action = Action::await_sent, .part = part_, .round = round_, .peer = peer});
  }

  /// Tells the peer where `from` lies, which is the source or the target.
  void put_reference(Rank peer, std::uint16_t slot, Register from) {
    put(peer, slot, 1, from);
    plan_.steps.back().by_reference = true;
  }

  /// Until the peer has told where its payload lies.
  void await_reference(Rank peer, std::uint16_t slot) {
    await(peer, slot, 1);
    plan_.steps.back().by_reference = true;
  }

  /// into = what the peer has told of.
  void copy_referenced(Rank peer, std::uint16_t slot, Register into) {
    copy(slot_register(slot), into);
    plan_.steps.back().by_reference = true;
    plan_.steps.back().peer = peer;
  }

  /// into = what the peer has told of o source.
  void combine_referenced(Rank peer, std::uint16_t slot, Register into) {
    combine(slot_register(slot), into);
    plan_.steps.back().by_reference = true;
    plan_.steps.back().peer = peer;
  }

  void await(Rank peer, std::uint16_t slot, std::uint16_t payloads) {
    assert(peer != plan_.self);
    plan_.steps.push_back({.action = Action::await,
                           .payloads = payloads,
                           .slot = slot,
                           .part = part_,
                           .round = round_,
                           .peer = peer});
  }

  void await_credit(Rank peer, std::uint16_t slot) {
    assert(peer != plan_.self);
    plan_.steps.push_back({.action = Action::await_credit,
                           .slot = slot,
                           .part = part_,
                           .round = round_,
                           .peer = peer});
  }

  void copy(Register from, Register into, std::uint16_t payloads = 1) {
    plan_.steps.push_back({.action = Action::copy,
                           .payloads = payloads,
                           .part = part_,
                           .round = round_,
                           .from = from,
                           .into = into});
  }

  /// into = from o into: `from` holds the lower ranks.
  void combine(Register from, Register into) { append(Action::combine, from, into); }

  /// into = into without from.
  void take_out(Register from, Register into) { append(Action::take_out, from, into); }

 private:
  void append(Action action, Register from, Register into) {
    plan_.steps.push_back(
        {.action = action, .part = part_, .round = round_, .from = from, .into = into});
  }

  Plan& plan_;
  std::uint16_t part_ = 0;
  std::uint32_t round_ = 0;
};

}  // namespace tutti::plan
