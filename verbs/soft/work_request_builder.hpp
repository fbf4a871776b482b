// Work requests built piece by piece: ibv_wr_start, then for each request one ibv_wr_ function for
// the operation and one for its data, then ibv_wr_complete.  The result is an ordinary list of
// requests, with copies of everything that the caller may reuse; it is posted as a whole.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "verbs/soft/spin_lock.hpp"

namespace tutti::verbs::soft {

struct QueuePair;

/// The IBV_QP_EX_WITH_ bits that send_ops_flags may ask for.
inline constexpr std::uint64_t buildable_operations =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/// The bits for an unreliable-datagram queue pair.
inline constexpr std::uint64_t buildable_datagrams =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

struct WorkRequestBuilder {
  bool is_offered = false;
  std::uint64_t operations = 0;  // those that the caller has asked for

  SpinLock lock;  // held from start to complete or abort
  int error = 0;  // the first one since the start
  // The lists grow to what the caller needs, once.  The pieces of the requests follow each other,
  // num_sge each.  The address of inline data is the offset in `inline_data` until it is posted.
  std::vector<ibv_send_wr> requests;
  std::vector<ibv_sge> pieces;
  std::vector<std::byte> inline_data;
  bool has_data = false;  // whether the last request's data were set
};

/// Called before the queue pair is given to the caller.
void offer_builder(QueuePair& pair, std::uint64_t operations);

}  // namespace tutti::verbs::soft
