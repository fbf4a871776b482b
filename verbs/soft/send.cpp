#include "verbs/soft/send.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>

#include "tutti/detail/clock.hpp"
#include "verbs/soft/atomic.hpp"
#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/datagram.hpp"
#include "verbs/soft/process.hpp"
#include "verbs/soft/remote.hpp"
#include "verbs/soft/timing.hpp"

namespace tutti::verbs::soft {
namespace {

constexpr std::int64_t look_again_ns = 1'000'000;  // used where nobody wakes the helper thread
// Used where there is nothing to do unless the queue pair fails.
constexpr std::int64_t look_again_held_ns = 10'000'000;

/// How long a request is repeated when its packets are lost; timeout 0: for ever.
std::int64_t transport_patience_ns(const ibv_qp_attr& attributes) {
  if (attributes.timeout == 0) return std::numeric_limits<std::int64_t>::max() / 2;
  return transport_timeout_ns(attributes) * (attributes.retry_cnt + 1);
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  if (opcode == IBV_WR_RDMA_READ) return IBV_WC_RDMA_READ;
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) return IBV_WC_COMP_SWAP;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) return IBV_WC_FETCH_ADD;
  if (opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM) return IBV_WC_SEND;
  return IBV_WC_RDMA_WRITE;
}

LocalCompletion completion_of(QueuePair& pair, const Request& request, const Outcome& outcome) {
  assert(request.gather_count <= scatter_max);
  LocalCompletion added{};
  added.completion.wr_id = request.wr_id;
  added.completion.status = outcome.status;
  added.completion.opcode = completion_opcode(request.opcode);
  added.completion.vendor_err = outcome.vendor_error;
  added.completion.byte_len = outcome.bytes;
  added.completion.qp_num = pair.qp_num;
  added.pair = &pair;
  added.retires = request.position + 1;
  return added;
}

void complete(QueuePair& pair, const Request& request, const Outcome& outcome) {
  CompletionQueue& queue = pair.send_queue();
  const std::lock_guard guard(queue.lock);
  queue.push(completion_of(pair, request, outcome));
}

void flush(QueuePair& pair, const Request& request) {
  complete(pair, request, {.kind = Outcome::Kind::failed, .status = IBV_WC_WR_FLUSH_ERR});
}

/// Fails the request, and with it the queue pair and all requests behind it.
void fail(QueuePair& pair, const Request& request, const Outcome& outcome) {
  assert(outcome.status != IBV_WC_SUCCESS);
  // Both happen under the lock, as one step for polls: whoever polls the completion finds the state
  // changed, and no receive is flushed before the completion that says why.
  CompletionQueue& queue = pair.send_queue();
  const std::lock_guard guard(queue.lock);
  pair.fail();
  queue.push(completion_of(pair, request, outcome));
}

void store_pending(QueuePair& pair, const Request& request) {
  assert(request.gather_count <= scatter_max);
  PendingRequest& added = pair.pending.emplace_back();
  added.request = request;
  if (request.is_inline) {
    std::size_t bytes = 0;
    for (std::uint32_t index = 0; index < request.gather_count; ++index) {
      const ibv_sge& piece = request.gather[index];
      assert(piece.length <= added.inline_data.size() - bytes);
      if (piece.length != 0)
        std::memcpy(added.inline_data.data() + bytes, reinterpret_cast<const void*>(piece.addr),
                    piece.length);
      bytes += piece.length;
    }
    added.gather[0] = {.addr = reinterpret_cast<std::uint64_t>(added.inline_data.data()),
                       .length = static_cast<std::uint32_t>(bytes),
                       .lkey = 0};
    added.request.gather_count = 1;
  } else {
    std::copy_n(request.gather, request.gather_count, added.gather.begin());
  }
  added.request.gather = added.gather.data();  // a deque's elements stay where they are
}

/// Keeps account of a request that could not be executed.  True when it may not wait any longer;
/// `outcome` then says how it ends.
bool has_run_out(QueuePair& pair, std::int64_t now_ns, Outcome& outcome) {
  Patience& patience = pair.patience;
  patience.look_again_ns = now_ns + look_again_ns;
  switch (outcome.kind) {
    case Outcome::Kind::done:
    case Outcome::Kind::failed:
      return false;
    case Outcome::Kind::wait:
      patience.dropped_until_ns = 0;
      return false;
    case Outcome::Kind::dropped:
      ask_for_kick(pair);
      if (patience.dropped_until_ns == 0)
        patience.dropped_until_ns = now_ns + transport_patience_ns(pair.attributes);
      if (now_ns < patience.dropped_until_ns) return false;
      outcome.status = IBV_WC_RETRY_EXC_ERR;
      return true;
    case Outcome::Kind::not_ready: {
      patience.dropped_until_ns = 0;  // the target has answered
      if (now_ns < patience.rnr_until_ns) return false;
      constexpr unsigned for_ever = 7;
      if (pair.attributes.rnr_retry != for_ever &&
          patience.rnr_count++ == pair.attributes.rnr_retry) {
        outcome.status = IBV_WC_RNR_RETRY_EXC_ERR;
        return true;
      }
      patience.rnr_until_ns =
          now_ns + rnr_timer_ns(pair.target.entry->rnr_timer.load(std::memory_order_relaxed));
      patience.look_again_ns = std::min(patience.look_again_ns, patience.rnr_until_ns);
      return false;
    }
  }
  return false;
}

