// Lists the devices and ports of this host, and opens the chosen port.
#pragma once

#include <string>
#include <vector>

#include "verbs/gid.hpp"
#include "verbs/handle.hpp"
#include "verbs/port_choice.hpp"

namespace tutti::verbs {

/// Every port of every device: real devices come first, the software device last.
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

/// Lists the ports, chooses one (see port_choice.hpp) by where the calling thread may run now, and
/// opens it.  Throws Error; Error{no_device} names the request and the ports that there are.
Port open_port(const std::string& request);
/// Opens the chosen port.  Throws Error.
Port open_port(PortDescription chosen, std::string reason);

/// Makes a protection domain of the port's device.  Throws Error.
DomainHandle make_domain(const Port& port);

}  // namespace tutti::verbs
