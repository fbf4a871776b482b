#include "bootstrap/reunion.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "bootstrap/handshake.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/tcp_exchange.hpp"
#include "tutti/detail/check.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

namespace {

/// Listens at a port that the kernel chooses.  It may give another process the same one until one
/// of them listens; then the other one asks again.
UnsharedDescriptor listen_at_any_port(const std::string& host) {
  constexpr int attempts_max = 20;
  for (int attempt = 1;; ++attempt) {
    try {
      return listen_at(resolve({host, "0"}, host), host);
    } catch (const Error& error) {
      if (error.system_errno() == EADDRINUSE && attempt < attempts_max) continue;
      throw Error(ErrorCode::system,
                  "this rank cannot listen at " + host +
                      ", as TUTTI_SHRINKABLE (or shrinkable in code) asks: " +
                      std::strerror(error.system_errno()),
                  error.system_errno());
    }
  }
}

std::string address_for_others() try {
  return own_address("TUTTI_SHRINKABLE");
} catch (const Error& error) {
  throw Error(ErrorCode::system,
              "this rank has no network interface that the ranks of other hosts could reach, as "
              "TUTTI_SHRINKABLE (or shrinkable in code) needs",
              error.system_errno());
}

}  // namespace

std::uint64_t network_identity() noexcept {
  struct stat found {};
  return ::stat("/proc/self/ns/net", &found) == 0 && found.st_ino != 0 ? found.st_ino : UINT64_MAX;
}

MeetingPlace::MeetingPlace(bool all_are_here)
    : listener_(listen_at_any_port(all_are_here ? "127.0.0.1" : address_for_others())) {}

MeetingCard MeetingPlace::card() const {
  MeetingCard card;
  if (!fill_random(card.secret)) throw Error(ErrorCode::system, "getrandom", errno);
  const Address own = own_end_of(listener_.get());
  if (own.storage.ss_family == AF_INET6) {
    sockaddr_in6 address{};
    std::memcpy(&address, &own.storage, sizeof address);
    card.is_v6 = 1;
    card.port = address.sin6_port;
    std::memcpy(card.address.data(), &address.sin6_addr, sizeof address.sin6_addr);
  } else {
    sockaddr_in address{};
    std::memcpy(&address, &own.storage, sizeof address);
    card.port = address.sin_port;
    std::memcpy(card.address.data(), &address.sin_addr, sizeof address.sin_addr);
  }
  return card;
}

void MeetingPlace::know(std::span<const MeetingCard> all, Rank self) {
  self_ = self;
  places_.clear();
  for (const MeetingCard& card : all) {
    Address& place = places_.emplace_back();
    if (card.is_v6 != 0) {
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = card.port;
      std::memcpy(&address.sin6_addr, card.address.data(), sizeof address.sin6_addr);
      std::memcpy(&place.storage, &address, sizeof address);
      place.bytes = sizeof address;
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = card.port;
      std::memcpy(&address.sin_addr, card.address.data(), sizeof address.sin_addr);
      std::memcpy(&place.storage, &address, sizeof address);
      place.bytes = sizeof address;
    }
  }
  secret_.assign(all[0].secret.begin(), all[0].secret.end());
}

std::string MeetingPlace::obstacle(Deadline deadline) const {
  const std::size_t own = index_of(self_);
  for (std::size_t step = 1; step < places_.size(); ++step) {
    const std::size_t next = (own + step) % places_.size();
    if (are_of_one_host(places_[own], places_[next])) continue;
    if (connect_to({&places_[next], 1}, deadline)) return {};
    return "this rank cannot connect to rank " + std::to_string(next) +
           " of another host, as TUTTI_SHRINKABLE (or shrinkable in code) needs: " +
           std::strerror(errno) +
           "; let a firewall pass connections between the hosts of a job, at all ports";
  }
  return {};
}

MeetingPlace::Met MeetingPlace::meet(Deadline deadline, Timeout linger) {
  detail::check(!places_.empty(), "a rank knows where the others listen before it meets them");
  for (std::uint32_t leader = 0;; ++leader) {
    const bool leads = Rank{leader} == self_;
    UnsharedDescriptor listener;
    if (leads) {
      listener =
          UnsharedDescriptor::made_by([&] { return ::fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0); });
      if (!listener) throw Error(ErrorCode::system, "F_DUPFD_CLOEXEC", errno);
    }
    TcpExchange::Attended attended = TcpExchange::attend({.self = self_,
                                                          .places = places_,
                                                          .secret = secret_,
                                                          .leader = Rank{leader},
                                                          .linger = linger},
                                                         deadline, std::move(listener));
    if (attended.leader_is_gone && !leads) continue;
    empty_queue();
    return {.exchange = std::move(attended.exchange), .ranks = std::move(attended.ranks)};
  }
}

/// Closes the connections that wait in the listener's queue, which those of meetings that are over
/// would fill: of leaders that have looked whether this rank is still there, and of ranks that gave
/// up before this one led.  A rank that still waits on one connects again.
void MeetingPlace::empty_queue() noexcept {
  while (UnsharedDescriptor::made_by(
      [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); })) {
  }
}

}  // namespace tutti::bootstrap
