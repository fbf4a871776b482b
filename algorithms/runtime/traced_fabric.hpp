// The fabric of an operation that is traced: what has been put or taken is progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tutti/status.hpp>

#include "engine/execution.hpp"
#include "runtime/joined_fabric.hpp"
#include "runtime/trace.hpp"

namespace tutti::runtime {

/// The Fabric concept of the engine, over another fabric; trace and execution outlive it.
template <class Fabric>
struct TracedFabric : Fabric {
  OperationTrace& tracing;
  const engine::Execution& execution;

  Status put(JoinedChannel& channel, std::uint32_t parity, std::size_t put) noexcept {
    const Status status = Fabric::put(channel, parity, put);
    if (status == Status::ok) tracing.advances(execution.steps[execution.next]);
    return status;
  }
  bool take(JoinedChannel& channel, std::uint32_t parity, std::uint32_t slot) noexcept {
    if (!Fabric::take(channel, parity, slot)) return false;
    tracing.advances(execution.steps[execution.next]);
    return true;
  }
};

}  // namespace tutti::runtime
