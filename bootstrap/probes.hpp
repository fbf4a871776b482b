// The probes of a hub: find out which of the ranks that have not come to a meeting (reunion.hpp)
// are still there, without using up the descriptors that arriving ranks need.
//
//   at any time                   at most 64 connections, and 4 unanswered ones to each host
//   more ranks are late           their probes take turns of a quarter of a second
//   descriptors are short         the probes close their connections, and pause for a moment
//   a host has vanished           all of its ranks are gone, also those that were not probed
//
// One thread at a time.  Nothing here blocks; the caller passes the current time.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/probe.hpp"
#include "bootstrap/socket.hpp"
#include "tutti/timeout.hpp"

namespace tutti::bootstrap {

inline constexpr std::size_t probes_open_max = 64;
inline constexpr std::size_t probes_unanswered_max = 4;  // of one host
inline constexpr std::chrono::milliseconds probe_turn{250};
/// How long no probe connects after descriptors were short.
inline constexpr std::chrono::milliseconds probes_pause{100};

class Probes {
 public:
  Probes() = default;
  /// `own` is the rank that looks for others.  Nobody is looked for yet.
  /// `silent_since`: by rank, or empty, what earlier probes have found (silent_since()).
  Probes(std::span<const Address> places, std::uint32_t own, const Patience& patience = {},
         std::span<const std::optional<Timeout>> silent_since = {});

  /// Without places, or after clear().
  bool empty() const noexcept { return ranks_.empty(); }
  void clear() noexcept { ranks_.clear(); }

  /// Starts to look for a rank, or stops, which forgets what is known of the rank.
  void look_for(std::uint32_t rank, bool wanted) noexcept;
  /// Ends a connection and forgets what it has told.
  void forget(std::uint32_t rank) noexcept { ranks_[rank].probe.reset(); }
  /// The rank was here, and its connection has ended in silence.
  void suspect(std::uint32_t rank, Timeout now) noexcept { ranks_[rank].probe.suspect(now); }

  /// Connects where it is time to.  Returns ranks that are gone, which are looked for no longer.
  std::vector<std::uint32_t> begin(Timeout now);
  /// await() appends what to wait for by poll(), for at most sleep_max().  Then look() takes what
  /// await() has appended, and returns ranks that are gone.
  void await(std::vector<pollfd>& polled);
  Timeout sleep_max(Timeout now) const noexcept;
  std::vector<std::uint32_t> look(std::span<const pollfd> polled, Timeout now);

  /// Whether that rank's port or host has answered since the rank has been looked for.
  bool has_answered(std::uint32_t rank) const noexcept { return ranks_[rank].probe.has_answered(); }

  /// By rank: since when nothing has answered, of those that are looked for; and whether its host
  /// was found to have vanished.
  std::vector<std::optional<Timeout>> silent_since() const;
  std::vector<bool> vanished() const;

  /// Closes up to `count` connections, and makes none for probes_pause.  Returns how many it has
  /// closed.
  std::size_t give_back(std::size_t count, Timeout now) noexcept;
  /// The errno value of the last attempt if this process or host lacked something for it
  /// (is_own_shortage()); else 0.
  int shortage() const noexcept { return shortage_; }

 private:
  struct Probed {
    Probe probe;
    std::uint32_t host;  // named by its lowest rank
    bool is_wanted = false;
    bool has_vanished = false;  // with its host
    Deadline turn_ends;         // while it is connected
  };

  void end_turns(Timeout now) noexcept;
  void leave_out(std::uint32_t rank, Probe::Finding finding, std::vector<std::uint32_t>& gone);

  std::vector<Probed> ranks_;
  std::uint32_t next_ = 0;               // whose turn it is
  std::size_t waiting_ = 0;              // how many ranks wait for a turn
  std::vector<std::size_t> unanswered_;  // by host; in begin() only
  std::vector<std::uint32_t> polled_;    // the ranks that await() has appended
  std::optional<Deadline> paused_until_;
  int shortage_ = 0;
};

}  // namespace tutti::bootstrap
