// The state SQD: requests posted before it are still executed, requests posted in it wait for RTS.
// Receives go on.  All functions here need the send lock.
#pragma once

#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {

/// The queue pair has come from RTS.  `notify`: raise an event when it has drained.
void start_draining(QueuePair& pair, bool notify) noexcept;

/// Raises that event, if one is wanted, once the last request that was posted before is done.
void finish_draining(QueuePair& pair) noexcept;

/// Whether the request waits for the state RTS.
bool is_held(const QueuePair& pair, ibv_qp_state state, const Request& request) noexcept;

/// The queue pair has gone to RTS: executes the requests that were held.
void resume_sending(QueuePair& pair) noexcept;

}  // namespace tutti::verbs::soft
