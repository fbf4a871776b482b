#include "runtime/operation.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <tutti/detail/check.hpp>
#include <utility>

#include "engine/advance.hpp"
#include "runtime/wait_policy.hpp"
#include "shm/message_policy.hpp"
#include "tune/choose.hpp"
#include "tune/hierarchy.hpp"

namespace tutti {
namespace {

/// Polls before the first look at the clock: a few microseconds, many times what a collective
/// between two ready ranks takes.
constexpr unsigned polls_before_clock = 256;

/// Polls between two looks at the clock.
constexpr unsigned polls_per_turn = 64;
/// Polls before the first yield and between two yields when ranks are more than CPUs: the rank that
/// is waited for may need this CPU, and a yield to nobody takes less than a microsecond.
constexpr unsigned polls_per_turn_oversubscribed = 2;

/// Yields before a wait first reads the clock and checks who is alive.  In a wait that ends within
/// these yields, the checks would take as long as the yields.  A yield may last until all other
/// programs on this CPU have had a turn, so a timeout may be noticed late by as many such yields.
constexpr unsigned yields_before_clock = 4;

/// At time `now`, without progress for `idle`, gives the core to somebody else, or not; for `left`
/// at most.
void give_way(Context::Implementation& context, runtime::Liveness& watched, Timeout now,
              Timeout idle, Timeout left) noexcept {
  const runtime::Waiting waiting{
      .policy = context.settings.wait,
      .oversubscribed = context.oversubscribed,
      .time_is_simulated = context.clock.is_simulated(),
      .can_be_woken = context.settings.wait == WaitPolicy::block && context.can_be_woken()};
  switch (runtime::give_way(waiting, idle)) {
    case runtime::GiveWay::not_at_all:
      return;
    case runtime::GiveWay::yield:
      sched_yield();
      return;
    case runtime::GiveWay::nap: {
      const Timeout nap = std::min(runtime::nap_of(idle), left);
      const timespec time{.tv_sec = 0, .tv_nsec = nap.count()};
      clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
      return;
    }
    case runtime::GiveWay::block:
      context.sleep(watched, now, left);
      return;
  }
}

/// Twice what the transport's retries take towards a peer that does not answer (queue_pair.hpp);
/// on devices that wait long before they send again, long enough for that.
Timeout drain_timeout_of(const verbs::VerbsFabric& fabric) noexcept {
  return std::max<Timeout>(std::chrono::seconds(8),
                           2 * fabric.connections().acknowledgement_timeout());
}

}  // namespace

std::size_t runtime::put_count(const plan::Plan& plan) noexcept {
  return static_cast<std::size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(),
                    [](const plan::Step& step) { return step.action == plan::Action::put; }));
}

Operation::Implementation::Implementation(Communicator::Implementation& owner, plan::Plan&& made,
                                          const char* collective)
    : communicator(owner),
      plan(std::move(made)),
      name(collective),
      ordinal(owner.operations_made),
      channel(runtime::put_count(plan), plan.slot_count) {
  execution.steps = plan.steps;
  for (std::vector<bool>& taken : credits_taken) taken.resize(plan.slot_count);
  Context::Implementation& context = communicator.context;
  context.in_flight.reserve(context.live_operations + 1);
  channel_id = context.fabric.attach(channel.network);
  ++context.live_operations;
  ++communicator.live_operations;
}

Operation::Implementation::~Implementation() {
  Context::Implementation& context = communicator.context;
  unpublish();
  if (execution.in_flight)
    communicator.fail_all({Incident::Kind::aborted, communicator.exchange.self()},
                          "an operation was destroyed in flight", this);
  // The last messages must leave before the queue pairs or the memory under them may go: a peer
  // still waits for them.  The block may be used again only when no send reads it any more and no
  // peer will write it; after a failure neither is known, and the memory stays out of use until the
  // context goes.
  const auto has_gone = [&](std::uint64_t process) {
    const Rank peer = communicator.rank_of(process);
    return peer != no_rank && communicator.exchange.has_left(peer);
  };
  const Timeout drain_timeout = drain_timeout_of(context.fabric);
  const bool drained =
      !communicator.failed() && collect_credits() &&
      context.fabric.drain(channel.network, context.clock, drain_timeout, has_gone);
  if (drained && ring()) ring()->leave();
  if (staging && staging->ring != nullptr) staging->ring->forget(this, !drained);
  if (drained && block != nullptr) context.fabric.arena().release(block);
  // Whoever has a connection to this rank loses it if a send from there, or a write of a peer,
  // meets memory that is registered no longer.
  if (!drained && (source.region || target.region))
    (void)context.fabric.drain(channel.network, context.clock, drain_timeout, has_gone);
  give_back_buffers(!drained);
  --context.live_operations;
  if (uses_network) --context.live_network_operations;
  --communicator.live_operations;
  context.fabric.detach(channel.network, drained);
}

