// Every TUTTI_* variable of the environment, in one table: the refusal of unknown names, tutti-info
// and docs/settings.md are made of it.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::runtime {

/// Which part of the library a variable concerns; the sections of docs/settings.md, in this order.
enum class SettingGroup : std::uint8_t {
  device_and_memory,
  messages,
  nodes,
  tcp_bootstrap,
  software_device,
  mpi_programs,
};

struct Setting {
  SettingGroup group;
  const char* name;
  const char* values;    // what a value looks like
  const char* fallback;  // what holds if the variable is not set
  const char* decides;   // one line
  const char* more;      // what else there is to know, in whole sentences; may be empty
};

/// In the order of the groups.
std::span<const Setting> settings() noexcept;

/// Heading of a group.
const char* name_of(SettingGroup group) noexcept;

}  // namespace tutti::runtime
