// Sending on one connection: work requests built once, posted one at a time, credits counted.
//
// Never chained: a chain of requests loses the one-write doorbell of common NICs.  Every k-th
// request is signaled; a polled completion returns the k credits it stands for, because a reliable
// connection completes in order.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <tutti/detail/check.hpp>
#include <tutti/status.hpp>

#include "verbs/queue_pair.hpp"
#include "verbs/wire.hpp"

namespace tutti::verbs {

/// A message of one line, and where its payload is taken from.
struct OutgoingLine {
  Line line = {};  // holds the message before; its number
  const std::byte* local = nullptr;
  std::uint32_t bytes = 0;

  /// The next message.  The request is inline: it is copied again when it is posted, so that
  /// neither this line nor the payload is the device's afterwards.
  void fill() noexcept {
    if (bytes == 8)  // what is waited for most has no call of memcpy
      std::memcpy(line.payload, local, 8);
    else if (bytes > 0)
      std::memcpy(line.payload, local, bytes);
    ++line.number;
  }
};

/// A write-with-immediate, or an inline write of a line, that is posted again and again.  Not
/// movable once built: the request points at its own piece.
struct PreparedPut {
  ibv_send_wr request = {};
  ibv_sge piece = {};
  OutgoingLine* line = nullptr;           // null: with immediate
  std::uint32_t connection = UINT32_MAX;  // until it is prepared
  bool is_awaited = false;                // somebody waits until it has left

  PreparedPut() = default;
  PreparedPut(const PreparedPut&) = delete;
  PreparedPut& operator=(const PreparedPut&) = delete;
};

struct PutDescription {
  std::uint32_t connection;
  const std::byte* local;
  std::uint32_t bytes;  // 0 sends the notification alone
  std::uint64_t remote_address;
  std::uint32_t remote_key;
  Immediate notification;
  std::optional<std::uint32_t> local_key = {};  // default: of the arena
  bool is_awaited = false;  // somebody waits until it has left, see VerbsFabric::sent()
};

/// A message of one line, to a slot of one line.
struct LineDescription {
  std::uint32_t connection;
  const std::byte* local;
  std::uint32_t bytes;           // at most Line::payload_bytes_max; 0 sends the number alone
  std::uint64_t remote_address;  // of the slot
  std::uint32_t remote_key;
  std::uint64_t numbers_from;  // the receiver's Channel::numbers_from()
};

/// What a completion's wr_id says: whose it is, and how many sends it proves to be finished.
struct CompletionTag {
  std::uint32_t connection;
  std::uint32_t finished;

  constexpr std::uint64_t encoded() const noexcept {
    return std::uint64_t{finished} << 32 | connection;
  }
  static constexpr CompletionTag decoded(std::uint64_t id) noexcept {
    return {.connection = static_cast<std::uint32_t>(id),
            .finished = static_cast<std::uint32_t>(id >> 32)};
  }
};

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

  /// 0, or the errno of ibv_post_send.  Needs a credit.  request.wr_id says signal_every().
  int post(ibv_qp* pair, ibv_send_wr& request) noexcept {
    detail::check(has_credit(), "a send needs a credit", in_flight_, sends_max_);
    const bool signal = unsignaled_ + 1 == signal_every_;
    request.send_flags = (request.send_flags & ~unsigned{IBV_SEND_SIGNALED}) |
                         (signal ? unsigned{IBV_SEND_SIGNALED} : 0u);
    ibv_send_wr* refused = nullptr;
    if (const int error = ibv_post_send(pair, &request, &refused); error != 0) return error;
    unsignaled_ = signal ? 0 : unsignaled_ + 1;
    ++in_flight_;
    ++posted_;
    return 0;
  }

  int post(ibv_qp* pair, PreparedPut& put) noexcept {
    if (!put.is_awaited) return post(pair, put.request);
    detail::check(has_credit(), "a send needs a credit", in_flight_, sends_max_);
    return post_signaled(pair, put.connection, put.request);
  }

  /// A signaled completion was polled: everything up to it has left.
  void completed(std::uint32_t finished) noexcept {
    detail::check(finished <= in_flight_, "completions match sends", finished, in_flight_);
    in_flight_ -= finished;
  }

  /// The connection has failed: no credit from now on.
  void close() noexcept { sends_max_ = 0; }

  /// Posts a signaled zero-byte write, whose completion says that all earlier sends are done.
  /// 0 or errno; nothing is posted if the last send was signaled.  Needs a credit.
  int flush(ibv_qp* pair, std::uint32_t connection) noexcept {
    if (unsignaled_ == 0) return 0;
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    return post_signaled(pair, connection, request);
  }

  /// Posts a signaled notification without payload.  0 or errno.  Needs a credit.
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
    ibv_send_wr* refused = nullptr;
    if (const int error = ibv_post_send(pair, &request, &refused); error != 0) return error;
    unsignaled_ = 0;
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
