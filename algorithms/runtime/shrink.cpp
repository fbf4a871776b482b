#include "runtime/shrink.hpp"

#include <algorithm>
#include <string>
#include <tutti/detail/clock.hpp>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

#include "bootstrap/describe.hpp"
#include "bootstrap/reunion.hpp"
#include "runtime/communicator.hpp"

namespace tutti::runtime {
namespace {

/// Names ranks of the first communicator by their numbers in `whole`; those that are not in it
/// have none there, and keep theirs.
std::string names_here(const Communicator::Implementation& whole, std::span<const Rank> original) {
  std::vector<Rank> here, elsewhere;
  for (const Rank rank : original) {
    const auto found = std::find(whole.original.begin(), whole.original.end(), rank);
    if (found != whole.original.end())
      here.push_back(Rank{static_cast<std::uint32_t>(found - whole.original.begin())});
    else
      elsewhere.push_back(rank);
  }
  const std::string of_first = " of the communicator before any was shrunk";
  if (elsewhere.empty()) return bootstrap::name_ranks(here);
  if (here.empty()) return bootstrap::name_ranks(elsewhere) + of_first;
  return bootstrap::name_ranks(here) + " and," + of_first + ", " + bootstrap::name_ranks(elsewhere);
}

/// The ranks of the first communicator whose processes are known to have ended, because they ran on
/// this host.
std::vector<Rank> ended_ranks(const Communicator::Implementation& whole) {
  std::vector<Rank> ended;
  // A part of a communicator does not watch its ranks itself.
  for (const Communicator::Implementation* one : whole.context.communicators) {
    if (!one->watched) continue;
    for (std::uint32_t rank = 0; rank < one->process_of.size(); ++rank) {
      const Rank here = whole.rank_of(one->process_of[rank]);
      if (here != no_rank && one->watched->has_ended(Rank{rank}))
        ended.push_back(whole.original[index_of(here)]);
    }
  }
  return ended;
}

/// The processes that are known here to have died, or ended.
std::vector<std::uint64_t> ended_processes(Context::Implementation& context) {
  std::vector<std::uint64_t> ended;
  for (Communicator::Implementation* one : context.communicators) {
    const Incident known = one->exchange.incident();
    if (known.kind == Incident::Kind::died && known.rank != no_rank)
      ended.push_back(one->process_of[index_of(known.rank)]);
    if (!one->watched) continue;
    for (std::uint32_t rank = 0; rank < one->process_of.size(); ++rank)
      if (one->watched->has_ended(Rank{rank})) ended.push_back(one->process_of[rank]);
  }
  return ended;
}

bool has(std::span<const std::uint64_t> processes, std::uint64_t process) {
  return std::find(processes.begin(), processes.end(), process) != processes.end();
}

/// The communicators of this context that may go on, without the one that is being made.  A
/// communicator that has not failed, but one of whose ranks is gone without having left, will fail.
///
/// A rank of `whole` that is not in the new communicator may still take part in others, if it has
/// destroyed `whole`.  So another communicator counts that rank as gone only if its process is
/// known to have ended, or if the exchange of that communicator says so, which makes that
/// communicator fail (look()).  Where neither is known, as between hosts without a side channel, a
/// communicator that will fail later keeps its connections.  Until then these carry messages of
/// both communicators, each to its own operations.
std::vector<const Communicator::Implementation*> those_that_may_go_on(
    Communicator::Implementation& whole, const Communicator::Implementation& made) {
  const std::vector<std::uint64_t> ended = ended_processes(whole.context);
  const auto lacks = [&](Communicator::Implementation& one, std::uint32_t rank) {
    const std::uint64_t process = one.process_of[rank];
    const bool is_missing = &one == &whole && made.rank_of(process) == no_rank;
    return (is_missing || has(ended, process)) && !one.exchange.has_left(Rank{rank});
  };
  std::vector<const Communicator::Implementation*> found;
  for (Communicator::Implementation* one : whole.context.communicators) {
    bool may_go_on = one != &made && !one->failed();
    for (std::uint32_t rank = 0; may_go_on && rank < one->process_of.size(); ++rank)
      may_go_on = !lacks(*one, rank);
    if (may_go_on) found.push_back(one);
  }
  return found;
}

}  // namespace

void agree_on_connections(Communicator::Implementation& whole, Communicator::Implementation& made,
                          SetUpCall& call) {
  Context::Implementation& context = whole.context;
  verbs::Connections& connections = context.fabric.connections();
  context.fabric.empty_queues();  // so that all failures so far are known
  const auto those = those_that_may_go_on(whole, made);
  const auto is_needed = [&](std::uint64_t process) {
    return std::any_of(those.begin(), those.end(), [&](const Communicator::Implementation* one) {
      return one->rank_of(process) != no_rank;
    });
  };
  std::vector<Rank> partners;
  std::vector<std::uint8_t> mine;  // by partner, 1: this end would keep the connection
  for (std::uint32_t rank = 0; rank < made.process_of.size(); ++rank) {
    const std::uint64_t process = made.process_of[rank];
    if (Rank{rank} == made.exchange.self() || !connections.has(process)) continue;
    partners.push_back(Rank{rank});
    mine.push_back(connections.can_go_on(process) && is_needed(process) ? 1 : 0);
  }
  std::vector<std::uint8_t> theirs(partners.size());  // 0 also if that end has no connection
  made.swap(call, partners, sizeof mine[0], std::as_bytes(std::span(mine)),
            std::as_writable_bytes(std::span(theirs)));
  std::vector<std::uint64_t> let_go;
  for (const std::uint64_t process : whole.process_of)
    if (made.rank_of(process) == no_rank && !is_needed(process)) let_go.push_back(process);
  for (std::size_t i = 0; i < partners.size(); ++i)
    if (mine[i] == 0 || theirs[i] == 0) let_go.push_back(made.process_of[index_of(partners[i])]);
  context.fabric.forget(let_go);
  connections.note_failure(made.process_of, false);
  for (Communicator::Implementation* one : context.communicators)
    if (one != &made) one->connections_end = std::min(one->connections_end, connections.made());
  if (connections.has_news()) context.hear_failures_slow();
}

std::unique_ptr<Communicator::Implementation> shrink(Communicator::Implementation& whole,
                                                     Timeout timeout) {
  whole.require_own();
  if (!whole.meeting_place)
    throw Error(ErrorCode::invalid_argument,
                "shrink: this communicator cannot be shrunk; set TUTTI_SHRINKABLE=1 (or shrinkable "
                "in code) on all ranks before it is made");
  const auto now = [] { return detail::MonotonicClock::read(); };
  const Deadline deadline = Deadline::after(timeout, now());
  std::string last_attempt;
  for (;;) {
    bootstrap::MeetingPlace::Met met = whole.meeting_place->meet(
        deadline, whole.context.settings.setup_timeout, ended_ranks(whole));
    if (!met.exchange)
      throw Error(
          ErrorCode::timed_out,
          "shrink: " + names_here(whole, met.missing) + " did not come within " +
              bootstrap::name_timeout(timeout) +
              "; every rank that is still there has to call it, and may be stopped, slow or "
              "elsewhere in its program" +
              (met.remark.empty() ? "" : "; " + met.remark) + last_attempt);
    const std::string names = names_here(whole, met.present);
    // Failures of these communicators are looked for before the next one exists, which they do not
    // concern.
    for (Communicator::Implementation* one : whole.context.communicators)
      one->liveness.look(whole.context.clock.now());
    try {
      return std::make_unique<Communicator::Implementation>(
          whole, std::move(met.exchange), std::move(met.present), deadline.remaining(now()));
    } catch (const Error& error) {
      // One that has met the others has died, or become slow, since.
      if (error.code() != ErrorCode::peer_failed && error.code() != ErrorCode::timed_out) throw;
      last_attempt =
          "; before, " + names + " had met, and among them, counted anew, " + error.what();
      if (deadline.passed(now()))
        throw Error(ErrorCode::timed_out, "shrink: time is up" + last_attempt);
    }
  }
}

}  // namespace tutti::runtime
