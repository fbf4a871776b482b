// The one device and its one port.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace tutti::verbs::soft {

inline constexpr std::uint8_t port_number = 1;

ibv_device& device();

/// fe80::/64 and 64 bits of the host's boot id and network namespace: the same for all processes
/// that can find each other, and for no others.
ibv_gid host_gid();

/// The same in 16 bits, where two hosts may agree by chance.
std::uint16_t host_lid();

/// Whether an address handle leads to this host; any other is unreachable.
bool is_this_host(const ibv_ah_attr& attributes);

void describe_device(ibv_device_attr& attributes);
void describe_port(ibv_port_attr& attributes);

}  // namespace tutti::verbs::soft
