// Stale-synchronous calls: where the message of this call has not arrived, the message of an
// earlier call is taken, if the oldest contribution in it is at most `slack` calls old.  Every
// value on its way carries a label: the number of the call from which its oldest contribution is.
//
// After M. A. Al Ahad, C. Simmendinger, R. Iakymchuk, E. Laure, S. Markidis, "Efficient algorithms
// for collective operations with notified communication in shared windows", PAW-ATM 2018, III.A,
// with three corrections:
//  * A message is labelled with the least label in it, not with the sender's call: otherwise each
//    step could add `slack` to the age.
//  * A rank that finds a message too old waits until one is young enough; the next message may be
//    too old as well.
//  * A step has 2 slack + 2 slots, each for the calls of one remainder.  With a single slot, the
//    next message tears the one before, and data of later calls are taken.  This many slots
//    suffice, because a rank that finishes call t has contributions of call t - slack or later of
//    all ranks, which bounds how far a writer is ahead of a reader.
//
// The plan is in slack + 1 copies (plan/core/copies.hpp), which with the two parities make 2 slack
// + 2 of everything; call t runs copy (t / 2) mod (slack + 1).
#pragma once

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "engine/advance.hpp"

namespace tutti::engine {

class StaleCalls {
 public:
  /// `steps` and `slots` are those of all copies together; there should be slack + 1 copies.
  StaleCalls(std::span<plan::Step> steps, std::uint32_t slots, std::uint32_t copies,
             std::uint32_t slack)
      : all_steps_(steps),
        copies_(copies),
        steps_(steps.size() / copies_),
        slots_(slots / copies_),
        slack_(slack),
        puts_(static_cast<std::size_t>(std::count_if(
            steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps_),
            [](const plan::Step& step) { return step.action == plan::Action::put; }))),
        arrived_(slots_),
        taken_(slots_) {
    assert(steps.size() % copies == 0);
    assert(slots % copies == 0);
  }

  /// Chooses the copy of the plan for a call; after Execution::begin().
  void begin(Execution& execution) noexcept {
    assert(execution.in_flight);
    execution.steps = all_steps_.subspan(copy_of(execution.sequence) * steps_, steps_);
  }

  /// Whether the message of a call is known to have arrived; `slot` may be of any copy.
  bool has_come(std::uint32_t slot, std::uint64_t call) const noexcept {
    return arrived_[slot_in_first_copy(slot)] >= call;
  }

  /// Age in calls of the oldest contribution in the last result; 0 if all are of its own call.
  std::uint64_t staleness() const noexcept { return staleness_; }

  /// With Execution::forget_calls().
  void forget_calls() noexcept {
    std::fill(arrived_.begin(), arrived_.end(), 0);
    std::fill(taken_.begin(), taken_.end(), 0);
    target_label_ = staleness_ = 0;
  }

  /// Like engine::advance().
  template <class F, class C>
  requires Fabric<F, C> Status advance(Execution& execution, F& fabric, C& channel)
  noexcept {
    for (; execution.next < execution.steps.size(); ++execution.next) {
      const plan::Step& step = execution.steps[execution.next];
      switch (step.action) {
        case plan::Action::put:
          assert(step.peer != no_rank);
          assert(execution.puts_done < puts_);
          if (const Status status =
                  fabric.put(channel, execution.parity(),
                             copy_of(execution.sequence) * puts_ + execution.puts_done);
              status != Status::ok)
            return status;
          ++execution.puts_done;
          break;
        case plan::Action::await:
          if (!take(execution, step, fabric, channel)) return Status::in_progress;
          break;
        case plan::Action::copy:
        case plan::Action::combine:
          move(execution, step);
          break;
        case plan::Action::await_credit:
        case plan::Action::await_sent:
        case plan::Action::take_out:
          break;  // not in these plans
      }
    }
    execution.in_flight = false;
    return Status::ok;
  }

  /// Takes all messages that have arrived; true if those of all calls up to the last one have.
  template <class F, class C>
  requires Fabric<F, C>
  bool collect(const Execution& execution, F& fabric, C& channel) noexcept {
    bool all = true;
    for (const plan::Step& step : all_steps_.first(steps_)) {
      if (step.action != plan::Action::await) continue;
      take_all(step.slot, fabric, channel);
      all = all && arrived_[step.slot] >= execution.sequence;
    }
    return all;
  }

