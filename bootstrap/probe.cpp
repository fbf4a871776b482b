#include "bootstrap/probe.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

namespace tutti::bootstrap {

Probe::Finding Probe::begin(Timeout now) noexcept {
  if (state_.socket || (state_.next_attempt && !state_.next_attempt->passed(now)))
    return Finding::undecided;
  state_.socket = begin_to_connect(place_);
  if (!state_.socket) return miss(errno, now);
  // The kernel would try for minutes.
  if (!state_.silent_until && may_vanish_)
    state_.silent_until = Deadline::after(vanished_after - host_answers_within, now);
  return Finding::undecided;
}

pollfd Probe::awaited() const noexcept {
  return {state_.socket.get(), static_cast<short>(state_.is_connected ? POLLIN : POLLIN | POLLOUT),
          0};
}

Timeout Probe::sleep_max(Timeout now) const noexcept {
  Timeout sleep = wait_forever;
  if (state_.silent_until) sleep = state_.silent_until->remaining(now);
  if (state_.socket) return sleep;
  return state_.next_attempt ? std::min(sleep, state_.next_attempt->remaining(now))
                             : Timeout::zero();
}

Probe::Finding Probe::look(short events, Timeout now) noexcept {
  if (state_.silent_until && state_.silent_until->passed(now)) return look_at_silence(now);
  if (events == 0 || !state_.socket) return Finding::undecided;
  if (state_.is_connected) return look_at_connection(now);
  const int error = outcome_of_connecting(state_.socket.get());
  if (error != 0 || state_.asks_host) return miss(error, now);
  state_.is_connected = true;
  state_.silent_until.reset();
  return Finding::undecided;
}

/// Nothing has answered for a while.
Probe::Finding Probe::look_at_silence(Timeout now) noexcept {
  if (state_.asks_host) return Finding::gone;
  state_.asks_host = true;
  state_.silent_until = Deadline::after(host_answers_within, now);
  state_.socket = begin_to_connect(elsewhere_at_host_of(place_));
  return state_.socket ? Finding::undecided : miss(errno, now);
}

Probe::Finding Probe::look_at_connection(Timeout now) noexcept {
  int error = 0;
  socklen_t error_bytes = sizeof error;
  (void)::getsockopt(state_.socket.get(), SOL_SOCKET, SO_ERROR, &error, &error_bytes);
  if (error != 0) return miss(error, now);
  std::array<std::byte, 64> ignored{};
  std::size_t bytes = 0;
  switch (receive_some(state_.socket.get(), ignored, bytes)) {
    case Reception::some:
      return Finding::gone;
    case Reception::nothing_yet:
      return Finding::undecided;
    case Reception::end:
      break;
  }
  return miss(0, now);
}

/// Ends a connection.  The rank is gone only if nobody listens at its port any more, or if its host
/// has stopped answering.
Probe::Finding Probe::miss(int error, Timeout now) noexcept {
  const bool has_vanished = state_.asks_host
                                ? error != 0 && error != ECONNREFUSED && !is_own_shortage(error)
                                : state_.is_connected && error == ETIMEDOUT && may_vanish_;
  const bool is_refused = !state_.asks_host && error == ECONNREFUSED;
  if (is_refused || has_vanished) return Finding::gone;
  if (state_.asks_host) state_.silent_until.reset();  // the host has answered
  state_.socket = UnsharedDescriptor();
  state_.is_connected = false;
  state_.asks_host = false;
  state_.next_attempt = Deadline::after(state_.next_pause, now);
  state_.next_pause = std::min<Timeout>(2 * state_.next_pause, probe_pause_last);
  return Finding::undecided;
}

}  // namespace tutti::bootstrap
