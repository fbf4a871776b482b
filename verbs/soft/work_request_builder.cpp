#include "verbs/soft/work_request_builder.hpp"

#include <cassert>
#include <cerrno>
#include <new>

#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/send.hpp"
#include "verbs/soft/timing.hpp"

namespace tutti::verbs::soft {
namespace {

QueuePair& pair_of(ibv_qp_ex* handle) {
  return soft::pair_of(&handle->qp_base);
}

/// Changes the list being built; `change` returns 0 or an errno value, which complete() will
/// return.
template <class Change>
void build(ibv_qp_ex* handle, const Change& change) noexcept {
  WorkRequestBuilder& builder = pair_of(handle).builder;
  if (builder.error != 0) return;
  try {
    builder.error = change(builder);
  } catch (const std::bad_alloc&) {
    builder.error = ENOMEM;
  }
}

void refuse(ibv_qp_ex* handle, int error) {
  build(handle, [=](WorkRequestBuilder&) { return error; });
}

// --- Operations ---------------------------------------------------------------------------------

void add(ibv_qp_ex* handle, std::uint64_t operation, ibv_wr_opcode opcode, std::uint32_t key = 0,
         std::uint64_t address = 0, __be32 immediate = 0) {
  build(handle, [&](WorkRequestBuilder& builder) {
    if ((builder.operations & operation) == 0) return EOPNOTSUPP;
    ibv_send_wr& request = builder.requests.emplace_back();
    request.wr_id = handle->wr_id;
    request.opcode = opcode;
    // The function that sets the data says whether they are inline.
    request.send_flags = handle->wr_flags & ~unsigned{IBV_SEND_INLINE};
    request.imm_data = immediate;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = key;
    builder.has_data = false;
    return 0;
  });
}

void rdma_write(ibv_qp_ex* handle, std::uint32_t key, std::uint64_t address) {
  add(handle, IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE, key, address);
}
void rdma_write_imm(ibv_qp_ex* handle, std::uint32_t key, std::uint64_t address, __be32 immediate) {
  add(handle, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, key, address,
      immediate);
}
void rdma_read(ibv_qp_ex* handle, std::uint32_t key, std::uint64_t address) {
  add(handle, IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ, key, address);
}
/// Called after add() has made the request.
void set_operands(ibv_qp_ex* handle, std::uint32_t key, std::uint64_t address,
                  std::uint64_t operand, std::uint64_t swap) {
  build(handle, [&](WorkRequestBuilder& builder) {
    assert(!builder.requests.empty());
    builder.requests.back().wr.atomic = {
        .remote_addr = address, .compare_add = operand, .swap = swap, .rkey = key};
    return 0;
  });
}
void compare_and_swap(ibv_qp_ex* handle, std::uint32_t key, std::uint64_t address,
                      std::uint64_t compare, std::uint64_t swap) {
  add(handle, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP);
  set_operands(handle, key, address, compare, swap);
}
void fetch_and_add(ibv_qp_ex* handle, std::uint32_t key, std::uint64_t address,
                   std::uint64_t addend) {
  add(handle, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD);
  set_operands(handle, key, address, addend, 0);
}
void send(ibv_qp_ex* handle) {
  add(handle, IBV_QP_EX_WITH_SEND, IBV_WR_SEND);
}
void send_imm(ibv_qp_ex* handle, __be32 immediate) {
  add(handle, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM, 0, 0, immediate);
}

// --- Data ---------------------------------------------------------------------------------------

/// Sets the data of the last request, once.
template <class Set>
void set_data(ibv_qp_ex* handle, const Set& set) noexcept {
  build(handle, [&](WorkRequestBuilder& builder) {
    if (builder.requests.empty() || builder.has_data) return EINVAL;
    builder.has_data = true;
    return set(builder, builder.requests.back());
  });
}

void set_pieces(ibv_qp_ex* handle, std::size_t count, const ibv_sge* pieces) {
  set_data(handle, [&](WorkRequestBuilder& builder, ibv_send_wr& request) {
    if (count > pair_of(handle).initial.cap.max_send_sge) return EINVAL;
    builder.pieces.insert(builder.pieces.end(), pieces, pieces + count);
    request.num_sge = static_cast<int>(count);
    return 0;
  });
}

void set_piece(ibv_qp_ex* handle, std::uint32_t key, std::uint64_t address, std::uint32_t bytes) {
  const ibv_sge piece{.addr = address, .length = bytes, .lkey = key};
  set_pieces(handle, 1, &piece);
}

void set_inline_list(ibv_qp_ex* handle, std::size_t count, const ibv_data_buf* buffers) {
  set_data(handle, [&](WorkRequestBuilder& builder, ibv_send_wr& request) {
    const std::size_t bytes_max = pair_of(handle).initial.cap.max_inline_data;
    const std::size_t offset = builder.inline_data.size();
    std::size_t bytes = 0;
    for (std::size_t index = 0; index < count; ++index) {
      if (buffers[index].length > bytes_max - bytes) return EINVAL;
      bytes += buffers[index].length;
      const auto* const data = static_cast<const std::byte*>(buffers[index].addr);
      builder.inline_data.insert(builder.inline_data.end(), data, data + buffers[index].length);
    }
    request.send_flags |= IBV_SEND_INLINE;
    if (bytes == 0) return 0;
    builder.pieces.push_back(
        {.addr = offset, .length = static_cast<std::uint32_t>(bytes), .lkey = 0});
    request.num_sge = 1;
    return 0;
  });
}

void set_address(ibv_qp_ex* handle, ibv_ah* address_handle, std::uint32_t pair, std::uint32_t key) {
  build(handle, [&](WorkRequestBuilder& builder) {
    if (builder.requests.empty() || pair_of(handle).qp_type != IBV_QPT_UD) return EINVAL;
    builder.requests.back().wr.ud = {.ah = address_handle, .remote_qpn = pair, .remote_qkey = key};
    return 0;
  });
}

void set_inline(ibv_qp_ex* handle, void* data, std::size_t bytes) {
  const ibv_data_buf buffer{.addr = data, .length = bytes};
  set_inline_list(handle, 1, &buffer);
}

// --- Begin and end ------------------------------------------------------------------------------

/// False in a child of fork: a thread that is not there may hold the lock, and nothing can be
/// posted.
bool is_usable(const QueuePair& pair) {
  return pair.context->ops.post_send == post_send;
}

void start(ibv_qp_ex* handle) {
  QueuePair& pair = pair_of(handle);
  if (!is_usable(pair)) return;
  WorkRequestBuilder& builder = pair.builder;
  builder.lock.lock();
  builder.error = 0;
  builder.requests.clear();
  builder.pieces.clear();
  builder.inline_data.clear();
}

void abort(ibv_qp_ex* handle) {
  if (QueuePair& pair = pair_of(handle); is_usable(pair)) pair.builder.lock.unlock();
}

/// Stores addresses in the place of offsets, which were used because the lists might move.
void link(WorkRequestBuilder& builder) {
  ibv_sge* pieces = builder.pieces.data();
  for (ibv_send_wr& request : builder.requests) {
    request.sg_list = pieces;
    if ((request.send_flags & IBV_SEND_INLINE) != 0 && request.num_sge != 0)
      pieces->addr += reinterpret_cast<std::uint64_t>(builder.inline_data.data());
    pieces += request.num_sge;
    request.next = &request == &builder.requests.back() ? nullptr : &request + 1;
  }
  assert(pieces == builder.pieces.data() + builder.pieces.size());
}

int complete(ibv_qp_ex* handle) {
  QueuePair& pair = pair_of(handle);
  if (!is_usable(pair)) return EINVAL;
  WorkRequestBuilder& builder = pair.builder;
  int error = builder.error;
  const std::size_t count = builder.requests.size();
  if (error == 0 && count > 0) {
    link(builder);
    error = post_send_all(pair, builder.requests.data(), count);
  }
  builder.lock.unlock();
  if (error == 0 && pair.timing && pair.qp_type != IBV_QPT_UD)
    pair.timing->charge_posts(pair.process, count);
  return error;
}

}  // namespace

void offer_builder(QueuePair& pair, std::uint64_t operations) {
  assert((operations & ~buildable_operations) == 0);
  pair.builder.is_offered = true;
  pair.builder.operations = operations;
  ibv_qp_ex& handle = *pair.extended();
  handle.wr_start = start;
  handle.wr_complete = complete;
  handle.wr_abort = abort;
  handle.wr_rdma_write = rdma_write;
  handle.wr_rdma_write_imm = rdma_write_imm;
  handle.wr_rdma_read = rdma_read;
  handle.wr_send = send;
  handle.wr_send_imm = send_imm;
  handle.wr_atomic_cmp_swp = compare_and_swap;
  handle.wr_atomic_fetch_add = fetch_and_add;
  handle.wr_set_ud_addr = set_address;
  handle.wr_set_sge = set_piece;
  handle.wr_set_sge_list = set_pieces;
  handle.wr_set_inline_data = set_inline;
  handle.wr_set_inline_data_list = set_inline_list;

  handle.wr_atomic_write = [](ibv_qp_ex* qp, auto...) { refuse(qp, EOPNOTSUPP); };
  handle.wr_bind_mw = [](ibv_qp_ex* qp, auto...) { refuse(qp, EOPNOTSUPP); };
  handle.wr_local_inv = [](ibv_qp_ex* qp, auto...) { refuse(qp, EOPNOTSUPP); };
  handle.wr_send_inv = [](ibv_qp_ex* qp, auto...) { refuse(qp, EOPNOTSUPP); };
  handle.wr_send_tso = [](ibv_qp_ex* qp, auto...) { refuse(qp, EOPNOTSUPP); };
  handle.wr_set_xrc_srqn = [](ibv_qp_ex* qp, auto...) { refuse(qp, EOPNOTSUPP); };
}

}  // namespace tutti::verbs::soft
