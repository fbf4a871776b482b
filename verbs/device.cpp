#include "verbs/device.hpp"

#include <cassert>
#include <cerrno>
#include <cstring>
#include <tutti/status.hpp>

namespace tutti::verbs {
namespace {

DeviceHandle open_named(const Driver& driver, const std::string& name) {
  int count = 0;
  ibv_device** list = driver.get_device_list(&count);
  ibv_context* opened = nullptr;
  for (int i = 0; list && i < count && !opened; ++i)
    if (name == driver.get_device_name(list[i])) opened = driver.open_device(list[i]);
  const int error = errno;
  if (list) driver.free_device_list(list);
  errno = error;
  return DeviceHandle(opened, {&driver});
}

GidType type_of(const ibv_gid_entry& entry) {
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) return GidType::roce_v2;
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V1) return GidType::roce_v1;
  return GidType::infiniband;
}

/// Why no port of this device can be used; empty if its kind fits.  iWARP lacks more than is said:
/// it can only be connected by its connection manager.  usNIC and EFA have no reliable connections.
const char* unfit_reason(const ibv_device& device) {
  if (device.transport_type == IBV_TRANSPORT_IWARP || device.node_type == IBV_NODE_RNIC)
    return "iWARP: has no write-with-immediate";
  if (device.transport_type != IBV_TRANSPORT_IB) return "neither InfiniBand nor RoCE";
  return "";
}

PortDescription describe_port(const Driver& driver, ibv_context* context,
                              const PortDescription& of_device, std::uint8_t port) {
  assert(context != nullptr);
  assert(port > 0);
  PortDescription found = of_device;
  found.port = port;
  if (const int error = driver.query_port(context, port, &found.attributes); error != 0) {
    found.state = std::string("cannot be queried: ") + std::strerror(error);
    return found;
  }
  found.active = found.attributes.state == IBV_PORT_ACTIVE;
  found.state = ibv_port_state_str(found.attributes.state);
  found.link = found.attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? LinkLayer::ethernet
                                                                      : LinkLayer::infiniband;
  std::vector<GidCandidate> table;
  for (int i = 0; i < found.attributes.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    const auto index = static_cast<std::uint32_t>(i);
    if (driver.query_gid(context, port, index, &entry) != 0) continue;  // ENODATA: an empty entry
    table.push_back({.index = index, .type = type_of(entry), .gid = entry.gid});
  }
  found.gids = choose_gid(found.link, table);
  return found;
}

PortDescription describe_device(const Driver& driver, ibv_device* device) {
  PortDescription found{.driver = &driver, .device = driver.get_device_name(device), .port = 0};
  found.unfit = unfit_reason(*device);
  if (found.is_software()) return found;
  found.locality = locality_of(found.device);
  found.kernel_driver = kernel_driver_of(found.device);
  return found;
}

}  // namespace

std::vector<PortDescription> list_ports(const Driver& driver) {
  std::vector<PortDescription> ports;
  int count = 0;
  ibv_device** list = driver.get_device_list(&count);
  for (int i = 0; list && i < count; ++i) {
    PortDescription found = describe_device(driver, list[i]);
    const DeviceHandle device(driver.open_device(list[i]), {&driver});
    ibv_device_attr attributes{};
    const int error = !device ? errno : driver.query_device(device.get(), &attributes);
    if (error != 0) {
      found.state = std::string("cannot be opened: ") + std::strerror(error);
      ports.push_back(found);
      continue;
    }
    for (unsigned port = 1; port <= attributes.phys_port_cnt; ++port)
      ports.push_back(describe_port(driver, device.get(), found, static_cast<std::uint8_t>(port)));
  }
  if (list) driver.free_device_list(list);
  return ports;
}

std::vector<PortDescription> list_ports() {
  std::vector<PortDescription> ports = list_ports(libibverbs_driver());
  for (PortDescription& port : list_ports(soft_driver())) ports.push_back(std::move(port));
  return ports;
}

Port open_port(PortDescription chosen, std::string reason) {
  assert(chosen.driver != nullptr);
  assert(chosen.port > 0);
  assert(chosen.gids.chosen.has_value());
  Port opened;
  opened.gid = chosen.gids.chosen.value();
  opened.description = std::move(chosen);
  opened.reason = std::move(reason);
  opened.device = open_named(opened.driver(), opened.description.device);
  if (!opened.device)
    throw Error(ErrorCode::no_device,
                "open_device " + opened.description.device + ": " + std::strerror(errno), errno);
  if (const int error = opened.driver().query_device(opened.device.get(), &opened.limits);
      error != 0)
    throw Error(ErrorCode::system,
                "query_device " + opened.description.device + ": " + std::strerror(error), error);
  return opened;
}

Port open_port(const std::string& request) {
  std::vector<PortDescription> ports = list_ports();
  PortChoice choice = choose_port(ports, look_around(), request);
  assert(!choice.reason.empty());
  if (!choice.chosen) throw Error(ErrorCode::no_device, choice.reason);
  return open_port(std::move(ports[*choice.chosen]), std::move(choice.reason));
}

ProtectionDomainHandle make_domain(const Port& port) {
  ProtectionDomainHandle domain(port.driver().alloc_pd(port.device.get()), {&port.driver()});
  if (!domain)
    throw Error(ErrorCode::system, "alloc_pd on " + port.name() + ": " + std::strerror(errno),
                errno);
  return domain;
}

}  // namespace tutti::verbs