void Operation::Implementation::give_back_buffers(bool may_be_written) noexcept {
  for (Segment::Implementation** segment : {&source.segment, &target.segment, &moved_source})
    if (Segment::Implementation* const one = std::exchange(*segment, nullptr)) {
      --one->users;
      one->may_be_written = one->may_be_written || may_be_written;
    }
}

void Operation::Implementation::move_source(const void* to, const void* wanted_target) noexcept {
  const auto number = [](const void* address) { return reinterpret_cast<std::uintptr_t>(address); };
  detail::check(wanted_target == execution.memory.target || !plan::exposes_target(plan),
                "a target that peers write (zero-copy) is that of the making of its operation",
                number(wanted_target), number(execution.memory.target));
  if (to == execution.memory.source || !plan::exposes_source(plan)) return;
  const auto* const begin = static_cast<const std::byte*>(to);
  std::uint32_t key = begin == target.memory ? target.local_key : source.local_key;
  Segment::Implementation* segment = nullptr;
  if (begin != target.memory && begin != source.memory) {
    detail::check(target.memory == nullptr || begin + source.bytes <= target.memory ||
                      target.memory + target.bytes <= begin,
                  "source and target do not overlap; they may be equal", number(to),
                  number(target.memory));
    segment = runtime::registered_segment_with(communicator.context, to, source.bytes);
    detail::check(segment != nullptr,
                  "a source that is sent from (zero-copy) is a buffer of the making of its "
                  "operation, or lies in a segment",
                  number(to), source.bytes);
    ++segment->users;
    key = communicator.context.fabric.arena().local_key();
  }
  if (moved_source != nullptr) --moved_source->users;
  moved_source = segment;
  const std::ptrdiff_t by = begin - execution.memory.source;
  std::size_t put = 0;
  for (const plan::Step& step : plan.steps) {
    if (step.action != plan::Action::put) continue;
    if (plan::sends_from(step, plan::Place::source))
      for (std::size_t chunk = 0; chunk < execution.chunk_count; ++chunk)
        channel.network.move_local(chunk * execution.puts_per_chunk + put, by, key);
    ++put;
  }
}

bool Operation::Implementation::collect_credits() noexcept {
  runtime::JoinedFabric joined{communicator.context.fabric};
  bool all = true;
  // The last call of each parity has credits that nobody has taken yet.
  for (std::uint64_t call = execution.sequence; call > 0 && call + 2 > execution.sequence; --call)
    for (const plan::Step& step : plan.steps) {
      if (step.action != plan::Action::await_credit) continue;
      std::vector<bool>& taken = credits_taken[call & 1];
      if (!taken[step.slot]) taken[step.slot] = joined.take(channel, call & 1, step.slot);
      all = all && taken[step.slot];
    }
  if (stale()) all = stale()->collect(execution, joined, channel) && all;
  if (ring() && block != nullptr) all = all && ring()->is_deserted();
  for (const shm::SequenceWord* reader : readers)
    all = all && shm::has_come(reader, execution.sequence);
  return all;
}

bool Operation::Implementation::may_collect_more() noexcept {
  if (ring()) return true;  // it does not tell which rank is missing (docs/guarantees.md)
  const auto& connections = communicator.context.fabric.connections();
  const auto can_send = [&](Rank peer) {
    const std::span<const std::uint32_t> used = channel.network.used();
    return !communicator.exchange.has_left(peer) &&
           std::none_of(used.begin(), used.end(), [&](std::uint32_t index) {
             const verbs::Connection& connection = connections[index];
             return connection.process == communicator.process_of[index_of(peer)] &&
                    (connection.failed || connection.left);
           });
  };
  const std::uint64_t last = execution.sequence;
  for (const plan::Step& step : plan.steps) {
    bool is_missing =
        stale() && step.action == plan::Action::await && !stale()->has_come(step.slot, last);
    if (step.action == plan::Action::await_credit)
      for (std::uint64_t call = last; call > 0 && call + 2 > last; --call)
        is_missing = is_missing || !credits_taken[call & 1][step.slot];
    if (is_missing && can_send(step.peer)) return true;
  }
  if (readers.empty()) return false;
  const shm::ReaderWords words{reinterpret_cast<std::uint64_t>(finished),
                               communicator.members_of_node()};
  return std::any_of(plan.steps.begin(), plan.steps.end(), [&](const plan::Step& step) {
    if (step.action != plan::Action::put || !communicator.is_neighbour(step.peer) ||
        communicator.exchange.has_left(step.peer))
      return false;
    const auto place = communicator.neighbours.nodes.local_rank[index_of(step.peer)];
    const auto* const word =
        reinterpret_cast<const shm::SequenceWord*>(words.of_reader(index_of(place)));
    return std::find(readers.begin(), readers.end(), word) != readers.end() &&
           !shm::has_come(word, last);
  });
}

