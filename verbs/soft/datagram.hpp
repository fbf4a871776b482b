// Unreliable-datagram queue pairs.  The sender's post hands the datagram to a socket or a ring and
// completes; the owner of the target takes the receive, copies a global route header and the
// payload, and completes it: its polls or its helper thread do, or the post itself where both are
// of one process.  What cannot be delivered is dropped in silence.  See DATAGRAMS.md.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <span>

#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {

/// As post_send.  Takes the mutex of Process.
int post_datagrams(QueuePair& pair, ibv_send_wr* first, ibv_send_wr** bad) noexcept;

/// As post_send_all.  Takes the mutex of Process.
int post_all_datagrams(QueuePair& pair, const ibv_send_wr* first, std::uint64_t count) noexcept;

/// Sends what was held in the state SQD.  The mutex of Process and the send lock are held.
void send_held_datagrams(QueuePair& pair) noexcept;

/// Delivers what another queue pair has sent to this process.  The mutex is held.
void deliver_datagram(Process& process, std::span<const std::byte> bytes) noexcept;

}  // namespace tutti::verbs::soft
