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

/// Translates ranks of the first communicator to those of `whole`; leaves out those not in it.
std::vector<Rank> ranks_here(const Communicator::Implementation& whole,
                             std::span<const Rank> original) {
  std::vector<Rank> here;
  for (const Rank rank : original) {
    const auto found = std::find(whole.original.begin(), whole.original.end(), rank);
    if (found != whole.original.end())
      here.push_back(Rank{static_cast<std::uint32_t>(found - whole.original.begin())});
  }
  return here;
}

/// Gives up the connections that the next communicator must not use; the set-up of its operations
/// makes others.  They are those that have failed and those to ranks that are gone.  If all
/// communicators of this context have failed, they are those to all ranks: messages that are still
/// on their way cannot reach the next communicator then.
void forget_connections(Communicator::Implementation& whole, std::span<const Rank> survivors) {
  Context::Implementation& context = whole.context;
  const bool begins_anew =
      whole.failed() &&
      std::none_of(context.communicators.begin(), context.communicators.end(),
                   [](const Communicator::Implementation* one) { return !one->failed(); });
  std::vector<std::uint64_t> ended;
  for (std::size_t rank = 0; rank < whole.original.size(); ++rank)
    if (begins_anew ||
        std::find(survivors.begin(), survivors.end(), whole.original[rank]) == survivors.end())
      ended.push_back(whole.process_of[rank]);
  context.fabric.forget(ended);
  // Failures of these connections are reported to the communicators that exist, not to the next.
  if (context.fabric.connections().has_news()) context.hear_failures_slow();
}

/// Whether all communicators of this context that have failed are ones that `made` replaces.
bool is_sound(const Context::Implementation& context, const Communicator::Implementation& made) {
  return std::all_of(context.communicators.begin(), context.communicators.end(),
                     [&](const Communicator::Implementation* one) {
                       return !one->failed() || one->meeting_place == made.meeting_place;
                     });
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
    bootstrap::MeetingPlace::Met met =
        whole.meeting_place->meet(deadline, whole.context.settings.setup_timeout);
    if (!met.exchange)
      throw Error(
          ErrorCode::timed_out,
          "shrink: " + bootstrap::name_ranks(ranks_here(whole, met.ranks)) +
              " did not come within " + bootstrap::name_timeout(timeout) +
              "; every rank that is still there has to call it, and may be stopped, slow or "
              "elsewhere in its program" +
              last_attempt);
    forget_connections(whole, met.ranks);
    const std::vector<Rank> here = ranks_here(whole, met.ranks);
    try {
      auto made = std::make_unique<Communicator::Implementation>(
          whole, std::move(met.exchange), std::move(met.ranks), deadline.remaining(now()));
      if (is_sound(whole.context, *made)) whole.context.has_failed = false;
      return made;
    } catch (const Error& error) {
      // One that has met the others has died, or become slow, since.
      if (error.code() != ErrorCode::peer_failed && error.code() != ErrorCode::timed_out) throw;
      last_attempt = "; before, " + bootstrap::name_ranks(here) +
                     " had met, and among them, counted anew, " + error.what();
      if (deadline.passed(now()))
        throw Error(ErrorCode::timed_out, "shrink: time is up" + last_attempt);
    }
  }
}

}  // namespace tutti::runtime