 private:
  std::size_t copy_of(std::uint64_t call) const noexcept {
    return static_cast<std::size_t>(call / 2 % copies_);
  }
  std::uint32_t slot_of(std::uint32_t slot, std::uint64_t call) const noexcept {
    return slot + static_cast<std::uint32_t>(copy_of(call)) * slots_;
  }
  /// The slot of the first copy that corresponds to a slot of any copy.
  std::uint32_t slot_in_first_copy(std::uint32_t slot) const noexcept {
    assert(slot < slots_ * copies_);
    return slot % slots_;
  }

  /// Takes the messages for a slot that have arrived, call after call.
  template <class F, class C>
  void take_all(std::uint32_t slot, F& fabric, C& channel) noexcept {
    assert(slot < slots_);
    for (;;) {
      const std::uint64_t next = arrived_[slot] + 1;
      if (!fabric.take(channel, static_cast<std::uint32_t>(next & 1), slot_of(slot, next))) return;
      arrived_[slot] = next;
    }
  }

  /// Chooses the message that an await takes; false if none is young enough.
  template <class F, class C>
  bool take(const Execution& execution, const plan::Step& step, F& fabric, C& channel) noexcept {
    const std::uint32_t slot = slot_in_first_copy(step.slot);
    take_all(slot, fabric, channel);
    const std::uint64_t newest = std::min(arrived_[slot], execution.sequence);
    // A message older than the slack is not read: its slot may hold a later message already, whose
    // notification is still on its way.
    if (newest == 0 || newest + slack_ < execution.sequence) return false;
    if (label_at(execution, message(execution, slot, newest)) + slack_ < execution.sequence)
      return false;
    taken_[slot] = newest;
    return true;
  }

  std::byte* message(const Execution& execution, std::uint32_t slot,
                     std::uint64_t call) const noexcept {
    return execution.slot(slot_of(slot, call), static_cast<std::uint32_t>(call & 1));
  }

  static std::uint64_t label_at(const Execution& execution, const std::byte* value) noexcept {
    std::uint64_t label = 0;
    std::memcpy(&label, value + execution.memory.label_offset(), sizeof label);
    return label;
  }

  /// Runs a copy or a combine, and labels its result with the least label of its operands.
  void move(const Execution& execution, const plan::Step& step) noexcept {
    const Part& part = execution.part_of(step);
    const bool is_slot = step.from.place == plan::Place::slot;
    const std::uint32_t slot = is_slot ? slot_in_first_copy(step.from.index) : 0;
    assert(!is_slot || taken_[slot] > 0);
    assert(!is_slot || taken_[slot] <= execution.sequence);
    assert(!is_slot || taken_[slot] + slack_ >= execution.sequence);
    const std::byte* const from =
        is_slot ? message(execution, slot, taken_[slot]) : execution.address(step.from, part);
    std::byte* const into = execution.address(step.into, part);
    const std::uint64_t given = step.from.place == plan::Place::source ? execution.sequence
                                : step.from.place == plan::Place::target
                                    ? target_label_
                                    : label_at(execution, from);
    const bool is_target = step.into.place == plan::Place::target;
    std::uint64_t label = given;
    if (step.action == plan::Action::copy) {
      if (into != from && part.source.bytes > 0) detail::plain_copy(into, from, part.source.bytes);
    } else {
      execution.reduction.combine(from, into, part.element_count, execution.reduction.context);
      label = std::min(given, is_target ? target_label_ : label_at(execution, into));
    }
    if (is_target) {
      target_label_ = label;
      staleness_ = execution.sequence - label;
    } else {
      std::memcpy(into + execution.memory.label_offset(), &label, sizeof label);
    }
  }

  std::span<plan::Step> all_steps_;
  std::uint32_t copies_;
  std::size_t steps_;    // of one copy
  std::uint32_t slots_;  // of one copy
  std::uint32_t slack_;
  std::size_t puts_;                    // of one copy
  std::vector<std::uint64_t> arrived_;  // by slot: the last call whose message has come
  std::vector<std::uint64_t> taken_;    // by slot: the call whose message is used
  std::uint64_t target_label_ = 0;
  std::uint64_t staleness_ = 0;
};

}  // namespace tutti::engine
