// Promise: tutti-info says of every port what it is and why it was taken or not, in 100 columns.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>

#include "microbench/info_ports.hpp"

namespace tutti::bench {
namespace {

ibv_port_attr rate_of(unsigned width, unsigned speed) {
  ibv_port_attr attributes{};
  attributes.active_width = static_cast<std::uint8_t>(width);
  attributes.active_speed = static_cast<std::uint8_t>(speed);
  return attributes;
}

TEST(Info, rates_are_those_of_the_codes) {
  using verbs::LinkLayer;
  EXPECT_EQ(rate_text(rate_of(2, 32), LinkLayer::infiniband), "100 Gb/s (4X EDR)");
  EXPECT_EQ(rate_text(rate_of(2, 16), LinkLayer::infiniband), "56 Gb/s (4X FDR)");
  EXPECT_EQ(rate_text(rate_of(16, 64), LinkLayer::infiniband), "100 Gb/s (2X HDR)");
  EXPECT_EQ(rate_text(rate_of(1, 1), LinkLayer::infiniband), "2.5 Gb/s (1X SDR)");
  EXPECT_EQ(rate_text(rate_of(2, 32), LinkLayer::ethernet), "100 Gb/s (4 x 25)");
  EXPECT_EQ(rate_text(rate_of(3, 32), LinkLayer::infiniband),
            "unknown rate (width code 3, speed code 32)");
  EXPECT_EQ(rate_text(rate_of(2, 0), LinkLayer::infiniband),
            "unknown rate (width code 2, speed code 0)");
}

TEST(Info, locked_memory_is_limited_unless_nobody_needs_it_or_may_exceed_it) {
  const verbs::LockLimit limit{.bytes = 8 << 20};
  EXPECT_EQ(lock_text(limit, true), "8192 KiB");
  EXPECT_EQ(lock_text(limit, false), "not needed by the software device");
  EXPECT_EQ(lock_text({.bytes = 8 << 20, .is_exempt = true}, true),
            "8192 KiB, which CAP_IPC_LOCK lifts for this process");
  EXPECT_EQ(lock_text({.bytes = SIZE_MAX}, true), "unlimited");
}

TEST(Info, path_mtus_are_bytes) {
  EXPECT_EQ(mtu_text(IBV_MTU_256), "256");
  EXPECT_EQ(mtu_text(IBV_MTU_4096), "4096");
  EXPECT_EQ(mtu_text(ibv_mtu{}), "unknown (code 0)");
}

verbs::GidCandidate gid(std::uint32_t index, const char* address) {
  verbs::GidCandidate candidate{.index = index, .type = verbs::GidType::roce_v2};
  EXPECT_EQ(inet_pton(AF_INET6, address, candidate.gid.raw), 1);
  return candidate;
}

/// An active RoCE port on a NUMA node of 16 CPUs with 5 of 256 GIDs, one of them empty.
verbs::PortDescription roce_port() {
  verbs::PortDescription port{.driver = &verbs::libibverbs_driver(),
                              .device = "mlx5_1",
                              .port = 1,
                              .active = true,
                              .state = "active",
                              .link = verbs::LinkLayer::ethernet,
                              .attributes = rate_of(2, 32)};
  port.attributes.active_mtu = IBV_MTU_1024;
  port.attributes.max_mtu = IBV_MTU_4096;
  port.attributes.gid_tbl_len = 256;
  const verbs::GidCandidate table[] = {gid(0, "fe80::1"), gid(1, "2001:db8::1"), gid(2, "::"),
                                       gid(3, "::ffff:10.0.0.1"), gid(4, "::ffff:10.0.0.2")};
  port.gids = verbs::choose_gid(port.link, table);
  port.locality = {.numa_node = 1, .near = detail::parse_cpu_list("16-31")};
  port.kernel_driver = "mlx5_core";
  return port;
}

std::string value(const InfoSection& part, const char* label) {
  for (const auto& [name, text] : part.lines)
    if (name == label) return text;
  return "no line \"" + std::string(label) + "\"";
}

TEST(Info, port_is_described_in_full) {
  const std::vector<verbs::PortDescription> ports = {roce_port()};
  const verbs::Surroundings here{.allowed = detail::parse_cpu_list("0-3"), .nodes = {}};
  const InfoSection section = port_section(ports, choose_port(ports, here, ""), here);
  ASSERT_EQ(section.parts.size(), 1u);
  const InfoSection& part = section.parts[0];
  EXPECT_EQ(part.title, "mlx5_1:1");
  EXPECT_EQ(value(part, "choice"), "taken: the only usable port of a real device");
  EXPECT_EQ(value(part, "link"),
            "Ethernet (RoCE), active, 100 Gb/s (4 x 25), MTU 1024 (up to 4096)");
  EXPECT_EQ(value(part, "near"),
            "NUMA node 1, CPUs 16-31; distance 20 from the CPUs allowed (10: on the spot)");
  EXPECT_EQ(value(part, "driver"), "mlx5_core, over libibverbs");
  EXPECT_EQ(value(part, "GID[0]"),
            "fe80::1 RoCE v2: link-local address, and a routable one is there");
  EXPECT_EQ(value(part, "GID[3]"), "::ffff:10.0.0.1 RoCE v2: taken");
  EXPECT_EQ(value(part, "empty GIDs"), "252 of 256");
  EXPECT_EQ(value(part, "GID[2]"), "no line \"GID[2]\"");
}

TEST(Info, port_that_is_down_has_no_rate_and_says_why_it_was_not_taken) {
  std::vector<verbs::PortDescription> ports = {roce_port()};
  ports[0].active = false;
  ports[0].state = "down";
  const InfoSection section = port_section(ports, choose_port(ports, {}, ""), {});
  EXPECT_EQ(value(section.parts[0], "choice"), "not taken: port down");
  EXPECT_EQ(value(section.parts[0], "link"), "Ethernet (RoCE), down");
  EXPECT_EQ(value(section.parts[0], "GID[3]"), "::ffff:10.0.0.1 RoCE v2: would be taken");
}

TEST(Info, long_texts_are_broken_at_spaces_and_nothing_is_lost) {
  std::string words;
  for (int i = 0; i < 100; ++i) words += "word" + std::to_string(i) + " ";
  const std::string rigid(150, 'x');
  const std::vector<InfoSection> sections = {
      {.title = "One",
       .lines = {{"label", words}, {"other label", rigid}},
       .parts = {{.title = "part", .lines = {{"a", words}}}}}};
  std::istringstream lines(text_of(sections));
  std::string all, line;
  while (std::getline(lines, line)) {
    EXPECT_TRUE(line.size() <= 100 || line.find(rigid) != std::string::npos) << line;
    all += line + ' ';
  }
  EXPECT_NE(all.find("word57"), std::string::npos);
  EXPECT_NE(all.find("word99"), std::string::npos);
}

}  // namespace
}  // namespace tutti::bench
