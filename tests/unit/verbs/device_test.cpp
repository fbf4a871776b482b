// Promise: what is found on this host is described as it is, and opened as it was chosen.
#include "verbs/device.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <tutti/status.hpp>

namespace tutti::verbs {
namespace {

/// A driver of devices that this host does not have; what a test does not change is unremarkable.
struct FakeDevice : ibv_device {
  bool opens = true;
  int query_port_error = 0;
  ibv_port_attr port = {};
  ibv_gid_entry gid = {};  // entry 1; entry 0 is empty
  ibv_context context = {};
};

std::vector<FakeDevice> fakes;
std::array<ibv_device*, 8> fake_list;

FakeDevice& fake_of(ibv_context* context) {
  return static_cast<FakeDevice&>(*context->device);
}

Driver fake_driver() {
  Driver driver = libibverbs_driver();
  driver.get_device_list = [](int* count) {
    *count = static_cast<int>(fakes.size());
    for (std::size_t i = 0; i < fakes.size(); ++i) fake_list[i] = &fakes[i];
    return fake_list.data();
  };
  driver.free_device_list = [](ibv_device**) {};
  driver.get_device_name = [](ibv_device* device) -> const char* { return device->name; };
  driver.open_device = [](ibv_device* device) -> ibv_context* {
    auto& fake = static_cast<FakeDevice&>(*device);
    fake.context.device = device;
    errno = EACCES;
    return fake.opens ? &fake.context : nullptr;
  };
  driver.close_device = [](ibv_context*) { return 0; };
  driver.query_device = [](ibv_context*, ibv_device_attr* attributes) {
    attributes->phys_port_cnt = 1;
    return 0;
  };
  driver.query_port = [](ibv_context* context, uint8_t, ibv_port_attr* attributes) {
    *attributes = fake_of(context).port;
    return fake_of(context).query_port_error;
  };
  driver.query_gid = [](ibv_context* context, uint32_t, uint32_t index, ibv_gid_entry* entry) {
    *entry = fake_of(context).gid;
    return index == 1 ? 0 : ENODATA;
  };
  return driver;
}

/// An active RoCE v2 port, unless `change` says otherwise.
template <class Change>
void add_fake(const char* name, Change&& change) {
  FakeDevice fake;
  std::strcpy(fake.name, name);
  fake.node_type = IBV_NODE_CA;
  fake.transport_type = IBV_TRANSPORT_IB;
  fake.port.state = IBV_PORT_ACTIVE;
  fake.port.link_layer = IBV_LINK_LAYER_ETHERNET;
  fake.port.gid_tbl_len = 2;
  fake.gid.gid_type = IBV_GID_TYPE_ROCE_V2;
  fake.gid.gid.raw[15] = 1;
  change(fake);
  fakes.push_back(fake);
}

TEST(Devices, each_is_described_with_what_keeps_it_from_being_used) {
  fakes.clear();
  add_fake("roce", [](FakeDevice&) {});
  add_fake("iwarp", [](FakeDevice& fake) {
    fake.node_type = IBV_NODE_RNIC;
    fake.transport_type = IBV_TRANSPORT_IWARP;
  });
  add_fake("efa", [](FakeDevice& fake) { fake.transport_type = IBV_TRANSPORT_UNSPECIFIED; });
  add_fake("closed", [](FakeDevice& fake) { fake.opens = false; });
  add_fake("odd", [](FakeDevice& fake) { fake.query_port_error = EINVAL; });
  add_fake("down", [](FakeDevice& fake) { fake.port.state = IBV_PORT_DOWN; });
  add_fake("init", [](FakeDevice& fake) {
    fake.port.state = IBV_PORT_INIT;
    fake.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  });
  add_fake("empty", [](FakeDevice& fake) { fake.port.gid_tbl_len = 1; });
  const Driver driver = fake_driver();
  const std::vector<PortDescription> ports = list_ports(driver);
  ASSERT_EQ(ports.size(), fakes.size());
  EXPECT_EQ(ports[0].name(), "roce:1");
  EXPECT_EQ(ports[0].link, LinkLayer::ethernet);
  EXPECT_EQ(ports[0].gids.chosen->index, 1u);
  EXPECT_FALSE(ports[0].locality.known());
  EXPECT_EQ(ports[3].name(), "closed");
  const char* const obstacles[] = {"",
                                   "iWARP: has no write-with-immediate",
                                   "neither InfiniBand nor RoCE",
                                   "device cannot be opened: Permission denied",
                                   "port cannot be queried: Invalid argument",
                                   "port down",
                                   "port init: no subnet manager has set it up",
                                   "no usable GID"};
  for (std::size_t i = 0; i < ports.size(); ++i) EXPECT_EQ(obstacle_of(ports[i]), obstacles[i]);
}

TEST(Devices, software_device_is_listed_last_and_is_nowhere) {
  const std::vector<PortDescription> ports = list_ports();
  ASSERT_FALSE(ports.empty());
  EXPECT_EQ(ports.back().name(), "soft0:1");
  EXPECT_TRUE(ports.back().is_software());
  EXPECT_FALSE(ports.back().locality.known());
  EXPECT_EQ(obstacle_of(ports.back()), "");
}

TEST(Devices, opened_port_is_the_one_that_was_asked_for_with_the_reason) {
  const Port port = open_port("soft0:1");
  EXPECT_EQ(port.name(), "soft0:1");
  EXPECT_NE(port.reason.find("asked for soft0:1"), std::string::npos) << port.reason;
}

TEST(Devices, wrong_request_is_no_device) {
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
