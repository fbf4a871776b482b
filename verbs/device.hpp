// Lists the devices and ports of this host, and opens the chosen port.
#pragma once

#include <cstdint>
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

/// What was found out about a device, beside what its driver promises.
struct FoundFact {
  enum class Says : std::uint8_t { nothing, holds, violated };
  Says says = Says::nothing;
  std::string source = {};  // who says what, as the end of a sentence; empty: nobody has looked
};
/// How a device places the writes of its peers (Driver::keep_lines_whole, places_writes_in_order):
/// what a stress has found on this kind of device, firmware and CPU.  It allows what the driver of
/// a real device does not promise, and forbids what any driver does.
struct FoundPlacement {
  FoundFact lines = {}, order = {};
};

/// An opened device and the port to use on it.
struct Port {
  PortDescription description;
  GidCandidate gid;
  std::string reason;
  DeviceHandle device;
  ibv_device_attr limits = {};
  FoundPlacement placement = {};

  const Driver& driver() const noexcept { return *description.driver; }
  std::string name() const { return description.name(); }
};

/// Lists the ports, chooses one (see port_choice.hpp) by where the calling thread may run now, and
/// opens it.  Throws Error; Error{no_device} names the request and the ports that there are.
Port open_port(const std::string& request);
/// Opens the chosen port.  Throws Error.
Port open_port(PortDescription chosen, std::string reason);

/// Makes a protection domain of the port's device.  Throws Error.
ProtectionDomainHandle make_domain(const Port& port);

}  // namespace tutti::verbs
