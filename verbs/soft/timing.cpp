#include "verbs/soft/timing.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <mutex>
#include <new>
#include <utility>

#include "tutti/detail/clock.hpp"
#include "verbs/soft/process.hpp"
#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/remote.hpp"
#include "verbs/soft/send.hpp"
#include "verbs/soft/shared_ports.hpp"

namespace tutti::verbs::soft {
namespace {

constexpr std::size_t packet_bytes = 4096;  // the path MTU of this device

std::int64_t real_now_ns() {
  return detail::MonotonicClock::read().count();
}

Picoseconds scaled(Picoseconds time, double factor) {
  return factor == 1 ? time : std::llround(static_cast<double>(time) * factor);
}

/// Release: the payload was stored before.
void store(std::uint64_t* word, std::uint64_t message) {
  std::atomic_ref(*word).store(message, std::memory_order_release);
}

/// Takes a port for `duration` as soon as it is free, not before `earliest`; returns when that is.
/// Relaxed: only the number counts.
Picoseconds reserve(std::atomic<Picoseconds>& port, Picoseconds earliest, Picoseconds duration) {
  assert(duration >= 0);
  Picoseconds free = port.load(std::memory_order_relaxed);
  Picoseconds begin = 0;
  do {
    begin = std::max(earliest, free);
  } while (!port.compare_exchange_weak(free, begin + duration, std::memory_order_relaxed));
  return begin;
}

/// The target's header, once the target is attached; else NULL.
SegmentHeader* header_of_target(const QueuePair& pair) {
  const bool is_known = pair.peer && pair.peer->state() == PeerState::attached;
  return is_known ? &pair.peer->segment().header() : nullptr;
}

}  // namespace

Timing::Timing(FabricModel model, SegmentHeader& own, VirtualTime* virtual_time)
    : model_(std::move(model)),
      place_(own.place),
      virtual_time_(virtual_time),
      epoch_ns_(real_now_ns()),
      numbers_(model_.faults.seed * 0x9e3779b97f4a7c15 + own.place) {
  own.epoch_ns = epoch_ns_;
  for (const FabricModel::Faults::Slow& slow : model_.faults.slow)
    if (slow.place == place_) slowness_ = slow.factor;
}

Picoseconds Timing::now() const noexcept {
  return is_virtual() ? virtual_time_->now() : (real_now_ns() - epoch_ns_) * picoseconds_per_ns;
}

bool Timing::happens(double probability) noexcept {
  assert(probability <= 1);
  return probability > 0 && std::uniform_real_distribution<double>()(numbers_) < probability;
}

bool Timing::is_down(std::uint32_t place, Picoseconds at) const noexcept {
  const auto& list = model_.faults.link_down;
  return std::any_of(list.begin(), list.end(), [&](const FabricModel::Faults::LinkDown& down) {
    return down.place == place && at >= down.from && at < down.until;
  });
}

/// When a message that leaves at `at` gets through, or with which error it never does.
Timing::Journey Timing::get_through(const QueuePair& pair, const Request& request, std::uint32_t to,
                                    std::size_t bytes, Picoseconds at) noexcept {
  const std::size_t packets = std::max<std::size_t>(1, (bytes + packet_bytes - 1) / packet_bytes);
  const double survives = std::pow(1 - model_.faults.drop_probability, packets);
  const Picoseconds timeout = transport_timeout_ns(pair.attributes) * picoseconds_per_ns;
  for (unsigned lost = 0; happens(1 - survives) || is_down(place_, at) || is_down(to, at); ++lost) {
    at += timeout;
    if (pair.attributes.timeout == 0) break;  // it is never sent again, and nobody complains
    if (lost == pair.attributes.retry_cnt) return {at, 0, IBV_WC_RETRY_EXC_ERR};
  }
  if (!takes_receive(request.opcode)) return {at, 0, IBV_WC_SUCCESS};
  constexpr unsigned for_ever = 7, most = 1000;
  const std::uint32_t timer = pair.target.entry
                                  ? pair.target.entry->rnr_timer.load(std::memory_order_relaxed)
                                  : pair.attributes.min_rnr_timer;
  for (unsigned refused = 0; refused < most && happens(model_.faults.not_ready_probability);
       ++refused) {
    at += rnr_timer_ns(timer) * picoseconds_per_ns;
    if (pair.attributes.rnr_retry != for_ever && refused == pair.attributes.rnr_retry)
      return {at, 0, IBV_WC_RNR_RETRY_EXC_ERR};
  }
  return {at, 0, IBV_WC_SUCCESS};
}

Timing::Journey Timing::depart(const QueuePair& pair, const Request& request,
                               std::size_t bytes) noexcept {
  assert(pair.send_lock.is_held());
  const std::lock_guard guard(lock_);
  const SegmentHeader* const target = header_of_target(pair);
  const std::uint32_t to = target ? target->place : place_;
  const std::size_t outgoing = request.opcode == IBV_WR_RDMA_READ ? 0 : bytes;
  const Picoseconds port = std::max(scaled(model_.gap, slowness_), model_.wire_time(outgoing));
  const Picoseconds leaves = take(Port::transmit, pair.process.view().header(), now(), port);
  Journey journey = get_through(pair, request, to, outgoing, leaves);
  journey.number = ++requests_;
  journey.due += scaled(model_.send_overhead, slowness_) + model_.latency_between(place_, to) +
                 model_.wire_time(outgoing);
  if (happens(model_.faults.delay_probability))
    journey.due += std::uniform_int_distribution<Picoseconds>(0, model_.faults.delay)(numbers_);
  // Packets of a queue pair stay in order.
  journey.due = std::max(journey.due, pair.last_due_ps);
  return journey;
}

Picoseconds Timing::pass_port_of(const QueuePair& pair, const Request& request, std::size_t bytes,
                                 Picoseconds due) const noexcept {
  SegmentHeader* const target = header_of_target(pair);
  const std::size_t incoming = request.opcode == IBV_WR_RDMA_READ ? 0 : bytes;
  if (!target) return due;
  return take(Port::receive, *target, due, model_.port_time(incoming));
}

Picoseconds Timing::take(Port which, SegmentHeader& of, Picoseconds earliest,
                         Picoseconds duration) const noexcept {
  const auto one_of = [&](auto& ports) -> std::atomic<Picoseconds>& {
    return which == Port::transmit ? ports.transmit : ports.receive;
  };
  if (is_virtual()) return reserve(one_of(virtual_time_->ports_of(of.place)), earliest, duration);
  const SharedPorts* const job = SharedPorts::joined();
  if (SharedPorts::Ports* const shared = job ? job->ports_of(of.place) : nullptr) {
    const Picoseconds shift = (job->epoch_ns() - epoch_ns_) * picoseconds_per_ns;
    return reserve(one_of(*shared), earliest - shift, duration) + shift;
  }
  const Picoseconds shift = (of.epoch_ns - epoch_ns_) * picoseconds_per_ns;
  std::atomic<Picoseconds>& own = which == Port::transmit ? of.transmit_port : of.receive_port;
  return reserve(own, earliest - shift, duration) + shift;
}

void Timing::wake_target(const QueuePair& pair) noexcept {
  const SegmentHeader* const target = header_of_target(pair);
  if (target && is_virtual()) virtual_time_->arrive_at(target->place);
}

Picoseconds Timing::answer(const QueuePair& pair, const Request& request,
                           std::size_t bytes) noexcept {
  SegmentHeader* const target = header_of_target(pair);
  if (!target) return now();
  wake_target(pair);
  const Picoseconds back = model_.latency_between(target->place, place_);
  if (request.opcode != IBV_WR_RDMA_READ) return now() + back;
  return take(Port::transmit, *target, now(), model_.port_time(bytes)) + back +
         model_.wire_time(bytes);
}

void Timing::charge_receives(Process& process, int receives) noexcept {
  assert(receives >= 0);
  empty_polls_ = 0;
  if (receives > 0) spend(process, scaled(model_.receive_overhead, slowness_) * receives);
}

void Timing::charge_posts(Process& process, std::uint64_t posts) noexcept {
  spend(process, scaled(model_.rank_gap, slowness_) * static_cast<Picoseconds>(posts));
}

void Timing::charge_work(Process& process, std::size_t bytes) noexcept {
  spend(process, scaled(model_.work_time(bytes), slowness_));
}

void Timing::announce(Process& process, std::uint64_t* word, std::uint64_t message,
                      std::size_t bytes) noexcept {
  assert(word != nullptr);
  assert(is_virtual());
  const Picoseconds taken = scaled(model_.inside.store_time(bytes), slowness_);
  const Picoseconds due = now() + taken + model_.inside.latency;
  // In order of time: of two messages that differ in length, a later one may be seen no earlier.
  assert(announcements_.empty() || announcements_.back().due <= due);
  try {
    announcements_.push_back({.due = due, .word = word, .message = message});
  } catch (const std::bad_alloc&) {
    store(word, message);  // it is early, rather than lost
  }
  spend(process, taken);
}

void Timing::announce_all() noexcept {
  for (; !announcements_.empty(); announcements_.pop_front())
    store(announcements_.front().word, announcements_.front().message);
}

void Timing::charge_message(Process& process) noexcept {
  spend(process, scaled(model_.inside.receive_overhead, slowness_));
}

void Timing::charge_reading(Process& process, std::size_t bytes) noexcept {
  spend(process, scaled(model_.inside.read_time(bytes), slowness_));
}

void Timing::charge_copying(Process& process, std::size_t bytes) noexcept {
  spend(process, scaled(model_.inside.copy_time(bytes), slowness_));
}

Picoseconds Timing::next_due(Process& process) const noexcept {
  const Picoseconds due = process.next_due();
  return announcements_.empty() ? due : std::min(due, announcements_.front().due);
}

void Timing::spend(Process& process, Picoseconds time) noexcept {
  if (time > 0 && is_virtual()) pass_time(process, now() + time);
}

void Timing::idle(Process& process) noexcept {
  // A program with several completion queues looks at one after the other in no time.
  if (std::exchange(is_busy_, false)) {
    empty_polls_ = 0;
    return;
  }
  if (++empty_polls_ < process.completion_queues_in_use()) return;
  // A program that waits with a timeout must see the clock go on, even if nothing ever happens.
  constexpr Picoseconds longest = 100'000 * picoseconds_per_ns;
  // Another queue has a completion, and the program may be about to poll it.
  constexpr Picoseconds a_poll = 100 * picoseconds_per_ns;
  const Picoseconds next = now() + (process.has_completions() ? a_poll : longest);
  empty_polls_ = 0;
  virtual_time_->sleep(std::min(next, next_due(process)), true);
  deliver(process);
}

void Timing::drain(Process& process) noexcept {
  // Requests that are repeated for ever, because a receive never comes, are left.
  constexpr int steps_max = 100'000;
  Picoseconds next = 0;
  for (int step = 0; step < steps_max && is_virtual(); ++step) {
    if (next = next_due(process); next == never_ps) return;
    if (next > now())
      pass_time(process, next);
    else
      deliver(process);
  }
}

void Timing::pass_time(Process& process, Picoseconds until) noexcept {
  empty_polls_ = 0;
  while (is_virtual() && now() < until) {
    virtual_time_->sleep(std::min(until, next_due(process)), false);
    deliver(process);
  }
}

void Timing::deliver(Process& process) noexcept {
  process.deliver_due();
  for (; !announcements_.empty() && announcements_.front().due <= now();
       announcements_.pop_front()) {
    const Announcement& due = announcements_.front();
    store(due.word, due.message);
    virtual_time_->arrive_at_neighbours();
  }
  constexpr unsigned a_moment_us = 50;
  if (takes_wait()) ::usleep(a_moment_us);
}

}  // namespace tutti::verbs::soft
