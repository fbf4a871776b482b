// How calls advance that are not plain ones: stale-synchronous, along the ring of nodes, with
// neighbours that may sleep, with partials that are elsewhere in each chunk, with users' operators,
// which may fail, or in simulated time.  They have a file of their own, so that the compiler treats
// the plain ones as if there were no others.
#include <algorithm>
#include <type_traits>

#include "engine/advance.hpp"
#include "runtime/operation.hpp"
#include "runtime/timed_fabric.hpp"
#include "runtime/traced_fabric.hpp"

namespace tutti {
namespace {

/// The fabric of an operation that stages (runtime/staging.hpp).
template <class Fabric>
struct StagingFabric : Fabric {
  Operation::Implementation& operation;

  void begin_chunk(engine::Execution&) noexcept { operation.stage_chunk(); }
  runtime::CombineApart combine_apart() const noexcept { return operation.staging->combine_apart; }
  bool take(runtime::JoinedChannel& channel, std::uint32_t parity, std::uint32_t slot) noexcept {
    if (!Fabric::take(channel, parity, slot)) return false;
    operation.staging->find(operation.execution.memory, parity, slot);
    return true;
  }
};

/// The fabric of an operation whose operator may fail: then nothing more is sent.
template <class Fabric>
struct FailingFabric : Fabric {
  const runtime::UserOperator& user_operator;

  Status put(runtime::JoinedChannel& channel, std::uint32_t parity, std::size_t put) noexcept {
    return user_operator.has_failed ? Status::aborted : Fabric::put(channel, parity, put);
  }
};

}  // namespace

void Operation::Implementation::begin_otherwise() noexcept {
  is_plain = false;
  if (tracing) {
    // With one chunk, call() equals the sequence number, and its division would be the most
    // expensive part of an untimed call.
    tracing->begin(execution.chunk_count == 1 ? execution.sequence : execution.call());
    is_plain = tracing->is_untimed() && std::holds_alternative<TracedPlanCalls>(calls);
  }
  if (stale()) stale()->begin(execution);
  if (staging) stage_chunk();
}

void Operation::Implementation::stage_chunk() noexcept {
  staging->begin_chunk(execution, this, [](const void* user, std::uint64_t chunk) {
    return static_cast<const Implementation*>(user)->has_been_read(chunk);
  });
}

Status Operation::Implementation::advance_otherwise_slow(runtime::JoinedFabric& joined) noexcept {
  if (std::holds_alternative<TracedPlanCalls>(calls)) return advance_traced(joined);
  if (user_operator.has_failed) return fail_by_operator_slow();
  const std::uint64_t before = ring() ? ring()->position() : 0;
  const Status status = advance_by_kind(joined);
  if (user_operator.has_failed) return fail_by_operator_slow();
  if (!tracing) return status;
  if (ring() && ring()->position() != before) tracing->advances_to(0);
  if (status == Status::ok)
    tracing->end();
  else if (tracing->begins_to_wait())
    tracing->wait(awaited().rank);
  return status;
}

Status Operation::Implementation::advance_by_kind(runtime::JoinedFabric& joined) noexcept {
  if (ring()) return ring()->advance();
  const auto advance_over = [this](auto&& fabric) noexcept {
    const auto advance = [this](auto&& over) noexcept {
      return stale() ? stale()->advance(execution, over, channel)
                     : engine::advance(execution, over, channel);
    };
    const auto advance_on = [&](auto&& over) noexcept {
      using Fabric = std::remove_cvref_t<decltype(over)>;
      return tracing ? advance(runtime::TracedFabric<Fabric>{over, *tracing, execution})
                     : advance(over);
    };
    using Fabric = std::remove_cvref_t<decltype(fabric)>;
    return may_fail() ? advance_on(FailingFabric<Fabric>{fabric, user_operator})
                      : advance_on(fabric);
  };
  // In simulated time nobody sleeps.
  if (is_timed) return advance_over(runtime::TimedFabric{joined, communicator.context.clock});
  if (staging && wakes_readers)
    return advance_over(StagingFabric<runtime::WakingFabric>{{joined}, *this});
  if (staging) return advance_over(StagingFabric<runtime::JoinedFabric>{{joined}, *this});
  if (wakes_readers) return advance_over(runtime::WakingFabric{joined});
  return advance_over(joined);
}

Status Operation::Implementation::fail_by_operator_slow() noexcept {
  // It may have come to the end of its steps, where nothing is sent.
  execution.in_flight = true;
  if (!execution.steps.empty())
    execution.next = std::min(execution.next, execution.steps.size() - 1);
  communicator.liveness.operator_failed(*this);
  return Status::aborted;
}

}  // namespace tutti
