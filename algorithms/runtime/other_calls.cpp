// How calls advance that are not plain ones: stale-synchronous, along the ring of nodes, or with
// neighbours that may sleep.  They have a file of their own, so that the compiler treats the plain
// ones as if there were no others.
#include "engine/advance.hpp"
#include "runtime/operation.hpp"

namespace tutti {

Status Operation::Implementation::advance_otherwise_slow(runtime::JoinedFabric& joined) noexcept {
  if (ring()) return ring()->advance();
  if (!wakes_readers) return stale()->advance(execution, joined, channel);
  runtime::WakingFabric waking{joined};
  return stale() ? stale()->advance(execution, waking, channel)
                 : engine::advance(execution, waking, channel);
}

}  // namespace tutti
