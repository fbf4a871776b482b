// The messages between nodes, and the work requests that carry them.  There are four kinds.
//   notified   one write with immediate: the receiver's completion says that the chunk is there
//   worded     two plain writes: the chunk, then a word that says that the chunk is there
//   plain      one plain write, which its receiver finds when it looks
//   line       one inline write of one aligned line, whose last word says that the line is there:
//
//        | payload, up to 56 bytes ................................. | number |
//        ^ slot, aligned to 64                                       ^ slot + 56
//
// A put is a message that the plan sends in every call.  Its request is built once; from then on
// only the number of a line and the signal flag change.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "verbs/wire.hpp"

namespace tutti::verbs {

/// No connection: what has not been prepared or assigned yet.
inline constexpr std::uint32_t no_connection = UINT32_MAX;

/// The wr_id of a request: its connection, and how many sends its completion proves to be finished
/// (0 for a receive).
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
static_assert(CompletionTag::decoded(CompletionTag{7, 32}.encoded()).connection == 7);
static_assert(CompletionTag::decoded(CompletionTag{7, 32}.encoded()).finished == 32);

struct NotifiedWrite {
  const std::byte* local = nullptr;
  std::uint32_t bytes = 0;  // 0 sends the notification alone
  std::uint32_t local_key = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  Immediate notification = {};
};

/// A write that says nothing.
struct PlainWrite {
  const std::byte* local = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t local_key = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
};

struct WordedWrite {
  const std::byte* local = nullptr;
  std::uint32_t bytes = 0;  // 0 sends the word alone
  std::uint32_t local_key = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t remote_word = 0;  // address of the word
  std::uint32_t remote_key = 0;   // of the memory that holds chunk and word
  std::uint64_t word = 0;         // value that the word gets
};

/// A message of one line, to a slot of one line.
struct LineWrite {
  const std::byte* local = nullptr;
  std::uint32_t bytes = 0;           // at most Line::payload_bytes_max; 0 sends the number alone
  std::uint64_t remote_address = 0;  // of the slot
  std::uint32_t remote_key = 0;
  std::uint64_t numbers_from = 0;  // the receiver's VerbsChannel::numbers_from()
};

/// The line that a put sends, and where its payload is taken from.
struct OutgoingLine {
  Line line = {};  // as it was sent last
  const std::byte* local = nullptr;
  std::uint32_t bytes = 0;
  std::uint64_t numbers_from = 0;  // as in LineWrite

  /// Makes it the next message.  The request is inline, so the device copies the line while it is
  /// posted: neither the line nor the payload is read afterwards.
  void fill() noexcept {
    assert(bytes <= Line::payload_bytes_max);
    if (bytes == 8)  // the most frequent size: without a call of memcpy
      std::memcpy(line.payload, local, 8);
    else if (bytes > 0)
      std::memcpy(line.payload, local, bytes);
    ++line.number;
  }
};

/// A put, ready to post.  It cannot be moved, because the request points at its piece.
struct PreparedPut {
  ibv_send_wr request = {};
  ibv_sge piece = {};
  OutgoingLine* line = nullptr;  // null: a notified write
  std::uint32_t connection = no_connection;
  bool is_awaited = false;  // see VerbsChannel::await_sent()

  PreparedPut() = default;
  PreparedPut(const PreparedPut&) = delete;
  PreparedPut& operator=(const PreparedPut&) = delete;

  /// Whether the fields that no call changes are as they were prepared.
  bool is_intact() const noexcept {
    return request.next == nullptr && request.sg_list == &piece &&
           CompletionTag::decoded(request.wr_id).connection == connection &&
           request.opcode == (line != nullptr ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM);
  }
};

}  // namespace tutti::verbs
