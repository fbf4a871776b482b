// The send queue.  The initiator does everything itself, inside post_send if it can: it checks its
// right to the target's memory, takes the target's receive, moves the data and writes the target's
// completion.  What cannot be done at once becomes pending, in order, and is tried again by every
// poll and by the helper thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {

/// The IB encoding of the receiver-not-ready timer.
std::int64_t rnr_timer_ns(std::uint32_t code) noexcept;
/// After which a packet is sent again; 0 in the attributes, never: a day.
std::int64_t transport_timeout_ns(const ibv_qp_attr& attributes) noexcept;

int post_send(ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad) noexcept;

/// Posts all the requests or, for want of room, of an opcode or of the right state, none.
int post_send_all(QueuePair& pair, ibv_send_wr* first, std::uint64_t count) noexcept;

/// Keeps a request that was posted in the state SQD, with copies of what the caller may reuse.  The
/// send lock is held.  Throws std::bad_alloc.
void hold(QueuePair& pair, const Request& request);

/// In an emulated network: what was held in the state SQD leaves now.
void release_held(QueuePair& pair) noexcept;

/// Tries the pending requests in order.  The send lock is held.
void progress(QueuePair& pair, std::int64_t now_ns) noexcept;

/// In an emulated network: when there will be something to do for this queue pair, in picoseconds;
/// the largest number: never.
std::int64_t next_due(const QueuePair& pair) noexcept;

/// Completes the pending requests with a flush error.  The send lock is held.
void flush_sends(QueuePair& pair) noexcept;

}  // namespace tutti::verbs::soft
