#include "verbs/soft/extended_poll.hpp"

#include <cerrno>
#include <limits>

#include "verbs/driver.hpp"
#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/guarded.hpp"

namespace tutti::verbs::soft {
namespace {

CompletionQueue& queue_of(ibv_cq_ex* handle) {
  return *static_cast<CompletionQueue*>(ibv_cq_ex_to_cq(handle));
}

const ibv_wc& current(ibv_cq_ex* handle) {
  return queue_of(handle).extended_poll.completion;
}

int next_poll(ibv_cq_ex* handle) {
  CompletionQueue& queue = queue_of(handle);
  ibv_wc& completion = queue.extended_poll.completion;
  const int count = ibv_poll_cq(&queue, 1, &completion);
  if (count < 0) return EIO;
  if (count == 0) return ENOENT;
  handle->wr_id = completion.wr_id;
  handle->status = completion.status;
  return 0;
}

void end_poll(ibv_cq_ex* handle) {
  ExtendedPoll& poll = queue_of(handle).extended_poll;
  if (!poll.is_single_threaded) poll.lock.unlock();
}

int start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attributes) {
  CompletionQueue& queue = queue_of(handle);
  if (attributes && attributes->comp_mask != 0) return EINVAL;
  // In a child of fork the lock may be held by a thread that does not exist there.
  if (queue.context->ops.poll_cq != poll_completion_queue) return EINVAL;
  if (!queue.extended_poll.is_single_threaded) queue.extended_poll.lock.lock();
  const int error = next_poll(handle);
  if (error != 0) end_poll(handle);  // the caller must not do it
  return error;
}

/// Everything that a completion of this device says; fields of other services are 0, as in ibv_wc.
void set_entries(ibv_cq_ex& handle) {
  handle.start_poll = start_poll;
  handle.next_poll = next_poll;
  handle.end_poll = end_poll;
  handle.read_opcode = [](ibv_cq_ex* queue) { return current(queue).opcode; };
  handle.read_vendor_err = [](ibv_cq_ex* queue) { return current(queue).vendor_err; };
  handle.read_byte_len = [](ibv_cq_ex* queue) { return current(queue).byte_len; };
  handle.read_imm_data = [](ibv_cq_ex* queue) -> __be32 { return current(queue).imm_data; };
  handle.read_qp_num = [](ibv_cq_ex* queue) { return current(queue).qp_num; };
  handle.read_src_qp = [](ibv_cq_ex* queue) { return current(queue).src_qp; };
  handle.read_wc_flags = [](ibv_cq_ex* queue) { return current(queue).wc_flags; };
  handle.read_slid = [](ibv_cq_ex* queue) -> uint32_t { return current(queue).slid; };
  handle.read_sl = [](ibv_cq_ex* queue) { return current(queue).sl; };
  handle.read_dlid_path_bits = [](ibv_cq_ex* queue) { return current(queue).dlid_path_bits; };
}

int check(const ibv_cq_init_attr_ex& wanted) {
  const bool has_flags = (wanted.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  if ((wanted.comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0 ||
      (wanted.wc_flags & ~std::uint64_t{IBV_WC_STANDARD_FLAGS}) != 0 ||
      (has_flags && (wanted.flags & ~std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) != 0))
    return EOPNOTSUPP;
  constexpr auto most = static_cast<std::uint32_t>(std::numeric_limits<int>::max());
  return wanted.cqe > most || wanted.comp_vector > most ? EINVAL : 0;
}

}  // namespace

ibv_cq_ex* create_extended_queue(ibv_context* context, ibv_cq_init_attr_ex* wanted) {
  if (const int error = check(*wanted)) return refuse(error);
  ibv_cq* const made =
      soft_driver().create_cq(context, static_cast<int>(wanted->cqe), wanted->cq_context,
                              wanted->channel, static_cast<int>(wanted->comp_vector));
  if (!made) return nullptr;
  auto& queue = *static_cast<CompletionQueue*>(made);
  queue.extended_poll.is_single_threaded =
      (wanted->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && wanted->flags != 0;
  set_entries(*queue.extended());
  return queue.extended();
}

}  // namespace tutti::verbs::soft
