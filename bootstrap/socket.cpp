#include "bootstrap/socket.hpp"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>

#include "tutti/detail/clock.hpp"
#include "tutti/detail/number_in.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

namespace {

// The addresses of a name are tried in turn, so one that swallows packets must not use up the
// deadline.
constexpr Timeout connect_timeout = host_answers_within;

constexpr int open_flags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

void set_option(int socket, int level, int name, int value) noexcept {
  // A kernel without one of these options still works, only slower or with later news.
  (void)::setsockopt(socket, level, name, &value, sizeof value);
}

const sockaddr* raw(const Address& address) noexcept {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

UnsharedDescriptor open_socket(const Address& address) noexcept {
  return UnsharedDescriptor::made_by(
      [&] { return ::socket(address.storage.ss_family, open_flags, 0); });
}

/// A connection to a free port of this host can meet itself: TCP opens simultaneously if the port
/// chosen for this end is the one that was asked for.
bool connected_to_itself(int socket) noexcept {
  Address local;
  Address remote;
  local.bytes = remote.bytes = sizeof local.storage;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&local.storage), &local.bytes) == 0 &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&remote.storage), &remote.bytes) == 0 &&
         local.bytes == remote.bytes &&
         std::memcmp(&local.storage, &remote.storage, local.bytes) == 0;
}

/// 0 or an errno value.
int finish_connecting(int socket, Deadline deadline) noexcept {
  for (;;) {
    pollfd waiting{socket, POLLOUT, 0};
    const Timeout left = deadline.remaining(detail::MonotonicClock::read());
    const int ready = ::poll(&waiting, 1, poll_milliseconds(left));
    if (ready > 0) return outcome_of_connecting(socket);
    // poll() may return before the deadline: after a signal, or because its longest timeout is
    // shorter.
    if (ready < 0 && errno != EINTR) return errno;
    if (deadline.passed(detail::MonotonicClock::read())) return ETIMEDOUT;
  }
}

}  // namespace

int outcome_of_connecting(int socket) noexcept {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  if (error == 0 && connected_to_itself(socket)) {
    // Closed without lingering: otherwise the port would stay taken for the rank that wants to
    // listen.
    const linger at_once{1, 0};
    (void)::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return ECONNREFUSED;
  }
  return error;
}

Endpoint parse_endpoint(const std::string& rendezvous) {
  const auto refuse = [&]() {
    throw Error(
        ErrorCode::invalid_argument,
        "TUTTI_RENDEZVOUS=\"" + rendezvous +
            "\": expected host:port, for example 10.0.0.1:5555, or [address]:port for IPv6");
  };
  const std::size_t colon = rendezvous.rfind(':');
  if (colon == std::string::npos || colon == 0) refuse();
  Endpoint endpoint{rendezvous.substr(0, colon), rendezvous.substr(colon + 1)};
  if (endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (endpoint.host.find(':') != std::string::npos) {
    refuse();  // it is unclear which colon is the port's
  }
  const unsigned port = detail::number_in<unsigned>(endpoint.port).value_or(0);
  // Port 0 would listen at a place that nobody else knows.
  if (port == 0 || port > 65535) refuse();
  if (endpoint.host.empty()) refuse();
  return endpoint;
}

std::string text_of(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 place{};
    std::memcpy(&place, &address.storage, sizeof place);
    (void)::inet_ntop(AF_INET6, &place.sin6_addr, text.data(), text.size());
  } else {
    sockaddr_in place{};
    std::memcpy(&place, &address.storage, sizeof place);
    (void)::inet_ntop(AF_INET, &place.sin_addr, text.data(), text.size());
  }
  return text.data();
}

std::uint64_t origin_of(const Address& address) noexcept {
  std::uint64_t origin = 0;
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in peer{};
    std::memcpy(&peer, &address.storage, sizeof peer);
    origin = peer.sin_addr.s_addr;
  } else if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 peer{};
    std::memcpy(&peer, &address.storage, sizeof peer);
    const std::uint8_t* const bytes = peer.sin6_addr.s6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr)) {
      std::memcpy(&origin, bytes + 12, 4);
    } else {
      // On one link all have the same network, and differ in the rest.
      std::memcpy(&origin, bytes + (IN6_IS_ADDR_LINKLOCAL(&peer.sin6_addr) ? 8 : 0), sizeof origin);
    }
  }
  return origin;
}

