// How calls advance that are traced and otherwise plain.  They have a file of their own, as plain
// ones have: the compiler optimises such a function better if it is the only one in its file.
#include "engine/advance.hpp"
#include "runtime/operation.hpp"
#include "runtime/traced_fabric.hpp"

namespace tutti {

// GCC would leave the smallest steps of the engine as calls, which they are not in operation.cpp.
[[gnu::flatten]] Status Operation::Implementation::advance_traced(
    runtime::JoinedFabric& joined) noexcept {
  runtime::TracedFabric<runtime::JoinedFabric> fabric{joined, *tracing, execution};
  const Status status = engine::advance(execution, fabric, channel);
  if (status == Status::ok)
    tracing->end();
  else if (tracing->begins_to_wait())
    tracing->wait(awaited().rank);
  return status;
}

}  // namespace tutti
