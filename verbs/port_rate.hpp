// How fast the link of a port is, by the codes that ibv_query_port() gives.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace tutti::verbs {

struct PortRate {
  unsigned lanes = 0;     // 0: a code stands for nothing known, and the rate is not known
  double lane = 0;        // Gb/s
  const char* name = "";  // of that speed on InfiniBand: "EDR"

  bool is_known() const noexcept { return lanes > 0; }
  double gigabits_per_second() const noexcept { return lanes * lane; }
};

PortRate rate_of(const ibv_port_attr& attributes) noexcept;

/// In whole Gb/s; 0: not known.
std::uint32_t gigabits_of(const ibv_port_attr& attributes) noexcept;

/// Sets the codes of the rate that is nearest to so many Gb/s, by their quotient.
void set_rate(ibv_port_attr& attributes, double gigabits_per_second) noexcept;

}  // namespace tutti::verbs
