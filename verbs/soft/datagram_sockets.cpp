// See datagram_sockets.hpp.
#include "verbs/soft/datagram_sockets.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace tutti::verbs::soft {
namespace {

constexpr std::size_t waiting_max = 2048;  // for each process: 8 MiB of the largest

int send_bytes(int connection, std::span<const std::byte> bytes) {
  return ::send(connection, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno
                                                                                         : 0;
}

/// There is nobody to send to.  Other errors pass.
bool is_lost(int error) {
  return error == ECONNREFUSED || error == EACCES || is_gone(error);
}

}  // namespace

int DatagramSockets::connect(std::uint32_t process_id, const Message& opening, Outgoing& to) {
  detail::Descriptor connection;
  if (const int error = connect_to_peer(process_id, connection)) return error;
  bool same_user = false;
  process_behind(connection.get(), same_user);
  if (!same_user) return EACCES;
  if (const int error = send_message(connection.get(), opening)) return error;
  to.connection = std::move(connection);
  return 0;
}

int DatagramSockets::send_waiting(Outgoing& to) {
  for (; !to.waiting.empty(); to.waiting.pop_front())
    if (const int error = send_bytes(to.connection.get(), to.waiting.front())) return error;
  return 0;
}

bool DatagramSockets::send(std::uint32_t process_id, const Message& opening,
                           std::span<const std::byte> datagram) {
  Outgoing& to = outgoing_[process_id];
  int error = to.connection ? 0 : connect(process_id, opening, to);
  if (error == 0) error = send_waiting(to);
  if (error == 0) error = send_bytes(to.connection.get(), datagram);
  if (error == 0) return false;
  if (is_lost(error)) {
    outgoing_.erase(process_id);
    return false;
  }
  if (to.waiting.size() < waiting_max) to.waiting.emplace_back(datagram.begin(), datagram.end());
  return true;
}

bool DatagramSockets::flush(const Message& opening) {
  bool again = false;
  for (auto place = outgoing_.begin(); place != outgoing_.end();) {
    Outgoing& to = place->second;
    int error = to.connection || to.waiting.empty() ? 0 : connect(place->first, opening, to);
    if (error == 0) error = send_waiting(to);
    again |= error != 0 && !to.connection;
    place = is_lost(error) ? outgoing_.erase(place) : std::next(place);
  }
  return again;
}

void DatagramSockets::collect(std::vector<pollfd>& descriptors) const {
  for (const auto& [id, to] : outgoing_)
    if (to.connection && !to.waiting.empty())
      descriptors.push_back({.fd = to.connection.get(), .events = POLLOUT, .revents = 0});
  for (const detail::Descriptor& source : incoming_)
    descriptors.push_back({.fd = source.get(), .events = POLLIN, .revents = 0});
}

Reception DatagramSockets::receive_one(int source, std::span<const std::byte>& datagram) {
  const ssize_t bytes = ::recv(source, received_.data(), received_.size(), MSG_DONTWAIT);
  if (bytes < 0) return is_gone(errno) ? Reception::closed : Reception::nothing;
  if (bytes == 0) return Reception::closed;
  datagram = std::span(received_).first(static_cast<std::size_t>(bytes));
  return Reception::message;
}

void DatagramSockets::abandon() {
  for (auto& [id, to] : outgoing_) to.connection = detail::Descriptor();
  for (detail::Descriptor& source : incoming_) source = detail::Descriptor();
}

}  // namespace tutti::verbs::soft
