#include "verbs/soft/process.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <optional>
#include <system_error>
#include <tuple>
#include <tutti/status.hpp>

#include "tutti/detail/clock.hpp"
#include "verbs/soft/asynchronous.hpp"
#include "verbs/soft/bounce.hpp"
#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/datagram.hpp"
#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/receive_queue.hpp"
#include "verbs/soft/send.hpp"
#include "verbs/soft/shared_ports.hpp"

namespace tutti::verbs::soft {
namespace {

std::mutex current_mutex;    // taken before Process::mutex
Process* current = nullptr;  // the object of this process, or one inherited from its parent

std::int64_t now_ns() {
  return detail::MonotonicClock::read().count();
}

int refuse_send(ibv_qp*, ibv_send_wr* first, ibv_send_wr** bad) {
  *bad = first;
  return EINVAL;
}
int refuse_receive(ibv_qp*, ibv_recv_wr* first, ibv_recv_wr** bad) {
  *bad = first;
  return EINVAL;
}
int refuse_shared_receive(ibv_srq*, ibv_recv_wr* first, ibv_recv_wr** bad) {
  *bad = first;
  return EINVAL;
}
int refuse_poll(ibv_cq*, int, ibv_wc*) {
  return -1;
}
int refuse_notification(ibv_cq*, int) {
  return EINVAL;
}

}  // namespace

Process* Process::acquire(const Settings& settings, int& error) {
  watch_forks();
  const std::lock_guard guard(current_mutex);
  if (!current || current->inherited()) {
    std::uint64_t nonce = 0;
    if (::getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) {
      error = errno;
      return nullptr;
    }
    std::unique_ptr<Process> made(new Process(settings, nonce >> 24 | 1));
    if (error = made->start(); error != 0) return nullptr;
    made->predecessor_ = current;
    current = made.release();
  }
  if (current->settings() != settings) {
    error = EBUSY;
    return nullptr;
  }
  ++current->contexts_count_;
  return current;
}

void Process::release() {
  const std::lock_guard guard(current_mutex);
  assert(contexts_count_ > 0);
  if (--contexts_count_ > 0) return;
  current = predecessor_;
  delete this;
}

Process* Process::of_this_process() noexcept {
  const std::lock_guard guard(current_mutex);
  return current && !current->inherited() ? current : nullptr;
}

Process::Process(const Settings& settings, std::uint64_t nonce)
    : pid_(::getpid()), settings_(settings), nonce_(nonce) {
  assert(nonce != 0);
  assert(nonce >> 40 == 0);  // token() has 40 bits for it
}

int Process::start() {
  region_generations.assign(
      regions_max, static_cast<std::uint32_t>(nonce_) & ((1U << region_generation_bits) - 1));
  if (const int error = connections.open(static_cast<std::uint32_t>(nonce_) % process_ids_max))
    return error;
  if (const int error = segment.create(connections.id(), nonce_)) return error;
  view_ = segment.view();
  if (!settings_.fabric.empty()) {
    VirtualTime* const virtual_time = VirtualTime::joined();
    std::uint32_t place = settings_.place;
    if (virtual_time)
      place = virtual_time->rank();
    else if (const SharedPorts* const ports = SharedPorts::joined())
      place = ports->rank();
    view_.header().place = place;
    try {
      timing_ = std::make_unique<Timing>(read_fabric_model(settings_.fabric), view_.header(),
                                         virtual_time);
    } catch (const Error&) {
      return EINVAL;  // the file was readable when the settings were read
    }
    pending_count_.store(1, std::memory_order_relaxed);  // polls have to look in any case
  }
  connections.introduce(nonce_, view_, segment.descriptor());
  wake_ = detail::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return errno;

  // The helper thread blocks all signals: they are meant for the threads of the program.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  try {
    helper_ = std::thread([this] { help(); });
  } catch (const std::system_error& failure) {
    error = failure.code().value();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

Process::~Process() {
  if (!helper_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  wake_helper();
  helper_.join();
}

void Process::help() {
  ::pthread_setname_np(::pthread_self(), "tutti-soft");
  constexpr std::int64_t never = -1;
  constexpr std::int64_t soon_ns = 1'000'000;
  while (!stopping_.load(std::memory_order_acquire)) {
    std::int64_t wait_ns = never;
    {
      const std::lock_guard guard(mutex);
      Events events;
      if (kick_all_.exchange(false, std::memory_order_acquire)) connections.kick(0);
      connections.heed(watched_);
      bool again = connections.serve(backings, events);
      for (detail::Descriptor& source : events.datagram_sources) datagrams.adopt(std::move(source));
      // Transport says how the target's memory is reached, which does not concern datagrams; but
      // Transport::cma, which uses no maps, uses no rings either.
      again |= datagrams.flush(connections, transport() != Transport::cma);
      const DatagramSockets::Again datagrams_again = datagrams.receive(
          connections, segment,
          [this](std::span<const std::byte> datagram) { deliver_datagram(*this, datagram); });
      again |= datagrams_again == DatagramSockets::Again::soon;
      for (const Events::GoneBacking& gone : events.gone_backings) forget(gone);
      for (const Events::Death& death : events.deaths) recover_from(death);
      again |= raise_events(events);
      reap();
      if (!timing_ || !timing_->is_virtual()) {
        wait_ns = progress_pending_ns();
        // On behalf of programs that do not poll.
        if (timing_ && timing_->is_active()) wait_ns = soon_ns;
      }
      if ((again || !buried_.empty()) && (wait_ns == never || wait_ns > soon_ns)) wait_ns = soon_ns;
      if (datagrams_again == DatagramSockets::Again::at_once) wait_ns = 0;
      watched_.clear();
      watched_.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
      connections.collect(watched_);
      datagrams.collect(watched_);
    }
    const timespec timeout{.tv_sec = wait_ns / 1'000'000'000, .tv_nsec = wait_ns % 1'000'000'000};
    ::ppoll(watched_.data(), watched_.size(), wait_ns == never ? nullptr : &timeout, nullptr);
    eventfd_t ignored;
    ::eventfd_read(wake_.get(), &ignored);
  }
}

void Process::wake_helper() const {
  ::eventfd_write(wake_.get(), 1);
}

void Process::look_slow() {
  look_.store(true, std::memory_order_release);
  wake_helper();
}

void Process::answer_slow(std::uint64_t call) {
  assert(call != 0);
  if (call == Peer::everything)
    look_slow();
  else
    notifiers.answer(call);
}

/// True when something has to be tried again soon.
bool Process::raise_events(const Events& events) {
  bool everything = look_.exchange(false, std::memory_order_acquire) || !events.deaths.empty();
  for (const std::uint64_t call : events.calls)
    if (call == Peer::everything)
      everything = true;
    else if (is_bounce_call(call))
      everything |= !bounces.answer(*this, static_cast<std::uint32_t>(call >> 8));
    else
      notifiers.answer(call);
  for (const Events::Death& death : events.deaths) notifiers.make_up_for(death.id);
  const bool again = notifiers.flush(everything);
  if (!everything) return again;
  notifiers.answer_all();
  const bool all_answered = bounces.answer_all(*this);
  if (report_all_news(*this) && all_answered && !again) return false;
  look_.store(true, std::memory_order_relaxed);
  return true;
}

void Process::reserve_queue_pair() {
  // Buried queue pairs still have their entries.
  const std::size_t count = queue_pairs.size() + buried_.size() + 1;
  if (pending_now_.capacity() >= count) return;
  queue_pairs.reserve(2 * count);
  buried_.reserve(2 * count);
  bounces.reserve(2 * count);
  {
    const std::lock_guard guard(pending_lock_);
    pending_.reserve(2 * count);
  }
  pending_now_.reserve(2 * count);
}

void Process::count_pending() {
  const std::size_t count = pending_.size() + bounces_count_ + (timing_ ? 1 : 0);
  pending_count_.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
}

void Process::add_pending(QueuePair& pair) {
  if (pair.listed) return;
  assert(pair.send_lock.is_held());
  pair.listed = true;
  const std::lock_guard guard(pending_lock_);
  assert(pending_.size() < pending_.capacity());
  pending_.push_back({.pair = &pair, .due = 0});
  count_pending();
  // In an emulated network there is nothing to do before the request is due, and polls deliver it
  // then.
  if (!timing_ || !timing_->is_active()) wake_helper();
}

void Process::note_due(Picoseconds due) noexcept {
  assert(due >= 0);
  Picoseconds known = next_due_.load(std::memory_order_relaxed);
  while (due < known && !next_due_.compare_exchange_weak(known, due, std::memory_order_release,
                                                         std::memory_order_relaxed)) {
  }
}

void Process::remove_pending(QueuePair& pair) {
  if (!pair.listed) return;
  assert(pair.send_lock.is_held());
  pair.listed = false;
  const std::lock_guard guard(pending_lock_);
  std::erase_if(pending_, [&](const Pending& one) { return one.pair == &pair; });
  count_pending();
}

void Process::count_bounces(std::size_t count) {
  const std::lock_guard guard(pending_lock_);
  bounces_count_ = count;
  count_pending();
  note_due(0);
}

void Process::progress_pending_slow() {
  // The holder of the mutex does this already, or makes or destroys something; the next poll
  // retries.
  const std::unique_lock guard(mutex, std::try_to_lock);
  if (!guard) return;
  bounces.answer(*this);
  (void)progress_pending_ns();
}

void Process::poll_datagrams_slow() {
  const std::unique_lock guard(mutex, std::try_to_lock);
  if (guard)
    datagrams.poll(
        [this](std::span<const std::byte> datagram) { deliver_datagram(*this, datagram); });
}

/// Copies those that are due then; never_ps: all.
void Process::copy_pending(Picoseconds due) {
  const std::lock_guard guard(pending_lock_);
  assert(pending_.size() <= pending_now_.capacity());
  pending_now_.clear();
  for (const Pending& one : pending_)
    if (one.due <= due) pending_now_.push_back(one.pair);  // within what is reserved
}

/// Tries all pending requests.  Returns after how many nanoseconds it is worth trying again, or -1
/// if there is nothing to try until the helper thread is woken.
std::int64_t Process::progress_pending_ns() {
  if (!has_pending()) return -1;
  (void)next_due_.exchange(bounces_count_ > 0 ? 0 : never_ps, std::memory_order_acq_rel);
  copy_pending();
  if (pending_now_.empty()) return -1;
  const std::int64_t now = now_ns();
  std::int64_t wait_ns = -1;
  for (QueuePair* const pair : pending_now_) {
    const std::unique_lock guard(pair->send_lock, std::try_to_lock);
    if (guard) progress(*pair, now);
    if (guard && pair->pending.empty()) {
      remove_pending(*pair);
      continue;
    }
    note_due(guard ? soft::next_due(*pair) : 0);
    // Without its lock the queue pair may not be looked into; but the lock's holder has just tried.
    const std::int64_t wish_ns = guard ? pair->patience.look_again_ns - now : 1'000'000;
    const std::int64_t pair_ns = std::clamp<std::int64_t>(wish_ns, 50'000, 10'000'000);
    wait_ns = wait_ns < 0 ? pair_ns : std::min(wait_ns, pair_ns);
  }
  return wait_ns;
}

/// Messages come to ports in the order of time; of one instant, in that of their posting.
void Process::pass_ports(Picoseconds now) {
  for (;;) {
    QueuePair* of = nullptr;
    PendingRequest* first = nullptr;
    for (QueuePair* const pair : pending_now_) {
      const std::lock_guard send_guard(pair->send_lock);
      PendingRequest* const one = first_at_port(*pair, now);
      if (one == nullptr || (first != nullptr && std::tie(first->due_ps, first->number) <
                                                     std::tie(one->due_ps, one->number)))
        continue;
      of = pair;
      first = one;
    }
    if (first == nullptr) return;
    const std::lock_guard send_guard(of->send_lock);
    pass_port(*of, *first);
  }
}

/// The send lock is held.  `hint` is where to look in the list first: behind the one before.
void Process::set_due(const QueuePair& pair, Picoseconds due, std::size_t& hint) noexcept {
  assert(pair.send_lock.is_held());
  const std::lock_guard guard(pending_lock_);
  const std::size_t count = pending_.size();
  for (std::size_t tries = 0; tries < count; ++tries, ++hint) {
    if (hint >= count) hint = 0;
    if (pending_[hint].pair != &pair) continue;
    pending_[hint].due = due;
    return;
  }
}

void Process::look_at(const QueuePair& pair) noexcept {
  std::size_t hint = 0;
  if (pair.listed) set_due(pair, 0, hint);
}

void Process::look_at_all() noexcept {
  const std::lock_guard guard(pending_lock_);
  for (Pending& one : pending_) one.due = 0;
}

void Process::deliver_due() {
  assert(timing_);
  const std::lock_guard guard(mutex);
  const Picoseconds now = timing_->now();
  copy_pending(now);
  pass_ports(now);
  std::size_t hint = 0;
  for (QueuePair* const pair : pending_now_) {
    const std::lock_guard send_guard(pair->send_lock);
    progress(*pair, now / picoseconds_per_ns);
    if (pair->pending.empty())
      remove_pending(*pair);
    else
      set_due(*pair, soft::next_due(*pair), hint);
  }
}

Picoseconds Process::next_due() {
  assert(timing_);
  const std::lock_guard guard(mutex);
  // First those that were posted since, or may have failed.
  copy_pending(0);
  std::size_t hint = 0;
  for (QueuePair* const pair : pending_now_) {
    const std::lock_guard send_guard(pair->send_lock);
    const bool is_flushed_next =
        pair->executed < pair->pending.size() && pair->status().state() == IBV_QPS_ERR;
    set_due(*pair, is_flushed_next ? 0 : soft::next_due(*pair), hint);
  }
  const std::lock_guard pending_guard(pending_lock_);
  Picoseconds next = never_ps;
  for (const Pending& one : pending_) next = std::min(next, one.due);
  return next;
}

void Process::forget_times() {
  assert(timing_);
  const std::lock_guard guard(mutex);
  view_.header().transmit_port.store(0, std::memory_order_relaxed);
  view_.header().receive_port.store(0, std::memory_order_relaxed);
  for (QueuePair* const pair : queue_pairs) {
    const std::lock_guard send_guard(pair->send_lock);
    pair->last_due_ps = 0;
  }
  look_at_all();
}

std::uint32_t Process::completion_queues_in_use() {
  const std::lock_guard guard(mutex);
  return static_cast<std::uint32_t>(completion_queues.size());
}

bool Process::has_completions() {
  const std::lock_guard guard(mutex);
  return std::any_of(completion_queues.begin(), completion_queues.end(),
                     [](const CompletionQueue* queue) { return queue->has_news(); });
}

void Process::kick_slow(std::uint32_t process_id) {
  const std::unique_lock guard(mutex, std::try_to_lock);
  if (guard && process_id != id()) connections.kick(process_id);
  if (!guard) kick_all_.store(true, std::memory_order_release);
  if (!guard || process_id == id() || process_id == 0) wake_helper();
}

void Process::bury(std::uint32_t index) noexcept {
  assert(index < queue_pair_slots.ever_taken_count());
  assert(buried_.size() < buried_.capacity());
  // The status was cleared before, so an initiator that engages from now on leaves by itself.
  buried_.push_back({index, RunningEngagement(view_.queue_pair(index))});
  reap();
  if (!buried_.empty()) wake_helper();
}

void Process::reap() {
  std::erase_if(buried_, [this](const Buried& buried) {
    // Nobody may be engaged at all: the next queue pair with this entry needs the word.
    if (!buried.engagement.is_over() || !buried.engagement.has_left()) return false;
    QueuePairEntry& entry = view_.queue_pair(buried.index);
    bounces.remove(*this, buried.index);
    if (entry.receive_slots != 0) segment.free(entry.receive_offset);
    segment.free(entry.ring_offset);
    queue_pair_slots.give_back(buried.index);
    return true;
  });
}

bool Process::outlasts_slow(const RunningEngagement& engagement,
                            std::unique_lock<std::mutex>& held) const {
  assert(held.owns_lock());
  constexpr std::int64_t ms = 1'000'000;
  constexpr std::int64_t stop_max_ns = 1'000 * ms;
  // This is the limit where the system does not say whether the process is stopped, because it
  // lives in a process-id namespace that we do not see.
  constexpr std::int64_t unseen_max_ns = 10'000 * ms;
  // An initiator may copy from or to slow memory, and a debugger may hold one of its threads alone;
  // but the caller must get an answer.
  constexpr std::int64_t any_max_ns = 60'000 * ms;
  constexpr std::int64_t between_looks_ns = 10 * ms;
  const std::int64_t begin = now_ns();
  std::int64_t look_at = begin + between_looks_ns;
  std::int64_t stopped_since = 0;  // 0: it was not stopped at the last look
  for (unsigned tries = 0; !engagement.is_over(); ++tries) {
    if (const std::int64_t now = now_ns(); now >= look_at) {
      look_at = now + between_looks_ns;
      const Life life = connections.life_of(engagement.initiator() >> 24);
      if (life != Life::stopped)
        stopped_since = 0;
      else if (stopped_since == 0)
        stopped_since = now;
      if ((stopped_since != 0 && now - stopped_since >= stop_max_ns) ||
          (life == Life::unseen && now - begin >= unseen_max_ns) || now - begin >= any_max_ns)
        return false;
    }
    held.unlock();
    // An initiator that has lost its CPU gets it back by a yield, but not from a caller with a
    // higher priority: such a caller has to sleep.
    constexpr unsigned yields = 100;
    const timespec nap{.tv_sec = 0, .tv_nsec = 100'000};
    if (tries < yields)
      ::sched_yield();
    else
      ::nanosleep(&nap, nullptr);
    held.lock();
  }
  return true;
}

bool Process::wait_for_initiators_slow(std::unique_lock<std::mutex>& held, std::uint32_t first,
                                       std::uint32_t last) const {
  assert(held.owns_lock());
  assert(first <= last);
  assert(last <= queue_pairs_max);
  // Many are looked at first, so that the waits overlap.  Nothing is allocated, because taking
  // something down must not need memory.
  std::array<std::optional<RunningEngagement>, 64> running;
  while (first < last) {
    std::size_t count = 0;
    for (; first < last && count < running.size(); ++first)
      if (const RunningEngagement engagement(view_.queue_pair(first)); !engagement.is_over())
        running[count++].emplace(engagement);
    for (std::size_t index = 0; index < count; ++index)
      if (!outlasts_slow(*running[index], held)) return false;
  }
  return true;
}

void Process::recover_from(const Events::Death& death) {
  // It may have stored a completion without marking it.
  for (const QueuePair* const pair : queue_pairs)
    if (pair->crowd_seat != QueuePair::no_seat &&
        process_id_of(pair->status().destination()) == death.id)
      pair->receive_queue().crowd.mark_seat(pair->crowd_seat);
  for (std::uint32_t index = 0; index < queue_pair_slots.ever_taken_count(); ++index) {
    std::atomic<std::uint64_t>& engaged = view_.queue_pair(index).engaged;
    std::uint64_t token = engaged.load(std::memory_order_relaxed);
    // A dead initiator cannot change the word any more.  Acquire: see what it did before it died.
    if (belongs(token, death)) engaged.compare_exchange_strong(token, 0, std::memory_order_seq_cst);
  }
  std::atomic<std::uint64_t>& turn = view_.header().atomic_turn;
  std::uint64_t token = turn.load(std::memory_order_relaxed);
  if (belongs(token, death)) turn.compare_exchange_strong(token, 0, std::memory_order_acq_rel);
  // It may have died after it moved a queue pair to the error state and before it reported that.
  for (QueuePair* const pair : queue_pairs)
    if (pair->status().state() == IBV_QPS_ERR)
      pair->receive_queue().attention.store(true, std::memory_order_release);
}

void Process::forget(const Events::GoneBacking& gone) {
  const detail::Mapping mapping = gone.peer->drop_backing(gone.number);
  // Requests learn of a mapping (under the lock of the backings, before this) and use it only while
  // they hold the send lock: after this loop nobody uses it.  The owner announces the end of a
  // backing only when no initiator is engaged because of it, but that order depends on the other
  // process; the order here is ours, and holds whatever that process does.
  for (QueuePair* const pair : queue_pairs) {
    const std::lock_guard guard(pair->send_lock);
    if (pair->peer == gone.peer) pair->target.backings = {};
  }
}

void Process::abandon() {
  abandoned_ = true;
  for (Context* const opened : contexts) {
    ibv_context* const context = &opened->context;
    context->ops.post_send = refuse_send;
    context->ops.post_recv = refuse_receive;
    context->ops.post_srq_recv = refuse_shared_receive;
    context->ops.poll_cq = refuse_poll;
    context->ops.req_notify_cq = refuse_notification;
    opened->events.abandon();
  }
  for (CompletionChannel* const channel : channels) channel->events.abandon();
  connections.abandon();
  datagrams.abandon();
  backings.abandon();
  wake_ = detail::Descriptor();
  segment.abandon();
}

void Process::watch_forks() {
  // The locks are held across a fork, so that the child finds the tables whole.
  static const int registered = ::pthread_atfork(
      [] {
        current_mutex.lock();
        if (current) current->mutex.lock();
      },
      [] {
        if (current) current->mutex.unlock();
        current_mutex.unlock();
      },
      [] {
        if (current) {
          current->abandon();
          current->mutex.unlock();
        }
        current_mutex.unlock();
      });
  (void)registered;
}

}  // namespace tutti::verbs::soft