/// The conditions that a work request must fulfil to be queued at all.
int check_request(const QueuePair& pair, const ibv_send_wr& posted) {
  constexpr unsigned flags =
      IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
  if (posted.num_sge < 0 ||
      static_cast<std::uint32_t>(posted.num_sge) > pair.initial.cap.max_send_sge ||
      (posted.send_flags & ~flags) != 0)
    return EINVAL;
  switch (posted.opcode) {
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      if ((posted.send_flags & IBV_SEND_INLINE) != 0) return EINVAL;
      break;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      break;
    case IBV_WR_LOCAL_INV:
    case IBV_WR_BIND_MW:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_TSO:
    case IBV_WR_DRIVER1:
    case IBV_WR_ATOMIC_WRITE:
    default:
      return EOPNOTSUPP;  // the caller's number need not be an enumerator
  }
  if ((posted.send_flags & IBV_SEND_INLINE) == 0) return 0;
  std::uint64_t bytes = 0;
  for (int index = 0; index < posted.num_sge; ++index) bytes += posted.sg_list[index].length;
  return bytes > pair.initial.cap.max_inline_data ? EINVAL : 0;
}

/// Sends the request on its way through the emulated network.
void depart(QueuePair& pair, PendingRequest& pending) {
  assert(pair.timing != nullptr);
  std::size_t bytes = 0;
  for (std::uint32_t index = 0; index < pending.request.gather_count; ++index)
    bytes += pending.request.gather[index].length;
  const Timing::Journey journey = pair.timing->depart(pair, pending.request, bytes);
  pending.due_ps = pair.last_due_ps = journey.due;
  assert(journey.due >= 0);
  pending.bytes = static_cast<std::uint32_t>(bytes);
  pending.fault = journey.status;
  pending.number = journey.number;
}

void store_timed(QueuePair& pair, const Request& request) {
  store_pending(pair, request);
  depart(pair, pair.pending.back());
  pair.process.add_pending(pair);
  pair.process.look_at(pair);
  pair.process.note_due(pair.pending.back().due_ps);
}

void execute_or_store(QueuePair& pair, const Request& request) {
  assert(request.position == pair.sent);
  if (pair.timing && pair.timing->is_active()) [[unlikely]]
    return store_timed(pair, request);
  if (pair.pending.empty()) [[likely]] {
    const Outcome outcome = execute(pair, request);
    if (outcome.kind == Outcome::Kind::done) [[likely]] {
      if (request.signaled) complete(pair, request, outcome);
      return;
    }
    if (outcome.kind == Outcome::Kind::failed) return fail(pair, request, outcome);
    pair.patience = {};
    store_pending(pair, request);
    // Starts the clocks of the request; if no retries are allowed, it may end right here.
    progress(pair, detail::MonotonicClock::read().count());
    if (pair.pending.empty()) return;
  } else {
    store_pending(pair, request);
  }
  pair.process.add_pending(pair);
}

int post_one(QueuePair& pair, const ibv_send_wr& posted) {
  const ibv_qp_state state = pair.status().state();
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_ERR) return EINVAL;
  if (const int error = check_request(pair, posted); error != 0) return error;
  assert(pair.retired.load(std::memory_order_relaxed) <= pair.sent);
  // Acquire: nothing but the count; it pairs with the release of the poll.
  if (pair.sent - pair.retired.load(std::memory_order_acquire) >= pair.initial.cap.max_send_wr)
    return ENOMEM;
  Request request{
      .wr_id = posted.wr_id,
      .position = pair.sent,
      .gather = posted.sg_list,
      .gather_count = static_cast<std::uint32_t>(posted.num_sge),
      .opcode = posted.opcode,
      .immediate = posted.imm_data,
      .remote_key = posted.wr.rdma.rkey,
      .remote_address = posted.wr.rdma.remote_addr,  // wr.atomic has it in the same place
      .operand = 0,
      .swap = 0,
      .signaled = pair.initial.sq_sig_all != 0 || (posted.send_flags & IBV_SEND_SIGNALED) != 0,
      .solicited = (posted.send_flags & IBV_SEND_SOLICITED) != 0,
      .is_inline = (posted.send_flags & IBV_SEND_INLINE) != 0};
  if (is_atomic(posted.opcode)) [[unlikely]] {
    request.remote_key = posted.wr.atomic.rkey;
    request.operand = posted.wr.atomic.compare_add;
    request.swap = posted.wr.atomic.swap;
  }
  if (state == IBV_QPS_ERR) [[unlikely]] {
    flush_sends(pair);  // earlier requests complete first
    flush(pair, request);
  } else {
    try {
      if (state == IBV_QPS_SQD) [[unlikely]]
        hold(pair, request);
      else
        execute_or_store(pair, request);
    } catch (
        const std::bad_alloc&) {  // no memory for the pending list: the request is not accepted
      return ENOMEM;
    }
  }
  ++pair.sent;
  return 0;
}

