// How calls advance that are not plain ones: stale-synchronous, along the ring of nodes, with
// neighbours that may sleep, with partials that are
// elsewhere in each chunk, or in simulated time.  They have a file of their own, so that the
// compiler treats the plain ones as if there were no others.
#include "engine/advance.hpp"
#include "runtime/operation.hpp"
#include "runtime/timed_fabric.hpp"

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

}  // namespace

void Operation::Implementation::begin_otherwise() noexcept {
  if (stale()) stale()->begin(execution);
  if (staging) stage_chunk();
}

void Operation::Implementation::stage_chunk() noexcept {
  staging->begin_chunk(execution, this, [](const void* user, std::uint64_t chunk) {
    return static_cast<const Implementation*>(user)->has_been_read(chunk);
  });
}

Status Operation::Implementation::advance_otherwise_slow(runtime::JoinedFabric& joined) noexcept {
  if (ring()) return ring()->advance();
  const auto advance_over = [this](auto&& fabric) noexcept {
    return stale() ? stale()->advance(execution, fabric, channel)
                   : engine::advance(execution, fabric, channel);
  };
  // In simulated time nobody sleeps.
  if (is_timed) return advance_over(runtime::TimedFabric{joined, communicator.context.clock});
  if (staging && wakes_readers)
    return advance_over(StagingFabric<runtime::WakingFabric>{{joined}, *this});
  if (staging) return advance_over(StagingFabric<runtime::JoinedFabric>{{joined}, *this});
  if (wakes_readers) return advance_over(runtime::WakingFabric{joined});
  return stale()->advance(execution, joined, channel);
}

}  // namespace tutti
