#include "runtime/liveness.hpp"

#include <algorithm>

#include "runtime/operation.hpp"

namespace tutti::runtime {
namespace {

/// How often the side channel is asked, which costs a system call or two, within the time in which
/// a death has to be found.  That leaves room for a rank that has to spread it.
constexpr int looks_within_bound = 10;
/// The clock costs a few percent of a collective.
constexpr std::uint32_t calls_per_clock = 8;

constexpr Timeout suspicion_interval = std::chrono::milliseconds(5);

/// More polls than it takes to empty the completion queues of 1024 connections, 16 completions at a
/// time, so all of them are made only if the queues are being filled meanwhile.
constexpr unsigned turns_to_empty_queues = 1u << 16;

constexpr const char* left_too_early = "has left while it was needed";

}  // namespace

Liveness::Liveness(Communicator::Implementation& owner) : communicator_(owner) {
  suspicions_.reserve(owner.exchange.rank_count());
}

void Liveness::suspect(const verbs::TransportFailure& cause, Rank peer) noexcept {
  if (communicator_.failed() || suspicion_of(peer) != nullptr) return;
  if (cause.completion != IBV_WC_SUCCESS && !communicator_.completion_error)
    communicator_.completion_error = cause;
  suspicions_.push_back({.cause = cause, .peer = peer, .until = {}, .stands_at = 0});
  next_check_ = Timeout::zero();
}

const Liveness::Suspicion* Liveness::suspicion_of(Rank peer) const noexcept {
  const auto found = std::find_if(suspicions_.begin(), suspicions_.end(),
                                  [&](const Suspicion& held) { return held.peer == peer; });
  return found == suspicions_.end() ? nullptr : &*found;
}

bool Liveness::suspects_silence_of(Rank peer) const noexcept {
  const Suspicion* const held = suspicion_of(peer);
  return held != nullptr && held->is_of_silence();
}

void Liveness::condemn(Rank peer) noexcept {
  if (const Suspicion* const held = suspicion_of(peer)) condemn(*held);
}

void Liveness::operator_failed(const Operation::Implementation& operation) noexcept {
  failed_operator_ = &operation;
  next_check_ = Timeout::zero();
}

void Liveness::alarm(Timeout now) noexcept {
  alarm_ends_ = now + explanation_time;
  next_check_ = Timeout::zero();
}

void Liveness::check(Timeout now) noexcept {
  communicator_.context.report_if_asked();
  communicator_.context.trace_untimed_calls();
  if (communicator_.failed() || now < next_check_) return;
  const bool is_calm = suspicions_.empty() && now >= alarm_ends_;
  const Timeout calm_interval = communicator_.context.settings.detection_bound / looks_within_bound;
  next_check_ = now + (is_calm ? calm_interval : std::min(calm_interval, suspicion_interval));
  if (adopt_incident()) return;
  if (failed_operator_ != nullptr) return judge_operator(now);
  judge(now);
  if (communicator_.failed()) return;
  drain_rings();
  if (communicator_.failed() || operation_that_needs_one_who_left() == nullptr) return;
  take_all_that_has_come();
  const Operation::Implementation* stuck = operation_that_needs_one_who_left();
  if (stuck == nullptr || communicator_.failed()) return;
  // A rank that left because of a failure had announced it before, perhaps since the look above.
  if (adopt_incident()) return;
  communicator_.fail_all({Incident::Kind::left, stuck->one_who_left()}, left_too_early, stuck);
}

/// Polls until the queues are empty.  A rank announces that it leaves only when all its sends have
/// completed, so after that nothing more will arrive from ranks that had left before.
void Liveness::take_all_that_has_come() noexcept {
  for (unsigned turn = 0; turn < turns_to_empty_queues && communicator_.context.progress() > 0;
       ++turn) {
  }
}

/// For each shared ring in which all ranks that send to this one have left, tells the other ranks
/// of the node that no further chunk will arrive here.  They may wait for one, also in a call that
/// this rank has not started.
void Liveness::drain_rings() noexcept {
  bool any = false;
  for (Operation::Implementation* operation : communicator_.operations)
    if (operation->ring() && operation->ring()->begins_to_drain()) any = true;
  if (!any) return;
  take_all_that_has_come();
  for (Operation::Implementation* operation : communicator_.operations)
    if (operation->ring()) operation->ring()->tell_drained();
}

void Liveness::look(Timeout now) noexcept {
  next_check_ = Timeout::zero();
  check(now);
}

void Liveness::check_now_and_then() noexcept {
  communicator_.context.report_if_asked();
  if (++calls_since_clock_ < calls_per_clock) return;
  calls_since_clock_ = 0;
  check(communicator_.context.clock.now());
}

void Liveness::fail_exchange(const Error& error) noexcept {
  if (adopt_incident()) return;
  // The incident names the rank that is missing, not the one that noticed it first.
  Exchange& exchange = communicator_.exchange;
  for (std::uint32_t rank = 0; rank < exchange.rank_count(); ++rank) {
    if (error.code() != ErrorCode::peer_failed || !exchange.has_left(Rank{rank})) continue;
    if (adopt_incident()) return;  // as in check()
    communicator_.fail_all({Incident::Kind::left, Rank{rank}}, left_too_early, nullptr);
    return;
  }
  communicator_.fail_all({Incident::Kind::aborted, exchange.self()}, error.what(), nullptr);
}

bool Liveness::adopt_incident() noexcept {
  const Incident incident = communicator_.exchange.incident();
  switch (incident.kind) {
    case Incident::Kind::none:
      return false;
    case Incident::Kind::died:
      communicator_.fail(Status::peer_failed, incident.rank, "has died", nullptr);
      return true;
    case Incident::Kind::aborted:
      communicator_.fail(Status::aborted, incident.rank, communicator_.reason_of_incident().data(),
                         nullptr);
      return true;
    case Incident::Kind::left:
      communicator_.fail(Status::peer_failed, incident.rank, left_too_early, nullptr);
      return true;
    case Incident::Kind::silent:
      communicator_.fail(Status::peer_failed, incident.rank, "does not answer", nullptr);
      return true;
  }
  return false;
}

void Liveness::judge_operator(Timeout now) noexcept {
  // If several ranks combine the same operands, the operator fails on each of them.  All have to
  // name the first failure, so this rank waits until the side channel has named it.
  if (!operator_until_) {
    operator_until_ = now + explanation_time;
    communicator_.announce_failed_operator(*failed_operator_);
    if (adopt_incident()) return;
  }
  next_check_ = std::min(next_check_, now + suspicion_interval);
  if (now >= *operator_until_)
    communicator_.fail_all({Incident::Kind::aborted, communicator_.exchange.self()},
                           failed_operator_->user_operator.text.data(), failed_operator_);
}

void Liveness::judge(Timeout now) noexcept {
  std::erase_if(suspicions_,
                [&](const Suspicion& held) { return communicator_.exchange.has_left(held.peer); });
  for (Suspicion& held : suspicions_) {
    if (!held.until) held.until = now + explanation_time;
    if (now < *held.until || (!needs(held.peer) && !holds_up(held, now))) continue;
    condemn(held);
    return;
  }
}

void Liveness::condemn(const Suspicion& held) noexcept {
  const bool silent = held.is_of_silence();
  if (silent)
    communicator_.exchange.announce({Incident::Kind::silent, held.peer});
  else
    communicator_.exchange.announce({Incident::Kind::aborted, communicator_.exchange.self()});
  communicator_.fail_by(held.cause, silent ? Status::peer_failed : Status::transport_failed,
                        held.peer);
}

bool Liveness::needs(Rank peer) const noexcept {
  const auto& in_flight = communicator_.context.in_flight;
  return std::any_of(in_flight.begin(), in_flight.end(), [&](const auto* operation) {
    if (&operation->communicator != &communicator_) return false;
    const auto steps = operation->execution.steps.subspan(operation->execution.next);
    return std::any_of(steps.begin(), steps.end(),
                       [&](const plan::Step& step) { return step.peer == peer; });
  });
}

bool Liveness::holds_up(Suspicion& held, Timeout now) const noexcept {
  // A peer that had taken leave had all that it waited for.
  if (held.cause.peer_had_left) return false;
  const auto sends_to_peer = [&](const auto& operation) {
    return operation->execution.sequence > 0 &&
           std::any_of(operation->plan.steps.begin(), operation->plan.steps.end(),
                       [&](const plan::Step& step) {
                         return step.action == plan::Action::put && step.peer == held.peer;
                       });
  };
  const auto& live = communicator_.operations;
  const auto& retired = communicator_.retired;
  if (std::none_of(live.begin(), live.end(), sends_to_peer) &&
      std::none_of(retired.begin(), retired.end(), sends_to_peer))
    return false;
  bool has_one_in_flight = false;
  std::uint64_t stands_at = 0;
  for (const Operation::Implementation* operation : communicator_.context.in_flight) {
    if (&operation->communicator != &communicator_) continue;
    has_one_in_flight = true;
    stands_at += operation->position();
  }
  if (has_one_in_flight && stands_at == held.stands_at) return true;
  held.stands_at = stands_at;
  held.until = now + explanation_time;
  return false;
}

const Operation::Implementation* Liveness::operation_that_needs_one_who_left() const noexcept {
  for (const Operation::Implementation* operation : communicator_.context.in_flight) {
    if (&operation->communicator == &communicator_ && operation->one_who_left() != no_rank)
      return operation;
  }
  return nullptr;
}

}  // namespace tutti::runtime
