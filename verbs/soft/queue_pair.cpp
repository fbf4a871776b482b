// The state machine follows the table in volume 1, 10.3.1, of the InfiniBand
// specification, in the form that the kernel's ib_modify_qp_is_ok has.
#include "verbs/soft/queue_pair.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <mutex>
#include <new>

#include "verbs/soft/asynchronous.hpp"
#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/device.hpp"
#include "verbs/soft/guarded.hpp"
#include "verbs/soft/limits.hpp"
#include "verbs/soft/send.hpp"

namespace tutti::verbs::soft {
namespace {

struct Transition {
  ibv_qp_type type;
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr Transition transitions[] = {
    {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
     0},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0,
     IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS |
         IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER},

    {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

/// 0, EINVAL for what the table forbids, or EOPNOTSUPP for what this device lacks.
int check_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  if ((mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_CAP | IBV_QP_RATE_LIMIT)) != 0)
    return EOPNOTSUPP;
  mask &= ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET) return mask == 0 ? 0 : EINVAL;
  if (to == IBV_QPS_ERR) return mask == 0 && from != IBV_QPS_RESET ? 0 : EINVAL;
  for (const Transition& row : transitions)
    if (row.type == type && row.from == from && row.to == to)
      return (mask & row.required) == row.required && (mask & ~(row.required | row.optional)) == 0
                 ? 0
                 : EINVAL;
  return EINVAL;
}

int check_values(const QueuePair& pair, const ibv_qp_attr& values, int mask, ibv_qp_state current) {
  constexpr unsigned rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  const auto given = [mask](int bit) { return (mask & bit) != 0; };
  const std::uint8_t port = given(IBV_QP_PORT) ? values.port_num : pair.attributes.port_num;
  const bool wrong =
      (given(IBV_QP_CUR_STATE) && values.cur_qp_state != current) ||
      (given(IBV_QP_PKEY_INDEX) && values.pkey_index != 0) ||
      (given(IBV_QP_PORT) && !device_of(pair.context).has_port(values.port_num)) ||
      (given(IBV_QP_ACCESS_FLAGS) && (values.qp_access_flags & ~rights) != 0) ||
      (given(IBV_QP_AV) && values.ah_attr.port_num != port) ||
      (given(IBV_QP_AV) && values.ah_attr.is_global && values.ah_attr.grh.sgid_index != 0) ||
      (given(IBV_QP_PATH_MTU) &&
       (values.path_mtu < IBV_MTU_256 || values.path_mtu > IBV_MTU_4096)) ||
      (given(IBV_QP_DEST_QPN) && values.dest_qp_num > 0xffffff) ||
      (given(IBV_QP_MAX_DEST_RD_ATOMIC) && values.max_dest_rd_atomic > reads_in_flight_max) ||
      (given(IBV_QP_MAX_QP_RD_ATOMIC) && values.max_rd_atomic > reads_in_flight_max) ||
      (given(IBV_QP_MIN_RNR_TIMER) && values.min_rnr_timer > 31) ||
      (given(IBV_QP_TIMEOUT) && values.timeout > 31) ||
      (given(IBV_QP_RETRY_CNT) && values.retry_cnt > 7) ||
      (given(IBV_QP_RNR_RETRY) && values.rnr_retry > 7);
  if (wrong) return EINVAL;
  // Initiators read the port when they first meet a state, so it must not change within one.
  return current == IBV_QPS_SQD && port != pair.attributes.port_num ? EOPNOTSUPP : 0;
}

/// Without resources for reads and atomics these are no valid requests; adapters do the same.
std::uint32_t granted_rights(const ibv_qp_attr& values) {
  constexpr unsigned need_resources = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  return values.max_dest_rd_atomic != 0 ? values.qp_access_flags
                                        : values.qp_access_flags & ~need_resources;
}

void store_values(QueuePair& pair, const ibv_qp_attr& values, int mask) {
  ibv_qp_attr& kept = pair.attributes;
  const auto keep = [&](int bit, auto ibv_qp_attr::*member) {
    if ((mask & bit) != 0) kept.*member = values.*member;
  };
  keep(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  keep(IBV_QP_PORT, &ibv_qp_attr::port_num);
  keep(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  keep(IBV_QP_QKEY, &ibv_qp_attr::qkey);
  keep(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  keep(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  keep(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
  keep(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  keep(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  keep(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  keep(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  keep(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  keep(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  keep(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  keep(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  // Relaxed: an initiator learns of the state first.
  const SoftDevice& device = device_of(pair.context);
  if ((mask & IBV_QP_PORT) != 0)
    pair.entry.place.store(device.is_up(kept.port_num) ? place_of(device, kept.port_num) : 0,
                           std::memory_order_relaxed);
  // Relaxed: a request in flight may meet the old or the new value, as on a wire.
  pair.entry.access.store(granted_rights(kept), std::memory_order_relaxed);
  pair.entry.rnr_timer.store(kept.min_rnr_timer, std::memory_order_relaxed);
}

/// Drops everything that is queued.  The send lock is held.
void forget_requests(QueuePair& pair) {
  assert(pair.send_lock.is_held());
  pair.process.remove_pending(pair);
  pair.pending.clear();
  pair.executed = 0;
  pair.last_due_ps = 0;
  pair.patience = {};
  pair.draining = {};
  pair.sent = 0;
  pair.target = {};
  pair.bulk = detail::BulkCopy(pair.process.settings().stores);
  pair.bounced = {};
  pair.peer.reset();
  pair.destination = 0;
  for (CompletionQueue* const queue : {&pair.send_queue(), &pair.receive_queue()}) {
    const std::lock_guard guard(queue->lock);
    queue->forget(pair);
    pair.retired.store(0, std::memory_order_relaxed);
  }
}

void clear_receives(QueuePair& pair) {
  const std::lock_guard queue_guard(pair.receive_queue().lock);
  const std::lock_guard guard(pair.receive_lock);
  const SegmentView view = pair.process.view();
  QueuePairEntry& entry = pair.entry;
  // Relaxed throughout: nobody else looks before the next status, which is stored with release.
  for (std::uint32_t slot = 0; slot < entry.receive_slots; ++slot)
    slot_at(view, entry.receive_offset, entry.receive_slots, entry.receive_stride_bytes, slot)
        .sequence.store(0, std::memory_order_relaxed);
  for (std::uint64_t slot = 0; slot <= pair.ring_mask; ++slot)
    pair.ring[slot].sequence.store(0, std::memory_order_relaxed);
  entry.produced.store(0, std::memory_order_relaxed);
  entry.consumed.store(0, std::memory_order_relaxed);
  entry.news.store(0, std::memory_order_relaxed);
  reset_bounce(view, entry);
  pair.failure_reported = false;
  pair.ring_head = 0;
  pair.watch_ring();
  pair.completed = 0;
  pair.announced = 0;
  pair.posted = 0;
  pair.released.store(0, std::memory_order_relaxed);
}

int reset(QueuePair& pair, std::unique_lock<std::mutex>& held) {
  assert(held.owns_lock());
  (void)report_news(pair);
  const std::uint32_t incarnation = pair.status().incarnation() + 1;
  // First the status, then a look at initiators that may have read it before: see
  // QueuePairEntry::engaged.
  pair.entry.status.store(Status::of(IBV_QPS_RESET, 0, incarnation).word,
                          std::memory_order_seq_cst);
  if (!pair.process.wait_for_initiators_slow(held, pair.index, pair.index + 1)) return EBUSY;
  const std::lock_guard guard(pair.send_lock);
  forget_requests(pair);
  clear_receives(pair);
  return 0;
}

void fail_by_owner(QueuePair& pair) {
  const std::lock_guard guard(pair.send_lock);
  pair.fail();
  flush_sends(pair);
  pair.process.remove_pending(pair);
}

void connect(QueuePair& pair) {
  assert(pair.qp_type == IBV_QPT_RC);
  const std::lock_guard guard(pair.send_lock);
  const ibv_qp_attr& attributes = pair.attributes;
  pair.destination = find_destination(device_of(pair.context), attributes.ah_attr);
  const std::uint32_t id = process_id_of(attributes.dest_qp_num);
  pair.peer = pair.process.connections.attach(id);
  if (!pair.peer->is_self()) pair.process.wake_helper();
  const std::uint32_t incarnation = pair.status().incarnation();
  // Release: an initiator that sees it sees the entry's fields and empty rings.
  pair.entry.status.store(Status::of(IBV_QPS_RTR, attributes.dest_qp_num, incarnation).word,
                          std::memory_order_release);
}

/// Goes to RTS from RTR, SQD, SQE or RTS, or to SQD from RTS or SQD.  0 or an errno value.
int change_sending(QueuePair& pair, Status before, ibv_qp_state to, const ibv_qp_attr& values,
                   int mask) {
  assert(to == IBV_QPS_RTS || to == IBV_QPS_SQD);
  // The send lock protects the attributes, which the requests use.
  const std::lock_guard guard(pair.send_lock);
  const ibv_qp_state from = before.state();
  if (from == IBV_QPS_SQD && to == IBV_QPS_SQD && pair.draining.active) return EBUSY;
  store_values(pair, values, mask);
  if ((mask & IBV_QP_AV) != 0) {
    pair.destination = find_destination(device_of(pair.context), pair.attributes.ah_attr);
    pair.target.status_word = 0;  // to be looked at again
  }
  std::uint64_t word = before.word;
  // The connected initiator may have moved it to the error state meanwhile.
  if (!pair.entry.status.compare_exchange_strong(word, before.with(to).word,
                                                 std::memory_order_seq_cst))
    return EINVAL;
  if (from == IBV_QPS_RTS && to == IBV_QPS_SQD)
    start_draining(pair, (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && values.en_sqd_async_notify);
  if (from == IBV_QPS_SQD && to == IBV_QPS_RTS) resume_sending(pair);
  return 0;
}

int check_initial(const ibv_pd& domain, const ibv_qp_init_attr& wanted) {
  if (wanted.qp_type != IBV_QPT_RC && wanted.qp_type != IBV_QPT_UD) return EOPNOTSUPP;
  const ibv_qp_cap& cap = wanted.cap;
  const bool wrong = !wanted.send_cq || !wanted.recv_cq ||
                     wanted.send_cq->context != domain.context ||
                     wanted.recv_cq->context != domain.context ||
                     (wanted.srq && wanted.srq->context != domain.context) ||
                     cap.max_send_wr > work_requests_max || cap.max_recv_wr > work_requests_max ||
                     cap.max_send_sge > scatter_max || cap.max_recv_sge > scatter_max ||
                     cap.max_inline_data > inline_max_bytes;
  return wrong ? EINVAL : 0;
}

/// Takes an entry of the table and allocates its rings; the index, or -1 with errno.
std::int64_t make_entry(Process& process, const ibv_pd& domain, const ibv_qp_init_attr& wanted) {
  std::uint32_t index = 0;
  errno = ENOMEM;
  if (!process.queue_pair_slots.take(index)) return -1;
  const auto* const shared = static_cast<const SharedReceiveQueue*>(wanted.srq);
  const std::uint32_t slots = shared ? 0 : std::bit_ceil(std::max(wanted.cap.max_recv_wr, 1U));
  const std::uint32_t stride = stride_of(wanted.cap.max_recv_sge);
  // A private queue needs one completion per receive, and the event.  With a shared one, all
  // receives may come to this queue pair, twice before it is polled.
  const std::uint32_t ring_slots =
      std::bit_ceil((shared ? 2 * shared->entry->slots : wanted.cap.max_recv_wr) + 2);
  assert(shared || std::has_single_bit(slots));
  assert(std::has_single_bit(ring_slots));
  assert(shared || ring_slots > wanted.cap.max_recv_wr);  // room for the event
  assert(stride % line_bytes == 0);
  std::size_t receive_offset = shared ? shared->offset : 0;
  std::size_t ring_offset = 0;
  try {
    if (process.segment.commit_queue_pair(index) == 0 &&
        (shared || (receive_offset = process.segment.allocate(std::size_t{slots} * stride)) != 0))
      ring_offset = process.segment.allocate(ring_slots * sizeof(Completion));
  } catch (const std::bad_alloc&) {  // treated as a segment without room
  }
  if (ring_offset == 0) {
    if (!shared) process.segment.free(receive_offset);
    process.queue_pair_slots.give_back(index);
    return -1;
  }
  assert(ring_offset % line_bytes == 0);
  assert(receive_offset % line_bytes == 0);
  assert(domain.handle != 0);
  // Relaxed and plain: no initiator looks before the status says RTR.
  QueuePairEntry& entry = process.view().queue_pair(index);
  const std::uint32_t incarnation =
      Status{entry.status.load(std::memory_order_relaxed)}.incarnation() + 1;
  entry.status.store(Status::of(IBV_QPS_RESET, 0, incarnation).word, std::memory_order_relaxed);
  entry.place.store(0, std::memory_order_relaxed);
  entry.domain = domain.handle;
  entry.receive_slots = slots;
  entry.receive_stride_bytes = stride;
  entry.receive_offset = receive_offset;
  entry.ring_slots = ring_slots;
  entry.ring_offset = ring_offset;
  entry.arming_offset = static_cast<const CompletionQueue*>(wanted.recv_cq)->arming_offset;
  entry.produced.store(0, std::memory_order_relaxed);
  entry.consumed.store(0, std::memory_order_relaxed);
  entry.wanted.store(0, std::memory_order_relaxed);
  entry.news.store(0, std::memory_order_relaxed);
  return index;
}

/// Gives the entry back if there is no memory for the rest.
QueuePair* make_pair_of(Process& process, std::uint32_t index) {
  try {
    return new QueuePair(process, index);
  } catch (const std::bad_alloc&) {
    process.bury(index);  // at once: no initiator has ever seen it ready
    throw;
  }
}

/// Adds to, or takes from, what may be outstanding in the completion queues of the queue pair.
void change_load(const QueuePair& pair, bool add) {
  const auto change = [&](CompletionQueue& queue, std::uint64_t count) {
    const std::lock_guard guard(queue.lock);
    const std::uint64_t load = queue.load.load(std::memory_order_relaxed);
    assert(add || load >= count);
    queue.load.store(add ? load + count : load - count, std::memory_order_relaxed);
  };
  change(pair.send_queue(), pair.initial.cap.max_send_wr);
  change(pair.receive_queue(), pair.srq ? pair.entry.ring_slots : pair.initial.cap.max_recv_wr);
}

}  // namespace

QueuePair::QueuePair(Process& owner, std::uint32_t entry_index)
    : QueuePairHandle{},
      process(owner),
      index(entry_index),
      entry(owner.view().queue_pair(entry_index)),
      bulk(owner.settings().stores) {}

CompletionQueue& QueuePair::send_queue() const {
  return *static_cast<CompletionQueue*>(send_cq);
}
CompletionQueue& QueuePair::receive_queue() const {
  return *static_cast<CompletionQueue*>(recv_cq);
}

bool QueuePair::fail() noexcept {
  std::uint64_t word = entry.status.load(std::memory_order_acquire);
  do {
    if (Status{word}.state() == IBV_QPS_ERR || Status{word}.state() == IBV_QPS_RESET) return false;
  } while (!entry.status.compare_exchange_weak(word, Status{word}.with(IBV_QPS_ERR).word,
                                               std::memory_order_seq_cst));
  assert(Status{word}.state() != IBV_QPS_RESET);
  receive_queue().attention.store(true, std::memory_order_release);
  if (srq || receive_queue().arming) process.look_slow();
  return true;
}

ibv_qp* create_queue_pair(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  Process& process = process_of(domain->context);
  if (const int error = process.inherited() ? EINVAL : check_initial(*domain, *attributes))
    return refuse(error);
  const std::lock_guard guard(process.mutex);
  process.reserve_queue_pair();
  if (!static_cast<CompletionQueue*>(attributes->recv_cq)->reserve_receiver(process))
    return refuse(ENOMEM);
  const std::int64_t index = make_entry(process, *domain, *attributes);
  if (index < 0) return nullptr;
  assert(index < queue_pairs_max);
  auto* const pair = make_pair_of(process, static_cast<std::uint32_t>(index));
  attributes->cap.max_inline_data = inline_max_bytes;
  pair->timing = process.timing();
  pair->context = domain->context;
  pair->qp_context = attributes->qp_context;
  pair->pd = domain;
  pair->send_cq = attributes->send_cq;
  pair->recv_cq = attributes->recv_cq;
  pair->srq = attributes->srq;
  pair->handle = pair->index;
  pair->qp_num = queue_pair_number_of(process.id(), pair->index);
  pair->state = IBV_QPS_RESET;
  pair->events.object = pair;
  pair->qp_type = attributes->qp_type;
  pair->initial = *attributes;
  pair->token = process.token(pair->qp_num);
  assert(pair->token != 0);
  pair->ring = process.view().at<Completion>(pair->entry.ring_offset);
  pair->ring_mask = pair->entry.ring_slots - 1;

  assert(process.queue_pairs.size() < process.queue_pairs.capacity());
  process.queue_pairs.push_back(pair);
  add_object(domain->context, domain);
  ++pair->send_queue().users;
  ++pair->receive_queue().users;
  if (pair->srq) ++static_cast<SharedReceiveQueue*>(pair->srq)->users;
  change_load(*pair, true);
  const std::lock_guard queue_guard(pair->receive_queue().lock);
  pair->receive_queue().add_receiver(*pair);
  return pair;
}

int modify_queue_pair(ibv_qp* handle, ibv_qp_attr* values, int mask) {
  QueuePair& pair = pair_of(handle);
  Process& process = pair.process;
  if (process.inherited()) return EINVAL;
  bool became_ready = false;
  {
    std::unique_lock guard(process.mutex);
    const Status before = pair.status();
    const ibv_qp_state wanted = (mask & IBV_QP_STATE) != 0 ? values->qp_state : before.state();
    if (const int error = check_transition(pair.qp_type, before.state(), wanted, mask))
      return error;
    if (const int error = check_values(pair, *values, mask, before.state())) return error;
    switch (wanted) {
      case IBV_QPS_RESET:
        if (const int error = reset(pair, guard)) return error;
        break;
      case IBV_QPS_INIT:
        store_values(pair, *values, mask);
        pair.entry.status.store(before.with(IBV_QPS_INIT).word, std::memory_order_release);
        break;
      case IBV_QPS_RTR:
        store_values(pair, *values, mask);
        if (pair.qp_type == IBV_QPT_UD) {
          // No queue pair has the number 0, so nobody is connected.
          pair.entry.status.store(Status::of(IBV_QPS_RTR, 0, before.incarnation()).word,
                                  std::memory_order_release);
          break;
        }
        connect(pair);
        became_ready = pair.entry.wanted.exchange(0, std::memory_order_relaxed) != 0;
        break;
      case IBV_QPS_RTS:
      case IBV_QPS_SQD:
        if (const int error = change_sending(pair, before, wanted, *values, mask)) return error;
        break;
      case IBV_QPS_ERR:
        fail_by_owner(pair);
        break;
      case IBV_QPS_SQE:
      case IBV_QPS_UNKNOWN:
        return EINVAL;  // not in the table of transitions
    }
    pair.state = wanted;
  }
  if (became_ready) process.kick_slow(process_id_of(pair.attributes.dest_qp_num));
  return 0;
}

int query_queue_pair(ibv_qp* handle, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial) {
  if ((mask & ~(IBV_QP_RATE_LIMIT - 1)) != 0) return EOPNOTSUPP;  // as libibverbs does
  QueuePair& pair = pair_of(handle);
  if (pair.process.inherited()) return EINVAL;
  const std::lock_guard guard(pair.process.mutex);
  pair.state = pair.status().state();
  *attributes = pair.attributes;
  attributes->qp_state = pair.state;
  attributes->cur_qp_state = pair.state;
  const std::lock_guard send_guard(pair.send_lock);
  attributes->sq_draining = pair.state == IBV_QPS_SQD && pair.draining.active ? 1 : 0;
  attributes->path_mig_state = IBV_MIG_MIGRATED;
  attributes->cap = pair.initial.cap;
  *initial = pair.initial;
  return 0;
}

int destroy_queue_pair(ibv_qp* handle) {
  QueuePair& pair = pair_of(handle);
  Process& process = pair.process;
  if (process.inherited()) return EINVAL;
  std::unique_lock guard(process.mutex);
  {
    const std::lock_guard send_guard(pair.send_lock);
    pair.entry.status.store(Status::of(IBV_QPS_RESET, 0, pair.status().incarnation() + 1).word,
                            std::memory_order_seq_cst);
    forget_requests(pair);
    change_load(pair, false);
    const std::lock_guard queue_guard(pair.receive_queue().lock);
    pair.receive_queue().remove_receiver(pair);
  }
  assert(pair.send_queue().users > 0);
  assert(pair.receive_queue().users > 0);
  assert(!pair.srq || static_cast<SharedReceiveQueue*>(pair.srq)->users > 0);
  remove_object(pair.context, pair.pd);
  --pair.send_queue().users;
  --pair.receive_queue().users;
  if (pair.srq) --static_cast<SharedReceiveQueue*>(pair.srq)->users;
  std::erase(process.queue_pairs, &pair);
  guard.unlock();  // an acknowledgement may take long
  context_of(pair.context).events.retire(pair.events);
  guard.lock();
  const std::uint32_t index = pair.index;
  assert(!pair.listed);
  delete &pair;
  // The caller may reuse the buffers of its receives.  A stopped initiator is not waited for: it
  // writes up to one more step when it is resumed, and dereg_mr refuses until it has.
  (void)process.wait_for_initiators_slow(guard, index, index + 1);
  process.bury(index);
  return 0;
}

}  // namespace tutti::verbs::soft
