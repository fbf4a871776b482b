// The devices that the environment names, and their ports.  All devices of a process share its one
// segment; they differ by their contexts and the addresses of their ports.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::verbs::soft {

inline constexpr std::size_t devices_max = 8;
inline constexpr std::uint8_t ports_max = 4;  // of one device

struct SoftDevice : ibv_device {
  // To find out whether a device is one of its own, a vendor's library looks behind ibv_device,
  // where libibverbs keeps its private part.  Zeros there belong to no vendor.
  std::array<std::byte, 4096> zeros;
  std::uint32_t index;  // in the list
  std::uint8_t ports_count;
  std::array<bool, ports_max> is_down;  // by port - 1

  bool has_port(std::uint32_t port) const { return port >= 1 && port <= ports_count; }
  bool is_up(std::uint32_t port) const { return has_port(port) && !is_down[port - 1]; }
};

/// One device as TUTTI_SOFT_DEVICES and TUTTI_SOFT_LINK_DOWN describe it.
struct DeviceSetting {
  std::string name;
  std::uint8_t ports_count;
  std::array<bool, ports_max> is_down;
};

/// Reads "name:ports,..."; returns an empty string, or what was expected.
std::string parse_devices(std::string_view value, std::vector<DeviceSetting>& devices);
/// Reads "name:port,..."; returns an empty string, or what was expected.
std::string parse_links_down(std::string_view value, std::vector<DeviceSetting>& devices);

/// The devices of this process, as the environment named them when they were first asked for.  If
/// the environment is wrong, this is the default device, and check_devices() prevents its opening.
std::span<SoftDevice> devices();

/// 0, or EINVAL with one line on stderr.
int check_devices();

inline SoftDevice& device_of(const ibv_context* context) {
  return *static_cast<SoftDevice*>(context->device);
}

}  // namespace tutti::verbs::soft
