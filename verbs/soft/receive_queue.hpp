// Receives: the owner posts them, initiators take them, both without a system call and without a
// lock between processes.  A private queue has one consumer, the connected initiator, which takes a
// receive by reading it; the consumers of a shared queue read it and then claim it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cassert>
#include <cstdint>

#include "verbs/soft/event_queue.hpp"
#include "verbs/soft/layout.hpp"
#include "verbs/soft/spin_lock.hpp"

namespace tutti::verbs::soft {

struct SharedReceiveQueue : ibv_srq {
  SharedReceiveEntry* entry = nullptr;
  std::size_t offset = 0;     // the entry's, in the segment
  ibv_srq_attr attributes{};  // as granted, without the limit
  EventSource events;
  std::uint32_t users = 0;  // queue pairs, guarded by Process::mutex
  SpinLock lock;            // for the posting threads; the initiators use none
  std::uint64_t posted = 0;
};

/// A receive as an initiator has read it.
struct Receive {
  std::uint64_t position;
  std::uint64_t wr_id;
  std::uint32_t scatter_count;
  std::array<ibv_sge, scatter_max> scatter;
};

inline constexpr std::uint32_t stride_of(std::uint32_t scatter_entries) {
  assert(scatter_entries <= scatter_max);
  const std::size_t bytes = sizeof(ReceiveSlot) + scatter_entries * sizeof(ibv_sge);
  return static_cast<std::uint32_t>((bytes + line_bytes - 1) / line_bytes * line_bytes);
}

inline ReceiveSlot& slot_at(const SegmentView& segment, std::size_t offset, std::uint32_t slots,
                            std::uint32_t stride_bytes, std::uint64_t position) {
  return *segment.at<ReceiveSlot>(offset + (position & (slots - 1)) * stride_bytes);
}

int post_receive(ibv_qp* pair, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept;
int post_shared_receive(ibv_srq* queue, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept;

/// Initiator: reads the receive at `position` of a private queue; false when none is posted.
/// `with_scatter` is false where the list is not needed.
bool read_receive(const SegmentView& segment, const QueuePairEntry& entry, std::uint64_t position,
                  bool with_scatter, Receive& receive) noexcept;
/// Initiator: reads the oldest receive of a shared queue, which means nothing until it is claimed.
bool read_shared_receive(const SegmentView& segment, const SharedReceiveEntry& entry,
                         bool with_scatter, Receive& receive) noexcept;
/// Initiator: claims the receive that was read; false when another initiator was faster.
bool claim_shared_receive(SharedReceiveEntry& entry, const Receive& receive) noexcept;
/// Initiator, after the claim: whether it has found the number of receives below the limit.
bool finds_limit_reached(SharedReceiveEntry& entry) noexcept;
/// Whether the queue has fewer receives than `limit`.
bool is_below(const SharedReceiveEntry& entry, std::uint32_t limit) noexcept;

}  // namespace tutti::verbs::soft