/// Completes, in order, the requests that were executed and have been answered.
void complete_answered(QueuePair& pair, Picoseconds now) {
  assert(pair.executed <= pair.pending.size());
  for (; pair.executed > 0 && pair.pending.front().due_ps <= now; --pair.executed) {
    const PendingRequest& front = pair.pending.front();
    if (front.request.signaled)
      complete(pair, front.request, {.kind = Outcome::Kind::done, .bytes = front.bytes});
    pair.pending.pop_front();
  }
}

Outcome execute_unless_lost(QueuePair& pair, const PendingRequest& pending) {
  if (pending.fault == IBV_WC_SUCCESS) return execute(pair, pending.request);
  return {.kind = Outcome::Kind::failed, .status = pending.fault};
}

/// Executes the oldest request that was not executed, if it is due; false when the next must wait.
bool execute_due(QueuePair& pair, Picoseconds now) {
  assert(pair.executed < pair.pending.size());
  PendingRequest& next = pair.pending[pair.executed];
  if (next.due_ps > now) return false;
  Timing& timing = *pair.timing;
  if (!next.has_passed_port && next.fault == IBV_WC_SUCCESS) {
    pass_port(pair, next);
    if (next.due_ps > now) return false;
  }
  Outcome outcome = execute_unless_lost(pair, next);
  if (outcome.kind == Outcome::Kind::failed)
    timing.wake_target(pair);  // its receive has failed, too
  if (outcome.kind == Outcome::Kind::wait && timing.is_virtual()) {
    next.due_ps = now + Timing::step_of_waiting;
    timing.wait_for_real_time();
    return false;
  }
  if (outcome.kind == Outcome::Kind::failed ||
      has_run_out(pair, now / picoseconds_per_ns, outcome)) {
    const Request failed = next.request;
    complete_answered(pair, never_ps);
    fail(pair, failed, outcome);
    pair.pending.pop_front();
    return true;
  }
  if (outcome.kind != Outcome::Kind::done) {
    next.due_ps = std::max(now + 1, pair.patience.look_again_ns * picoseconds_per_ns);
    return false;
  }
  pair.patience = {};
  next.due_ps = timing.answer(pair, next.request, next.bytes);
  ++pair.executed;
  return true;
}

void progress_timed(QueuePair& pair) {
  const Picoseconds now = pair.timing->now();
  while (pair.executed < pair.pending.size()) {
    const ibv_qp_state state = pair.status().state();
    if (state == IBV_QPS_ERR) return flush_sends(pair);
    PendingRequest& next = pair.pending[pair.executed];
    if (is_held(pair, state, next.request)) {
      next.due_ps = now + look_again_held_ns * picoseconds_per_ns;
      break;
    }
    if (!execute_due(pair, now)) break;
  }
  complete_answered(pair, now);
  finish_draining(pair);
}

}  // namespace

