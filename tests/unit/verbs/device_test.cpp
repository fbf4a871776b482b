// Promise: what is found on this host is described as it is, and opened as it was chosen.
#include "verbs/device.hpp"

#include <gtest/gtest.h>

#include <tutti/status.hpp>

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

}  // namespace
}  // namespace tutti::verbs
