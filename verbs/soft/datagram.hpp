// Unreliable-datagram queue pairs.  The sender's post hands the datagram to a socket or a ring and
// completes.  In the target's process a poll or the helper thread takes the receive, copies a
// global route header and the payload, and completes the receive; if both queue pairs belong to one
// process the post does this itself.  What cannot be delivered is dropped silently.  See
// DATAGRAMS.md.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <span>

#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {

/// Like post_send.  Takes the mutex of Process.
int post_datagrams(QueuePair& pair, ibv_send_wr* first, ibv_send_wr** bad) noexcept;

/// 0, or the errno value with which a request that cannot be queued is refused.
int check_datagram(const QueuePair& pair, const ibv_send_wr& posted);
/// Posts one request.  The mutex of Process and the send lock are held.
int post_datagram(QueuePair& pair, const ibv_send_wr& posted) noexcept;

/// Sends the datagrams that were held in the state SQD.  The mutex of Process and the send lock are
/// held.
void send_held_datagrams(QueuePair& pair) noexcept;

/// Delivers a datagram that another queue pair has sent to this process.  The mutex is held.
void deliver_datagram(Process& process, std::span<const std::byte> bytes) noexcept;

}  // namespace tutti::verbs::soft
