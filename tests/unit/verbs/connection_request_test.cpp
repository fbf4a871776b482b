// Promise: a request meets the queue pair it is for or none, and whatever goes wrong is explained
// with what to do.
#include "verbs/connection_request.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tutti::verbs {
namespace {

Endpoint endpoint(std::uint32_t queue_pair, std::uint32_t sequence) {
  Endpoint made{};
  made.queue_pair_number = queue_pair;
  made.packet_sequence = sequence;
  return made;
}

const ConnectionEnds ends{.process = 0x1111'2222'3333'4444,
                          .peer = 0x5555'6666'7777'8888,
                          .local = endpoint(17, 0xabcdef),
                          .remote = endpoint(23, 0x123456)};

const ConnectionEnds other_ends{
    .process = ends.peer, .peer = ends.process, .local = ends.remote, .remote = ends.local};

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// What read_request says of `sent`, as the kernel delivers it: padded to 56 bytes.
Refusal verdict_on(const ConnectionRequest& sent, std::uint64_t process) {
  std::array<std::byte, 56> padded{};
  std::memcpy(padded.data(), &sent, sizeof sent);
  ConnectionRequest read{};
  return read_request(padded, process, read);
}

ibv_gid gid_of(const char* ip6) {
  ibv_gid gid{};
  EXPECT_EQ(inet_pton(AF_INET6, ip6, gid.raw), 1);
  return gid;
}

TEST(ConnectionRequest, exactly_one_end_asks) {
  EXPECT_TRUE(ends.asks());
  EXPECT_FALSE(other_ends.asks());
}

TEST(ConnectionRequest, what_one_end_sends_belongs_to_the_other) {
  const ConnectionRequest sent = request_of(ends);
  EXPECT_EQ(verdict_on(sent, ends.peer), Refusal::none);
  EXPECT_TRUE(belongs_to(sent, other_ends));
  EXPECT_FALSE(belongs_to(sent, ends));
}

TEST(ConnectionRequest, any_other_process_or_queue_pair_is_not_expected) {
  const auto changed = [](auto member, auto value) {
    ConnectionRequest sent = request_of(ends);
    sent.*member = value;
    return belongs_to(sent, other_ends);
  };
  EXPECT_FALSE(changed(&ConnectionRequest::from_process, std::uint64_t{1}));
  EXPECT_FALSE(changed(&ConnectionRequest::to_process, std::uint64_t{1}));
  EXPECT_FALSE(changed(&ConnectionRequest::from_queue_pair, 1u));
  EXPECT_FALSE(changed(&ConnectionRequest::from_sequence, 1u));
  EXPECT_FALSE(changed(&ConnectionRequest::to_queue_pair, 1u));
  EXPECT_FALSE(changed(&ConnectionRequest::to_sequence, 1u));
}

TEST(ConnectionRequest, what_is_none_is_refused_with_the_reason) {
  ConnectionRequest read{};
  EXPECT_EQ(read_request({}, ends.peer, read), Refusal::foreign);
  const ConnectionRequest good = request_of(ends);
  EXPECT_EQ(read_request(bytes_of(good).first(39), ends.peer, read), Refusal::foreign);
  ConnectionRequest bad = good;
  bad.magic ^= 1;
  EXPECT_EQ(verdict_on(bad, ends.peer), Refusal::foreign);
  bad = good;
  ++bad.version;
  EXPECT_EQ(verdict_on(bad, ends.peer), Refusal::other_version);
  EXPECT_EQ(verdict_on(good, ends.peer + 1), Refusal::other_process);
}

TEST(Addresses, gids_of_both_kinds_become_addresses) {
  const IpAddress ip4 = address_of(gid_of("::ffff:10.77.0.2"), 4711);
  EXPECT_EQ(ip4.any.sa_family, AF_INET);
  EXPECT_EQ(ip4.ip4.sin_port, htons(4711));
  EXPECT_EQ(ip4.ip4.sin_addr.s_addr, htonl(0x0a4d0002));
  EXPECT_EQ(text_of(ip4), "10.77.0.2 port 4711");
  const IpAddress ip6 = address_of(gid_of("2001:db8::7"), 0);
  EXPECT_EQ(ip6.any.sa_family, AF_INET6);
  EXPECT_EQ(text_of(ip6), "2001:db8::7");
}

TEST(Addresses, ports_that_have_none_are_refused_with_the_reason) {
  const auto obstacle = [](const Driver& driver, LinkLayer link, const char* gid) {
    return obstacle_to_address({.driver = &driver, .device = "d", .link = link},
                               {.gid = gid_of(gid)});
  };
  const Driver& real = libibverbs_driver();
  EXPECT_EQ(obstacle(real, LinkLayer::ethernet, "::ffff:10.77.0.2"), "");
  EXPECT_EQ(obstacle(real, LinkLayer::ethernet, "2001:db8::7"), "");
  for (const std::string& text : {obstacle(soft_driver(), LinkLayer::ethernet, "::ffff:10.77.0.2"),
                                  obstacle(real, LinkLayer::infiniband, "fe80::2:c903:a:b"),
                                  obstacle(real, LinkLayer::ethernet, "fe80::2:c903:a:b")})
    EXPECT_NE(text.find("TUTTI_CONNECT=exchange"), std::string::npos) << text;
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(ConnectionEvents, failures_are_named_with_cause_and_advice) {
  expect_words(meaning_of(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, {}),
               {"ADDR_ERROR", "timed out", "TUTTI_CONNECT=exchange"});
  expect_words(meaning_of(RDMA_CM_EVENT_ROUTE_ERROR, -EHOSTUNREACH, {}),
               {"ROUTE_ERROR", "No route", "one network"});
  expect_words(meaning_of(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, {}), {"UNREACHABLE", "4791"});
  expect_words(meaning_of(RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, {}), {"CONNECT_ERROR", "Invalid"});
  expect_words(meaning_of(RDMA_CM_EVENT_DEVICE_REMOVAL, 0, {}), {"DEVICE_REMOVAL"});
  expect_words(meaning_of(RDMA_CM_EVENT_DISCONNECTED, 0, {}), {"DISCONNECTED", "gave up"});
  expect_words(meaning_of(RDMA_CM_EVENT_MULTICAST_JOIN, 0, {}), {"MULTICAST_JOIN"});
}

TEST(ConnectionEvents, rejections_say_why) {
  const auto rejected = [](int reason, std::span<const std::byte> data) {
    return meaning_of(RDMA_CM_EVENT_REJECTED, reason, data);
  };
  expect_words(rejected(8, {}), {"REJECTED", "nobody listens"});
  expect_words(rejected(28, {}), {"gave up"});
  expect_words(rejected(12, {}), {"reason 12"});
  expect_words(rejected(28, bytes_of(refusal_of(Refusal::other_version))), {"another version"});
  expect_words(rejected(28, bytes_of(refusal_of(Refusal::not_expected))), {"does not expect"});
  ConnectionRefusal later = refusal_of(Refusal::none);
  later.reason = 999;
  expect_words(rejected(28, bytes_of(later)), {"does not know"});
  EXPECT_EQ(errno_of(RDMA_CM_EVENT_REJECTED, 28), 0);
  EXPECT_EQ(errno_of(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT), ETIMEDOUT);
}

}  // namespace
}  // namespace tutti::verbs
