// Choice of device, port and GID, with the reason recorded; and the owner of the opened port.
#pragma once

#include <string>
#include <vector>

#include "verbs/gid.hpp"
#include "verbs/handle.hpp"

namespace tutti::verbs {

/// One port of one device, as found.
struct PortDescription {
  const Driver* driver = nullptr;
  std::string device;
  std::uint8_t port = 1;
  bool active = false;
  std::string state = {};  // e.g. "PORT_ACTIVE", or why the device could not be asked
  LinkLayer link = LinkLayer::infiniband;
  ibv_port_attr attributes = {};
  GidChoice gids = {};
};

/// Why devices of this transport cannot be used; empty if they can.
std::string obstacle_to_writes(ibv_transport_type transport);

/// Every port of every device, real devices first, the software device last.
std::vector<PortDescription> list_ports();

/// Index into `ports` of the port for `request`: "" = the first active port with a usable GID,
/// "name" = the first such port of that device, "name:port" = that one.  `reason` becomes one line
/// that says why.  Throws Error{no_device} that names the request and what there is.
std::size_t choose_port(std::span<const PortDescription> ports, const std::string& request,
                        std::string& reason);

/// An opened device and the port to use on it.
struct Port {
  PortDescription description;
  GidCandidate gid;
  std::string reason;
  DeviceHandle device;
  ibv_device_attr limits = {};

  const Driver& driver() const noexcept { return *description.driver; }
  std::string name() const { return description.device + ":" + std::to_string(description.port); }
};

/// Lists, chooses and opens.  Throws Error.
Port open_port(const std::string& request);

}  // namespace tutti::verbs
