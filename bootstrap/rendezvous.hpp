// Where ranks meet over TCP if nobody has said where: rank 0 listens at an address of its own and
// draws a secret, and some other channel carries both to the others.
#pragma once

#include <string>
#include <utility>

#include "bootstrap/unshared_descriptor.hpp"

namespace tutti::bootstrap {

/// The address of the first interface that is up and not the loopback, IPv4 before IPv6.  Throws
/// Error{system}, which begins with `origin`.
std::string own_address(const std::string& origin);

/// 32 hexadecimal digits.  Throws Error{system}.
std::string random_secret();

/// A listener at a free port of `host`, an address, and the rendezvous that names both.
std::pair<UnsharedDescriptor, std::string> listen_anywhere(const std::string& host);

}  // namespace tutti::bootstrap