bool Operation::Implementation::has_been_read(std::uint64_t chunk) const noexcept {
  // When chunk c + 2 is finished, nobody reads what was sent in chunk c (engine/README.md).
  if (execution.sequence > chunk + 2) return true;
  const bool is_finished_here = execution.sequence > chunk || !execution.in_flight;
  return is_finished_here &&
         std::all_of(readers.begin(), readers.end(),
                     [&](const shm::SequenceWord* reader) { return shm::has_come(reader, chunk); });
}

Status Operation::Implementation::advance(runtime::JoinedFabric& joined) noexcept {
  const Status status =
      is_plain ? engine::advance(execution, joined, channel) : advance_otherwise_slow(joined);
  if (status == Status::ok)
    for (shm::SequenceWord* word : is_read_here) shm::announce(word, execution.sequence);
  else if (status == Status::transport_failed && channel.node.read_error() != 0)
    communicator.liveness.suspect({.system_errno = channel.node.read_error(),
                                   .what = "its memory cannot be read (process_vm_readv)"},
                                  execution.steps[execution.next].peer);
  return status;
}

Status Operation::Implementation::start() noexcept {
  if (!communicator.is_usable()) [[unlikely]]
    return communicator.settled();
  execution.begin();
  if (!std::holds_alternative<PlanCalls>(calls)) begin_otherwise();
  Context::Implementation& context = communicator.context;
  runtime::JoinedFabric joined{context.fabric};
  if (ring()) {
    ring()->begin();
    (void)ring()->contribute();
    // In simulated time start() advances at once: otherwise the first poll would let time pass
    // while nothing is on its way.
    if (context.clock.is_simulated() && advance(joined) == Status::ok) return Status::ok;
    context.in_flight.push_back(this);  // never allocates, as below
    // Long contributions take as long as many messages, so that what comes meanwhile goes on.  What
    // progress() claims it also sends on: a rank that is stopped after start() holds nobody up.
    for (std::uint64_t before = 0;
         execution.in_flight && ring()->may_contribute() && before != ring()->contributed();) {
      before = ring()->contributed();
      context.progress();
    }
    return Status::ok;
  }
  if (advance(joined) != Status::ok)
    context.in_flight.push_back(this);  // never allocates, see Context::Implementation::in_flight
  return Status::ok;
}

Status Operation::Implementation::test() noexcept {
  if (!communicator.is_usable()) [[unlikely]]
    return communicator.settled();
  if (!execution.in_flight) return settled();
  communicator.context.progress();
  if (!execution.in_flight) return settled();
  communicator.liveness.check_now_and_then();
  return execution.in_flight ? Status::in_progress : settled();
}

Status Operation::Implementation::wait(Timeout timeout) noexcept {
  if (!communicator.is_usable()) [[unlikely]]
    return communicator.settled();
  Context::Implementation& context = communicator.context;
  for (unsigned polls = 0; polls < polls_before_clock; ++polls) {
    if (!execution.in_flight) return settled();
    context.progress();
    if (timeout <= Timeout::zero() ||
        (context.oversubscribed && polls + 1 >= polls_per_turn_oversubscribed))
      break;
  }
  const bool yields =
      context.oversubscribed && timeout > Timeout::zero() && !context.clock.is_simulated();
  for (unsigned turn = 0; yields && execution.in_flight && turn < yields_before_clock; ++turn) {
    give_way(context, communicator.liveness, {}, {}, {});
    for (unsigned polls = 0; execution.in_flight && polls < polls_per_turn_oversubscribed; ++polls)
      context.progress();
  }
  return execution.in_flight ? wait_slow(timeout) : settled();
}

