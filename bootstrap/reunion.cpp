#include "bootstrap/reunion.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "bootstrap/handshake.hpp"
#include "bootstrap/node_map.hpp"
#include "bootstrap/probe.hpp"
#include "bootstrap/probes.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/tcp_exchange.hpp"
#include "tutti/detail/check.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/detail/hash.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

namespace {

using detail::now;

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

}  // namespace

MeetingPlace::MeetingPlace(bool all_are_here, const Patience& patience)
    : listener_(listen_at_any_port(all_are_here ? "127.0.0.1" : address_for_others())),
      patience_(patience) {}

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
  vanished_until_.assign(all.size(), std::nullopt);
  silence_.assign(all.size(), std::nullopt);
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

/// A rank of the next host: the one whose position among the ranks of that host is the same as this
/// rank's on its own, so that not all ranks of a host connect to the same one.
std::optional<std::size_t> MeetingPlace::counterpart() const {
  const std::size_t own = index_of(self_), count = places_.size();
  std::size_t next = own;
  do {
    next = (next + 1) % count;
    if (next == own) return std::nullopt;
  } while (are_of_one_host(places_[own], places_[next]));
  std::size_t position = 0;
  std::vector<std::size_t> there;
  for (std::size_t rank = 0; rank < count; ++rank) {
    if (rank < own && are_of_one_host(places_[own], places_[rank])) ++position;
    if (are_of_one_host(places_[next], places_[rank])) there.push_back(rank);
  }
  return there[position % there.size()];
}

/// Connects once, and empties this rank's queue meanwhile: others connect to it, and it may be
/// short.  Returns 0 or an errno value.
int MeetingPlace::try_to_connect(const Address& place, Deadline deadline) noexcept {
  const UnsharedDescriptor socket = begin_to_connect(place);
  if (!socket) return errno;
  std::array<pollfd, 2> waiting{pollfd{socket.get(), POLLOUT, 0},
                                pollfd{listener_.get(), POLLIN, 0}};
  for (;;) {
    (void)::poll(waiting.data(), waiting.size(), poll_milliseconds(deadline.remaining(now())));
    // Without a descriptor to accept with, poll() would return at once again.
    if (waiting[1].revents != 0 && close_waiting(listener_.get(), backlog) == 0) waiting[1].fd = -1;
    if (waiting[0].revents != 0) return outcome_of_connecting(socket.get());
    if (deadline.passed(now())) return ETIMEDOUT;
  }
}

std::string MeetingPlace::obstacle(Deadline deadline) {
  using namespace std::chrono_literals;
  const std::optional<std::size_t> other = counterpart();
  if (!other) return {};
  const Address& place = places_[*other];
  const Timeout patient = std::min<Timeout>(host_answers_within, deadline.remaining(now()));
  int error = 0;
  for (Timeout pause = probe_pause_first;; pause = std::min<Timeout>(2 * pause, probe_pause_last)) {
    // The kernel of a port whose queue is full drops the request, and this one's repeats it after a
    // second.
    error = try_to_connect(
        place, Deadline::after(std::min<Timeout>(deadline.remaining(now()), 1s), now()));
    if (error == 0) return {};
    if (deadline.passed(now()) || !(is_silence(error) || is_own_shortage(error))) break;
    std::this_thread::sleep_for(std::min(pause, deadline.remaining(now())));
  }
  // A full queue is no firewall.
  if (error == ETIMEDOUT && host_answers(place, Deadline::after(patient, now()))) return {};
  return "this rank cannot connect to rank " + std::to_string(*other) +
         " of another host, as TUTTI_SHRINKABLE (or shrinkable in code) needs: " +
         std::strerror(error) +
         "; let a firewall pass connections between the hosts of a job, at all ports";
}

MeetingPlace::Met MeetingPlace::meet(Deadline deadline, Timeout linger,
                                     std::span<const Rank> ended) {
  detail::check(!places_.empty(), "a rank knows where the others listen before it meets them");
  for (const Rank rank : ended) is_gone_[index_of(rank)] = true;
  is_gone_[index_of(self_)] = false;
  // What this call finds out about leaders becomes final (is_gone_) only when the others have been
  // met: until then a host may come back.
  std::vector<bool> is_gone = is_gone_;
  for (std::size_t rank = 0; rank < places_.size(); ++rank)
    if (vanished_until_[rank] && !vanished_until_[rank]->passed(now())) is_gone[rank] = true;
  for (std::uint32_t leader = 0;; ++leader) {
    if (is_gone[leader]) continue;
    UnsharedDescriptor listener;
    if (Rank{leader} == self_) {
      listener =
          UnsharedDescriptor::made_by([&] { return ::fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0); });
      if (!listener) throw Error(ErrorCode::system, "F_DUPFD_CLOEXEC", errno);
    }
    TcpExchange::Attended attended = TcpExchange::attend({.self = self_,
                                                          .places = places_,
                                                          .secret = secret_,
                                                          .is_gone = is_gone,
                                                          .leader = Rank{leader},
                                                          .linger = linger,
                                                          .patience = patience_,
                                                          .silent_since = silences()},
                                                         deadline, std::move(listener));
    if (attended.leader_has_answered) silence_[leader].reset();
    if (attended.leader_silent_since) {
      const std::optional<Rank> silent =
          listen_to_silence(Rank{leader}, *attended.leader_silent_since, deadline, is_gone);
      if (silent) return {.exchange = {}, .missing = {*silent}};
      leader = UINT32_MAX;  // so the next one is the lowest that is not gone
      continue;
    }
    silence_[leader].reset();
    if (attended.leader_is_gone) {
      is_gone[leader] = true;
      continue;
    }
    remember(attended.silences);
    if (attended.exchange) {
      empty_queue();
      is_gone_.assign(places_.size(), true);
      for (const Rank rank : attended.present) is_gone_[index_of(rank)] = false;
      vanished_until_.assign(places_.size(), std::nullopt);  // it may have come back
    }
    return {.exchange = std::move(attended.exchange),
            .present = std::move(attended.present),
            .missing = std::move(attended.missing),
            .remark = std::move(attended.remark)};
  }
}