bool are_of_one_host(const Address& one, const Address& other) noexcept {
  if (one.storage.ss_family != other.storage.ss_family) return false;
  const auto same = [&](std::size_t offset, std::size_t bytes) {
    return std::memcmp(reinterpret_cast<const char*>(&one.storage) + offset,
                       reinterpret_cast<const char*>(&other.storage) + offset, bytes) == 0;
  };
  if (one.storage.ss_family == AF_INET)
    return same(offsetof(sockaddr_in, sin_addr), sizeof(in_addr));
  return one.storage.ss_family == AF_INET6 &&
         same(offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr));
}

std::vector<Address> resolve(const Endpoint& endpoint, const std::string& rendezvous) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &hints, &list);
  if (error == EAI_AGAIN) return {};
  if (error != 0) {
    throw Error(ErrorCode::invalid_argument, "TUTTI_RENDEZVOUS=\"" + rendezvous +
                                                 "\": the host \"" + endpoint.host +
                                                 "\" is unknown here (" + ::gai_strerror(error) +
                                                 "); name the host of rank 0 or give its address");
  }
  struct Free {
    void operator()(addrinfo* owned) const noexcept { ::freeaddrinfo(owned); }
  };
  const std::unique_ptr<addrinfo, Free> owner(list);
  std::vector<Address> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Address address;
    address.bytes = entry->ai_addrlen;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    addresses.push_back(address);
  }
  return addresses;
}

UnsharedDescriptor listen_at(std::span<const Address> addresses, const std::string& rendezvous) {
  int error = EADDRNOTAVAIL;
  for (const Address& address : addresses) {
    UnsharedDescriptor socket = open_socket(address);
    // Connections of an earlier job may still be winding down on this port.
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (socket && ::bind(socket.get(), raw(address), address.bytes) == 0 &&
        ::listen(socket.get(), static_cast<int>(backlog)) == 0) {
      return socket;
    }
    error = errno;
  }
  std::string text =
      "rank 0 cannot listen on TUTTI_RENDEZVOUS=\"" + rendezvous + "\": " + std::strerror(error);
  if (error == EADDRINUSE) text += "; another job or program has this port, choose another";
  if (error == EADDRNOTAVAIL) {
    text += "; it must name an address of the host on which rank 0 runs";
  }
  if (error == EACCES) text += "; choose a port above 1023";
  throw Error(ErrorCode::system, text, error);
}

std::size_t close_waiting(int listener, std::size_t at_most) noexcept {
  for (std::size_t closed = 0;; ++closed) {
    if (closed == at_most) return closed;
    if (!UnsharedDescriptor::made_by(
            [&] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }))
      return closed;
  }
}

UnsharedDescriptor connect_to(std::span<const Address> addresses, Deadline deadline) noexcept {
  int error = EHOSTUNREACH;
  for (const Address& address : addresses) {
    UnsharedDescriptor socket = open_socket(address);
    if (!socket) {
      error = errno;
      continue;
    }
    // If this connection gets the rendezvous' own port, rank 0 can still listen there.
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    error = ::connect(socket.get(), raw(address), address.bytes) == 0 ? 0 : errno;
    if (error == 0 || error == EINPROGRESS) {
      const Timeout now = detail::MonotonicClock::read();
      error = finish_connecting(
          socket.get(), Deadline::after(std::min(deadline.remaining(now), connect_timeout), now));
    }
    if (error == 0) {
      set_connection_options(socket.get());
      return socket;
    }
  }
  errno = error;
  return {};
}

Address elsewhere_at_host_of(const Address& address) noexcept {
  constexpr std::uint16_t tcpmux = 1;  // which has been out of use for decades
  Address elsewhere = address;
  // The port is at the same place for both families.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  const std::uint16_t port = htons(tcpmux);
  std::memcpy(reinterpret_cast<char*>(&elsewhere.storage) + offsetof(sockaddr_in, sin_port), &port,
              sizeof port);
  return elsewhere;
}

