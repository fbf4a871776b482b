// Chooses the port to use among those of all devices.  Pure, so that every rule is tested without a
// device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verbs/driver.hpp"
#include "verbs/gid.hpp"
#include "verbs/locality.hpp"

namespace tutti::verbs {

/// One port of one device, as it was found.
struct PortDescription {
  const Driver* driver = nullptr;
  std::string device;
  std::uint8_t port = 1;  // 0: the device could not be asked for its ports
  bool active = false;
  std::string state = {};  // e.g. "active", or why the port could not be asked
  std::string unfit = {};  // why no port of this kind can ever be used; empty: it can
  LinkLayer link = LinkLayer::infiniband;
  ibv_port_attr attributes = {};
  GidChoice gids = {};
  Locality locality = {};
  std::string kernel_driver = {};  // empty: a virtual device

  bool is_software() const noexcept { return driver == &soft_driver(); }
  std::string name() const { return port == 0 ? device : device + ":" + std::to_string(port); }
};

struct PortChoice {
  std::optional<std::size_t> chosen;
  /// One line: why the port was chosen, and why each other was not; if there is none, what is
  /// wrong.
  std::string reason;
  std::vector<std::string> verdicts;  // one per port: "taken: " and why, or why it was not
};

/// Chooses the port for `request`: "" stands for any, "name" for one of that device, "name:port"
/// for that one.  Among the ports that are active and have a usable GID, real devices come before
/// the software device, InfiniBand before RoCE (ranks of one host that are bound differently must
/// choose one kind), then the nearest to the CPUs that this process may run on, then the first in
/// the list.
PortChoice choose_port(std::span<const PortDescription> ports, const Surroundings& surroundings,
                       const std::string& request);

/// Why `port` cannot be used; empty if it can.
std::string obstacle_of(const PortDescription& port);

}  // namespace tutti::verbs
