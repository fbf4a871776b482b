// Other code than its calls looks at an operation by what is here: its record, the bytes that its
// calls move, the rank that it waits for, and its trace.  This is apart from operation.cpp, so that
// the compiler treats the calls there as if there were nothing else.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>

#include "runtime/operation.hpp"

namespace tutti {

void Operation::Implementation::publish() {
  record.communicator = communicator.id;
  record.ordinal = ordinal;
  record.rank = index_of(communicator.exchange.self());
  record.rank_count = communicator.exchange.rank_count();
  record.round_count = static_cast<std::uint32_t>(plan.per_round.size());
  std::snprintf(record.collective, sizeof record.collective, "%s", name);
  record.waits = reinterpret_cast<std::uintptr_t>(communicator.waits.data());
  if (ring()) record.bytes_sent = reinterpret_cast<std::uintptr_t>(&ring()->bytes_sent());
  count_bytes();
  communicator.operations.push_back(this);
  communicator.context.activity.add(record, execution);
}

void Operation::Implementation::unpublish() noexcept {
  if (std::erase(communicator.operations, this) > 0) communicator.context.activity.remove(record);
}

void Operation::Implementation::count_bytes() noexcept {
  if (ring()) return;  // which counts them
  record.bytes_sent_per_call = record.bytes_read_per_call = 0;
  const std::size_t parts_per_chunk = execution.parts.size() / execution.chunk_count;
  // A stale operation runs one copy of its steps in each call.
  const std::size_t step_count = plan.steps.size() / (asked.slack + 1);
  for (std::size_t chunk = 0; chunk < execution.chunk_count; ++chunk) {
    execution.first_part = chunk * parts_per_chunk;
    for (const plan::Step& step : std::span(plan.steps).first(step_count)) {
      const bool is_there = step.into_target && communicator.is_neighbour(step.peer);
      if (step.action == plan::Action::put && !is_there)
        record.bytes_sent_per_call += execution.bytes_of(step);
      const bool reads = step.action == plan::Action::copy || step.action == plan::Action::combine;
      if (reads && step.by_reference)
        record.bytes_read_per_call += execution.part_of(step).target.bytes;
    }
  }
  execution.first_part = 0;
}

runtime::Awaited Operation::Implementation::awaited() const noexcept {
  if (!execution.in_flight) return {};
  const std::size_t next = execution.next;
  const Rank rank = ring()                          ? ring()->awaited()
                    : next < execution.steps.size() ? execution.steps[next].peer
                                                    : no_rank;
  return {rank, position()};
}

void Operation::Implementation::trace() {
  runtime::Trace* const trace = communicator.context.trace.get();
  if (trace == nullptr) return;
  tracing = std::make_unique<runtime::OperationTrace>(
      *trace, runtime::TracedOperation{
                  .collective = name,
                  .algorithm = plan.algorithm,
                  .ordinal = ordinal,
                  .communicator = communicator.number,
                  .rank_count = communicator.exchange.rank_count(),
                  .round_count = ring() ? 0 : static_cast<std::uint32_t>(plan.per_round.size()),
                  .bytes = asked.bytes()});
  if (std::holds_alternative<PlanCalls>(calls)) calls.emplace<TracedPlanCalls>();
}

void Operation::Implementation::trace_untimed_call() noexcept {
  if (!execution.in_flight || !tracing || !tracing->is_untimed()) return;
  is_plain = false;
  tracing->wait(awaited().rank, round());
}

}  // namespace tutti
