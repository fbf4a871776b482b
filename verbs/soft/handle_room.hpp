// Handles that the caller may hold under two types: ibv_qp_ex begins with ibv_qp, ibv_cq_ex with
// the members of ibv_cq.  Every object has room for the longer one, so that queues have one type
// here, whichever function made them.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>

namespace tutti::verbs::soft {

template <class Handle, class Extended>
struct HandleWithRoom : Handle {
  alignas(Extended) std::array<std::byte, sizeof(Extended) - sizeof(Handle)> room;

  Extended* extended() { return reinterpret_cast<Extended*>(static_cast<Handle*>(this)); }
};

using QueuePairHandle = HandleWithRoom<ibv_qp, ibv_qp_ex>;
using CompletionQueueHandle = HandleWithRoom<ibv_cq, ibv_cq_ex>;
static_assert(sizeof(QueuePairHandle) == sizeof(ibv_qp_ex) &&
              offsetof(ibv_qp_ex, comp_mask) == sizeof(ibv_qp));
static_assert(sizeof(CompletionQueueHandle) == sizeof(ibv_cq_ex) &&
              offsetof(ibv_cq_ex, comp_mask) == sizeof(ibv_cq));

}  // namespace tutti::verbs::soft
