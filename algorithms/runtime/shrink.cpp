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

/// Ranks as this communicator counts them; without those that it does not have.
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

/// Lets go of the connections on which nothing should come or go any more; the set-up of the next
/// operation makes others.  These are those to ranks that are gone, and those that have failed; and
/// if this communicator has failed, and no other one here uses them, those to all of its ranks:
/// what was on its way then, and how that ends, cannot concern the next communicator.
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
  // What is known of them concerns the communicators that there are, not the one that follows.
  if (context.fabric.connections().has_news()) context.hear_failures_slow();
}

/// Whether the connections of this context are now as if nothing had failed.
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
