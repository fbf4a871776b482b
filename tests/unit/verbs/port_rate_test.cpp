// Promise: the rate of a port is read from its codes, and an emulated network has a port of about
// its rate.
#include "verbs/port_rate.hpp"

#include <gtest/gtest.h>

#include "verbs/soft/device.hpp"

namespace tutti::verbs {
namespace {

std::uint32_t gigabits(unsigned width, unsigned speed) {
  ibv_port_attr attributes{};
  attributes.active_width = static_cast<std::uint8_t>(width);
  attributes.active_speed = static_cast<std::uint8_t>(speed);
  return gigabits_of(attributes);
}

TEST(PortRates, are_read_from_codes) {
  EXPECT_EQ(gigabits(2, 32), 100u);   // 4X EDR
  EXPECT_EQ(gigabits(2, 128), 400u);  // 4X NDR
  EXPECT_EQ(gigabits(1, 32), 25u);    // 1 x 25
  EXPECT_EQ(gigabits(16, 64), 100u);  // 2X HDR
  EXPECT_EQ(gigabits(1, 1), 2u);      // 2.5
  EXPECT_EQ(gigabits(3, 32), 0u) << "no width";
  EXPECT_EQ(gigabits(2, 0), 0u) << "no speed";
}

TEST(PortRates, codes_of_the_nearest_rate_are_found) {
  for (const auto& [wanted, nearest] : {std::pair(100.0, 100u),
                                        {96.8, 100u},
                                        {54.4, 56u},
                                        {9.3, 10u},
                                        {23.2, 25u},
                                        {193.6, 200u},
                                        {1e6, 400u},
                                        {1e-3, 2u}}) {
    ibv_port_attr attributes{};
    set_rate(attributes, wanted);
    EXPECT_EQ(gigabits_of(attributes), nearest) << wanted;
  }
}

TEST(PortRates, emulated_networks_have_ports_of_their_rate) {
  soft::SoftDevice& device = soft::devices()[0];
  const auto rate_with = [&](const soft::FabricModel* emulated) {
    ibv_port_attr attributes{};
    soft::describe_port(device, 1, emulated, attributes);
    return gigabits_of(attributes);
  };
  EXPECT_EQ(rate_with(nullptr), 100u);
  for (const auto& [preset, rate] : {std::pair("qdr", 40u),
                                     {"fdr", 56u},
                                     {"edr", 100u},
                                     {"hdr", 200u},
                                     {"ndr", 400u},
                                     {"roce100", 100u},
                                     {"roce25", 25u},
                                     {"roce10", 10u}}) {
    const soft::FabricModel model = soft::read_fabric_model(preset);
    EXPECT_EQ(rate_with(&model), rate) << preset;
  }
  soft::FabricModel without_bytes;
  without_bytes.latency = 1000;
  EXPECT_EQ(rate_with(&without_bytes), 100u);
}

}  // namespace
}  // namespace tutti::verbs
