#include "bootstrap/probe.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

namespace tutti::bootstrap {

Probe::Finding Probe::begin(Timeout now) noexcept {
  if (!is_due(now)) return Finding::undecided;
  // The kernel would try for minutes, so silence has a limit of its own.  It also begins with an
  // attempt that fails at once.
  if (!state_.silent_until && may_vanish_) {
    if (!state_.silent_since) state_.silent_since = now;
    state_.silent_until = Deadline::after(patience_.with_port, *state_.silent_since);
    if (state_.silent_until->passed(now)) ask_host(now);
  }
  state_.socket = begin_to_connect(state_.asks_host ? elsewhere_at_host_of(place_) : place_);
  return state_.socket ? Finding::undecided : miss(errno, now);
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
  const bool is_late = state_.silent_until && state_.silent_until->passed(now);
  if (is_late && events == 0 && state_.socket) {
    // The thread may have been stopped after its poll().
    pollfd again = awaited();
    if (::poll(&again, 1, 0) > 0) events = again.revents;
  }
  if (events != 0 && state_.socket) {
    const Finding finding = take(now);
    if (finding != Finding::undecided) return finding;
  }
  if (state_.silent_until && state_.silent_until->passed(now)) return look_at_silence(now);
  return Finding::undecided;
}

Probe::Finding Probe::take(Timeout now) noexcept {
  if (state_.is_connected) return look_at_connection(now);
  const int error = outcome_of_connecting(state_.socket.get());
  if (error != 0 || state_.asks_host) return miss(error, now);
  state_.is_connected = true;
  note_answer();
  return Finding::undecided;
}

/// Nothing has answered for a while.
Probe::Finding Probe::look_at_silence(Timeout now) noexcept {
  if (state_.asks_host) return Finding::host_gone;
  ask_host(now);
  return begin(now);
}

void Probe::suspect(Timeout now) noexcept {
  if (may_vanish_) state_.silent_since = now - patience_.with_port;
}

void Probe::ask_host(Timeout now) noexcept {
  const std::optional<Timeout> since = state_.silent_since;
  state_ = {};
  state_.silent_since = since;
  state_.asks_host = true;
  state_.silent_until = Deadline::after(patience_.with_host, now);
}

void Probe::note_answer() noexcept {
  state_.has_answered = true;
  state_.silent_since.reset();
  state_.silent_until.reset();
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

/// Ends a connection or an attempt to connect.  The rank is gone only if nobody listens at its port
/// any more, or if its host has stopped answering.
Probe::Finding Probe::miss(int error, Timeout now) noexcept {
  error_ = error;
  if (!state_.asks_host && error == ECONNREFUSED) return Finding::gone;
  const bool is_silent = is_silence(error);
  if (state_.is_connected && is_silent && may_vanish_) {
    suspect(now);
    return look_at_silence(now);
  }
  if (!is_silent) {
    note_answer();  // or another failure than silence
    state_.asks_host = false;
  }
  state_.socket = UnsharedDescriptor();
  state_.is_connected = false;
  state_.next_attempt = Deadline::after(state_.next_pause, now);
  state_.next_pause = std::min<Timeout>(2 * state_.next_pause, probe_pause_last);
  return Finding::undecided;
}

}  // namespace tutti::bootstrap
