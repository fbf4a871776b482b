#include "bootstrap/rendezvous.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "bootstrap/handshake.hpp"
#include "bootstrap/socket.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

std::string own_address(const std::string& origin) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw Error(ErrorCode::system, "getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
      char text[INET6_ADDRSTRLEN] = {};
      if (family == AF_INET) {
        sockaddr_in address{};
        std::memcpy(&address, entry->ifa_addr, sizeof address);
        return ::inet_ntop(family, &address.sin_addr, text, sizeof text);
      }
      sockaddr_in6 address{};
      std::memcpy(&address, entry->ifa_addr, sizeof address);
      if (IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr)) continue;  // means nothing elsewhere
      return ::inet_ntop(family, &address.sin6_addr, text, sizeof text);
    }
  }
  throw Error(ErrorCode::system,
              origin +
                  ": rank 0 has no network interface that other hosts could reach; set "
                  "TUTTI_RENDEZVOUS to host:port");
}

std::string random_secret() {
  std::array<std::uint8_t, 16> bytes{};
  if (!fill_random(bytes)) throw Error(ErrorCode::system, "getrandom", errno);
  std::string text;
  for (const std::uint8_t byte : bytes)
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  return text;
}

std::pair<UnsharedDescriptor, std::string> listen_anywhere(const std::string& host) {
  UnsharedDescriptor listener = listen_at(resolve({host, "0"}, host), host);
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0)
    throw Error(ErrorCode::system, "getsockname", errno);
  in_port_t port = 0;  // is at the same place for both families
  std::memcpy(&port, reinterpret_cast<const char*>(&bound) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  const std::string number = std::to_string(ntohs(port));
  const bool is_v6 = host.find(':') != std::string::npos;
  return {std::move(listener), (is_v6 ? "[" + host + "]:" : host + ":") + number};
}

}  // namespace tutti::bootstrap
