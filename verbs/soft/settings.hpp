// What the environment says about the device, once for all contexts of a process.
#pragma once

#include <cstdint>
#include <string>

#include <tutti/detail/bulk_copy.hpp>

namespace tutti::verbs::soft {

enum class Transport : std::uint8_t { automatic, shared, cma, bounce };

struct Settings {
  Transport transport = Transport::automatic;
  bool logs_transports = false;
  bool promotes = false;
  detail::Stores stores = detail::Stores::automatic;
  std::string fabric;       // preset or file; empty: the network is not emulated
  std::uint32_t place = 0;  // the place of this process in it

  bool operator==(const Settings&) const = default;
};

/// Reads TUTTI_SOFT_*.  EINVAL, with one line on stderr, for an unknown name or value.
int read_settings(Settings& settings);

}  // namespace tutti::verbs::soft
