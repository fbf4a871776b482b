#include "verbs/soft/rendezvous.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "verbs/soft/layout.hpp"

namespace tutti::verbs::soft {
namespace {

constexpr int socket_type = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr int backlog = 4096;  // more than the possible 2047 processes

socklen_t name_of(std::uint32_t id, sockaddr_un& name) {
  assert(id < process_ids_max);
  name = {};
  name.sun_family = AF_UNIX;
  // The leading zero byte makes the name abstract: no file, nothing to clean up.
  const int length = std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "tutti-soft/%u/%u",
                                   static_cast<unsigned>(::geteuid()), id);
  assert(length > 0);
  assert(static_cast<std::size_t>(length) < sizeof(name.sun_path) - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                static_cast<std::size_t>(length));
}

}  // namespace

int listen_for_peers(std::uint32_t first_id, detail::Descriptor& listener, std::uint32_t& id) {
  for (std::uint32_t tries = 0; tries < process_ids_max - 1; ++tries) {
    id = 1 + (first_id + tries) % (process_ids_max - 1);
    detail::Descriptor candidate(::socket(AF_UNIX, socket_type, 0));
    if (!candidate) return errno;
    sockaddr_un name;
    const socklen_t bytes = name_of(id, name);
    if (::bind(candidate.get(), reinterpret_cast<const sockaddr*>(&name), bytes) != 0) {
      if (errno == EADDRINUSE) continue;
      return errno;
    }
    if (::listen(candidate.get(), backlog) != 0) return errno;
    listener = std::move(candidate);
    return 0;
  }
  return EAGAIN;
}

int connect_to_peer(std::uint32_t id, detail::Descriptor& connection) {
  detail::Descriptor candidate(::socket(AF_UNIX, socket_type, 0));
  if (!candidate) return errno;
  sockaddr_un name;
  const socklen_t bytes = name_of(id, name);
  if (::connect(candidate.get(), reinterpret_cast<const sockaddr*>(&name), bytes) != 0)
    return errno;
  connection = std::move(candidate);
  return 0;
}

int accept_peer(int listener, detail::Descriptor& connection) {
  detail::Descriptor accepted(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!accepted) return errno;
  bool same_user = false;
  process_behind(accepted.get(), same_user);
  if (same_user) connection = std::move(accepted);
  return 0;
}

pid_t process_behind(int connection, bool& same_user) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  same_user = ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) == 0 &&
              credentials.uid == ::geteuid();
  return same_user ? credentials.pid : 0;
}

int send_message(int connection, const Message& message, int attached) {
  assert(message.layout_version == layout_version);
  assert(message.kind >= MessageKind::hello);
  assert(message.kind <= MessageKind::ring_calls);
  assert(message.id < process_ids_max);
  iovec data{const_cast<Message*>(&message), sizeof(message)};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (attached >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &attached, sizeof(int));
  }
  return ::sendmsg(connection, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

bool is_gone(int error) {
  return error == EPIPE || error == ECONNRESET || error == ENOTCONN || error == EBADF;
}

Reception receive_message(int connection, Message& message, detail::Descriptor& attached) {
  iovec data{&message, sizeof(message)};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t bytes = ::recvmsg(connection, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) return is_gone(errno) ? Reception::closed : Reception::nothing;
  attached = detail::Descriptor();
  if (const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights && rights->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(rights), sizeof(int));
    attached = detail::Descriptor(number);
  }
  // A message of another size comes from another program or version; size 0 is the end.
  if (bytes != sizeof(message)) return Reception::closed;
  return (header.msg_flags & MSG_CTRUNC) != 0 ? Reception::cut : Reception::message;
}

}  // namespace tutti::verbs::soft
