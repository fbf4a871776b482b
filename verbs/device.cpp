#include "verbs/device.hpp"

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

PortDescription describe_port(const Driver& driver, ibv_context* context, std::string device,
                              std::uint8_t port) {
  PortDescription found{.driver = &driver, .device = std::move(device), .port = port};
  if (const int error = driver.query_port(context, port, &found.attributes); error != 0) {
    found.state = std::string("query_port: ") + std::strerror(error);
    return found;
  }
  found.active = found.attributes.state == IBV_PORT_ACTIVE;
  found.state = ibv_port_state_str(found.attributes.state);
  if (const std::string obstacle = obstacle_to_writes(context->device->transport_type);
      !obstacle.empty()) {
    found.active = false;
    found.state += ", " + obstacle;
  }
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

void list_ports_of(const Driver& driver, std::vector<PortDescription>& ports) {
  int count = 0;
  ibv_device** list = driver.get_device_list(&count);
  for (int i = 0; list && i < count; ++i) {
    const std::string name = driver.get_device_name(list[i]);
    const DeviceHandle device(driver.open_device(list[i]), {&driver});
    ibv_device_attr attributes{};
    if (!device || driver.query_device(device.get(), &attributes) != 0) {
      ports.push_back({.driver = &driver,
                       .device = name,
                       .state = std::string("cannot be opened: ") + std::strerror(errno)});
      continue;
    }
    for (unsigned port = 1; port <= attributes.phys_port_cnt; ++port)
      ports.push_back(describe_port(driver, device.get(), name, static_cast<std::uint8_t>(port)));
  }
  if (list) driver.free_device_list(list);
}

std::string names_of(std::span<const PortDescription> ports) {
  std::string names;
  for (const PortDescription& port : ports)
    names += (names.empty() ? "" : ", ") + port.device + ":" + std::to_string(port.port) + " (" +
             port.state + ")";
  return names.empty() ? "none" : names;
}

/// "name:port" or "name"; an empty request fits every port.
bool fits(const PortDescription& port, const std::string& request) {
  return request.empty() || request == port.device ||
         request == port.device + ":" + std::to_string(port.port);
}

}  // namespace

std::string obstacle_to_writes(ibv_transport_type transport) {
  if (transport == IBV_TRANSPORT_IB) return {};
  if (transport == IBV_TRANSPORT_IWARP) return "iWARP, which has no RDMA write with immediate";
  return "neither InfiniBand nor RoCE";  // usNIC, for one, has no RDMA at all
}

std::vector<PortDescription> list_ports() {
  std::vector<PortDescription> ports;
  list_ports_of(libibverbs_driver(), ports);
  list_ports_of(soft_driver(), ports);
  return ports;
}

std::size_t choose_port(std::span<const PortDescription> ports, const std::string& request,
                        std::string& reason) {
  std::string passed_over;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (!fits(ports[i], request)) continue;
    if (ports[i].active && ports[i].gids.chosen) {
      reason = request.empty() ? "first active port" : "TUTTI_DEVICE or code asked for " + request;
      if (request.empty() && ports[i].driver == &soft_driver())
        reason = "no active port of a real device";
      if (!passed_over.empty()) reason += "; passed over: " + passed_over;
      return i;
    }
    passed_over += (passed_over.empty() ? "" : ", ") + ports[i].device + ":" +
                   std::to_string(ports[i].port) + " (" +
                   (ports[i].active ? "no usable GID" : ports[i].state) + ")";
  }
  throw Error(ErrorCode::no_device, "TUTTI_DEVICE=\"" + request +
                                        "\": no such active port; expected name or name:port of " +
                                        names_of(ports));
}

Port open_port(const std::string& request) {
  const std::vector<PortDescription> ports = list_ports();
  Port opened;
  opened.description = ports[choose_port(ports, request, opened.reason)];
  opened.gid = *opened.description.gids.chosen;
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

}  // namespace tutti::verbs