/// The leader has not answered since `since`.  Probes the leader and one rank of each other host at
/// the same time, so that several vanished hosts take no longer than one, until it is known who
/// leads: the lowest rank that is not gone has answered, or is on this host.  Unless this rank
/// leads itself, it does not hold against a rank above the leader that its host has vanished: the
/// leader decides who comes, and that host may come back before the leader dies.  If time is up
/// before, returns the rank that was waited for: that lowest one if it has been silent, else the
/// leader.
std::optional<Rank> MeetingPlace::listen_to_silence(Rank leader, Timeout since, Deadline deadline,
                                                    std::vector<bool>& is_gone) {
  std::vector<std::optional<Timeout>> silent_since = silences();
  std::optional<Timeout>& of_leader = silent_since[index_of(leader)];
  of_leader = std::min(of_leader.value_or(since), since);
  const auto own = index_of(self_), count = static_cast<std::uint32_t>(places_.size());
  Probes probes(places_, own, patience_, silent_since);
  // Different ranks probe different ranks of a host, so that no rank gets the connections of all.
  std::map<std::string, std::vector<std::uint32_t>> hosts;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    if (!is_gone[rank] && !are_of_one_host(places_[rank], places_[own]))
      hosts[text_of(places_[rank])].push_back(rank);
  std::vector<std::uint32_t> looked_at;
  looked_at.reserve(hosts.size());
  for (const auto& host : hosts) looked_at.push_back(host.second[own % host.second.size()]);
  for (const std::uint32_t rank : looked_at) probes.look_for(rank, true);
  std::vector<bool> has_vanished(count);
  std::vector<bool> is_gone_anyway = is_gone;  // even if no host has vanished
  const auto leave_out = [&](const std::vector<std::uint32_t>& ranks) {
    const std::vector<bool> vanished = probes.vanished();
    for (const std::uint32_t rank : ranks) {
      is_gone[rank] = true;
      if (!vanished[rank]) is_gone_anyway[rank] = true;
      for (std::uint32_t other = 0; vanished[rank] && other < count; ++other)
        if (are_of_one_host(places_[rank], places_[other]))
          is_gone[other] = has_vanished[other] = true;
    }
  };
  std::vector<pollfd> polled;
  for (;;) {
    std::uint32_t lowest = 0;
    while (is_gone[lowest]) ++lowest;  // ends, as this rank is not gone
    const bool is_on_this_host = are_of_one_host(places_[lowest], places_[own]);
    if (!is_on_this_host) probes.look_for(lowest, true);
    const bool is_known = is_on_this_host || probes.has_answered(lowest);
    const bool is_late = deadline.passed(now());
    if (is_known || is_late) {
      for (std::uint32_t rank = lowest + 1; lowest != own && rank < count; ++rank) {
        if (has_vanished[rank]) is_gone[rank] = is_gone_anyway[rank];
        has_vanished[rank] = false;
      }
      remember({probes.silent_since(), has_vanished});
      if (!is_late) return std::nullopt;
      return probes.silent_since()[lowest] ? Rank{lowest} : leader;
    }
    for (const std::uint32_t rank : looked_at)
      if (rank != lowest && probes.has_answered(rank)) probes.look_for(rank, false);
    leave_out(probes.begin(now()));
    polled.clear();
    probes.await(polled);
    const Timeout sleep = std::min(probes.sleep_max(now()), deadline.remaining(now()));
    (void)::poll(polled.data(), polled.size(), poll_milliseconds(sleep));
    leave_out(probes.look(polled, now()));
  }
}

/// By rank: since when nothing has answered at its port; none if this rank has not asked for longer
/// than Patience::with_host.
std::vector<std::optional<Timeout>> MeetingPlace::silences() const {
  std::vector<std::optional<Timeout>> since(silence_.size());
  for (std::size_t rank = 0; rank < since.size(); ++rank)
    if (silence_[rank] && now() - silence_[rank]->asked <= patience_.with_host)
      since[rank] = silence_[rank]->since;
  return since;
}

void MeetingPlace::remember(const Silences& silences) {
  for (std::size_t rank = 0; rank < silences.since.size(); ++rank) {
    silence_[rank].reset();
    if (silences.since[rank]) silence_[rank] = {*silences.since[rank], now()};
  }
  const Deadline until = Deadline::after(vanished_remembered, now());
  for (std::size_t rank = 0; rank < silences.vanished.size(); ++rank)
    if (silences.vanished[rank]) vanished_until_[rank] = until;
}

void MeetingPlace::make_room_in_queue() noexcept {
  // For a listening socket, tcpi_unacked is the length of its queue, and tcpi_sacked is the limit.
  tcp_info info{};
  socklen_t bytes = sizeof info;
  const bool known = ::getsockopt(listener_.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
                     info.tcpi_sacked > 0;
  if (!known || info.tcpi_unacked >= info.tcpi_sacked / 2) empty_queue();
}

void MeetingPlace::empty_queue() noexcept {
  (void)close_waiting(listener_.get(), backlog);
}

}  // namespace tutti::bootstrap