/// While it exists, the record of an operation says that its user waits for it.
class Operation::Implementation::Waiting {
 public:
  Waiting(Implementation& operation, Timeout begin) noexcept
      : operation_(operation), is_real_(!operation.communicator.context.clock.is_simulated()) {
    operation_.record.is_waiting = 1;
    // A program that waits by turns has waited since the first of them.
    if (stood_at() != operation_.stands_at) progress_at(begin);
    operation_.charges.begin(begin, operation_.awaited());
  }
  ~Waiting() { operation_.record.is_waiting = 0; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// Charges the time since it has looked last to the rank that was awaited then.
  void look(Timeout now) noexcept {
    operation_.charges.go_on(operation_.communicator.waits, now, operation_.awaited());
  }
  /// The call has finished.  Reads the clock, which only a wait of microseconds has to do.
  void finish() noexcept {
    operation_.charges.finish(operation_.communicator.waits,
                              operation_.communicator.context.clock.now());
  }
  void progress_at(Timeout now) noexcept {
    operation_.stands_at = stood_at();
    if (is_real_) operation_.record.no_progress_since = now.count();
  }

 private:
  std::uint64_t stood_at() const noexcept { return operation_.communicator.context.position(); }

  Implementation& operation_;
  bool is_real_;
};

Status Operation::Implementation::wait_slow(Timeout timeout) noexcept {
  Context::Implementation& context = communicator.context;
  const Timeout begin = context.clock.now();
  Waiting waiting(*this, begin);
  const Deadline deadline = Deadline::after(timeout, begin);
  const unsigned polls_max =
      context.oversubscribed ? polls_per_turn_oversubscribed : polls_per_turn;
  Timeout last_progress = begin;
  std::uint64_t position = context.position();
  for (;;) {
    if (is_inherited()) return communicator.settled();  // a signal handler may fork
    std::size_t completions = 0;
    for (unsigned polls = 0; polls < polls_max; ++polls) {
      completions += context.progress();
      if (!execution.in_flight) {
        waiting.finish();
        return settled();
      }
    }
    const Timeout now = context.clock.now();
    waiting.look(now);
    const std::uint64_t before = std::exchange(position, context.position());
    if (completions > 0 || position != before) {
      last_progress = now;
      waiting.progress_at(now);
    }
    communicator.liveness.check(now);
    if (!execution.in_flight) return settled();
    if (deadline.passed(now)) return Status::timed_out;
    const Timeout unchecked = communicator.liveness.next_check() - now;
    give_way(context, communicator.liveness, now, now - last_progress,
             std::max(std::min(deadline.remaining(now), unchecked), Timeout::zero()));
  }
}

std::uint32_t Operation::Implementation::round() const noexcept {
  if (ring()) return ring()->round();
  if (execution.steps.empty()) return 0;
  const std::size_t last = execution.steps.size() - 1;
  return execution.steps[execution.next < last ? execution.next : last].round;
}

Rank Operation::Implementation::one_who_left() const noexcept {
  if (ring()) return ring()->one_who_left();
  const plan::Step& next = execution.steps[execution.next];
  if (next.action == plan::Action::await_sent) return no_rank;  // who has left had received it
  return communicator.exchange.has_left(next.peer) ? next.peer : no_rank;
}

std::vector<Rank> Operation::Implementation::missing_ranks() const {
  std::vector<Rank> missing;
  if (ring() || !execution.in_flight) return missing;
  for (std::size_t i = execution.next; i < execution.steps.size(); ++i) {
    const plan::Step& step = execution.steps[i];
    const bool waits =
        step.action == plan::Action::await || step.action == plan::Action::await_credit;
    if (step.round != round()) break;
    if (!waits) continue;
    const runtime::JoinedFabric joined{communicator.context.fabric};
    if (joined.arrived(channel, execution.parity(), step.slot)) continue;
    if (stale() && stale()->has_come(step.slot, execution.sequence)) continue;
    if (std::find(missing.begin(), missing.end(), step.peer) == missing.end())
      missing.push_back(step.peer);
  }
  return missing;
}

std::string Operation::Implementation::describe() const {
  std::string text =
      runtime::name_of(name, ordinal, record.label) + ", call " + std::to_string(execution.call());
  if (communicator.settled() != Status::ok) return text + ": " + communicator.failure.text;
  if (!execution.in_flight) return text + ": not in flight";
  if (ring()) return text + ": " + ring()->missing();
  if (execution.chunk_count > 1)
    text += ", chunk " + std::to_string(execution.chunk()) + " of " +
            std::to_string(execution.chunk_count);
  text += ", round " + std::to_string(round()) + " of " + std::to_string(plan.per_round.size());
  std::string missing;
  for (const Rank rank : missing_ranks())
    missing += (missing.empty() ? "" : ", ") + std::to_string(index_of(rank));
  if (!missing.empty()) return text + ": waiting for ranks " + missing;
  const plan::Step& next = execution.steps[execution.next];
  if (next.action == plan::Action::await_sent)
    return text + ": waiting until rank " + std::to_string(index_of(next.peer)) +
           " has what was sent";
  return text + ": waiting for send credits";
}

bool Operation::Implementation::is_in_segments() const noexcept {
  const engine::RegisterMemory& memory = execution.memory;
  const auto lies_in_segment = [&](const std::byte* buffer) {
    return runtime::registered_segment_with(communicator.context, buffer, asked.bytes()) != nullptr;
  };
  const bool target_counts = asked.collective != tune::Collective::reduce;
  return lies_in_segment(memory.source) && (!target_counts || lies_in_segment(memory.target));
}

std::string Operation::Implementation::explanation() const {
  std::string text = "chosen: " + plan.algorithm + ", for ranks of a part of the communicator";
  if (is_chosen) {
    const tune::Topology topology = communicator.topology();
    const tune::Knowledge& knowledge = communicator.tuning->knowledge;
    // First calls may have decided against the prices, which are told all the same.
    const bool is_by_calls = !chosen_by.empty() && !asked.only.empty();
    tune::CollectiveRequest request = asked;
    if (is_by_calls) request.only.clear();
    text = tune::choose(request, topology, knowledge).explanation();
    if (is_by_calls)
      text = "chosen: " + tune::choose(asked, topology, knowledge).name() +
             ", by first calls\n  otherwise " + text;
    const plan::Network network = knowledge.priced().network();
    if (const std::string why = tune::why_copied_from_segments({asked, topology, network});
        is_in_segments() && !why.empty())
      text += "\n  " + why;
  }
  if (!chosen_by.empty()) text += "\n" + chosen_by;
  return text + "\ntable: " + communicator.tuning->table;
}

Operation::Operation(std::unique_ptr<Implementation> made) noexcept
    : implementation_(std::move(made)) {}
Operation::Operation(Operation&&) noexcept = default;
Operation& Operation::operator=(Operation&& other) noexcept {
  Operation taken(std::move(other));
  std::swap(implementation_, taken.implementation_);
  return *this;
}
Operation::~Operation() {
  if (!implementation_) return;
  Communicator::Implementation& communicator = implementation_->communicator;
  if (implementation_->is_inherited())
    runtime::keep_inherited(implementation_.release());
  else
    communicator.retire(std::move(implementation_));
}

Status Operation::start() noexcept {
  return implementation_->start();
}

Status Operation::start(const void* source, void* target) noexcept {
  engine::Execution& execution = implementation_->execution;
  if (implementation_->is_inherited()) return implementation_->start();
  detail::check(!execution.in_flight, "buffers change only while not in flight",
                execution.sequence);
  if (implementation_->plan.zero_copy) implementation_->move_source(source, target);
  detail::check(!implementation_->plan.shares_target || target == execution.memory.target,
                "a target that a node shares is that of the making of its operation",
                reinterpret_cast<std::uintptr_t>(target),
                reinterpret_cast<std::uintptr_t>(execution.memory.target));
  detail::check(!plan::tells_of_source(implementation_->plan) || source == target,
                "the source of a root whose node shares a target is that target",
                reinterpret_cast<std::uintptr_t>(source), reinterpret_cast<std::uintptr_t>(target));
  execution.memory.source = static_cast<const std::byte*>(source);
  execution.memory.target = static_cast<std::byte*>(target);
  return implementation_->start();
}

Status Operation::test() noexcept {
  return implementation_->test();
}

Status Operation::wait(Timeout timeout) noexcept {
  return implementation_->wait(timeout);
}

bool Operation::in_flight() const noexcept {
  return implementation_->execution.in_flight && !implementation_->is_inherited();
}

void Operation::set_label(std::string_view label) noexcept {
  implementation_->record.set_label(label);
  if (implementation_->tracing) implementation_->tracing->set_label(implementation_->record.label);
}

std::string Operation::describe() const {
  return implementation_->describe();
}

std::string Operation::explanation() const {
  return implementation_->explanation();
}

Operation::Coverage Operation::coverage() const noexcept {
  return implementation_->coverage;
}

std::uint64_t Operation::staleness() const noexcept {
  return implementation_->stale() ? implementation_->stale()->staleness() : 0;
}

std::string Operation::algorithm() const {
  return implementation_->plan.algorithm;
}

Notify Operation::notify() const noexcept {
  return implementation_->uses_lines ? Notify::flag : Notify::immediate;
}

std::vector<std::uint32_t> Operation::per_round() const {
  return implementation_->plan.per_round;
}

}  // namespace tutti
