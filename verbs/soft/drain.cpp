#include "verbs/soft/send.hpp"

#include <cassert>

#include "tutti/detail/clock.hpp"
#include "verbs/soft/asynchronous.hpp"
#include "verbs/soft/datagram.hpp"

namespace tutti::verbs::soft {

void start_draining(QueuePair& pair, bool notify) noexcept {
  assert(pair.send_lock.is_held());
  assert(!pair.draining.active);
  pair.draining = {.held_from = pair.sent, .active = true, .notify = notify};
  finish_draining(pair);
}

void finish_draining(QueuePair& pair) noexcept {
  assert(pair.send_lock.is_held());
  if (!pair.draining.active) return;
  if (pair.status().state() != IBV_QPS_SQD) {  // the queue pair has failed
    pair.draining = {};
    return;
  }
  if (!pair.pending.empty() && pair.pending.front().request.position < pair.draining.held_from)
    return;
  pair.draining.active = false;
  if (pair.draining.notify) raise_drained(pair);
}

bool is_held(const QueuePair& pair, ibv_qp_state state, const Request& request) noexcept {
  assert(pair.send_lock.is_held());
  return state == IBV_QPS_SQD && request.position >= pair.draining.held_from;
}

void resume_sending(QueuePair& pair) noexcept {
  assert(pair.send_lock.is_held());
  release_held(pair);
  pair.draining = {};
  if (pair.qp_type == IBV_QPT_UD)
    send_held_datagrams(pair);
  else
    progress(pair, detail::MonotonicClock::read().count());
}

}  // namespace tutti::verbs::soft
