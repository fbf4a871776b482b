// The connection to one peer process: its queue pair, the sends and receives that are in use on it,
// and what has become of it.
//
// A connection that has failed, or whose other end is closed, gets no credit any more, so that the
// data path meets the failure where it asks for credit anyway.  Nothing is sent again.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/status.hpp>
#include <utility>

#include "verbs/cm_driver.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/send_queue.hpp"

namespace tutti::verbs {

/// A completion that carried an error, or a refused post.
struct TransportFailure {
  std::uint64_t process = 0;  // the peer's key, see Connections::to()
  ibv_wc_status completion = IBV_WC_SUCCESS;
  int system_errno = 0;
  std::string_view what;         // static text
  bool peer_had_left = false;    // its farewell had come before
  std::uint32_t connection = 0;  // its index
  bool was_let_go = false;       // by forget(): concerns only those that still use it
  // Where a completion carried it:
  bool is_receive = false;         // of a receive; else of a write
  std::uint32_t vendor_error = 0;  // as the device gives it
};

/// What worded writes need of a device and of a queue pair.
struct WordedLimits {
  bool places_writes_in_order = false;
  std::string found = {};  // FoundFact::source
  std::uint32_t inline_bytes = 0;
  std::uint32_t sends_max = 0;
};
/// Why worded writes cannot be used there, as the end of a sentence; empty if they can.  `port` is
/// its name.
std::string why_not_worded(const WordedLimits& limits, const std::string& port);

/// Whether writes are placed in order there: by the driver, or by what was found.
bool places_writes_in_order(const Port& port) noexcept;

/// Why messages of one line cannot be used there, as a sentence, because of what it says of that
/// device.
std::string why_not_lines(const std::string& tears, const std::string& port);
/// Asks the device of a port to keep lines whole; from then on it does, or was found to do so, or
/// the answer says why not; empty: they can be used.
std::string why_not_lines(const Port& port);

/// Receives are posted again in batches of so many: 62 of 254, so that 192 can be promised.
constexpr std::uint32_t receive_batch(std::uint32_t receives_max) noexcept {
  return receives_max / 4 > 1 ? receives_max / 4 - 1 : 1;
}

struct Connection {
  Connection(std::uint32_t own_index, std::uint64_t peer, QueuePair&& made)
      : process(peer), pair(std::move(made)), sends(pair->sends_max()), index(own_index) {}

  /// Whether so many sends could be posted now.  in_progress: there is no credit, poll and try
  /// again; transport_failed: the connection has failed, or its other end is closed.
  Status room(std::uint32_t count) const noexcept {
    if (sends.credits() >= count) [[likely]]
      return Status::ok;
    return failed || peer_closed ? Status::transport_failed : Status::in_progress;
  }

  /// Whether this end may be closed, though the peer knows nothing of it yet: no live channel uses
  /// it, all that was sent has arrived, and all that was sent here has been taken.
  bool is_idle() const noexcept {
    return users == 0 && pair && connected && !failed && !left && !took_leave && !is_in_doubt;
  }

  /// Whether it has failed and no channel uses it: nothing can come or go, so that it may be closed
  /// without a word.  Kept, it tells a set-up with that peer that they have lost each other.
  bool is_lost() const noexcept { return users == 0 && pair && !left && failed; }

  /// Whether no channel uses it, and yet it cannot be closed: its peer may still send on it, for a
  /// channel that has ended before all had arrived.
  bool is_stuck() const noexcept { return users == 0 && pair && !left && !failed && is_in_doubt; }

  /// Whether the peer has closed or left its end, and nothing can come any more that a channel
  /// waits for.
  bool is_left_over() const noexcept {
    return pair && ((peer_closed && heard_all) || (left && users == 0));
  }

  /// A plain write of the chunk of `given`, which is a PlainWrite, NotifiedWrite or WordedWrite;
  /// the request points at `piece`.
  template <class Write>
  ibv_send_wr request_of(const Write& given, ibv_sge& piece) const noexcept {
    assert(given.bytes == 0 || given.local != nullptr);
    piece = {.addr = reinterpret_cast<std::uint64_t>(given.local),
             .length = given.bytes,
             .lkey = given.local_key};
    ibv_send_wr request{};
    request.wr_id = CompletionTag{index, sends.signal_every()}.encoded();
    request.sg_list = &piece;
    request.num_sge = given.bytes > 0 ? 1 : 0;
    request.opcode = IBV_WR_RDMA_WRITE;
    if (given.bytes <= pair->inline_bytes()) request.send_flags = IBV_SEND_INLINE;
    request.wr.rdma = {.remote_addr = given.remote_address, .rkey = given.remote_key};
    return request;
  }

  /// Posts receives without memory, because only the immediate matters.  Returns 0 or an errno.
  int post_receives(std::uint32_t count) noexcept;
  /// Reserves a receive for one message per call that the peer will send, in each parity.  Throws
  /// Error.
  void reserve_receive();
  /// How many more messages could be promised a receive.
  std::uint32_t receives_left() const noexcept;

  /// Throws Error if the queue pair cannot send a line.
  void require_lines() const;
  /// Why worded writes cannot be used in either direction; empty if they can.
  std::string why_not_worded() const;

  std::uint64_t process;          // the peer's key
  std::uint64_t serial = 0;       // of all connections that were made; never used again
  std::uint64_t used_at = 0;      // grows with each use; the least recent one is closed first
  IdHandle id = {};               // if it was connected by address
  std::optional<QueuePair> pair;  // empty: closed
  SendQueue sends;
  std::uint32_t index;
  std::uint32_t users = 0;             // live channels that may send or receive here
  std::uint32_t completion_queue = 0;  // its index
  bool has_entries = false;            // of that queue
  bool connected = false;
  bool failed = false;
  bool left = false;                        // the peer has taken leave, or closed its end
  bool took_leave = false;                  // this end has
  bool is_closing = false;                  // and goes on, without this connection
  bool peer_closed = false;                 // the peer goes on, but has closed its end
  bool let_go = false;                      // both ends go on with another one, or none
  bool heard_all = false;                   // and its last message has been polled
  bool met_failure = false;                 // its owner has failed, and has not met the peer since
  bool is_in_doubt = false;                 // a channel ended before all was known to have arrived
  std::optional<TransportFailure> unheard;  // until Connections::next_failure() has returned it
  std::uint32_t receives_used = 0;          // polled and not yet posted again
  std::uint32_t receives_reserved = 0;      // by live channels, both parities
  // Numbers of the last marker (VerbsFabric::mark()) of either end; 0: there was none.
  std::uint16_t marker_sent = 0, marker_heard = 0;
};

}  // namespace tutti::verbs
