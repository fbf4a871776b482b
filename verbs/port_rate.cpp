#include "verbs/port_rate.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>
#include <utility>

namespace tutti::verbs {
namespace {

/// Width codes of InfiniBand, with their lanes.
constexpr std::pair<unsigned, unsigned> widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};

struct Speed {
  unsigned code;
  double lane;  // Gb/s of data
  const char* name;
};
constexpr Speed speeds[] = {{1, 2.5, "SDR"}, {2, 5, "DDR"},   {4, 10, "QDR"},  {8, 10, "FDR10"},
                            {16, 14, "FDR"}, {32, 25, "EDR"}, {64, 50, "HDR"}, {128, 100, "NDR"}};

}  // namespace

PortRate rate_of(const ibv_port_attr& attributes) noexcept {
  const auto width = std::find_if(std::begin(widths), std::end(widths), [&](const auto& entry) {
    return entry.first == unsigned{attributes.active_width};
  });
  const auto speed = std::find_if(std::begin(speeds), std::end(speeds), [&](const Speed& entry) {
    return entry.code == unsigned{attributes.active_speed};
  });
  if (width == std::end(widths) || speed == std::end(speeds)) return {};
  return {.lanes = width->second, .lane = speed->lane, .name = speed->name};
}

std::uint32_t gigabits_of(const ibv_port_attr& attributes) noexcept {
  return static_cast<std::uint32_t>(rate_of(attributes).gigabits_per_second());
}

void set_rate(ibv_port_attr& attributes, double gigabits_per_second) noexcept {
  assert(gigabits_per_second > 0);
  double least = std::numeric_limits<double>::infinity();
  // Links of 4 lanes are the usual ones, so that they win over others of one rate.
  for (const unsigned lanes_wanted : {4u, 1u})
    for (const auto& [width, lanes] : widths)
      for (const Speed& speed : speeds) {
        if (lanes != lanes_wanted) continue;
        const double quotient = lanes * speed.lane / gigabits_per_second;
        const double off = std::max(quotient, 1 / quotient);
        if (off >= least) continue;
        least = off;
        attributes.active_width = static_cast<std::uint8_t>(width);
        attributes.active_speed = static_cast<std::uint8_t>(speed.code);
      }
}

}  // namespace tutti::verbs
