// What tutti-info says about ports: all that an administrator would ask for, and why each port was
// taken or not.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "microbench/info.hpp"
#include "verbs/lock_limit.hpp"
#include "verbs/port_choice.hpp"

namespace tutti::bench {

/// One part for each port.
InfoSection port_section(std::span<const verbs::PortDescription> ports,
                         const verbs::PortChoice& choice, const verbs::Surroundings& surroundings);

/// "100 Gb/s (4X EDR)"; on Ethernet "100 Gb/s (4 x 25)".
std::string rate_text(const ibv_port_attr& attributes, verbs::LinkLayer link);

/// "4096"; the port's code if it stands for no MTU.
std::string mtu_text(ibv_mtu mtu);

/// "64 MiB".
std::string memory_text(std::uint64_t bytes);

/// The limit on locked memory, which matters only if it `is_needed`: the software device locks
/// none.
std::string lock_text(const verbs::LockLimit& limit, bool is_needed);

}  // namespace tutti::bench
