// The devices and ports of this host as found, and the owner of the opened port.
#pragma once

#include <string>
#include <vector>

#include "verbs/gid.hpp"
#include "verbs/handle.hpp"
#include "verbs/port_choice.hpp"

namespace tutti::verbs {

/// Every port of every device, real devices first, the software device last.
std::vector<PortDescription> list_ports();
/// Every port of every device of one driver.
std::vector<PortDescription> list_ports(const Driver& driver);

/// An opened device and the port to use on it.
struct Port {
  PortDescription description;
  GidCandidate gid;
  std::string reason;
  DeviceHandle device;
  ibv_device_attr limits = {};

  const Driver& driver() const noexcept { return *description.driver; }
  std::string name() const { return description.name(); }
};

/// Lists, chooses (see port_choice.hpp) by where the calling thread may run now, and opens.  Throws
/// Error; Error{no_device} names the request and what there is.
Port open_port(const std::string& request);
/// Opens what was chosen.  Throws Error.
Port open_port(PortDescription chosen, std::string reason);

}  // namespace tutti::verbs
