// Promise: on RoCE the GID that works is found without folklore, and the reason is recorded.
#include "verbs/gid.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace tutti::verbs {
namespace {

GidCandidate entry(std::uint32_t index, GidType type, const char* address) {
  GidCandidate candidate{.index = index, .type = type};
  EXPECT_EQ(inet_pton(AF_INET6, address, candidate.gid.raw), 1);
  return candidate;
}

std::uint32_t chosen(LinkLayer link, const std::vector<GidCandidate>& table) {
  const GidChoice choice = choose_gid(link, table);
  return choice.chosen ? choice.chosen->index : UINT32_MAX;
}

TEST(GidChoice, routable_roce_v2_is_taken_from_a_usual_table) {
  EXPECT_EQ(chosen(LinkLayer::ethernet,
                   {entry(0, GidType::roce_v1, "fe80::1"), entry(1, GidType::roce_v2, "fe80::1"),
                    entry(2, GidType::roce_v1, "::ffff:10.0.0.1"),
                    entry(3, GidType::roce_v2, "::ffff:10.0.0.1")}),
            3u);
}

TEST(GidChoice, link_local_is_taken_only_if_nothing_else_is_there) {
  EXPECT_EQ(chosen(LinkLayer::ethernet, {entry(0, GidType::roce_v2, "fe80::1"),
                                         entry(1, GidType::roce_v1, "::ffff:10.0.0.1")}),
            1u);
  EXPECT_EQ(chosen(LinkLayer::ethernet,
                   {entry(0, GidType::roce_v1, "fe80::1"), entry(1, GidType::roce_v2, "fe80::1")}),
            1u);
  EXPECT_EQ(chosen(LinkLayer::ethernet, {entry(0, GidType::roce_v2, "::ffff:169.254.3.1"),
                                         entry(1, GidType::roce_v2, "2001:db8::1")}),
            1u);
}

TEST(GidChoice, ipv4_is_taken_over_ipv6_and_lower_index_among_equals) {
  EXPECT_EQ(chosen(LinkLayer::ethernet, {entry(1, GidType::roce_v2, "2001:db8::1"),
                                         entry(5, GidType::roce_v2, "::ffff:10.0.0.1"),
                                         entry(7, GidType::roce_v2, "::ffff:10.0.0.2")}),
            5u);
}

TEST(GidChoice, empty_entries_are_never_taken) {
  EXPECT_EQ(chosen(LinkLayer::ethernet, {entry(0, GidType::roce_v2, "::")}), UINT32_MAX);
  EXPECT_EQ(chosen(LinkLayer::infiniband, {}), UINT32_MAX);
}

TEST(GidChoice, infiniband_takes_the_lowest_index) {
  EXPECT_EQ(chosen(LinkLayer::infiniband, {entry(0, GidType::infiniband, "fe80::2"),
                                           entry(1, GidType::infiniband, "fec0::2")}),
            0u);
}

TEST(GidChoice, every_entry_gets_a_reason) {
  const std::vector<GidCandidate> table = {
      entry(0, GidType::roce_v1, "fe80::1"), entry(1, GidType::roce_v1, "::ffff:10.0.0.1"),
      entry(2, GidType::roce_v2, "2001:db8::1"), entry(3, GidType::roce_v2, "::ffff:10.0.0.1")};
  const GidChoice choice = choose_gid(LinkLayer::ethernet, table);
  ASSERT_EQ(choice.verdicts.size(), 4u);
  EXPECT_NE(choice.verdicts[0].reason.find("link-local"), std::string::npos);
  EXPECT_NE(choice.verdicts[1].reason.find("RoCE v2 is there"), std::string::npos);
  EXPECT_NE(choice.verdicts[2].reason.find("IPv4"), std::string::npos);
  EXPECT_EQ(choice.verdicts[3].reason, "taken");
}

}  // namespace
}  // namespace tutti::verbs
