// The engine: runs a plan as far as it can go without waiting.  All its control flow is here.
#pragma once

#include <cstring>
#include <tutti/status.hpp>

#include "engine/execution.hpp"
#include "engine/fabric.hpp"

namespace tutti::engine {

inline void copy_register(const Execution& execution, const plan::Step& step) noexcept {
  std::byte* into = execution.address(step.into);
  const std::byte* from = execution.address(step.from);
  if (into != from && execution.memory.payload_bytes > 0)  // in place: source is target
    std::memcpy(into, from, execution.memory.payload_bytes);
}

inline void combine_registers(const Execution& execution, const plan::Step& step) noexcept {
  execution.reduction.combine(execution.address(step.from), execution.address(step.into),
                              execution.element_count, execution.reduction.context);
}

/// Runs `execution` until it is finished (ok), has to wait for a peer or for room (in_progress), or
/// a put fails.  Never polls, blocks or reads a clock.
template <class F, class C>
requires Fabric<F, C> Status advance(Execution& execution, F& fabric, C& channel)
noexcept {
  while (execution.next < execution.steps.size()) {
    const plan::Step& step = execution.steps[execution.next];
    switch (step.action) {
      case plan::Action::put:
        if (const Status status = fabric.put(channel, execution.parity(), execution.puts_done);
            status != Status::ok)
          return status;
        ++execution.puts_done;
        break;
      case plan::Action::await:
        if (!fabric.take(channel, execution.parity(), step.slot)) {
          // Notification and payload lie in two lines that the peer writes one after the other;
          // fetched only once the notification is seen, the payload would cost a second trip
          // between the caches (measured, README).  Not in a function of its own: GCC 12 takes a
          // function that only prefetches for one without effects, and drops the call.
          if (execution.memory.payload_bytes > 0)
            __builtin_prefetch(execution.memory.slots[execution.parity()] +
                               step.slot * execution.memory.register_bytes);
          return Status::in_progress;
        }
        break;
      case plan::Action::copy:
        copy_register(execution, step);
        break;
      case plan::Action::combine:
        combine_registers(execution, step);
        break;
    }
    ++execution.next;
  }
  execution.in_flight = false;
  return Status::ok;
}

}  // namespace tutti::engine
