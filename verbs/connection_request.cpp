#include "verbs/connection_request.hpp"

#include <arpa/inet.h>

#include <cassert>
#include <cstring>
#include <tutti/detail/enumerators.hpp>

namespace tutti::verbs {
namespace {

std::string text_of_rejection(int reason, std::span<const std::byte> private_data) {
  ConnectionRefusal refusal{};
  if (private_data.size() >= sizeof refusal) {
    std::memcpy(&refusal, private_data.data(), sizeof refusal);
    if (refusal.magic == ConnectionRequest::magic_of_tutti && refusal.reason != 0)
      return text_of(static_cast<Refusal>(refusal.reason));
  }
  switch (reason) {  // see the InfiniBand specification, volume 1, table "REJ Reason Code"
    case 3:
      return "no resources left there; see the limits of that host";
    case 4:
      return "the other end waited too long";
    case 8:
      return "nobody listens there: the process has ended, or closed its context";
    case rejected_as_stale:
      return "its kernel still knows an earlier queue pair of the same number; try again later";
    case 28:
      return "the other end gave up, or is no tutti";
    default:
      return "reason " + std::to_string(reason) + " of the InfiniBand specification";
  }
}

}  // namespace

IpAddress address_of(const ibv_gid& gid, std::uint16_t port) noexcept {
  IpAddress address{};
  if (is_ipv4_mapped(gid)) {
    address.ip4.sin_family = AF_INET;
    address.ip4.sin_port = htons(port);
    std::memcpy(&address.ip4.sin_addr, gid.raw + 12, 4);
  } else {
    address.ip6.sin6_family = AF_INET6;
    address.ip6.sin6_port = htons(port);
    std::memcpy(&address.ip6.sin6_addr, gid.raw, 16);
  }
  return address;
}

std::string text_of(const IpAddress& address) {
  const bool is_ip4 = address.any.sa_family == AF_INET;
  char text[INET6_ADDRSTRLEN] = {};
  if (is_ip4)
    inet_ntop(AF_INET, &address.ip4.sin_addr, text, sizeof text);
  else
    inet_ntop(AF_INET6, &address.ip6.sin6_addr, text, sizeof text);
  const std::uint16_t port = ntohs(is_ip4 ? address.ip4.sin_port : address.ip6.sin6_port);
  return port == 0 ? text : std::string(text) + " port " + std::to_string(port);
}

std::string obstacle_to_address(const PortDescription& port, const GidCandidate& gid) {
  if (port.is_software())
    return "a software device, which has no rdma_cm; set TUTTI_DEVICE to a real device, or "
           "TUTTI_CONNECT=exchange";
  if (port.link == LinkLayer::infiniband)
    return "an InfiniBand port: its IP address would be that of an IPoIB interface, which is not "
           "looked for; set TUTTI_CONNECT=exchange";
  if (is_link_local_ipv6(gid.gid))
    return "a port whose only address is the link-local " + text_of(gid.gid) +
           "; give its network interface an IPv4 or a routable IPv6 address, or set "
           "TUTTI_CONNECT=exchange";
  return {};
}

const char* text_of(Refusal reason) noexcept {
  switch (reason) {
    case Refusal::none:
      return "no reason given";
    case Refusal::foreign:
      return "not a request of tutti";
    case Refusal::other_version:
      return "the other end has another version of tutti: use one version everywhere";
    case Refusal::other_process:
      return "another process listens there now";
    case Refusal::not_expected:
      return "it does not expect this connection: its set-up has failed, or it is of another job";
  }
  return "a reason that this version does not know";
}

ConnectionRequest request_of(const ConnectionEnds& ends) noexcept {
  assert(ends.process != 0);
  assert(ends.peer != 0);
  assert(ends.process != ends.peer);
  return {.magic = ConnectionRequest::magic_of_tutti,
          .version = ConnectionRequest::current_version,
          .reserved = 0,
          .from_process = ends.process,
          .to_process = ends.peer,
          .from_queue_pair = ends.local.queue_pair_number,
          .from_sequence = ends.local.packet_sequence,
          .to_queue_pair = ends.remote.queue_pair_number,
          .to_sequence = ends.remote.packet_sequence};
}

Refusal read_request(std::span<const std::byte> private_data, std::uint64_t process,
                     ConnectionRequest& request) noexcept {
  request = {};
  // The data may be longer, because the kernel pads it with zeros.
  if (private_data.size() < sizeof request) return Refusal::foreign;
  std::memcpy(&request, private_data.data(), sizeof request);
  if (request.magic != ConnectionRequest::magic_of_tutti) return Refusal::foreign;
  if (request.version != ConnectionRequest::current_version) return Refusal::other_version;
  if (request.to_process != process) return Refusal::other_process;
  return Refusal::none;
}

bool belongs_to(const ConnectionRequest& request, const ConnectionEnds& ends) noexcept {
  const ConnectionRequest expected = request_of(
      {.process = ends.peer, .peer = ends.process, .local = ends.remote, .remote = ends.local});
  return request.from_process == expected.from_process &&
         request.to_process == expected.to_process &&
         request.from_queue_pair == expected.from_queue_pair &&
         request.from_sequence == expected.from_sequence &&
         request.to_queue_pair == expected.to_queue_pair &&
         request.to_sequence == expected.to_sequence;
}

ConnectionRefusal refusal_of(Refusal reason) noexcept {
  return {.magic = ConnectionRequest::magic_of_tutti,
          .version = ConnectionRequest::current_version,
          .reason = static_cast<std::uint16_t>(reason)};
}

const char* text_of(ConnectStep step) noexcept {
  return detail::name_in<ConnectStep::connected>(
      {"waiting for its connection request", "resolving its address", "resolving the route to it",
       "waiting for its answer to the connection request",
       "waiting for its kernel to forget an earlier queue pair of the same number",
       "waiting for it to confirm the connection", "connected"},
      step);
}

int errno_of(rdma_cm_event_type event, int status) noexcept {
  return event != RDMA_CM_EVENT_REJECTED && status < 0 ? -status : 0;
}

std::string meaning_of(rdma_cm_event_type event, int status,
                       std::span<const std::byte> private_data) {
  const int error = errno_of(event, status);
  const std::string cause = error == 0 ? "" : std::string(", ") + std::strerror(error);
  // rdma_cm has more events, which are no steps of a connection.
  switch (static_cast<int>(event)) {
    case RDMA_CM_EVENT_ADDR_ERROR:
      return "ADDR_ERROR" + cause +
             ": nobody answers for that address; check that it can be pinged from this one, or set "
             "TUTTI_CONNECT=exchange";
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "ROUTE_ERROR" + cause +
             ": no RDMA path leads there; check that both ports are in one network, or set "
             "TUTTI_CONNECT=exchange";
    case RDMA_CM_EVENT_UNREACHABLE:
      return "UNREACHABLE" + cause +
             ": its connection manager does not answer; check that the process lives and that UDP "
             "port 4791 (RoCE) is let through";
    case RDMA_CM_EVENT_REJECTED:
      return "REJECTED: " + text_of_rejection(status, private_data);
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return "CONNECT_ERROR" + cause +
             ": the connection managers failed to agree; see the kernel's log, or set "
             "TUTTI_CONNECT=exchange";
    case RDMA_CM_EVENT_DISCONNECTED:
      return "DISCONNECTED: the other end gave up or has died";
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return "DEVICE_REMOVAL: the device of this end is gone";
    default:
      return "unexpected event " + std::string(rdma_event_str(event)) + cause;
  }
}

}  // namespace tutti::verbs
