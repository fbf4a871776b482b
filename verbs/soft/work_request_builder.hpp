// Work requests built piece by piece: ibv_wr_start, one ibv_wr_ function for the operation and one
// for its data, again and again, ibv_wr_complete.  What is built is an ordinary list of requests
// with copies of all that the caller may reuse, posted as a whole.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "verbs/soft/spin_lock.hpp"

namespace tutti::verbs::soft {

struct QueuePair;

/// Of IBV_QP_EX_WITH_: what may be asked for in send_ops_flags.
inline constexpr std::uint64_t buildable_operations =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/// Of an unreliable-datagram queue pair.
inline constexpr std::uint64_t buildable_datagrams =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

struct WorkRequestBuilder {
  bool is_offered = false;
  std::uint64_t operations = 0;  // asked for

  SpinLock lock;  // held from start to complete or abort
  int error = 0;  // the first one since the start
  // The lists grow to what the caller needs, once.  The pieces of the requests follow each other,
  // num_sge each; of inline data the address is the offset in its bytes until it is posted.
  std::vector<ibv_send_wr> requests;
  std::vector<ibv_sge> pieces;
  std::vector<std::byte> inline_data;
  bool has_data = false;  // the last request's was set
};

/// Before the queue pair is given to the caller.
void offer_builder(QueuePair& pair, std::uint64_t operations);

}  // namespace tutti::verbs::soft
