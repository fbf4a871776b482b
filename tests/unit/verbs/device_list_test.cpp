// Promise: the settings that name software devices and their ports mean what they say, or are
// refused with what was expected.
#include "verbs/soft/device_list.hpp"

#include <gtest/gtest.h>

namespace tutti::verbs::soft {
namespace {

std::vector<DeviceSetting> devices_of(const char* value) {
  std::vector<DeviceSetting> devices;
  EXPECT_EQ(parse_devices(value, devices), "");
  return devices;
}

TEST(DeviceList, names_devices_and_their_numbers_of_ports) {
  const auto devices = devices_of("soft0:1,west-1.b:4,a:2");
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].name, "soft0");
  EXPECT_EQ(devices[0].ports_count, 1);
  EXPECT_EQ(devices[1].name, "west-1.b");
  EXPECT_EQ(devices[1].ports_count, 4);
  EXPECT_EQ(devices[2].name, "a");
  EXPECT_EQ(devices[2].ports_count, 2);
  EXPECT_EQ(devices_of("a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1").size(), devices_max);
}

TEST(DeviceList, wrong_lists_are_refused) {
  const std::string long_name(64, 'a');
  for (const std::string& value :
       {std::string(), std::string("soft0"), std::string("soft0:"), std::string("soft0:0"),
        std::string("soft0:5"), std::string("soft0:11"), std::string("soft0:-1"),
        std::string("soft0:a"), std::string(":1"), std::string("soft0:1,"), std::string(",soft0:1"),
        std::string("soft0:1,soft0:2"), std::string("a/b:1"), std::string("..:1"),
        std::string("a b:1"), std::string("a:b:1"), std::string("a: 1"),
        std::string("a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1"), long_name + ":1"}) {
    std::vector<DeviceSetting> devices;
    const std::string expected = parse_devices(value, devices);
    EXPECT_NE(expected.find("soft0:1,soft1:2"), std::string::npos) << value;
  }
}

TEST(DeviceList, links_are_down_where_named) {
  auto devices = devices_of("soft0:1,soft1:3");
  EXPECT_EQ(parse_links_down("soft1:3,soft0:1", devices), "");
  EXPECT_TRUE(devices[0].is_down[0]);
  EXPECT_FALSE(devices[1].is_down[0]);
  EXPECT_FALSE(devices[1].is_down[1]);
  EXPECT_TRUE(devices[1].is_down[2]);
}

TEST(DeviceList, links_of_ports_that_are_not_there_are_refused_with_those_that_are) {
  for (const char* value : {"", "soft0", "soft0:0", "soft0:2", "soft2:1", "soft0:1,", "soft0:1x"}) {
    auto devices = devices_of("soft0:1,soft1:2");
    const std::string expected = parse_links_down(value, devices);
    EXPECT_NE(expected.find("soft0:1 soft1:1 soft1:2"), std::string::npos) << value;
  }
}

}  // namespace
}  // namespace tutti::verbs::soft
