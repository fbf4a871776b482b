// Promise: ranks whose ports cannot talk to each other are told so in words that say who has what,
// before any queue pair is made; different names, and different path MTUs, are no obstacle.
#include "verbs/port_card.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace tutti::verbs {
namespace {

PortCard card(const char* name, LinkLayer link, GidType type, ibv_mtu mtu = IBV_MTU_4096) {
  PortCard made{.name = {},
                .is_software = 0,
                .link_layer = static_cast<std::uint8_t>(link),
                .gid_type = static_cast<std::uint8_t>(type),
                .is_ipv4 = 0,
                .path_mtu = static_cast<std::uint8_t>(mtu),
                .reserved = {},
                .subnet = 0,
                .gigabits_per_second = 100,
                .reserved_too = 0};
  std::strncpy(made.name, name, sizeof made.name - 1);
  return made;
}

PortCard infiniband(const char* name, ibv_mtu mtu = IBV_MTU_4096) {
  return card(name, LinkLayer::infiniband, GidType::infiniband, mtu);
}

PortCard soft(const char* name) {
  PortCard made = infiniband(name);
  made.is_software = 1;
  return made;
}

PortCard roce_v2(const char* name, bool is_ipv4) {
  PortCard made = card(name, LinkLayer::ethernet, GidType::roce_v2);
  made.is_ipv4 = is_ipv4;
  return made;
}

PortCard roce_v1(const char* name) {
  return card(name, LinkLayer::ethernet, GidType::roce_v1);
}

using Cards = std::vector<PortCard>;

bool says(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

TEST(PortsOfRanks, names_and_path_mtus_may_differ) {
  EXPECT_EQ(incompatibility(Cards{infiniband("mlx5_0:1"), infiniband("mlx5_2:2", IBV_MTU_2048)}),
            "");
  EXPECT_EQ(incompatibility(Cards{roce_v2("mlx5_0:1", true), roce_v2("rxe0:1", true)}), "");
  EXPECT_EQ(incompatibility(Cards{soft("soft0:1"), soft("soft1:2")}), "");
  EXPECT_EQ(incompatibility(Cards{soft("soft0:1")}), "");
  EXPECT_EQ(incompatibility(Cards{}), "");
}

// Every rank has to find the same one.
TEST(PortsOfRanks, the_slowest_has_the_least_rate_that_is_known) {
  Cards cards{infiniband("a:1"), infiniband("b:1"), infiniband("c:1"), infiniband("d:1")};
  cards[0].gigabits_per_second = 0;
  cards[1].gigabits_per_second = 200;
  cards[2].gigabits_per_second = 56;
  cards[3].gigabits_per_second = 56;
  EXPECT_EQ(&slowest_of(cards), &cards[2]);
  for (PortCard& card : cards) card.gigabits_per_second = 0;
  EXPECT_EQ(&slowest_of(cards), &cards[0]);
}

TEST(PortsOfRanks, slow_networks_that_are_emulated_are_ethernets) {
  PortCard emulated = soft("soft0:1");
  EXPECT_FALSE(is_ethernet(emulated));
  emulated.gigabits_per_second = 40;
  EXPECT_FALSE(is_ethernet(emulated));
  emulated.gigabits_per_second = 25;
  EXPECT_TRUE(is_ethernet(emulated));
  emulated.gigabits_per_second = 0;
  EXPECT_FALSE(is_ethernet(emulated));
  PortCard real = infiniband("mlx5_0:1");
  real.gigabits_per_second = 10;
  EXPECT_FALSE(is_ethernet(real));
  EXPECT_TRUE(is_ethernet(roce_v2("mlx5_0:1", true)));
}

TEST(PortsOfRanks, subnets_are_told_apart) {
  PortCard compute = infiniband("mlx5_0:1"), storage = infiniband("mlx5_2:1");
  compute.subnet = 0xfe80'0000'0000'0000;
  storage.subnet = 0xfec0'0000'0000'0002;
  EXPECT_EQ(incompatibility(Cards{compute, infiniband("mlx5_0:1")}), "");
  EXPECT_EQ(incompatibility(Cards{storage, storage}), "");
  EXPECT_TRUE(says(incompatibility(Cards{compute, storage}),
                   "rank 0: mlx5_0:1, InfiniBand; rank 1: mlx5_2:1, InfiniBand of subnet "
                   "0xfec0000000000002; "));
}

TEST(PortsOfRanks, kinds_are_told_apart_by_groups_of_ranks) {
  EXPECT_EQ(
      incompatibility(Cards{infiniband("mlx5_0:1"), infiniband("mlx5_0:1"), infiniband("mlx5_2:1"),
                            infiniband("mlx5_0:1"), soft("soft0:1"), infiniband("mlx5_0:1")}),
      "ranks 0-3, 5: mlx5_0:1, mlx5_2:1, InfiniBand; rank 4: soft0:1, software device; set "
      "TUTTI_DEVICE to ports of one kind on all ranks; tutti-info, on each host, says why a "
      "port was taken");
  EXPECT_TRUE(says(incompatibility(Cards{infiniband("a:1"), roce_v1("b:1"), roce_v2("c:1", true)}),
                   "rank 0: a:1, InfiniBand; rank 1: b:1, RoCE v1; rank 2: c:1, RoCE v2 with an "
                   "IPv4 address; set TUTTI_DEVICE"));
}

TEST(PortsOfRanks, addresses_of_two_kinds_are_a_remedy_of_their_own) {
  const std::string text =
      incompatibility(Cards{roce_v2("mlx5_0:1", true), roce_v2("mlx5_0:1", false)});
  EXPECT_EQ(
      text,
      "rank 0: mlx5_0:1, RoCE v2 with an IPv4 address; rank 1: mlx5_0:1, RoCE v2 with an IPv6 "
      "address; give the ports addresses of one kind, or set TUTTI_DEVICE to ports that have "
      "them");
}

TEST(PortsOfRanks, kind_of_address_matters_for_roce_version_2_only) {
  PortCard mapped = roce_v1("mlx5_0:1");
  mapped.is_ipv4 = 1;
  EXPECT_EQ(incompatibility(Cards{mapped, roce_v1("mlx5_0:1")}), "");
}

TEST(PortsOfRanks, codes_that_are_none_are_named) {
  for (const std::uint8_t mtu : {std::uint8_t{0}, std::uint8_t{6}, std::uint8_t{255}}) {
    PortCard odd = infiniband("odd:1");
    odd.path_mtu = mtu;
    EXPECT_TRUE(says(
        incompatibility(Cards{infiniband("mlx5_0:1"), odd}),
        ("rank 1: odd:1, path MTU code " + std::to_string(mtu) + " (expected 1 to 5); ").c_str()));
    EXPECT_FALSE(incompatibility(Cards{odd, odd}).empty()) << "alike, and wrong all the same";
  }
  PortCard link = infiniband("odd:1"), type = roce_v1("odd:1");
  link.link_layer = 7;
  type.gid_type = 9;
  EXPECT_TRUE(says(incompatibility(Cards{link}), "link layer code 7"));
  EXPECT_TRUE(says(incompatibility(Cards{type}), "GID type code 9"));
}

TEST(PortsOfRanks, name_without_an_end_is_cut) {
  PortCard endless = soft("");
  std::memset(endless.name, 'x', sizeof endless.name);
  EXPECT_TRUE(says(incompatibility(Cards{endless, infiniband("a:1")}), "xxx, software device; "));
}

TEST(PortsOfRanks, many_ranks_and_names_stay_one_readable_line) {
  Cards cards;
  for (int rank = 0; rank < 1000; ++rank)
    cards.push_back(rank % 2 == 0 ? soft("soft0:1")
                                  : infiniband(("mlx5_" + std::to_string(rank) + ":1").c_str()));
  const std::string text = incompatibility(cards);
  EXPECT_TRUE(says(text, "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 492 more: soft0:1, software device"));
  EXPECT_TRUE(says(text, "mlx5_1:1, mlx5_3:1, mlx5_5:1, mlx5_7:1, and 496 others, InfiniBand"));
  EXPECT_LT(text.size(), 500u);
}

TEST(PortsOfRanks, card_of_an_opened_port_says_what_it_is) {
  const PortCard made = card_of(open_port("soft0:1"));
  EXPECT_STREQ(made.name, "soft0:1");
  EXPECT_EQ(kind_of(made), "software device");
  EXPECT_EQ(made.path_mtu, IBV_MTU_4096);
}

}  // namespace
}  // namespace tutti::verbs
