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

/// Whether another communicator that has not failed may use connections to that process.
bool is_needed_by_another(const Communicator::Implementation& whole, std::uint64_t process) {
  const auto& communicators = whole.context.communicators;
  return std::any_of(communicators.begin(), communicators.end(),
                     [&](const Communicator::Implementation* one) {
                       return one != &whole && !one->failed() && one->rank_of(process) != no_rank;
                     });
}

/// Lets go of connections, so that the next set-up makes others: (a) those that have failed;
/// (b) those to ranks that are gone, but for ranks of another communicator of this context that has
/// not failed: they may live, and have destroyed this one only; (c) if every communicator of this
/// context has failed, those to all ranks of this one, whatever is still on its way.
void forget_connections(Communicator::Implementation& whole, std::span<const Rank> survivors) {
  Context::Implementation& context = whole.context;
  const bool begins_anew =
      whole.failed() &&
      std::none_of(context.communicators.begin(), context.communicators.end(),
                   [](const Communicator::Implementation* one) { return !one->failed(); });
  std::vector<std::uint64_t> ended;
  for (std::size_t rank = 0; rank < whole.original.size(); ++rank)
    if (begins_anew ||
        (std::find(survivors.begin(), survivors.end(), whole.original[rank]) == survivors.end() &&
         !is_needed_by_another(whole, whole.process_of[rank])))
      ended.push_back(whole.process_of[rank]);
  context.fabric.forget(ended);
  // Failures of these connections are reported to the communicators that exist, not to the next.
  if (context.fabric.connections().has_news()) context.hear_failures_slow();
}

}  // namespace

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
    forget_connections(whole, met.present);
    const std::string names = names_here(whole, met.present);
    try {
      auto made = std::make_unique<Communicator::Implementation>(
          whole, std::move(met.exchange), std::move(met.present), deadline.remaining(now()));
      whole.context.fabric.connections().note_failure(made->process_of, false);
      return made;
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
