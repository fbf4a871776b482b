// See receive_queue.hpp.
#include "verbs/soft/receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {
namespace {

void fill(ReceiveSlot& slot, const ibv_recv_wr& request, std::uint64_t position) {
  slot.wr_id = request.wr_id;
  slot.scatter_count = static_cast<std::uint32_t>(request.num_sge);
  std::copy_n(request.sg_list, request.num_sge, slot.scatter());
  // Release: an initiator that sees the sequence sees the slot.
  slot.sequence.store(position + 1, std::memory_order_release);
}

void read(ReceiveSlot& slot, bool with_scatter, TakenReceive& taken) {
  taken.wr_id = slot.wr_id;
  if (!with_scatter) return;
  taken.scatter_count = std::min(slot.scatter_count, scatter_max);
  std::copy_n(slot.scatter(), taken.scatter_count, taken.scatter.begin());
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
    // After the slot: if the state is still good here, whoever moves it to the error state later
    // makes the poll flush this receive as well.
    if (pair.status().state() == IBV_QPS_ERR)
      pair.receive_queue().attention.store(true, std::memory_order_release);
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
      // Acquire: the initiator has copied what is overwritten now.
      if (queue.posted - entry.taken.load(std::memory_order_acquire) >= queue.attributes.max_wr) {
        error = ENOMEM;
        break;
      }
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

Take take_receive(const SegmentView& segment, const QueuePairEntry& entry, std::uint64_t position,
                  bool with_scatter, TakenReceive& taken) noexcept {
  ReceiveSlot& slot = slot_at(segment, entry.receive_offset, entry.receive_slots,
                              entry.receive_stride_bytes, position);
  // Acquire: pairs with the release in fill().
  if (slot.sequence.load(std::memory_order_acquire) != position + 1) return Take::empty;
  read(slot, with_scatter, taken);
  // The next request should find its slot in the cache.
  __builtin_prefetch(&slot_at(segment, entry.receive_offset, entry.receive_slots,
                              entry.receive_stride_bytes, position + 1));
  return Take::taken;
}

Take take_shared_receive(const SegmentView& segment, SharedReceiveEntry& entry, std::uint64_t token,
                         TakenReceive& taken) noexcept {
  // Not for ever: the holder may be stopped, and then this request waits instead of its thread.
  constexpr int tries_max = 2000;
  std::uint64_t nobody = 0;
  for (int tries = 0; !entry.holder.compare_exchange_weak(nobody, token, std::memory_order_acquire,
                                                          std::memory_order_relaxed);
       ++tries) {
    if (tries == tries_max) return Take::busy;
    nobody = 0;
    __builtin_ia32_pause();
  }
  const std::uint64_t position = entry.taken.load(std::memory_order_relaxed);
  ReceiveSlot& slot =
      slot_at(segment, entry.slots_offset, entry.slots, entry.stride_bytes, position);
  const bool ready = slot.sequence.load(std::memory_order_acquire) == position + 1;
  if (ready) {
    read(slot, true, taken);
    entry.taken.store(position + 1, std::memory_order_release);
  }
  entry.holder.store(0, std::memory_order_release);  // the next holder sees `taken`
  return ready ? Take::taken : Take::empty;
}

}  // namespace tutti::verbs::soft
