#include "verbs/soft/bounce.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "verbs/soft/atomic.hpp"
#include "verbs/soft/memory.hpp"
#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/race_detector.hpp"
#include "verbs/soft/remote.hpp"

namespace tutti::verbs::soft {
namespace {

using Kind = Outcome::Kind;

Pieces data_of(BounceArea& area, std::size_t bytes) {
  Pieces pieces;
  pieces.add(area.data, bytes);
  return pieces;
}

bool reads(const Request& request) {
  return request.opcode == IBV_WR_RDMA_READ;
}

/// No completion is stored in the same attempt, so complete_receive() leaves `target.call` alone.
void call_owner_about(QueuePair& pair) {
  Target& target = pair.target;
  const std::uint64_t call = bounce_call(index_of(pair.attributes.dest_qp_num));
  target.call = target.call == 0 || target.call == call ? call : Peer::everything;
}

/// Calls once for each request: a former asker may have been killed or reset before it could call.
void call_for_what_was_left(QueuePair& pair) {
  if (!std::exchange(pair.bounced.called, true)) call_owner_about(pair);
}

/// NULL: there is no area yet, or there will be none (`refused`).
BounceArea* find_area(QueuePair& pair, bool& refused) {
  std::atomic<std::uint64_t>& place = pair.target.entry->bounce;
  std::uint64_t offset = place.load(std::memory_order_acquire);
  if (offset == 0) {
    // Only the engaged initiator replaces 0.
    place.store(bounce_wanted, std::memory_order_release);
    offset = bounce_wanted;
  }
  refused = offset == bounce_refused;
  if (offset == bounce_wanted) call_for_what_was_left(pair);
  return offset > bounce_refused ? pair.target.segment.at<BounceArea>(offset) : nullptr;
}

/// Writes where the bytes of the next chunk lie in the owner's memory.
void name_pieces(BounceArea& area, const Request& request, const Receive& receive,
                 std::size_t first, std::size_t bytes) {
  std::uint32_t named = 0;  // not counted where the target could change it
  const auto add = [&](std::uint64_t address, std::size_t count, std::uint32_t key) {
    assert(named < scatter_max);
    area.pieces[named++] = {address, static_cast<std::uint32_t>(count), key};
    bytes -= count;
    area.pieces_count = named;
  };
  area.pieces_count = 0;
  if (!is_send(request.opcode))
    return add(request.remote_address + first, bytes, request.remote_key);
  for (std::uint32_t index = 0; index < receive.scatter_count && bytes != 0; ++index) {
    const ibv_sge& piece = receive.scatter[index];
    if (first < piece.length)
      add(piece.addr + first, std::min<std::size_t>(piece.length - first, bytes), piece.lkey);
    first -= std::min<std::size_t>(first, piece.length);
  }
  assert(bytes == 0);
}

std::size_t chunk_bytes(const QueuePair& pair, const Pieces& local) {
  assert(pair.bounced.done_bytes <= local.bytes);
  return std::min(local.bytes - pair.bounced.done_bytes, BounceArea::data_bytes);
}

void ask(QueuePair& pair, BounceArea& area, const Request& request, const Pieces& local,
         const Receive& receive) {
  BounceProgress& progress = pair.bounced;
  assert(progress.asked == 0);
  const std::size_t bytes = chunk_bytes(pair, local);
  assert(bytes <= BounceArea::data_bytes);
  name_pieces(area, request, receive, progress.done_bytes, bytes);
  area.opcode = request.opcode;
  area.operand = request.operand;
  area.swap = request.swap;
  if (!reads(request) && !is_atomic(request.opcode)) {
    const PastRaceDetector past(*pair.peer);
    copy(part_of(local, progress.done_bytes, bytes), data_of(area, bytes));
  }
  progress.asked = area.requested.load(std::memory_order_relaxed) + 1;
  // Release: the owner that sees the count sees the question.
  area.requested.store(progress.asked, std::memory_order_release);
  call_owner_about(pair);
}

Outcome take_answer(QueuePair& pair, BounceArea& area, const Request& request,
                    const Pieces& local) {
  BounceProgress& progress = pair.bounced;
  assert(progress.asked != 0);
  progress.asked = 0;
  if (area.error == EACCES && !is_send(request.opcode)) return failure(IBV_WC_REM_ACCESS_ERR);
  if (area.error != 0) return failure(IBV_WC_REM_OP_ERR, static_cast<int>(area.error));
  const std::size_t bytes = chunk_bytes(pair, local);
  if (reads(request) || is_atomic(request.opcode))
    copy(data_of(area, bytes), part_of(local, progress.done_bytes, bytes));
  progress.done_bytes += bytes;
  return {.kind = Kind::done};
}

}  // namespace

Outcome bounce(QueuePair& pair, const Request& request, const Pieces& local,
               const Receive& receive) noexcept {
  assert(pair.send_lock.is_held());
  assert(!pair.pending.empty());
  assert(!pair.peer->is_self());
  BounceProgress& progress = pair.bounced;
  if (progress.position != request.position) {
    progress.position = request.position;
    progress.asked = progress.done_bytes = 0;
    progress.called = false;
  }
  bool refused = false;
  BounceArea* const area = find_area(pair, refused);
  if (refused) return failure(IBV_WC_REM_OP_ERR, ENOMEM);
  if (!area) return {.kind = Kind::wait};
  // Acquire: the answer's data are there, and the owner does not read the area any more.
  const std::uint64_t answered = area->answered.load(std::memory_order_acquire);
  if (progress.asked != 0) {
    if (answered != progress.asked) return {.kind = Kind::wait};
    const Outcome outcome = take_answer(pair, *area, request, local);
    if (outcome.kind == Kind::done && progress.done_bytes < local.bytes) {
      ask(pair, *area, request, local, receive);
      return {.kind = Kind::wait};
    }
    progress = {};
    return outcome;
  }
  if (answered != area->requested.load(std::memory_order_relaxed)) {
    // This question is from this queue pair's life before its own reset.
    call_for_what_was_left(pair);
    return {.kind = Kind::wait};
  }
  ask(pair, *area, request, local, receive);
  return {.kind = Kind::wait};
}

}  // namespace tutti::verbs::soft
