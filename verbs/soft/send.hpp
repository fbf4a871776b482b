// The send queue.  The initiator does everything itself, inside post_send if it can: it checks its
// right to the target's memory, takes the target's receive, moves the data and writes the target's
// completion.  A request that cannot be executed at once becomes pending; every poll and the helper
// thread try pending requests again, in order.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {

/// The time that a code of the receiver-not-ready timer stands for (InfiniBand's table).
std::int64_t rnr_timer_ns(std::uint32_t code) noexcept;
/// The time after which a packet is sent again; 0 in the attributes means never, and gives a day.
std::int64_t transport_timeout_ns(const ibv_qp_attr& attributes) noexcept;

int post_send(ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad) noexcept;

/// Posts all the requests, or none if there is no room or if an opcode or the state is wrong.
int post_send_all(QueuePair& pair, ibv_send_wr* first, std::uint64_t count) noexcept;

/// Keeps a request that was posted in the state SQD, with copies of everything that the caller may
/// reuse.  The send lock is held.  Throws std::bad_alloc.
void hold(QueuePair& pair, const Request& request);

/// In an emulated network: requests that were held in the state SQD leave now.
void release_held(QueuePair& pair) noexcept;

/// Tries the pending requests in order.  The send lock is held.
void progress(QueuePair& pair, std::int64_t now_ns) noexcept;

/// In an emulated network: the first request that has come to its receiver's port by `now` and was
/// not served there yet; NULL: there is none.  The send lock is held.
PendingRequest* first_at_port(QueuePair& pair, std::int64_t now_ps) noexcept;
/// The request gets through the port as soon as that is free.
void pass_port(QueuePair& pair, PendingRequest& request) noexcept;

/// In an emulated network: the time at which there is something to do for this queue pair, in
/// picoseconds; the largest number: never.
std::int64_t next_due(const QueuePair& pair) noexcept;

/// Completes the pending requests with a flush error.  The send lock is held.
void flush_sends(QueuePair& pair) noexcept;

// The state SQD (drain.cpp): requests posted before it are still executed, requests posted in it
// wait for RTS.  Receives go on.  All functions here need the send lock.

/// The queue pair has come from RTS.  `notify`: raise an event when it has drained.
void start_draining(QueuePair& pair, bool notify) noexcept;

/// Raises that event, if one is wanted, once the last request that was posted before is done.
void finish_draining(QueuePair& pair) noexcept;

/// Whether the request waits for the state RTS.
bool is_held(const QueuePair& pair, ibv_qp_state state, const Request& request) noexcept;

/// The queue pair has gone to RTS: executes the requests that were held.
void resume_sending(QueuePair& pair) noexcept;

}  // namespace tutti::verbs::soft
