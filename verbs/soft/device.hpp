// How the devices describe themselves, and the addresses of their ports.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>

#include "verbs/soft/device_list.hpp"
#include "verbs/soft/fabric_model.hpp"

namespace tutti::verbs::soft {

/// The ports of a host are numbered from 1 on, by the device's index in the list and the port.
/// Such a number is called a place; addresses stand for places.  Processes with different lists
/// agree on it.  0 is no place.
inline std::uint32_t place_of(const SoftDevice& device, std::uint32_t port) {
  assert(device.index < devices_max);
  assert(port >= 1);
  assert(port <= ports_max);
  return device.index * ports_max + port;
}
inline constexpr std::uint32_t places_count = devices_max * ports_max;

/// A number computed from the host's boot id and network namespace.  Processes that can find each
/// other have the same number, and all others have different numbers.
enum class HostNumber : std::uint64_t {};
HostNumber read_host_number_slow();  // a system call

/// fe80::/64 and the 64 bits of the host's number, whose lowest bits are changed by the place.
ibv_gid gid_of(std::uint32_t place, HostNumber host = read_host_number_slow());

/// The address in 16 bits, where two hosts may have equal ones by chance.
std::uint16_t lid_of(std::uint32_t place, HostNumber host = read_host_number_slow());

/// The place that an address handle leads to; 0: none of this host, or the device's own port is
/// down.
std::uint32_t find_destination(const SoftDevice& device, const ibv_ah_attr& attributes);

void describe_device(const SoftDevice& device, ibv_device_attr& attributes);
/// `emulated`: null unless a network is emulated, whose rate the port then has.
void describe_port(const SoftDevice& device, std::uint32_t port, const FabricModel* emulated,
                   ibv_port_attr& attributes);

}  // namespace tutti::verbs::soft
