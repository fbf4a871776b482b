// Calls that do not simply go round after round of a plan in real time.  They have a source file of
// their own because the compiler inlines the engine only where it is used once: with these beside
// them, plain calls executed 5 % more instructions.
#include "engine/advance.hpp"
#include "runtime/operation.hpp"
#include "runtime/timed_fabric.hpp"

namespace tutti {

Status Operation::Implementation::advance_slow(runtime::JoinedFabric& joined) noexcept {
  if (ring()) return ring()->advance();
  if (!is_timed) return stale()->advance(execution, joined, channel);
  runtime::TimedFabric timed{joined, communicator.context.clock};
  return stale() ? stale()->advance(execution, timed, channel)
                 : engine::advance(execution, timed, channel);
}

}  // namespace tutti
