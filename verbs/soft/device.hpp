// The one device and its one port, and the settings of the environment.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/soft/process.hpp"

namespace tutti::verbs::soft {

inline constexpr std::uint8_t port_number = 1;
inline constexpr std::uint16_t port_lid = 1;  // the host is the subnet: one port, one address

ibv_device& device();

/// fe80::/64 and 64 bits of the host's boot id: the same for all processes of a host.
const ibv_gid& host_gid();

/// Whether an address handle leads to this host; any other is unreachable.
bool is_this_host(const ibv_ah_attr& attributes);

void describe_device(ibv_device_attr& attributes);
void describe_port(ibv_port_attr& attributes);

/// Reads TUTTI_SOFT_*.  EINVAL, with one line on stderr, for a name or a value it does not know.
int read_settings(Transport& transport);

}  // namespace tutti::verbs::soft
