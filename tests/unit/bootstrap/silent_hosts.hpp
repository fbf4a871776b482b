// Stand-ins on this host for hosts that do not answer: addresses of the loopback, each of which
// looks like another host, and ports whose queue is full.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "bootstrap/socket.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

/// The address depends on the process, so that tests that run at the same time do not meet at port
/// 1.
inline Address at_host(std::uint32_t host, std::uint16_t port = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const auto process = static_cast<std::uint32_t>(::getpid()) % 0x10000;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 16 * process + host);
  Address result;
  std::memcpy(&result.storage, &address, sizeof address);
  result.bytes = sizeof address;
  return result;
}
constexpr std::uint32_t here = 0, elsewhere = 1;

/// One of several hosts (`which`) to which this one has no route: connecting fails at once, because
/// TCP has no multicast.
inline Address at_no_host(std::uint16_t port = 5000, std::uint32_t which = 0) {
  Address address = at_host(here, port);
  const in_addr_t number = htonl(INADDR_ALLHOSTS_GROUP + which);
  std::memcpy(reinterpret_cast<char*>(&address.storage) + offsetof(sockaddr_in, sin_addr), &number,
              sizeof number);
  return address;
}

/// A rank's port, whose kernel accepts connections.
class Port {
 public:
  /// Throws Error{system}.
  explicit Port(std::uint32_t host, std::uint16_t number = 0)
      : listener_(listen_at(std::vector{at_host(host, number)}, "the test's port")),
        place_(own_end_of(listener_.get())) {}

  const Address& place() const noexcept { return place_; }
  int listener() const noexcept { return listener_.get(); }

  /// From now on its kernel drops what asks for a connection.
  void fill_queue() {
    ASSERT_EQ(::listen(listener_.get(), 0), 0);
    for (int i = 0; i < 8; ++i) waiting_.push_back(begin_to_connect(place_));
  }

  /// From now on its kernel accepts connections, and takes nothing that comes over them, as one
  /// that has lost them.
  void fall_silent() {
    // The flags of a TCP header are its byte 13; every message has "push".
    sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),
                          BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x08, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, 0xffff)};
    const sock_fprog program{.len = 4, .filter = code};
    ASSERT_EQ(::setsockopt(listener_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program),
              0);
  }

  UnsharedDescriptor accept() {
    pollfd waiting{listener_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, 10'000), 1);
    return UnsharedDescriptor::made_by(
        [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC); });
  }

 private:
  UnsharedDescriptor listener_;
  Address place_;
  std::vector<UnsharedDescriptor> waiting_;
};

/// What was sent over this connection and is not answered soon ends it.
inline void expect_answers_soon(int socket) {
  const int milliseconds = 300;
  EXPECT_EQ(::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds),
            0);
}

/// Port 1 of a host, at which probes ask whether the host has vanished; it does not answer.  None
/// if this process may not have port 1.
inline std::unique_ptr<Port> silent_port_1(std::uint32_t host) {
  try {
    auto port = std::make_unique<Port>(host, std::uint16_t{1});
    port->fill_queue();
    return port;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace tutti::bootstrap
