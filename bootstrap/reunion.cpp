#include "bootstrap/reunion.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "bootstrap/handshake.hpp"
#include "bootstrap/node_map.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/tcp_exchange.hpp"
#include "tutti/detail/check.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/detail/hash.hpp"
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

namespace {

/// Names the network of this process among those of all hosts; 0: not known.
std::uint64_t network_of_host() noexcept {
  const HostIdentity host = host_identity();
  std::array<std::uint64_t, 2> boot{};
  std::memcpy(boot.data(), host.boot.data(), sizeof boot);
  if (network_identity() == UINT64_MAX || (boot[0] == 0 && boot[1] == 0)) return 0;
  detail::Hash hash;
  for (const std::uint64_t number : {boot[0], boot[1], network_identity()}) hash.add(number);
  return hash.value() | 1;
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

}  // namespace

MeetingPlace::MeetingPlace(bool all_are_here)
    : listener_(listen_at_any_port(all_are_here ? "127.0.0.1" : address_for_others())) {}

MeetingCard MeetingPlace::card(Rank self) const {
  MeetingCard card;
  if (self == Rank{0} && !fill_random(card.secret))
    throw Error(ErrorCode::system, "getrandom", errno);
  card.network = network_of_host();
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
  is_gone_.assign(all.size(), false);
  std::map<std::string, std::size_t> first_at;  // address
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].network == 0) continue;
    const std::string address = text_of(places_[rank]);
    const std::size_t first = first_at.emplace(address, rank).first->second;
    if (all[first].network == all[rank].network) continue;
    throw Error(ErrorCode::mismatch,
                "ranks " + std::to_string(first) + " and " + std::to_string(rank) +
                    " are in different networks, and both have the address " + address +
                    ", at which TUTTI_SHRINKABLE (or shrinkable in code) has others look for "
                    "them; give each host and container of a job an address of its own, or let "
                    "containers share the network of their host");
  }
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

MeetingPlace::Met MeetingPlace::meet(Deadline deadline, Timeout linger,
                                     std::span<const Rank> ended) {
  detail::check(!places_.empty(), "a rank knows where the others listen before it meets them");
  for (const Rank rank : ended) is_gone_[index_of(rank)] = true;
  is_gone_[index_of(self_)] = false;
  // A leader that is gone is so for good only if those that are still there agree: its host may
  // come back before they have met.
  std::vector<bool> is_gone = is_gone_;
  for (std::uint32_t leader = 0;; ++leader) {
    const bool leads = Rank{leader} == self_;
    if (is_gone[leader]) continue;
    UnsharedDescriptor listener;
    if (leads) {
      listener =
          UnsharedDescriptor::made_by([&] { return ::fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0); });
      if (!listener) throw Error(ErrorCode::system, "F_DUPFD_CLOEXEC", errno);
    }
    TcpExchange::Attended attended = TcpExchange::attend({.self = self_,
                                                          .places = places_,
                                                          .secret = secret_,
                                                          .is_gone = is_gone,
                                                          .leader = Rank{leader},
                                                          .linger = linger},
                                                         deadline, std::move(listener));
    if (attended.leader_is_gone && !leads) {
      is_gone[leader] = true;
      continue;
    }
    if (attended.exchange) {
      empty_queue();
      is_gone_.assign(places_.size(), true);
      for (const Rank rank : attended.present) is_gone_[index_of(rank)] = false;
    }
    return {.exchange = std::move(attended.exchange),
            .present = std::move(attended.present),
            .missing = std::move(attended.missing)};
  }
}

void MeetingPlace::make_room_in_queue() noexcept {
  // Where a socket listens, these two count its queue and say how long it may be.
  tcp_info info{};
  socklen_t bytes = sizeof info;
  const bool known = ::getsockopt(listener_.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
                     info.tcpi_sacked > 0;
  if (!known || info.tcpi_unacked >= info.tcpi_sacked / 2) empty_queue();
}

void MeetingPlace::empty_queue() noexcept {
  while (UnsharedDescriptor::made_by(
      [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); })) {
  }
}

}  // namespace tutti::bootstrap
