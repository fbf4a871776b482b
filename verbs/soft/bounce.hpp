// The last resort: private memory of the target where the system forbids process_vm_writev.  Data
// go through a BounceArea of the target's segment, in chunks.  The target's helper thread copies
// between that area and its own memory, after it has checked the keys again.  The initiator does
// the rest of the request: access check, receive, order, completion.
//
// The request is pending meanwhile, so nothing overtakes it.  Every attempt to execute it calls
// bounce(), which finds the answer to the last question or goes on waiting.  A stopped target
// delays the request.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "verbs/soft/layout.hpp"
#include "verbs/soft/receive_queue.hpp"

namespace tutti::verbs::soft {

struct Outcome;
struct Pieces;
struct QueuePair;
struct Request;

/// What the initiator knows about the request under way.  Guarded by the send lock.
struct BounceProgress {
  std::uint64_t position = ~std::uint64_t{0};  // of the request
  std::uint64_t asked = 0;  // BounceArea::requested while an answer is awaited; else 0
  std::size_t done_bytes = 0;
  bool called = false;  // the owner was called about what an earlier initiator has left
  // An attempt that had to wait has claimed a receive of a shared queue; the next attempt uses it.
  bool has_receive = false;
  Receive receive;
};

/// Makes one more attempt: the outcome is `wait` until the last chunk has been answered.  The
/// caller is engaged on the target.  `receive`: the receive of a send.
Outcome bounce(QueuePair& pair, const Request& request, const Pieces& local,
               const Receive& receive) noexcept;

/// A value of Peer::call: there is something to copy for this queue pair of the owner.  No other
/// call has this form, because the others are offsets of lines or `everything`.
inline constexpr std::uint64_t bounce_call(std::uint32_t index) {
  assert(index < queue_pairs_max);
  return std::uint64_t{index} << 8 | 2;
}
inline constexpr bool is_bounce_call(std::uint64_t call) {
  return (call & 0xff) == 2;
}

}  // namespace tutti::verbs::soft
