#include "verbs/soft/device_list.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tutti::verbs::soft {
namespace {

constexpr const char* devices_variable = "TUTTI_SOFT_DEVICES";
constexpr const char* links_down_variable = "TUTTI_SOFT_LINK_DOWN";
constexpr const char* default_devices = "soft0:1";

/// Splits "name:number"; false for anything else.  Numbers have one digit.
bool take_apart(std::string_view item, std::string& name, std::uint8_t& number) {
  const std::size_t colon = item.rfind(':');
  if (colon == std::string_view::npos || item.size() != colon + 2) return false;
  const char digit = item[colon + 1];
  if (digit < '0' || digit > '9') return false;
  name = item.substr(0, colon);
  number = static_cast<std::uint8_t>(digit - '0');
  return true;
}

/// Calls `take` with each item of a list until it returns false.
template <class Take>
bool for_each_item(std::string_view list, const Take& take) {
  for (;;) {
    const std::size_t comma = list.find(',');
    if (!take(list.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

bool is_name(std::string_view text) {
  // The name becomes a part of a path: /dev/infiniband/<name>.
  constexpr std::string_view allowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !text.empty() && text.size() < IBV_SYSFS_NAME_MAX && text.front() != '.' &&
         text.find_first_not_of(allowed) == std::string_view::npos;
}

DeviceSetting* find(std::vector<DeviceSetting>& devices, std::string_view name) {
  const auto place = std::find_if(devices.begin(), devices.end(),
                                  [name](const auto& device) { return device.name == name; });
  return place == devices.end() ? nullptr : &*place;
}

struct DeviceList {
  std::array<SoftDevice, devices_max> devices{};
  std::size_t count = 0;
  std::string error;  // a whole line
};

void fill(DeviceList& list, const std::vector<DeviceSetting>& settings) {
  for (const DeviceSetting& setting : settings) {
    assert(list.count < devices_max);
    assert(setting.name.size() < sizeof(SoftDevice::name));
    assert(setting.ports_count <= ports_max);
    SoftDevice& device = list.devices[list.count];
    device.node_type = IBV_NODE_CA;
    device.transport_type = IBV_TRANSPORT_IB;
    std::memcpy(device.name, setting.name.c_str(), setting.name.size() + 1);
    std::memcpy(device.dev_name, setting.name.c_str(), setting.name.size() + 1);
    device.index = static_cast<std::uint32_t>(list.count++);
    device.ports_count = setting.ports_count;
    device.is_down = setting.is_down;
  }
}

DeviceList& device_list() {
  // Never destroyed, because exit handlers may close and open contexts.
  static DeviceList& list = *[] {
    auto& made = *new DeviceList;
    std::vector<DeviceSetting> settings;
    const auto read = [&](const char* variable, const char* value, auto parse) {
      if (!value || !made.error.empty()) return;
      if (const std::string expected = parse(value, settings); !expected.empty())
        made.error = std::string(variable) + "=\"" + value + "\": expected " + expected;
    };
    const char* const named = std::getenv(devices_variable);
    read(devices_variable, named ? named : default_devices, parse_devices);
    read(links_down_variable, std::getenv(links_down_variable), parse_links_down);
    if (!made.error.empty()) (void)parse_devices(default_devices, settings);
    fill(made, settings);
    return &made;
  }();
  return list;
}

}  // namespace

std::string parse_devices(std::string_view value, std::vector<DeviceSetting>& devices) {
  devices.clear();
  const bool valid = for_each_item(value, [&](std::string_view item) {
    DeviceSetting device{};
    if (!take_apart(item, device.name, device.ports_count) || !is_name(device.name) ||
        device.ports_count < 1 || device.ports_count > ports_max || find(devices, device.name) ||
        devices.size() == devices_max)
      return false;
    devices.push_back(std::move(device));
    return true;
  });
  return valid ? std::string()
               : "1 to 8 different names, each with 1 to 4 ports, e.g. soft0:1,soft1:2";
}

std::string parse_links_down(std::string_view value, std::vector<DeviceSetting>& devices) {
  const bool valid = for_each_item(value, [&](std::string_view item) {
    std::string name;
    std::uint8_t port = 0;
    if (!take_apart(item, name, port)) return false;
    DeviceSetting* const device = find(devices, name);
    if (!device || port < 1 || port > device->ports_count) return false;
    device->is_down[port - 1U] = true;
    return true;
  });
  if (valid) return {};
  std::string expected = "name:port of";
  for (const DeviceSetting& device : devices)
    for (unsigned port = 1; port <= device.ports_count; ++port)
      expected += " " + device.name + ":" + std::to_string(port);
  return expected + ", separated by commas";
}

std::span<SoftDevice> devices() {
  DeviceList& list = device_list();
  return std::span(list.devices).first(list.count);
}

int check_devices() {
  const std::string& error = device_list().error;
  if (error.empty()) return 0;
  std::fprintf(stderr, "tutti: %s\n", error.c_str());
  return EINVAL;
}

}  // namespace tutti::verbs::soft