bool host_answers(const Address& address, Deadline deadline, Timeout within) noexcept {
  const Address elsewhere = elsewhere_at_host_of(address);
  const auto now = [] { return detail::MonotonicClock::read(); };
  const Deadline end = Deadline::after(std::min(within, deadline.remaining(now())), now());
  // "No route to host" comes at once and may be temporary, so it is asked again after a pause.
  constexpr Timeout pause = std::chrono::milliseconds(200);
  for (;;) {
    if (connect_to({&elsewhere, 1}, end) || !is_silence(errno)) return true;
    if (end.passed(now())) return false;
    std::this_thread::sleep_for(std::min(pause, end.remaining(now())));
  }
}

bool is_silence(int error) noexcept {
  // What routers and this host say of a host, or of a network, that has gone away.
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN;
}

bool is_own_shortage(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM ||
         error == EADDRNOTAVAIL;
}

UnsharedDescriptor begin_to_connect(const Address& address) noexcept {
  UnsharedDescriptor socket = open_socket(address);
  if (!socket) return {};
  set_connection_options(socket.get());
  if (::connect(socket.get(), raw(address), address.bytes) == 0 || errno == EINPROGRESS)
    return socket;
  const int error = errno;
  socket = UnsharedDescriptor();
  errno = error;
  return {};
}

Address own_end_of(int socket) {
  Address address;
  address.bytes = sizeof address.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0)
    throw Error(ErrorCode::system, "getsockname", errno);
  return address;
}

void set_connection_options(int socket) noexcept {
  constexpr int idle_seconds = 4;
  constexpr int probe_seconds = 2;
  constexpr int probes = 3;
  static_assert(idle_seconds + probe_seconds * probes == vanished_after.count());
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle_seconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, probe_seconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
             static_cast<int>(std::chrono::milliseconds(vanished_after).count()));
}

int poll_milliseconds(Timeout remaining) noexcept {
  const auto hour = std::chrono::milliseconds(std::chrono::hours(1));
  if (remaining >= hour) return static_cast<int>(hour.count());
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(remaining).count());
}

Reception receive_some(int socket, std::span<std::byte> space, std::size_t& bytes) noexcept {
  bytes = 0;
  const ssize_t received = ::recv(socket, space.data(), space.size(), MSG_DONTWAIT);
  if (received > 0) {
    bytes = static_cast<std::size_t>(received);
    return Reception::some;
  }
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return Reception::nothing_yet;
  }
  return Reception::end;
}

bool send_some(int socket, std::span<const std::byte> bytes, std::size_t& sent) noexcept {
  sent = 0;
  while (sent < bytes.size()) {
    const ssize_t taken =
        ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent += static_cast<std::size_t>(taken);
  }
  return true;
}

void finish_sending(int socket, Deadline deadline) noexcept {
  ::shutdown(socket, SHUT_WR);
  for (;;) {
    std::byte ignored[4096];
    std::size_t bytes = 0;
    const Reception reception = receive_some(socket, ignored, bytes);
    if (reception == Reception::end || deadline.passed(detail::MonotonicClock::read())) return;
    if (reception == Reception::some) continue;
    int unacknowledged = 0;
    if (::ioctl(socket, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0) return;
    // Nothing announces an acknowledgement, and one millisecond is below the round trip of any
    // network that would notice.  POLLIN ends the wait when the peer closes first.
    pollfd waiting{socket, POLLIN, 0};
    (void)::poll(&waiting, 1, 1);
  }
}

void finish_and_await_end(int socket, Deadline deadline) noexcept {
  ::shutdown(socket, SHUT_WR);
  for (;;) {
    std::byte ignored[4096];
    std::size_t bytes = 0;
    const Reception reception = receive_some(socket, ignored, bytes);
    const Timeout remaining = deadline.remaining(detail::MonotonicClock::read());
    if (reception == Reception::end || remaining <= Timeout::zero()) return;
    if (reception == Reception::some) continue;
    pollfd waiting{socket, POLLIN, 0};
    (void)::poll(&waiting, 1, poll_milliseconds(remaining));
  }
}

}  // namespace tutti::bootstrap
