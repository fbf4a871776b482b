// Promise: the port that is used, and why, is never a guess; a wrong TUTTI_DEVICE is explained.
#include "verbs/device.hpp"

#include <gtest/gtest.h>

#include <tutti/status.hpp>

#include "verbs/queue_pair.hpp"

namespace tutti::verbs {
namespace {

PortDescription port(const Driver& driver, const char* name, std::uint8_t number, bool active) {
  PortDescription description{.driver = &driver,
                              .device = name,
                              .port = number,
                              .active = active,
                              .state = active ? "PORT_ACTIVE" : "PORT_DOWN"};
  description.gids.chosen = GidCandidate{};
  return description;
}

const std::vector<PortDescription> two_devices = {
    port(libibverbs_driver(), "mlx5_0", 1, false), port(libibverbs_driver(), "mlx5_0", 2, true),
    port(libibverbs_driver(), "mlx5_1", 1, true), port(soft_driver(), "soft0", 1, true)};

TEST(PortChoice, FirstActivePortOfARealDeviceIsTaken) {
  std::string reason;
  EXPECT_EQ(choose_port(two_devices, "", reason), 1u);
  EXPECT_NE(reason.find("mlx5_0:1 (PORT_DOWN)"), std::string::npos) << reason;
}

TEST(PortChoice, SoftwareDeviceIsTakenOnlyIfNoRealPortIsActive) {
  std::string reason;
  const std::vector<PortDescription> ports = {two_devices[0], two_devices[3]};
  EXPECT_EQ(choose_port(ports, "", reason), 1u);
  EXPECT_NE(reason.find("no active port of a real device"), std::string::npos) << reason;
}

TEST(PortChoice, NameAndNameWithPortAreRespected) {
  std::string reason;
  EXPECT_EQ(choose_port(two_devices, "mlx5_1", reason), 2u);
  EXPECT_EQ(choose_port(two_devices, "soft0:1", reason), 3u);
}

TEST(PortChoice, RequestThatFitsNothingNamesItselfAndWhatThereIs) {
  for (const char* request : {"mlx5_7", "mlx5_0:1", "soft0:2", "mlx5_0:"}) {
    std::string reason;
    try {
      choose_port(two_devices, request, reason);
      FAIL() << request;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::no_device);
      EXPECT_NE(std::string(error.what()).find(request), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("mlx5_1:1"), std::string::npos);
    }
  }
}

TEST(PortChoice, TransportsWithoutWriteWithImmediateAreNotUsed) {
  EXPECT_EQ(obstacle_to_writes(IBV_TRANSPORT_IB), "");
  EXPECT_NE(obstacle_to_writes(IBV_TRANSPORT_IWARP).find("iWARP"), std::string::npos);
  EXPECT_NE(obstacle_to_writes(IBV_TRANSPORT_USNIC), "");
}

TEST(Endpoints, UnfitEndsAreNamedBeforeAnythingIsModified) {
  const Endpoint here{.queue_pair_number = 1,
                      .packet_sequence = 2,
                      .lid = 3,
                      .link_layer = static_cast<std::uint8_t>(LinkLayer::ethernet),
                      .gid_type = static_cast<std::uint8_t>(GidType::roce_v2),
                      .path_mtu = IBV_MTU_1024,
                      .reads_max = 1,
                      .service_port = 0,
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
  there.service_port = 4711;
  EXPECT_NE(incompatibility(here, there).find("TUTTI_CONNECT"), std::string::npos);
  there = here;
  there.path_mtu = 9;
  EXPECT_NE(incompatibility(here, there).find("9"), std::string::npos);
}

}  // namespace
}  // namespace tutti::verbs
