// Finds out whether the ranks that a communicator waits for are still there, and lets it fail if
// they are not.  There are three sources.
//   the side channel   names ranks that have died, given up or left (Exchange::incident); for ranks
//                      of this host, so does what they find out by themselves (watched_exchange)
//   connections        fail without saying why, a moment before the side channel names a death
//   goodbyes           a rank that has left sends nothing more, which matters to whoever waits for
//   it
// A failed connection is therefore a suspicion first.  It becomes a failure of the communicator if
// the side channel has not explained it in time and an operation in flight needs that peer, or if
// an operation in flight stands still and messages to that peer may be lost: the peer may wait for
// one of a call that has ended here, and all others for the peer.
//
//   suspect()  ->  explanation_time passes, checked every suspicion_interval  ->  condemn()
//                    |  the side channel names an incident: that is the failure
//                    |  the peer has left in good order: it had all it waited for; no failure
//
// The data path pays for it with a counter: the clock is read every few calls, the side channel
// asked ten times within the bound in which a death has to be found (TUTTI_DETECTION_BOUND).
//
// A rank that sleeps asks as often.  It asks at once if it meets a failed connection itself, and,
// for all communicators of its context, if a rank of its node of which a communicator has failed
// wakes it (Communicator::Implementation::fail).  What no rank of its node has met yet, such as a
// death, it learns at most a tenth of the bound after the side channel does.
#pragma once

#include <cstdint>
#include <optional>
#include <tutti/communicator.hpp>
#include <tutti/operation.hpp>
#include <tutti/status.hpp>
#include <tutti/timeout.hpp>
#include <tutti/types.hpp>
#include <vector>

#include "verbs/connection.hpp"

namespace tutti::runtime {

/// Part of a communicator; one thread at a time, as it.
class Liveness {
 public:
  /// How long a failed connection remains a suspicion: the side channel needs milliseconds to name
  /// who has died, more on a machine with more ranks than CPUs.
  static constexpr Timeout explanation_time = std::chrono::milliseconds(250);

  /// `owner` may still be under construction, but for its context and exchange.
  explicit Liveness(Communicator::Implementation& owner);
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  /// A connection to `peer` has failed, or its memory cannot be read.
  void suspect(const verbs::TransportFailure& cause, Rank peer) noexcept;

  /// Whether the connection to `peer` is suspected because its retries had no answer.
  bool suspects_silence_of(Rank peer) const noexcept;
  /// Makes the communicator fail because of the connection to `peer`, if that is suspected.
  void condemn(Rank peer) noexcept;

  /// The user's operator of an operation in flight has failed.  The communicator fails, too, at the
  /// next check, which is due at once.
  void operator_failed(const Operation::Implementation& operation) noexcept;

  /// A rank of this node has met a failure, perhaps of this communicator, and woken this one.  The
  /// side channel, which may be slower than that, is asked at once and often until it explains
  /// this.
  void alarm(Timeout now) noexcept;

  /// Asks the side channel, at most ten times within the bound (more often with a suspicion or
  /// after an alarm), and lets the communicator fail if there is a reason.  `now` is the context's
  /// clock.
  void check(Timeout now) noexcept;
  /// Likewise, but asks at once, however short ago it has asked.
  void look(Timeout now) noexcept;
  /// When check() will ask again; a wait does not sleep for longer.
  Timeout next_check() const noexcept { return next_check_; }
  /// Calls check(), but looks at the clock every few calls only.
  void check_now_and_then() noexcept;

  /// The exchange has failed here.  Some ranks may have got past that step, and would wait for this
  /// one: they are told, unless the reason is an incident that they know.
  void fail_exchange(const Error& error) noexcept;

 private:
  /// A connection has failed, and why is not known yet.
  struct Suspicion {
    verbs::TransportFailure cause;
    Rank peer = no_rank;
    std::optional<Timeout> until;  // an explanation is waited for; set at the first check
    std::uint64_t stands_at = 0;   // of the operations in flight, when it was looked at last

    bool is_of_silence() const noexcept { return cause.completion == IBV_WC_RETRY_EXC_ERR; }
  };

  /// If the side channel knows an incident, makes it the communicator's failure and returns true.
  bool adopt_incident() noexcept;
  void judge(Timeout now) noexcept;
  void judge_operator(Timeout now) noexcept;
  void condemn(const Suspicion& held) noexcept;
  const Suspicion* suspicion_of(Rank peer) const noexcept;
  /// Whether an operation in flight has a message to or from `peer` before it.
  bool needs(Rank peer) const noexcept;
  /// Whether an operation in flight has stood still for some time, and `held` may be the reason.
  bool holds_up(Suspicion& held, Timeout now) const noexcept;
  const Operation::Implementation* operation_that_needs_one_who_left() const noexcept;
  void take_all_that_has_come() noexcept;
  void drain_rings() noexcept;

  Communicator::Implementation& communicator_;
  std::vector<Suspicion> suspicions_;  // room for one of each rank: suspect() never allocates
  const Operation::Implementation* failed_operator_ = nullptr;  // of that operation
  /// How long to wait until the side channel says which failure was first; nothing: it does not
  /// know of that operator yet.
  std::optional<Timeout> operator_until_;
  Timeout next_check_{0};
  Timeout alarm_ends_{0};
  std::uint32_t calls_since_clock_ = 0;
};

}  // namespace tutti::runtime
