// How calls advance that are not plain ones: stale-synchronous, along the ring of nodes, with
// neighbours that may sleep, or in simulated time.  They have a file of their own, so that the
// compiler treats the plain ones as if there were no others.
#include "engine/advance.hpp"
#include "runtime/operation.hpp"
#include "runtime/timed_fabric.hpp"

namespace tutti {

Status Operation::Implementation::advance_otherwise_slow(runtime::JoinedFabric& joined) noexcept {
  if (ring()) return ring()->advance();
  const auto advance_over = [this](auto&& fabric) noexcept {
    return stale() ? stale()->advance(execution, fabric, channel)
                   : engine::advance(execution, fabric, channel);
  };
  // In simulated time nobody sleeps.
  if (is_timed) return advance_over(runtime::TimedFabric{joined, communicator.context.clock});
  if (wakes_readers) return advance_over(runtime::WakingFabric{joined});
  return stale()->advance(execution, joined, channel);
}

}  // namespace tutti