std::int64_t rnr_timer_ns(std::uint32_t code) noexcept {
  // In units of 10 us.
  static constexpr std::int32_t timers[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                              16,    24,   32,   48,    64,    96,    128,   192,
                                              256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                              4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::int64_t{timers[code & 31]} * 10'000;
}

std::int64_t transport_timeout_ns(const ibv_qp_attr& attributes) noexcept {
  assert(attributes.timeout <= 31);
  constexpr std::int64_t a_day = 86'400'000'000'000;
  return attributes.timeout == 0 ? a_day : std::int64_t{4096} << attributes.timeout;
}

PendingRequest* first_at_port(QueuePair& pair, Picoseconds now) noexcept {
  for (std::size_t at = pair.executed; at < pair.pending.size(); ++at) {
    PendingRequest& one = pair.pending[at];
    if (one.has_passed_port || one.fault != IBV_WC_SUCCESS) continue;
    return one.due_ps <= now ? &one : nullptr;  // those of a pair come in order
  }
  return nullptr;
}

void pass_port(QueuePair& pair, PendingRequest& request) noexcept {
  assert(!request.has_passed_port);
  request.has_passed_port = true;
  request.due_ps = pair.timing->pass_port_of(pair, request.request, request.bytes, request.due_ps);
}

Picoseconds next_due(const QueuePair& pair) noexcept {
  assert(pair.executed <= pair.pending.size());
  if (pair.pending.empty()) return never_ps;
  Picoseconds next = pair.pending.front().due_ps;  // the first answer, as answers come in order
  if (pair.executed < pair.pending.size())
    next = std::min(next, pair.pending[pair.executed].due_ps);
  // In real time they come to ports one after the other, as each is the oldest.
  const bool is_virtual = pair.timing && pair.timing->is_virtual();
  for (std::size_t at = pair.executed; is_virtual && at < pair.pending.size(); ++at) {
    const PendingRequest& one = pair.pending[at];
    if (one.has_passed_port || one.fault != IBV_WC_SUCCESS) continue;
    next = std::min(next, one.due_ps);
    break;
  }
  return next;
}

int post_send(ibv_qp* handle, ibv_send_wr* first, ibv_send_wr** bad) noexcept {
  QueuePair& pair = pair_of(handle);
  if (pair.qp_type == IBV_QPT_UD) [[unlikely]]
    return post_datagrams(pair, first, bad);
  int error = 0;
  std::uint64_t posted = 0;
  {
    const std::lock_guard guard(pair.send_lock);
    for (; first; first = first->next, ++posted)
      if (error = post_one(pair, *first); error != 0) {
        *bad = first;
        break;
      }
  }
  if (pair.timing) [[unlikely]]
    pair.timing->charge_posts(pair.process, posted);
  return error;
}

int post_send_all(QueuePair& pair, ibv_send_wr* first, std::uint64_t count) noexcept {
  const bool are_datagrams = pair.qp_type == IBV_QPT_UD;
  std::unique_lock process_guard(pair.process.mutex, std::defer_lock);
  if (are_datagrams) process_guard.lock();
  const std::lock_guard guard(pair.send_lock);
  const auto check = are_datagrams ? check_datagram : check_request;
  const auto post = are_datagrams ? post_datagram : post_one;
  for (const ibv_send_wr* request = first; request; request = request->next)
    if (const int error = check(pair, *request); error != 0) return error;
  // Acquire: see post_one.
  const std::uint64_t outstanding = pair.sent - pair.retired.load(std::memory_order_acquire);
  if (outstanding + count > pair.initial.cap.max_send_wr) return ENOMEM;
  for (; first; first = first->next)
    if (const int error = post(pair, *first); error != 0) return error;
  return 0;
}

void hold(QueuePair& pair, const Request& request) {
  assert(pair.send_lock.is_held());
  store_pending(pair, request);
  pair.process.add_pending(pair);  // so that an error of the queue pair flushes it
  pair.process.look_at(pair);
  pair.process.note_due(0);
}

void release_held(QueuePair& pair) noexcept {
  assert(pair.send_lock.is_held());
  if (!pair.timing || !pair.timing->is_active() || pair.qp_type == IBV_QPT_UD) return;
  for (PendingRequest& pending : pair.pending)
    if (pending.request.position >= pair.draining.held_from) depart(pair, pending);
  pair.process.look_at(pair);
  pair.process.note_due(0);
}

void progress(QueuePair& pair, std::int64_t now_ns) noexcept {
  assert(pair.send_lock.is_held());
  if (pair.timing) {
    if (pair.timing->is_active()) return progress_timed(pair);
    complete_answered(pair, never_ps);  // virtual time has ended
  }
  while (!pair.pending.empty()) {
    const ibv_qp_state state = pair.status().state();
    if (state == IBV_QPS_ERR) return flush_sends(pair);
    const Request request = pair.pending.front().request;
    if (is_held(pair, state, request)) {
      pair.patience.look_again_ns = now_ns + look_again_held_ns;
      break;
    }
    Outcome outcome = execute_unless_lost(pair, pair.pending.front());
    if (outcome.kind == Outcome::Kind::failed || has_run_out(pair, now_ns, outcome)) {
      fail(pair, request, outcome);
    } else if (outcome.kind == Outcome::Kind::done) {
      if (request.signaled) complete(pair, request, outcome);
      pair.patience = {};
    } else {
      return;
    }
    pair.pending.pop_front();
  }
  finish_draining(pair);
}

void flush_sends(QueuePair& pair) noexcept {
  assert(pair.send_lock.is_held());
  complete_answered(pair, never_ps);
  pair.draining = {};
  for (; !pair.pending.empty(); pair.pending.pop_front()) flush(pair, pair.pending.front().request);
}

}  // namespace tutti::verbs::soft
