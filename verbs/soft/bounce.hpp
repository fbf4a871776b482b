// The last resort: private memory of the target where the system forbids process_vm_writev.  Data
// go through a BounceArea of the target's segment, in chunks; the target's helper thread copies
// between it and its own memory, having checked the keys again.  The rest of a request stays the
// initiator's: access check, receive, order, completion.
//
// The request is pending meanwhile, so that nothing overtakes it; every attempt to execute it comes
// here and finds the answer to its last question, or goes on waiting.  A stopped target delays it.
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

/// What the initiator knows of the request under way.  Guarded by the send lock.
struct BounceProgress {
  std::uint64_t position = ~std::uint64_t{0};  // of the request
  std::uint64_t asked = 0;  // BounceArea::requested while an answer is awaited; else 0
  std::size_t done_bytes = 0;
  bool called = false;  // the owner, about what somebody else has left
  // A receive of a shared queue was claimed by an attempt that had to wait: it is for the next one.
  bool has_receive = false;
  Receive receive;
};

/// One more attempt: `wait` until the last chunk has been answered.  Engaged on the target.
/// `receive`: that of a send.
Outcome bounce(QueuePair& pair, const Request& request, const Pieces& local,
               const Receive& receive) noexcept;

/// See Peer::call: there is something to copy for this queue pair of the owner.  No other call
/// looks like it, as the others name lines or everything.
inline constexpr std::uint64_t bounce_call(std::uint32_t index) {
  assert(index < queue_pairs_max);
  return std::uint64_t{index} << 8 | 2;
}
inline constexpr bool is_bounce_call(std::uint64_t call) {
  return (call & 0xff) == 2;
}

}  // namespace tutti::verbs::soft
