// The state SQD: what was posted before it is still executed, what is posted in it waits for RTS.
// Receives go on.  The send lock is held in all of these.
#pragma once

#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {

/// The queue pair has come from RTS.  `notify`: an event is to tell that it has drained.
void start_draining(QueuePair& pair, bool notify) noexcept;

/// Raises that event, if there is one to raise, once the last request that was posted before is
/// done.
void finish_draining(QueuePair& pair) noexcept;

/// Whether the request waits for the state RTS.
bool is_held(const QueuePair& pair, ibv_qp_state state, const Request& request) noexcept;

/// The queue pair has gone to RTS: executes what was held.
void resume_sending(QueuePair& pair) noexcept;

}  // namespace tutti::verbs::soft
