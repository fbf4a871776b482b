#include "verbs/soft/extended.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "verbs/soft/context.hpp"
#include "verbs/soft/device.hpp"
#include "verbs/soft/extended_poll.hpp"
#include "verbs/soft/guarded.hpp"
#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/work_request_builder.hpp"

namespace tutti::verbs::soft {
namespace {

/// Callers say how many bytes of a struct they know.
template <class T>
void copy_known(const T& whole, T* to, std::size_t known_bytes) {
  std::memcpy(static_cast<void*>(to), &whole, std::min(known_bytes, sizeof(whole)));
  assert(to != nullptr);
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes,
               std::size_t bytes) {
  const SoftDevice& device = device_of(context);
  if (!device.has_port(port)) return EINVAL;
  ibv_port_attr described;
  describe_port(device, port, context_of(context).process->emulated(), described);
  copy_known(described, attributes, bytes);
  return 0;
}

int query_device(ibv_context* context, const ibv_query_device_ex_input* input,
                 ibv_device_attr_ex* attributes, std::size_t bytes) {
  if (input && input->comp_mask != 0) return EINVAL;
  ibv_device_attr_ex described{};
  describe_device(device_of(context), described.orig_attr);
  described.phys_port_cnt_ex = described.orig_attr.phys_port_cnt;
  copy_known(described, attributes, bytes);
  return 0;
}

int check_extended(const ibv_qp_init_attr_ex& wanted) {
  constexpr std::uint32_t known =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const std::uint64_t operations =
      wanted.qp_type == IBV_QPT_UD ? buildable_datagrams : buildable_operations;
  const auto given = [&](std::uint32_t bit) { return (wanted.comp_mask & bit) != 0; };
  if (!given(IBV_QP_INIT_ATTR_PD) || !wanted.pd) return EINVAL;
  if ((wanted.comp_mask & ~known) != 0 ||
      (given(IBV_QP_INIT_ATTR_CREATE_FLAGS) && wanted.create_flags != 0) ||
      (given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (wanted.send_ops_flags & ~operations) != 0))
    return EOPNOTSUPP;
  return 0;
}

ibv_qp* create_qp(ibv_context*, ibv_qp_init_attr_ex* wanted) {
  if (const int error = check_extended(*wanted)) return refuse(error);
  ibv_qp_init_attr plain{.qp_context = wanted->qp_context,
                         .send_cq = wanted->send_cq,
                         .recv_cq = wanted->recv_cq,
                         .srq = wanted->srq,
                         .cap = wanted->cap,
                         .qp_type = wanted->qp_type,
                         .sq_sig_all = wanted->sq_sig_all};
  ibv_qp* const pair = create_queue_pair(wanted->pd, &plain);
  if (!pair) return nullptr;
  wanted->cap = plain.cap;
  if ((wanted->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0)
    offer_builder(pair_of(pair), wanted->send_ops_flags);
  return pair;
}

}  // namespace

void offer_extended(verbs_context& context) {
  // libibverbs keeps its own tables here.  No function that would use them is called for this
  // device, but programs look whether there are any.
  alignas(64) static std::array<std::byte, 4096> no_tables{};
  context.sz = sizeof(verbs_context);
  context.context.abi_compat = reinterpret_cast<void*>(UINTPTR_MAX);  // "this is a verbs_context"
  context.priv = reinterpret_cast<verbs_ex_private*>(no_tables.data());
  context.query_port = query_port;
  context.query_device_ex = query_device;
  context.create_qp_ex = guarded<create_qp>;
  context.create_cq_ex = create_extended_queue;
}

ibv_qp_ex* extended_queue_pair(ibv_qp* handle) {
  QueuePair& pair = pair_of(handle);
  return pair.builder.is_offered ? pair.extended() : nullptr;
}

}  // namespace tutti::verbs::soft
