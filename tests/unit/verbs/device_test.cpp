// Promise: what is found on this host is described as it is, and opened as it was chosen.
#include "verbs/device.hpp"

#include <gtest/gtest.h>

#include <tutti/status.hpp>

#include "verbs/queue_pair.hpp"

namespace tutti::verbs {
namespace {

TEST(Devices, SoftwareDeviceIsListedLastAndIsNowhere) {
  const std::vector<PortDescription> ports = list_ports();
  ASSERT_FALSE(ports.empty());
  EXPECT_EQ(ports.back().name(), "soft0:1");
  EXPECT_TRUE(ports.back().is_software());
  EXPECT_FALSE(ports.back().locality.known());
  EXPECT_EQ(obstacle_of(ports.back()), "");
}

TEST(Devices, OpenedPortIsTheOneThatWasAskedForWithTheReason) {
  const Port port = open_port("soft0:1");
  EXPECT_EQ(port.name(), "soft0:1");
  EXPECT_NE(port.reason.find("asked for soft0:1"), std::string::npos) << port.reason;
}

TEST(Devices, WrongRequestIsNoDevice) {
  try {
    (void)open_port("soft0:2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_device);
    EXPECT_NE(std::string(error.what()).find("soft0 has no port 2"), std::string::npos);
  }
}

TEST(Endpoints, UnfitEndsAreNamedBeforeAnythingIsModified) {
  const Endpoint here{.queue_pair_number = 1,
                      .packet_sequence = 2,
                      .lid = 3,
                      .link_layer = static_cast<std::uint8_t>(LinkLayer::ethernet),
                      .gid_type = static_cast<std::uint8_t>(GidType::roce_v2),
                      .path_mtu = IBV_MTU_1024,
                      .reads_max = 1,
                      .reserved = 0,
                      .gid = {}};
  EXPECT_EQ(incompatibility(here, here), "");
  Endpoint there = here;
  there.link_layer = static_cast<std::uint8_t>(LinkLayer::infiniband);
  EXPECT_NE(incompatibility(here, there).find("InfiniBand"), std::string::npos);
  there = here;
  there.gid_type = static_cast<std::uint8_t>(GidType::roce_v1);
  EXPECT_NE(incompatibility(here, there).find("RoCE v1"), std::string::npos);
  there = here;
  there.gid[10] = there.gid[11] = 0xff;
  there.gid[12] = 10;
  EXPECT_NE(incompatibility(here, there).find("IPv4"), std::string::npos);
  there = here;
  there.path_mtu = 9;
  EXPECT_NE(incompatibility(here, there).find("9"), std::string::npos);
}

}  // namespace
}  // namespace tutti::verbs
