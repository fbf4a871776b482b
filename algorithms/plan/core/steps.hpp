// Spells the steps of a plan, so that the builders read like the schedules they implement.  Most
// schedules are circulant: every rank uses the same offsets, and what it sends to the rank `offset`
// ahead, it receives from the rank `offset` behind.
#pragma once

#include <cassert>
#include <cstdint>
#include <limits>

#include "plan/core/plan.hpp"

namespace tutti::plan {

inline Rank rank_ahead(Rank self, std::uint64_t offset, std::uint32_t rank_count) {
  assert(index_of(self) < rank_count);
  assert(offset < rank_count);
  return Rank{static_cast<std::uint32_t>((index_of(self) + offset) % rank_count)};
}

inline Rank rank_behind(Rank self, std::uint64_t offset, std::uint32_t rank_count) {
  assert(index_of(self) < rank_count);
  assert(offset < rank_count);
  return Rank{static_cast<std::uint32_t>((index_of(self) + rank_count - offset) % rank_count)};
}

/// The part, block or slot of a rank, where each rank has one.
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

/// Appends steps to a plan, in its current round and about its current part.  The plan's ranks,
/// parts, payloads and slots are counted before the first step that needs them.
class StepWriter {
 public:
  explicit StepWriter(Plan& plan) : plan_(plan) {}

  void begin_round(std::uint32_t messages) {
    plan_.per_round.push_back(messages);
    set_round(static_cast<std::uint32_t>(plan_.per_round.size() - 1));
  }

  /// For plans whose rounds are known beforehand, of which a rank may have no step in some.  Where
  /// a payload is cut into parts, a part may be in a later round than the one after it.
  void set_round(std::uint32_t round) { round_ = round; }

  /// The part that the steps that follow are about.
  void begin_part(std::uint16_t part) {
    assert(part < plan_.parts);
    part_ = part;
  }

  /// `forwards`: blocks that are not this rank's own, or the last of which is not.
  void put(Rank peer, std::uint16_t slot, std::uint16_t payloads, Register from = {},
           bool forwards = false) {
    check_message(peer, slot, payloads);
    assert(payloads == 0 || is_register(from, payloads));
    append({.action = Action::put,
            .payloads = payloads,
            .slot = slot,
            .forwards = forwards,
            .peer = peer,
            .from = from});
  }

  /// Puts the payload into the peer's target, and notifies `slot` there.
  void put_into_target(Rank peer, std::uint16_t slot, Register from) {
    put(peer, slot, 1, from);
    plan_.steps.back().into_target = true;
  }

  /// Waits until the peer has put its payload into this rank's target.
  void await_in_target(Rank peer, std::uint16_t slot) {
    await(peer, slot, 1);
    plan_.steps.back().into_target = true;
  }

  /// Tells the peer, which shares the target or will write it, that this rank has entered.
  void put_entry(Rank peer, std::uint16_t slot) {
    assert(plan_.shares_target || plan_.zero_copy);
    put(peer, slot, 0);
    plan_.steps.back().into_target = true;
  }

  /// Waits until the peer, which shares the target or whose target this rank will write, has
  /// entered.
  void await_entry(Rank peer, std::uint16_t slot) {
    assert(plan_.shares_target || plan_.zero_copy);
    await(peer, slot, 0);
    plan_.steps.back().into_target = true;
  }

  void await_sent(Rank peer) {
    check_peer(peer);
    append({.action = Action::await_sent, .peer = peer});
  }

  /// Tells the peer where `from` lies, which is the source, the target or a partial.
  void put_reference(Rank peer, std::uint16_t slot, Register from) {
    assert(from.place != Place::slot);
    put(peer, slot, 1, from);
    plan_.steps.back().by_reference = true;
  }

  /// Waits until the peer has told where its payload lies.
  void await_reference(Rank peer, std::uint16_t slot) {
    await(peer, slot, 1);
    plan_.steps.back().by_reference = true;
  }

  /// into = the payload that the peer's reference in `slot` leads to.
  void copy_referenced(Rank peer, std::uint16_t slot, Register into) {
    check_peer(peer);
    copy(slot_register(slot), into);
    plan_.steps.back().by_reference = true;
    plan_.steps.back().peer = peer;
  }

  /// into = the payload that the peer's reference in `slot` leads to o source.
  void combine_referenced(Rank peer, std::uint16_t slot, Register into) {
    check_peer(peer);
    combine(slot_register(slot), into);
    plan_.steps.back().by_reference = true;
    plan_.steps.back().peer = peer;
  }

  /// into = the payload that the peer's reference in `slot` leads to o into.
  void grow_by_referenced(Rank peer, std::uint16_t slot, Register into) {
    combine_referenced(peer, slot, into);
    plan_.steps.back().grows = true;
  }

  void await(Rank peer, std::uint16_t slot, std::uint16_t payloads) {
    check_message(peer, slot, payloads);
    append({.action = Action::await, .payloads = payloads, .slot = slot, .peer = peer});
  }

  void await_credit(Rank peer, std::uint16_t slot) {
    check_message(peer, slot, 0);
    assert(plan_.flow_control == FlowControl::one_way);
    append({.action = Action::await_credit, .slot = slot, .peer = peer});
  }

  void copy(Register from, Register into, std::uint16_t payloads = 1) {
    assert(payloads > 0);
    check_registers(from, into, payloads);
    append({.action = Action::copy, .payloads = payloads, .from = from, .into = into});
  }

  /// into = from o into: `from` holds the lower ranks.
  void combine(Register from, Register into) {
    check_registers(from, into, 1);
    append({.action = Action::combine, .from = from, .into = into});
  }

  /// into = into without from.
  void take_out(Register from, Register into) {
    check_registers(from, into, 1);
    append({.action = Action::take_out, .from = from, .into = into});
  }

 private:
  void append(Step step) {
    step.part = part_;
    step.round = round_;
    plan_.steps.push_back(step);
  }

  void check_peer([[maybe_unused]] Rank peer) const {
    assert(peer != plan_.self);
    assert(index_of(peer) < plan_.rank_count);
  }
  void check_message(Rank peer, [[maybe_unused]] std::uint16_t slot,
                     [[maybe_unused]] std::uint16_t payloads) const {
    check_peer(peer);
    assert(slot < plan_.slot_count);  // alike on all ranks, so there is such a slot at the peer
    assert(payloads <= plan_.payloads);
  }
  void check_registers([[maybe_unused]] const Register& from, [[maybe_unused]] const Register& into,
                       [[maybe_unused]] std::uint16_t payloads) const {
    assert(into.place == Place::target || into.place == Place::partial);
    assert(is_register(from, payloads));
    assert(is_register(into, payloads));
  }
  /// Whether the plan may have it; partials may be counted when all steps are written.
  [[maybe_unused]] bool is_register(const Register& where, std::uint16_t payloads) const {
    if (where.place == Place::source || where.place == Place::target)
      return where.payload == 0 && payloads == 1;
    if (where.place == Place::slot && where.index >= plan_.slot_count) return false;
    const bool may_be_short = where.place == Place::slot && plan_.short_slot_count > 0;
    return where.payload + payloads <=
           (may_be_short ? payloads_of_slot(plan_, where.index) : plan_.payloads);
  }

  Plan& plan_;
  std::uint16_t part_ = 0;
  std::uint32_t round_ = 0;
};

}  // namespace tutti::plan
