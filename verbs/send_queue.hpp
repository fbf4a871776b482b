// Sending on one connection: one request at a time, with credits.
//
// Requests are never chained, because a chain loses the one-write doorbell of common cards.  Every
// k-th request is signaled; its completion, once polled, returns the k credits that it stands for,
// because a reliable connection completes in order.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <tutti/detail/check.hpp>

#include "verbs/work_request.hpp"

namespace tutti::verbs {

/// Send credits of one queue pair.
class SendQueue {
 public:
  explicit SendQueue(std::uint32_t sends_max)
      : sends_max_(sends_max), signal_every_(sends_max / 2 > 0 ? sends_max / 2 : 1) {}

  bool has_credit() const noexcept { return in_flight_ < sends_max_; }
  /// How many sends have a credit.
  std::uint32_t credits() const noexcept { return has_credit() ? sends_max_ - in_flight_ : 0; }
  std::uint32_t in_flight() const noexcept { return in_flight_; }
  std::uint32_t signal_every() const noexcept { return signal_every_; }

  /// Sends posted so far, and those known to have left, in the order of posting.
  std::uint64_t posted() const noexcept { return posted_; }
  std::uint64_t left() const noexcept { return posted_ - in_flight_; }

  /// Returns 0 or the errno of ibv_post_send.  Needs a credit; request.wr_id holds signal_every().
  int post(ibv_qp* pair, ibv_send_wr& request) noexcept {
    const bool signal = unsignaled_ + 1 == signal_every_;
    request.send_flags = (request.send_flags & ~unsigned{IBV_SEND_SIGNALED}) |
                         (signal ? unsigned{IBV_SEND_SIGNALED} : 0u);
    return submit(pair, request, signal);
  }

  int post(ibv_qp* pair, PreparedPut& put) noexcept {
    return put.is_awaited ? post_signaled(pair, put.connection, put.request)
                          : post(pair, put.request);
  }

  /// A signaled completion was polled: everything up to it has left.
  void completed(std::uint32_t finished) noexcept {
    detail::check(finished <= in_flight_, "completions match sends", finished, in_flight_);
    assert(finished > 0);
    in_flight_ -= finished;
  }

  /// The connection has failed: there is no credit from now on.
  void close() noexcept { sends_max_ = 0; }

  /// Posts a signaled zero-byte write, whose completion says that all earlier sends are done;
  /// nothing if the last send was signaled.  Returns 0 or an errno.  Needs a credit.
  int flush(ibv_qp* pair, std::uint32_t connection) noexcept {
    if (unsignaled_ == 0) return 0;
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    return post_signaled(pair, connection, request);
  }

  /// Posts a signaled notification without payload.  Returns 0 or an errno.  Needs a credit.
  int notify(ibv_qp* pair, std::uint32_t connection, std::uint32_t immediate) noexcept {
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htobe32(immediate);
    return post_signaled(pair, connection, request);
  }

 private:
  int post_signaled(ibv_qp* pair, std::uint32_t connection, ibv_send_wr& request) noexcept {
    request.wr_id = CompletionTag{connection, unsignaled_ + 1}.encoded();
    request.send_flags |= IBV_SEND_SIGNALED;
    return submit(pair, request, true);
  }

  int submit(ibv_qp* pair, ibv_send_wr& request, bool signaled) noexcept {
    detail::check(has_credit(), "a send needs a credit", in_flight_, sends_max_);
    assert(request.next == nullptr);
    assert(request.num_sge <= 1);
    assert(!signaled || CompletionTag::decoded(request.wr_id).finished == unsignaled_ + 1);
    ibv_send_wr* refused = nullptr;
    if (const int error = ibv_post_send(pair, &request, &refused); error != 0) return error;
    unsignaled_ = signaled ? 0 : unsignaled_ + 1;
    ++in_flight_;
    ++posted_;
    return 0;
  }

  std::uint32_t sends_max_;
  std::uint32_t signal_every_;
  std::uint32_t in_flight_ = 0;
  std::uint64_t posted_ = 0;
  std::uint32_t unsignaled_ = 0;  // since the last signaled request
};

}  // namespace tutti::verbs
