#include "verbs/soft/asynchronous.hpp"

#include <cassert>
#include <cerrno>

#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/receive_queue.hpp"

namespace tutti::verbs::soft {
namespace {

constexpr auto seq_cst = std::memory_order_seq_cst;

struct Kind {
  Event event;
  ibv_event_type type;
  std::uint32_t news;  // its bit in QueuePairEntry::news, or 0
};

constexpr Kind kinds[] = {
    {Event::established, IBV_EVENT_COMM_EST, news_established},
    {Event::fatal, IBV_EVENT_QP_FATAL, news_fatal},
    {Event::request_error, IBV_EVENT_QP_REQ_ERR, news_request_error},
    {Event::access_error, IBV_EVENT_QP_ACCESS_ERR, news_access_error},
    {Event::last_receive, IBV_EVENT_QP_LAST_WQE_REACHED, 0},
    {Event::drained, IBV_EVENT_SQ_DRAINED, 0},
    {Event::overrun, IBV_EVENT_CQ_ERR, 0},
    {Event::limit_reached, IBV_EVENT_SRQ_LIMIT_REACHED, 0},
};

EventQueue& events_of(ibv_context* context) {
  return context_of(context).events;
}

void raise_limit_reached(SharedReceiveQueue& queue) noexcept {
  events_of(queue.context).raise(queue.events, Event::limit_reached);
}

/// Raises the event when an initiator has found the number below the limit, or when it is below
/// now: the initiator may have been killed before it looked.
void report_limit(SharedReceiveQueue& queue) noexcept {
  SharedReceiveEntry& entry = *queue.entry;
  std::uint32_t limit = entry.limit.load(seq_cst);
  if (limit == 0 || ((limit & limit_was_reached) == 0 && !is_below(entry, limit))) return;
  // The exchange fails when an initiator reaches the limit at the same time; it then calls.
  if (entry.limit.compare_exchange_strong(limit, 0, seq_cst)) raise_limit_reached(queue);
}

}  // namespace

void raise_overrun(CompletionQueue& queue) noexcept {
  events_of(queue.context).raise(queue.asynchronous_events, Event::overrun);
}

void raise_drained(QueuePair& pair) noexcept {
  events_of(pair.context).raise(pair.events, Event::drained);
}

bool report_news(QueuePair& pair) noexcept {
  const bool failed = pair.status().state() == IBV_QPS_ERR;
  std::atomic<std::uint32_t>& left = pair.entry.news;
  // An initiator's report of a failure counts only once the state is ERR, too: it may have died
  // between the report and the change of the state.
  const std::uint32_t counting = failed ? ~0U : news_established;
  if ((left.load(std::memory_order_relaxed) & counting) != 0) {
    const std::uint32_t news = left.fetch_and(~counting, std::memory_order_acq_rel) & counting;
    for (const Kind& kind : kinds)
      if ((news & kind.news) != 0) events_of(pair.context).raise(pair.events, kind.event);
  }
  if (!failed || pair.failure_reported) return true;
  if (pair.entry.engaged.load(seq_cst) != 0) return false;  // it may take the last receive
  pair.failure_reported = true;
  if (pair.srq) events_of(pair.context).raise(pair.events, Event::last_receive);
  return true;
}

bool report_all_news(Process& process) noexcept {
  bool finished = true;
  for (QueuePair* const pair : process.queue_pairs) finished &= report_news(*pair);
  for (SharedReceiveQueue* const queue : process.shared_receive_queues) report_limit(*queue);
  return finished;
}

int set_limit(SharedReceiveQueue& queue, std::uint32_t limit) {
  if (limit > queue.attributes.max_wr) return EINVAL;
  assert(limit < limit_was_reached);
  // The number is read after this exchange (seq_cst): see SharedReceiveEntry::limit.
  if ((queue.entry->limit.exchange(limit, seq_cst) & limit_was_reached) != 0)
    raise_limit_reached(queue);
  report_limit(queue);
  return 0;
}

std::uint32_t limit_of(const SharedReceiveQueue& queue) {
  const std::uint32_t limit = queue.entry->limit.load(std::memory_order_relaxed);
  return (limit & limit_was_reached) != 0 ? 0 : limit;
}

int get_asynchronous_event(ibv_context* context, ibv_async_event* event) {
  void* object = nullptr;
  Event taken{};
  if (const int error =
          process_of(context).inherited() ? EINVAL : events_of(context).take(object, taken);
      error != 0) {
    errno = error;
    return -1;
  }
  *event = {};
  for (const Kind& kind : kinds)
    if (kind.event == taken) event->event_type = kind.type;
  if (taken == Event::overrun)
    event->element.cq = static_cast<CompletionQueue*>(object);
  else if (taken == Event::limit_reached)
    event->element.srq = static_cast<SharedReceiveQueue*>(object);
  else
    event->element.qp = static_cast<QueuePair*>(object);
  return 0;
}

void acknowledge_asynchronous_event(ibv_async_event* event) {
  const auto acknowledge = [](ibv_context* context, EventSource& source) {
    if (!process_of(context).inherited()) events_of(context).acknowledge(source, 1);
  };
  if (event->event_type == IBV_EVENT_CQ_ERR) {
    auto& queue = *static_cast<CompletionQueue*>(event->element.cq);
    acknowledge(queue.context, queue.asynchronous_events);
  } else if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
    auto& queue = *static_cast<SharedReceiveQueue*>(event->element.srq);
    acknowledge(queue.context, queue.events);
  } else {
    QueuePair& pair = pair_of(event->element.qp);
    acknowledge(pair.context, pair.events);
  }
}

}  // namespace tutti::verbs::soft
