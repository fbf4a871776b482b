// Communicator::cancel(): the ranks give up the calls that are in flight, all together, in four
// steps of which each begins when every rank has done the one before.
//   1. Each rank stops: it sets its operations in flight aside, so that no step of progress
//      advances them.  Only such steps send, store into memory that is shared and read that of
//      others, so from now on nothing more is sent, and whatever ranks of a node do in each other's
//      memory is over.
//   2. What was sent between nodes arrives.  Each rank sends a marker behind everything that it has
//      sent to a partner, and polls until the markers of all its partners have come.  Messages and
//      credits are counted as ever meanwhile, because a receive that was promised to them is used.
//   3. Each rank sets what it counts, and the words in its own memory, to what they were when the
//      operations were made.
//   4. All ranks know that, and calls may begin.
//
//   rank 0  stops . | ..... marker -> | words, counts | calls
//   rank 1  ... stops | <- marker ... | words, counts | calls
//                     ^ exchange      ^ exchange      ^ exchange
//
// A marker, and not only completions of what was sent: those say that the peer's device has
// accepted it.  The completion of a receive says that everything which came before on its
// connection is in memory, as verbs promise, lines and words that raise no completion, too.
//
// The ranks tell their partners the numbers of their markers, so that a marker of a cancellation
// that has failed is not taken for one of this.  A rank that has destroyed its operation, in good
// order and with its connection closed, tells none: by then it had all that its partner has ever
// sent for it, and the partner had all from it.
//
// Connections, and operations of other communicators over them, are not touched.
#include <sched.h>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "bootstrap/describe.hpp"
#include "runtime/card.hpp"
#include "runtime/communicator.hpp"
#include "runtime/operation.hpp"

namespace tutti {
namespace runtime {
namespace {

/// Keeps progress from a communicator's operations in flight.  Its destructor lets them go on,
/// unless they have been forgotten or the communicator has failed.
class SetAside {
 public:
  /// May throw std::bad_alloc.
  explicit SetAside(Communicator::Implementation& communicator) : communicator_(communicator) {
    std::vector<Operation::Implementation*>& set_aside = communicator.set_aside;
    set_aside.reserve(communicator.live_operations);
    std::erase_if(communicator.context.in_flight, [&](Operation::Implementation* operation) {
      if (&operation->communicator != &communicator) return false;
      set_aside.push_back(operation);
      return true;
    });
  }
  SetAside(const SetAside&) = delete;
  SetAside& operator=(const SetAside&) = delete;
  ~SetAside() {
    for (Operation::Implementation* operation : communicator_.set_aside)
      communicator_.context.in_flight.push_back(operation);  // never allocates, see there
    communicator_.set_aside.clear();
  }

