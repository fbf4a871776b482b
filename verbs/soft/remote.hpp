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

inline Outcome failure(ibv_wc_status status, int vendor_error = 0) {
  return {.kind = Outcome::Kind::failed,
          .status = status,
          .vendor_error = static_cast<std::uint32_t>(vendor_error)};
}

inline bool is_send(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}
/// Whether such a request takes a receive of its target.
inline bool takes_receive(ibv_wr_opcode opcode) {
  return is_send(opcode) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// Executes the request, or leaves the target as it was.  The send lock of `pair` is held.
Outcome execute(QueuePair& pair, const Request& request) noexcept;

/// The outcome of a request after an access to the target's process failed with this errno value.
Outcome failed_access(const QueuePair& pair, int error) noexcept;

/// Asks the target's owner for a message when it becomes ready.  A request that finds no receive
/// asks by itself.
void ask_for_kick(const QueuePair& pair) noexcept;

}  // namespace tutti::verbs::soft
