// Finds out whether a rank that has not come to a meeting (reunion.hpp) is still there, by
// connecting to its port.  The rank need not accept that connection: its kernel does as long as the
// process has the port, also while the process is stopped.
//
//   the port refuses                      nobody has it any more: gone
//   somebody says something               no rank does before it is asked, so it is another
//                                         program's port now: gone
//   connected, no word                    still there
//   the connection ends                   as it does when a rank empties the queue of its port: the
//                                         probe connects again after a pause
//   it ends because nothing answers       as where nothing answers, because a full queue may lose
//                                         the end of a connection's set-up
//   nothing answers, on the same host     a full queue: still there
//   nothing answers, on another host      a full queue, or the host has vanished: the probe asks
//                                         another port there; the host is gone if nothing answers
//                                         there either
//
// An error of the network (such as "no route to host") does not count as an answer.
//
// One thread at a time.  Nothing here blocks; the caller passes the current time.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "bootstrap/socket.hpp"
#include "bootstrap/unshared_descriptor.hpp"
#include "tutti/timeout.hpp"

namespace tutti::bootstrap {

/// How long to wait before connecting again.  Each pause is twice the one before, up to the last.
inline constexpr std::chrono::milliseconds probe_pause_first{5};
inline constexpr std::chrono::milliseconds probe_pause_last{200};

class Probe {
 public:
  enum class [[nodiscard]] Finding : std::uint8_t{
      undecided, gone,
      host_gone,  // and so are all ranks of its host
  };

  /// The rank that is looked for listens at `place`, and this one at `own_place`.  `silent_since`
  /// is what an earlier probe has found.
  Probe(const Address& place, const Address& own_place, const Patience& patience = {},
        std::optional<Timeout> silent_since = {}) noexcept
      : place_(place), patience_(patience), may_vanish_(!are_of_one_host(place, own_place)) {
    if (may_vanish_) state_.silent_since = silent_since;
  }

  /// Connects if it is time to.
  Finding begin(Timeout now) noexcept;
  /// What to wait for by poll(), and for how long at most; then look() says what it means.
  pollfd awaited() const noexcept;
  Timeout sleep_max(Timeout now) const noexcept;
  /// Takes the events that poll() has returned; 0: none.  An answer that has arrived counts even if
  /// the time is up by now, as when the thread was stopped and looks late.
  Finding look(short events, Timeout now) noexcept;

  /// is_open(): it has a connection, or is making one.  is_connected(): to the rank's port, and
  /// complete.
  bool is_open() const noexcept { return static_cast<bool>(state_.socket); }
  bool is_connected() const noexcept { return state_.is_connected; }
  /// Whether begin() would connect.
  bool is_due(Timeout now) const noexcept {
    return !state_.socket && (!state_.next_attempt || state_.next_attempt->passed(now));
  }
  /// Why the last attempt or connection has ended (errno); 0: its other end has closed it.
  int error() const noexcept { return error_; }

  /// Since when nothing has answered; none on the same host.
  std::optional<Timeout> silent_since() const noexcept { return state_.silent_since; }
  /// Whether the port or the host has answered since the last reset().  An attempt to connect that
  /// failed for another reason than silence counts as an answer.
  bool has_answered() const noexcept { return state_.has_answered; }

  /// A connection with that rank has ended in silence, of which TCP needs longer than
  /// Patience::with_port.  The next begin() asks its host.
  void suspect(Timeout now) noexcept;

  /// Ends the connection and forgets what it has told.  The next begin() connects.
  void reset() noexcept { state_ = {}; }

 private:
  struct State {
    UnsharedDescriptor socket;
    bool is_connected = false;
    bool asks_host = false;  // tries another port, to learn whether the host answers at all
    bool has_answered = false;
    std::optional<Deadline> next_attempt;    // without a socket; none: at once
    Timeout next_pause = probe_pause_first;  // after that attempt
    std::optional<Timeout> silent_since;     // nothing has answered
    /// While nothing answers: when to ask the host or, if it is being asked, to give it up.
    std::optional<Deadline> silent_until;
  };

  void note_answer() noexcept;
  void ask_host(Timeout now) noexcept;
  Finding take(Timeout now) noexcept;
  Finding look_at_silence(Timeout now) noexcept;
  Finding look_at_connection(Timeout now) noexcept;
  Finding miss(int error, Timeout now) noexcept;

  Address place_;
  Patience patience_;
  bool may_vanish_;
  int error_ = 0;
  State state_;
};

}  // namespace tutti::bootstrap