 private:
  Communicator::Implementation& communicator_;
};

/// The clock is read at least once in so many turns, even if something has come in each of them:
/// some microseconds.
constexpr unsigned turns_per_look = 64;

/// A rank of another node to or from which operations of this communicator send messages.
struct Partner {
  Rank rank;
  verbs::Connection& connection;
  bool is_marked = false;      // the marker of this end has been sent
  std::uint64_t marked_at{0};  // SendQueue::posted() then
};

/// What each rank tells the others after each of two steps: when it has stopped its own calls, and
/// when nothing is on its way to it any more.
struct Entry {
  Verdict verdict;
  std::uint32_t other_end = index_of(no_rank);  // of a connection that has failed, if that is why
  std::uint8_t is_silent = 0;                   // 1: because that rank does not answer
  std::uint8_t has_partners = 0;
  std::uint8_t reserved[2] = {};
};
static_assert(std::has_unique_object_representations_v<Entry>);

/// A connection has failed.
struct LostPartner : Error {
  explicit LostPartner(Rank peer)
      : Error(ErrorCode::peer_failed,
              "cancel: the connection to rank " + std::to_string(index_of(peer)) + " has failed"),
        rank(peer) {}
  Rank rank;
};

/// How a step has ended on this rank.
struct Outcome {
  std::optional<Error> error = {};
  Rank other_end = no_rank;
};

template <class F>
void for_each_operation(Communicator::Implementation& communicator, F&& f) {
  for (Operation::Implementation* operation : communicator.operations) f(*operation);
  for (const auto& operation : communicator.retired) f(*operation);
}

template <class T>
std::vector<T> gather_unless_equal(Communicator::Implementation& communicator, SetUpCall& call,
                                   const T& mine) {
  std::vector<T> all(communicator.exchange.rank_count());
  if (communicator.gather_unless_equal(call, std::as_bytes(std::span(&mine, 1)),
                                       std::as_writable_bytes(std::span(all))))
    all.assign(1, mine);
  return all;
}

template <class Step>
Outcome outcome_of(Step&& step) {
  try {
    step();
  } catch (const LostPartner& thrown) {
    return {thrown, thrown.rank};
  } catch (const Error& thrown) {
    return {thrown};
  } catch (const std::exception& thrown) {
    return {Error(ErrorCode::system, thrown.what())};
  }
  return {};
}

std::vector<Partner> partners_of(Communicator::Implementation& communicator) {
  verbs::Connections& connections = communicator.context.fabric.connections();
  std::vector<Partner> partners;
  for_each_operation(communicator, [&](const Operation::Implementation& operation) {
    for (const std::uint32_t index : operation.channel.network.used()) {
      verbs::Connection& connection = connections[index];
      const Rank rank = communicator.rank_of(connection.process);
      const auto is_known = [&](const Partner& partner) { return partner.rank == rank; };
      // A connection whose other end is closed has nothing on its way for these operations.
      if (!connection.pair || connection.left || connection.peer_closed ||
          std::any_of(partners.begin(), partners.end(), is_known))
        continue;
      if (connection.failed) throw LostPartner(rank);
      partners.push_back({.rank = rank, .connection = connection});
    }
  });
  return partners;
}

/// Takes one look at a partner that has told `number`; true: its marker has come, and the marker
/// for it has left.
bool is_quiet(verbs::VerbsFabric& fabric, Partner& partner, std::uint16_t number) {
  verbs::Connection& connection = partner.connection;
  if (!partner.is_marked && fabric.mark(connection, connection.marker_sent) == Status::ok) {
    partner.is_marked = true;
    partner.marked_at = connection.sends.posted();
  }
  if (connection.failed) throw LostPartner(partner.rank);
  return partner.is_marked && connection.marker_heard == number &&
         connection.sends.left() >= partner.marked_at;
}

/// Waits until all that this rank and its partners have sent each other has arrived.
void quieten(Communicator::Implementation& communicator, std::span<Partner> partners,
             std::span<const std::uint16_t> numbers) {
  Context::Implementation& context = communicator.context;
  // The others wait for this rank's verdict meanwhile, and their timeouts must not pass first.
  const Deadline deadline =
      Deadline::after(context.settings.setup_timeout / 2, context.clock.now());
  std::vector<bool> are_quiet(partners.size());
  for (unsigned turn = 1;; ++turn) {
    bool all_are_quiet = true;
    for (std::size_t i = 0; i < partners.size(); ++i) {
      // A partner without a number sends no marker: all its messages have been received before.
      if (!are_quiet[i])
        are_quiet[i] = numbers[i] == 0 || is_quiet(context.fabric, partners[i], numbers[i]);
      all_are_quiet = all_are_quiet && are_quiet[i];
    }
    if (all_are_quiet) return;
    // Messages of other communicators may come without end.
    if (context.progress() > 0 && turn % turns_per_look != 0) continue;
    const Timeout now = context.clock.now();
    communicator.liveness.check(now);
    communicator.require_usable();
    if (deadline.passed(now)) {
      std::vector<Rank> missing;
      for (std::size_t i = 0; i < partners.size(); ++i)
        if (!are_quiet[i]) missing.push_back(partners[i].rank);
      throw Error(ErrorCode::timed_out, "cancel: what " + bootstrap::name_ranks(missing) +
                                            " and this rank have sent each other has not arrived "
                                            "within half of the set-up timeout");
    }
    sched_yield();
  }
}

/// Exchanges the numbers of the next markers with the partners; 0: that partner sends none.
std::vector<std::uint16_t> swap_numbers(Communicator::Implementation& communicator, SetUpCall& call,
                                        std::span<const Partner> partners) {
  std::vector<Rank> ranks;
  std::vector<std::uint16_t> mine, theirs(partners.size());
  for (const Partner& partner : partners) {
    std::uint16_t& last = partner.connection.marker_sent;
    last = static_cast<std::uint16_t>(last % verbs::Immediate::markers_max + 1);
    ranks.push_back(partner.rank);
    mine.push_back(last);
  }
  communicator.swap(call, ranks, sizeof mine[0], std::as_bytes(std::span(mine)),
                    std::as_writable_bytes(std::span(theirs)));
  return theirs;
}

/// Looks at the side channel until the communicator has failed, for as long as that explains a
/// failure.
void await_explanation(Communicator::Implementation& communicator) {
  Context::Implementation& context = communicator.context;
  const Deadline deadline = Deadline::after(2 * Liveness::explanation_time, context.clock.now());
  while (!communicator.failed() && !deadline.passed(context.clock.now())) {
    context.progress();  // in virtual time, only that lets time pass
    communicator.liveness.check(context.clock.now());
    sched_yield();
  }
}

/// If a user's operator has failed, waits until its communicator has failed, which happens when all
/// ranks know the first failure.
void await_failed_operator(Communicator::Implementation& communicator) {
  const std::vector<Operation::Implementation*>& all = communicator.operations;
  if (std::any_of(all.begin(), all.end(), [](const Operation::Implementation* operation) {
        return operation->user_operator.has_failed;
      }))
    await_explanation(communicator);
}

/// The entry of this rank for a step that has ended so.
Entry entry_of(Communicator::Implementation& communicator, const Outcome& outcome,
               bool has_partners) {
  return {.verdict = Verdict::of(outcome.error),
          .other_end = index_of(outcome.other_end),
          .is_silent = outcome.other_end != no_rank &&
                       communicator.liveness.suspects_silence_of(outcome.other_end),
          .has_partners = has_partners};
}

/// Makes the communicator fail, and throws the reason.  If a connection has failed, the side
/// channel first gets a moment to name a peer that has died.
[[noreturn]] void fail(Communicator::Implementation& communicator, const Cause& cause,
                       const Outcome& own, std::span<const Entry> all) {
  if (cause.error.code() == ErrorCode::peer_failed) await_explanation(communicator);
  communicator.require_usable();
  if (!cause.rank) {
    // The failure is that of a call that meets the broken connection.
    if (own.other_end != no_rank) communicator.liveness.condemn(own.other_end);
    communicator.fail(Status::aborted, communicator.exchange.self(), cause.error.what(), nullptr);
    throw Error(cause.error);
  }
  const Entry& theirs = all[index_of(*cause.rank)];
  if (theirs.is_silent != 0)
    communicator.fail(Status::peer_failed, Rank{theirs.other_end}, "does not answer", nullptr);
  else
    communicator.fail(Status::aborted, *cause.rank, theirs.verdict.text, nullptr);
  throw Error(cause.error);
}

/// Waits until nothing is on its way between any ranks.  Throws Error on all ranks, whose
/// communicator has failed then.
void quieten_together(Communicator::Implementation& communicator, SetUpCall& call,
                      std::span<Partner> partners) {
  const std::vector<std::uint16_t> numbers = swap_numbers(communicator, call, partners);
  const Outcome own = outcome_of([&] { quieten(communicator, partners, numbers); });
  communicator.require_usable();  // the others learn of its failure as this rank has
  const std::vector<Entry> entries =
      gather_unless_equal(communicator, call, entry_of(communicator, own, true));
  if (const auto cause = cause_of<Entry>(own.error, entries))
    fail(communicator, *cause, own, entries);
}

/// Communicator::cancel(); may throw std::bad_alloc.
void cancel(Communicator::Implementation& ranks) {
  ranks.require_usable();
  await_failed_operator(ranks);
  ranks.require_usable();
  SetUpCall call{CallKind::cancel, "cancel"};
  std::optional<SetAside> set_aside;
  std::vector<Partner> partners;
  const Outcome own = outcome_of([&] {
    set_aside.emplace(ranks);
    partners = partners_of(ranks);
  });
  // So far nothing is done that could not be undone.
  const std::vector<Entry> entries =
      gather_unless_equal(ranks, call, entry_of(ranks, own, !partners.empty()));
  if (const auto cause = cause_of<Entry>(own.error, entries)) {
    if (cause->error.code() == ErrorCode::peer_failed) fail(ranks, *cause, own, entries);
    throw Error(cause->error);
  }
  const bool is_between_nodes = std::any_of(
      entries.begin(), entries.end(), [](const Entry& entry) { return entry.has_partners != 0; });
  if (is_between_nodes) quieten_together(ranks, call, partners);
  for_each_operation(ranks, [](Operation::Implementation& operation) { operation.forget_calls(); });
  ranks.set_aside.clear();
  std::byte none{};
  ranks.gather(call, {&none, 0}, {&none, 0});
  ranks.reap();  // nobody reads any more what destroyed operations have sent
}

}  // namespace
}  // namespace runtime

void Operation::Implementation::forget_calls() noexcept {
  if (tracing) tracing->forget_calls(execution.in_flight);
  execution.forget_calls();
  for (std::vector<bool>& taken : credits_taken) std::fill(taken.begin(), taken.end(), false);
  channel.network.forget_messages();
  channel.node.forget_messages();
  for (shm::SequenceWord* reader : readers) shm::clear(reader);
  if (staging && staging->ring != nullptr) staging->ring->forget(this, false);
  if (stale()) stale()->forget_calls();
  if (ring()) ring()->forget_calls();
}

void Communicator::cancel() try {
  runtime::cancel(*implementation_);
} catch (const std::bad_alloc&) {
  // The others wait for this rank.
  constexpr const char* what = "cancel() had no memory";
  implementation_->fail_all({Incident::Kind::aborted, rank()}, what, nullptr);
  throw Error(ErrorCode::system, what);
}

}  // namespace tutti
