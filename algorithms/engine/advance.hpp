// The engine: runs a plan as far as it can go without waiting.  All its control flow is here.
#pragma once

#include <cassert>
#include <cstring>
#include <tutti/detail/copy.hpp>
#include <tutti/status.hpp>
#include <utility>

#include "engine/execution.hpp"
#include "engine/fabric.hpp"

namespace tutti::engine {

inline void copy_bytes(const std::byte* from, std::byte* into, std::size_t bytes) noexcept {
  if (into == from) return;  // in place: source is target
  if (bytes == 8)            // of constant length: the compiler makes it a load and a store
    std::memcpy(into, from, 8);
  else
    detail::copy_memory(into, from, bytes);
}

/// Copies of fewer bytes are not streamed: reading the clock and the fence would cost more than
/// streaming saves.
inline constexpr std::size_t streamed_bytes_min = 8 << 10;

/// The step must be the next one of the execution: its resolved operands are found by position.
inline bool is_next(const Execution& execution, const plan::Step& step) noexcept {
  return execution.next < execution.steps.size() && &step == &execution.steps[execution.next];
}

/// Runs a copy, which is the next step.  Another rank reads a partial, and may run on a CPU that
/// shares no cache with this one: long copies into partials are streamed past the caches.
inline void copy_register(Execution& execution, const plan::Step& step) noexcept {
  assert(is_next(execution, step));
  const auto copy = [&](const std::byte* from, std::byte* into, std::size_t bytes) {
    assert(step.into.place != plan::Place::partial ||
           bytes <= execution.memory.register_bytes -
                        step.into.payload * execution.memory.payload_bytes);
    if (bytes >= streamed_bytes_min && step.into.place == plan::Place::partial)
      execution.into_partials[execution.partials_are_elsewhere ? 1 : 0](into, from, bytes);
    else if (bytes >= detail::LongCopy::bytes_min && into != from)
      execution.into_target(into, from, bytes);
    else
      copy_bytes(from, into, bytes);
  };
  const std::vector<Operands>& resolved = execution.operands[execution.parity()];
  if (!resolved.empty()) [[likely]] {
    assert(resolved.size() == execution.steps.size());
    const Operands& operands = resolved[execution.next];
    return copy(execution.address(operands.from), execution.address(operands.into), operands.bytes);
  }
  const Part& part = execution.part_of(step);
  copy(execution.address(step.from, part), execution.address(step.into, part),
       execution.bytes_of(step));
}

/// Runs a combine or a take_out, which is the next step, by `function`.
inline void combine_registers(const Execution& execution, const plan::Step& step,
                              CombineFunction function) noexcept {
  assert(is_next(execution, step));
  assert(function != nullptr);
  const std::vector<Operands>& resolved = execution.operands[execution.parity()];
  if (!resolved.empty()) [[likely]] {
    assert(resolved.size() == execution.steps.size());
    const Operands& operands = resolved[execution.next];
    return function(execution.address(operands.from), execution.address(operands.into),
                    operands.element_count, execution.reduction.context);
  }
  const Part& part = execution.part_of(step);
  function(execution.address(step.from, part), execution.address(step.into, part),
           part.element_count, execution.reduction.context);
}

/// The address that has arrived in a slot: the payload lies there in the memory of its sender.
inline std::uint64_t reference_in(const Execution& execution, const plan::Register& slot) noexcept {
  assert(slot.place == plan::Place::slot);
  std::uint64_t place = 0;
  std::memcpy(&place, execution.slot(slot.index), sizeof place);
  return place;
}

/// Copies the payload that a slot refers to into `step.into`.
template <class F, class C>
requires Fabric<F, C> Status copy_referenced(const Execution& execution, const plan::Step& step,
                                             F& fabric, C& channel)
noexcept {
  const Part& part = execution.part_of(step);
  return fabric.read(channel, step.from.index, reference_in(execution, step.from),
                     execution.address(step.into, part), part.target.bytes);
}

/// into = from o own, where `from` is a peer's payload that is mapped here.  A function that has a
/// place of its own for the result copies nothing.  If the reduction has none, `own` is copied,
/// piece by piece, so that each piece is combined while it is in the cache.
inline void combine_mapped(const Execution& execution, const std::byte* from, const std::byte* own,
                           std::byte* into, std::size_t element_count) noexcept {
  const Reduction& reduction = execution.reduction;
  if (own == into) return reduction.combine(from, into, element_count, reduction.context);
  if (execution.combine_apart != nullptr)
    return execution.combine_apart(from, own, into, element_count);
  for (std::size_t left = element_count; left > 0;) {
    const std::size_t count = left < execution.piece_elements ? left : execution.piece_elements;
    const std::size_t bytes = count * reduction.element_bytes;
    detail::copy_memory(into, own, bytes);
    reduction.combine(from, into, count, reduction.context);
    from += bytes;
    own += bytes;
    into += bytes;
    left -= count;
  }
}

/// Whether `step`, which is the next one, is the only one that writes its partial, and the step
/// after it tells a peer to read it there.  The peer has read this partial in an earlier call: if
/// its CPU shares no cache with this one, plain stores would fetch each line from that cache first.
inline bool is_told_of_next(const Execution& execution, const plan::Step& step) noexcept {
  assert(is_next(execution, step));
  if (step.into.place != plan::Place::partial || step.grows) return false;
  if (execution.next + 1 >= execution.steps.size()) return false;
  const plan::Step& put = execution.steps[execution.next + 1];
  return put.action == plan::Action::put && put.by_reference && put.from == step.into;
}

/// As combine_mapped(), by way of the piece, which stays in this CPU's cache, from where it is
/// copied into `into` by the kind of stores that pays.
inline void combine_by_piece(Execution& execution, const std::byte* from, const std::byte* own,
                             std::byte* into, const Part& part) noexcept {
  std::byte* const piece = execution.piece.data()->bytes;
  combine_mapped(execution, from, own, piece, part.element_count);
  execution.into_partials[execution.partials_are_elsewhere ? 1 : 0](into, piece, part.target.bytes);
}

/// into = (payload that a slot refers to) o source, or o into, piece by piece: each piece is
/// combined while it is in the cache.
template <class F, class C>
requires Fabric<F, C> Status combine_referenced(Execution& execution, const plan::Step& step,
                                                F& fabric, C& channel)
noexcept {
  const Part& part = execution.part_of(step);
  const Reduction& reduction = execution.reduction;
  std::uint64_t from = reference_in(execution, step.from);
  std::byte* into = execution.address(step.into, part);
  const std::byte* source =
      step.grows ? into : execution.address({.place = plan::Place::source}, part);
  if constexpr (requires { fabric.mapped(channel, step.from.index, from, part.target.bytes); })
    if (const std::byte* const there =
            fabric.mapped(channel, step.from.index, from, part.target.bytes)) {
      if (part.element_count <= execution.piece_elements &&
          part.target.bytes >= streamed_bytes_min && is_told_of_next(execution, step))
        combine_by_piece(execution, there, source, into, part);
      else
        combine_mapped(execution, there, source, into, part.element_count);
      return fabric.was_lent(channel, step.from.index);
    }
  const bool in_place = source == into;
  assert(execution.piece_elements > 0 || part.element_count == 0);
  assert(!in_place || execution.piece_elements * reduction.element_bytes <=
                          execution.piece.size() * sizeof(Execution::Line));
  for (std::size_t left = part.element_count; left > 0;) {
    const std::size_t count = left < execution.piece_elements ? left : execution.piece_elements;
    const std::size_t bytes = count * reduction.element_bytes;
    std::byte* const piece = in_place ? execution.piece.data()->bytes : into;
    if (const Status status = fabric.read(channel, step.from.index, from, piece, bytes);
        status != Status::ok)
      return status;
    reduction.combine(in_place ? piece : source, into, count, reduction.context);
    from += bytes;
    into += bytes;
    source += bytes;
    left -= count;
  }
  return Status::ok;
}

/// Whether `steps[at]` awaits a message, and the next step combines or copies this message alone.
inline bool joins_one_message(std::span<const plan::Step> steps, std::size_t at) noexcept {
  if (at + 1 >= steps.size() || steps[at].action != plan::Action::await) return false;
  const plan::Step& join = steps[at + 1];
  return (join.action == plan::Action::combine || join.action == plan::Action::copy) &&
         join.from.place == plan::Place::slot && join.from.index == steps[at].slot;
}

/// Arrival order.  The message that is awaited next has not arrived, but one that is combined into
/// the same register and part right after it may have.  If so, the two messages change places, and
/// the arrived one is taken.  The changed order stays, so the next call begins with it.  A
/// reference and a payload never change places, because different kinds of steps combine them.
template <class F, class C>
requires Fabric<F, C>
bool bring_an_arrival_forward(Execution& execution, F& fabric, C& channel) noexcept {
  const std::span<plan::Step> steps = execution.steps;
  const std::size_t here = execution.next;
  if (!joins_one_message(steps, here)) return false;
  for (std::size_t there = here + 2;
       joins_one_message(steps, there) && steps[there + 1].into == steps[here + 1].into &&
       steps[there + 1].part == steps[here + 1].part &&
       steps[there].by_reference == steps[here].by_reference;
       there += 2) {
    if (!fabric.take(channel, execution.parity(), steps[there].slot)) continue;
    std::swap(steps[here], steps[there]);
    std::swap(steps[here + 1].from, steps[there + 1].from);
    std::swap(steps[here + 1].peer, steps[there + 1].peer);  // of a reference: who is read from
    for (std::vector<Operands>& resolved : execution.operands)
      if (!resolved.empty()) std::swap(resolved[here + 1].from, resolved[there + 1].from);
    assert(joins_one_message(steps, here));
    assert(joins_one_message(steps, there));
    return true;
  }
  return false;
}

/// The next step copies the source, and a later one combines a message with the copy: right after
/// it, if the message has been taken, or else behind the step that awaits it.  If the message is
/// there, combines it with the source itself, by a function that has a place of its own for the
/// result, and returns true: the step that combines is the next one then.  If it is not there, the
/// copy is made while it is on its way.
template <class F, class C>
bool combine_without_copy(Execution& execution, F& fabric, C& channel) noexcept {
  const std::size_t here = execution.next;
  const std::span<const plan::Step> steps = execution.steps;
  const plan::Step& copy = steps[here];
  if (fabric.combine_apart() == nullptr || copy.from.place != plan::Place::source) return false;
  const bool awaits = joins_one_message(steps, here + 1);
  const std::size_t there = here + (awaits ? 2 : 1);
  if (there >= steps.size()) return false;
  const plan::Step& combine = steps[there];
  if (combine.action != plan::Action::combine || combine.by_reference ||
      combine.from.place != plan::Place::slot || combine.into != copy.into ||
      combine.part != copy.part)
    return false;
  const Part& part = execution.part_of(copy);
  const std::byte* const source = execution.address(copy.from, part);
  std::byte* const result = execution.address(copy.into, part);
  if (source == result || part.source.bytes < streamed_bytes_min) return false;
  if (awaits && !fabric.take(channel, execution.parity(), steps[here + 1].slot)) return false;
  fabric.combine_apart()(execution.address(combine.from, part), source, result, part.element_count);
  execution.next = there;
  return true;
}

/// Goes on to the next chunk, if there is one, and tells a fabric that wants to know.
template <class F>
bool begin_next_chunk(Execution& execution, F& fabric) noexcept {
  if (!execution.begin_next_chunk()) return false;
  if constexpr (requires { fabric.begin_chunk(execution); }) fabric.begin_chunk(execution);
  return true;
}

/// Called before a long copy.  The message that is awaited after the copy may have come, and lies
/// in the cache of its sender.  Fetched now, it is here after the copy.
template <class F, class C>
void fetch_next_message(const Execution& execution, F& fabric, C& channel) noexcept {
  if constexpr (requires { fabric.expect(channel, execution.parity(), std::uint32_t{0}); }) {
    const std::size_t after = execution.next + 1;
    if (after >= execution.steps.size()) return;
    const plan::Step& step = execution.steps[after];
    if (step.action == plan::Action::await)
      fabric.expect(channel, execution.parity(), step.slot);
    else if (after + 1 == execution.steps.size() && !execution.is_last_chunk() &&
             execution.steps[0].action == plan::Action::await)
      fabric.expect(channel, execution.parity() ^ 1u, execution.steps[0].slot);
  }
}

/// Called at the end of a call.  The next call begins with credits of the call before this one,
/// which have come as a rule, and lie in the caches of the ranks that gave them.  Fetched now, they
/// have crossed when the next call looks.
template <class F, class C>
void fetch_credits(const Execution& execution, F& fabric, C& channel) noexcept {
  if constexpr (requires { fabric.expect(channel, execution.parity(), std::uint32_t{0}); }) {
    for (const plan::Step& step : execution.steps) {
      if (step.action != plan::Action::await_credit) break;
      fabric.expect(channel, execution.parity() ^ 1u, step.slot);
    }
  }
}

/// Runs `execution` until it is finished (ok), has to wait for a peer or for room (in_progress), or
/// a put or a read fails (its status).  Never polls or blocks.
template <class F, class C>
requires Fabric<F, C> Status advance(Execution& execution, F& fabric, C& channel)
noexcept {
  assert(execution.in_flight);
  do {
    while (execution.next < execution.steps.size()) {
      const plan::Step& step = execution.steps[execution.next];
      switch (step.action) {
        case plan::Action::put:
          assert(step.peer != no_rank);
          assert(execution.puts_per_chunk == 0 || execution.puts_done < execution.puts_per_chunk);
          assert(!step.by_reference || execution.puts_done < execution.references.size());
          if (step.by_reference)
            execution.references[execution.puts_done] = reinterpret_cast<std::uint64_t>(
                execution.address(step.from, execution.part_of(step)));
          if (const Status status = fabric.put(channel, execution.parity(),
                                               execution.first_put + execution.puts_done);
              status != Status::ok)
            return status;
          ++execution.puts_done;
          break;
        case plan::Action::await_sent:
          if (execution.is_last_chunk() && !fabric.sent(channel)) return Status::in_progress;
          break;
        case plan::Action::await:
          assert(step.peer != no_rank);
          if (!fabric.take(channel, execution.parity(), step.slot) &&
              !(execution.any_order && bring_an_arrival_forward(execution, fabric, channel))) {
            // Notification and payload may lie in two lines that the peer writes one after the
            // other.  A payload that is fetched only after its notification was seen costs a second
            // trip between the caches (measured, README).  The prefetch is not in a function of its
            // own, because GCC 12 takes such a function for one without effects and drops the call.
            if (const std::byte* const line = execution.incoming_line(step.slot))
              __builtin_prefetch(line);
            return Status::in_progress;
          }
          break;
        case plan::Action::await_credit:
          if (execution.sequence > 2 && !fabric.take(channel, execution.parity(), step.slot))
            return Status::in_progress;
          break;
        case plan::Action::copy:
          if constexpr (requires { fabric.combine_apart(); })
            if (combine_without_copy(execution, fabric, channel)) break;
          if (!step.by_reference) {
            if (execution.memory.payload_bytes >= streamed_bytes_min)
              fetch_next_message(execution, fabric, channel);
            copy_register(execution, step);
          } else if (const Status status = copy_referenced(execution, step, fabric, channel);
                     status != Status::ok) {
            return status;
          }
          break;
        case plan::Action::combine:
          if (!step.by_reference)
            combine_registers(execution, step, execution.reduction.combine);
          else if (const Status status = combine_referenced(execution, step, fabric, channel);
                   status != Status::ok)
            return status;
          break;
        case plan::Action::take_out:
          combine_registers(execution, step, execution.reduction.inverse);
          break;
      }
      ++execution.next;
    }
  } while (begin_next_chunk(execution, fabric));
  execution.in_flight = false;
  fetch_credits(execution, fabric, channel);
  return Status::ok;
}

}  // namespace tutti::engine
