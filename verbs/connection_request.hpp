// The messages between the two ends of a connection by address, and the texts about them for
// people. All functions are pure; the connection manager sends and receives.
//
// The process with the smaller key sends the request and the other one waits for it, so that no two
// requests cross.  A request names both processes and both queue pairs, so that a request of a
// stranger, of another job or of an earlier set-up meets no queue pair.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "verbs/device.hpp"
#include "verbs/wire.hpp"

namespace tutti::verbs {

/// An IPv4 or IPv6 address with a port.
union IpAddress {
  sockaddr any;
  sockaddr_in ip4;
  sockaddr_in6 ip6;
};

/// The IP address that a RoCE GID stands for; `port` is in host order.
IpAddress address_of(const ibv_gid& gid, std::uint16_t port) noexcept;
std::string text_of(const IpAddress& address);  // "10.0.0.1 port 4711"; without a port if it is 0

/// Why the connection manager cannot connect by this port's GID; empty if it can.
std::string obstacle_to_address(const PortDescription& port, const GidCandidate& gid);

/// Both ends of a connection, as this end sees them.
struct ConnectionEnds {
  std::uint64_t process = 0;
  std::uint64_t peer = 0;
  Endpoint local = {};
  Endpoint remote = {};

  bool asks() const noexcept { return process < peer; }
};

/// Why a request is refused.  The numbers cross the network, so they never change.
enum class Refusal : std::uint16_t {
  none = 0,
  foreign = 1,        // not a request of tutti
  other_version = 2,  // a request of another version of tutti
  other_process = 3,  // meant for a process that listened there before
  not_expected = 4,   // from another job, or from a set-up that has failed
};
const char* text_of(Refusal reason) noexcept;

/// The data that this end sends, with a request or with its acceptance.
ConnectionRequest request_of(const ConnectionEnds& ends) noexcept;
/// Reads a request to `process` into `request`; if the result is not `none`, there was no valid
/// one.
Refusal read_request(std::span<const std::byte> private_data, std::uint64_t process,
                     ConnectionRequest& request) noexcept;
/// Whether the request is the one that the other end of this connection sends.
bool belongs_to(const ConnectionRequest& request, const ConnectionEnds& ends) noexcept;

ConnectionRefusal refusal_of(Refusal reason) noexcept;

/// The steps until a connection is made.
enum class ConnectStep : std::uint8_t {
  awaiting_request,
  resolving_address,
  resolving_route,
  requesting,
  pausing,  // until the other kernel has forgotten an earlier queue pair of the same number
  awaiting_confirmation,
  connected,
};
const char* text_of(ConnectStep step) noexcept;

/// The other end's kernel still knows an earlier connection of a queue pair of this number.
inline constexpr int rejected_as_stale = 10;

/// The text for an event other than the next step: its name, what it means and what to do.
std::string meaning_of(rdma_cm_event_type event, int status,
                       std::span<const std::byte> private_data);

/// The errno in the status of an event; 0 where it is a reason of a rejection.
int errno_of(rdma_cm_event_type event, int status) noexcept;

}  // namespace tutti::verbs
