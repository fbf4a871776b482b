#include "verbs/soft/receive_queue.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <mutex>

#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;  // see ReceiveSlot

void fill(ReceiveSlot& slot, const ibv_recv_wr& request, std::uint64_t position) {
  assert(request.num_sge >= 0);
  assert(static_cast<std::uint32_t>(request.num_sge) <= scatter_max);
  slot.wr_id.store(request.wr_id, relaxed);
  slot.scatter_count.store(static_cast<std::uint32_t>(request.num_sge), relaxed);
  for (int index = 0; index < request.num_sge; ++index) {
    const ibv_sge& from = request.sg_list[index];
    ReceiveSlot::Piece& to = slot.scatter()[index];
    to.address.store(from.addr, relaxed);
    to.bytes.store(from.length, relaxed);
    to.key.store(from.lkey, relaxed);
  }
  // Release: an initiator that sees the sequence sees the slot.
  slot.sequence.store(position + 1, std::memory_order_release);
}

bool read(ReceiveSlot& slot, std::uint64_t position, bool with_scatter, Receive& receive) {
  // Acquire: pairs with the release in fill().
  if (slot.sequence.load(std::memory_order_acquire) != position + 1) return false;
  receive.position = position;
  receive.wr_id = slot.wr_id.load(relaxed);
  receive.scatter_count = 0;
  if (!with_scatter) return true;
  receive.scatter_count = std::min(slot.scatter_count.load(relaxed), scatter_max);
  assert(receive.scatter_count <= scatter_max);
  for (std::uint32_t index = 0; index < receive.scatter_count; ++index) {
    const ReceiveSlot::Piece& from = slot.scatter()[index];
    receive.scatter[index] = {.addr = from.address.load(relaxed),
                              .length = from.bytes.load(relaxed),
                              .lkey = from.key.load(relaxed)};
  }
  return true;
}

bool is_wanted(std::atomic<std::uint32_t>& wanted) {
  return wanted.load(std::memory_order_relaxed) != 0 &&
         wanted.exchange(0, std::memory_order_relaxed) != 0;
}

}  // namespace

int post_receive(ibv_qp* handle, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
  QueuePair& pair = pair_of(handle);
  QueuePairEntry& entry = pair.entry;
  int error = 0;
  {
    const std::lock_guard guard(pair.receive_lock);
    const bool refused = pair.srq || pair.status().state() == IBV_QPS_RESET;
    for (; first; first = first->next) {
      const auto scatter_count = static_cast<std::uint32_t>(first->num_sge);
      if (refused || first->num_sge < 0 || scatter_count > pair.initial.cap.max_recv_sge) {
        error = EINVAL;
        break;
      }
      if (pair.posted - pair.released.load(std::memory_order_acquire) >=
          pair.initial.cap.max_recv_wr) {
        error = ENOMEM;
        break;
      }
      fill(slot_at(pair.process.view(), entry.receive_offset, entry.receive_slots,
                   entry.receive_stride_bytes, pair.posted),
           *first, pair.posted);
      ++pair.posted;
    }
    // The state is read after the slots are written.  If it is not ERR yet, whoever sets ERR later
    // also sets `attention`, and the poll flushes these receives.
    if (pair.status().state() == IBV_QPS_ERR) {
      pair.receive_queue().attention.store(true, std::memory_order_release);
      if (pair.receive_queue().arming) pair.process.wake_helper();
    }
  }
  if (is_wanted(entry.wanted)) [[unlikely]]
    pair.process.kick_slow(process_id_of(pair.status().destination()));
  if (error != 0) *bad = first;
  return error;
}

int post_shared_receive(ibv_srq* handle, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
  auto& queue = *static_cast<SharedReceiveQueue*>(handle);
  Process& process = process_of(queue.context);
  SharedReceiveEntry& entry = *queue.entry;
  int error = 0;
  {
    const std::lock_guard guard(queue.lock);
    for (; first; first = first->next) {
      if (first->num_sge < 0 ||
          static_cast<std::uint32_t>(first->num_sge) > queue.attributes.max_sge) {
        error = EINVAL;
        break;
      }
      // Acquire: the initiator has copied the slot that is overwritten now.
      if (queue.posted - entry.taken.load(std::memory_order_acquire) >= queue.attributes.max_wr) {
        error = ENOMEM;
        break;
      }
      entry.posted.store(queue.posted + 1, std::memory_order_release);
      fill(slot_at(process.view(), entry.slots_offset, entry.slots, entry.stride_bytes,
                   queue.posted),
           *first, queue.posted);
      ++queue.posted;
    }
  }
  if (is_wanted(entry.wanted)) [[unlikely]]
    process.kick_slow(0);
  if (error != 0) *bad = first;
  return error;
}

bool read_receive(const SegmentView& segment, const QueuePairEntry& entry, std::uint64_t position,
                  bool with_scatter, Receive& receive) noexcept {
  const auto slot = [&](std::uint64_t of) -> ReceiveSlot& {
    return slot_at(segment, entry.receive_offset, entry.receive_slots, entry.receive_stride_bytes,
                   of);
  };
  if (!read(slot(position), position, with_scatter, receive)) return false;
  __builtin_prefetch(&slot(position + 1));  // for the next request
  return true;
}

bool read_shared_receive(const SegmentView& segment, const SharedReceiveEntry& entry,
                         bool with_scatter, Receive& receive) noexcept {
  const std::uint64_t position = entry.taken.load(std::memory_order_acquire);
  return read(slot_at(segment, entry.slots_offset, entry.slots, entry.stride_bytes, position),
              position, with_scatter, receive);
}

bool claim_shared_receive(SharedReceiveEntry& entry, const Receive& receive) noexcept {
  std::uint64_t position = receive.position;
  // Release: an owner that sees the new count may overwrite what has been read.  It is seq_cst
  // because of the look at the limit that follows.
  return entry.taken.compare_exchange_strong(position, position + 1, std::memory_order_seq_cst,
                                             std::memory_order_relaxed);
}

bool is_below(const SharedReceiveEntry& entry, std::uint32_t limit) noexcept {
  const std::uint64_t taken = entry.taken.load(std::memory_order_seq_cst);
  return entry.posted.load(std::memory_order_acquire) - taken < limit;
}

bool finds_limit_reached(SharedReceiveEntry& entry) noexcept {
  std::uint32_t limit = entry.limit.load(std::memory_order_seq_cst);
  while (limit != 0 && (limit & limit_was_reached) == 0 && is_below(entry, limit))
    if (entry.limit.compare_exchange_weak(limit, limit | limit_was_reached,
                                          std::memory_order_seq_cst))
      return true;
  return false;
}

}  // namespace tutti::verbs::soft
