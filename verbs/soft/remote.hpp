// One request against its target: everything an initiator does in the memory of another process.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {

struct Outcome {
  enum class Kind : std::uint8_t {
    done,
    failed,     // `status` says why
    dropped,    // no such queue pair, or it is not ready: as if the packets were lost
    not_ready,  // no receive is posted
    wait,       // for something that will come: the attachment, a mapping, room in a ring
  };
  Kind kind;
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint32_t vendor_error = 0;
  std::uint32_t bytes = 0;
};

/// Whether such a request takes a receive of its target.
bool takes_receive(ibv_wr_opcode opcode) noexcept;

/// Executes the request, or leaves the target as it was.  The send lock of `pair` is held.
Outcome execute(QueuePair& pair, const Request& request) noexcept;

/// The outcome of a request after an access to the target's process failed with this errno value.
Outcome failed_access(const QueuePair& pair, int error) noexcept;

/// Asks the target's owner for a message when it becomes ready.  A request that finds no receive
/// asks by itself.
void ask_for_kick(const QueuePair& pair) noexcept;

}  // namespace tutti::verbs::soft
