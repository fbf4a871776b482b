// Promise: connecting by address connects those who expect each other; strangers are refused, and
// a partner that does not come, or is not there, is named in time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <tutti/status.hpp>

#include "devices.hpp"
#include "verbs/verbs_fabric.hpp"

namespace tutti::verbs {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A process: the smaller key asks.
struct End {
  explicit End(std::uint64_t given_key, std::uint32_t rank = 0)
      : key(given_key),
        fabric({.device = test::device_of(rank, test::devices().size()),
                .arena_bytes = 1 << 16,
                .connections = {.by_cm = true, .process = given_key}}) {}

  NewPartner towards(End& other) {
    return {fabric.connections().to(other.key),
            other.fabric.connections().endpoint(other.fabric.connections().to(key)), "rank 3"};
  }

  std::uint64_t key;
  VerbsFabric fabric;
};

std::string error_of(End& end, const NewPartner& partner, Timeout timeout) {
  try {
    end.fabric.connections().connect({&partner, 1}, {.timeout = timeout});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Connects both, each in a thread; the errors.
std::string connect(End& one, End& other) {
  const NewPartner forth = one.towards(other), back = other.towards(one);
  std::string first, second;
  std::thread thread([&] { first = error_of(one, forth, 20s); });
  second = error_of(other, back, 20s);
  thread.join();
  return first + ", " + second;
}

/// An 8-byte put from one to the other.
bool carries(End& from, End& to) {
  VerbsChannel sender(1, 1), receiver(1, 1);
  from.fabric.attach(sender);
  const std::uint32_t id = to.fabric.attach(receiver);
  std::byte* const source = from.fabric.arena().allocate(64);
  std::byte* const target = to.fabric.arena().allocate(64);
  std::memset(source, 0x5a, 8);
  Connections& connections = from.fabric.connections();
  const Connection& connection = connections[connections.to(to.key)];
  for (std::uint32_t parity = 0; parity < 2; ++parity)
    sender.prepare(connection, parity, 0,
                   {.local = source,
                    .bytes = 8,
                    .local_key = from.fabric.arena().local_key(),
                    .remote_address = reinterpret_cast<std::uint64_t>(target),
                    .remote_key = to.fabric.arena().remote_key(),
                    .notification = {.operation = id, .parity = parity, .slot = 0}});
  EXPECT_EQ(from.fabric.put(sender, 0, 0), Status::ok);
  bool arrived = false;
  for (const auto end = Clock::now() + 10s; !arrived && Clock::now() < end;) {
    to.fabric.poll();
    from.fabric.poll();
    arrived = to.fabric.take(receiver, 0, 0);
  }
  EXPECT_EQ(target[7], std::byte{0x5a});
  from.fabric.detach(sender, true);
  to.fabric.detach(receiver, true);
  return arrived;
}

/// Asks like a program that is not tutti; the reason of the rejection.
Refusal ask_as_stranger(const Endpoint& there, std::span<const std::byte> data) {
  const EventChannelHandle channel(rdma_create_event_channel(), {&librdmacm_driver()});
  rdma_cm_id* made = nullptr;
  EXPECT_EQ(rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP), 0);
  const IdHandle id(made, {&librdmacm_driver()});
  ibv_gid gid{};
  std::memcpy(gid.raw, there.gid, sizeof gid.raw);
  IpAddress from = address_of(gid, 0), to = address_of(gid, there.service_port);
  EXPECT_EQ(rdma_resolve_addr(id.get(), &from.any, &to.any, 5000), 0);
  for (;;) {
    pollfd waited{.fd = channel->fd, .events = POLLIN, .revents = 0};
    if (::poll(&waited, 1, 10'000) != 1) return Refusal::none;
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel.get(), &event) != 0) return Refusal::none;
    const rdma_cm_event_type type = event->event;
    ConnectionRefusal refusal{};
    if (event->param.conn.private_data_len >= sizeof refusal)
      std::memcpy(&refusal, event->param.conn.private_data, sizeof refusal);
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
      EXPECT_EQ(rdma_resolve_route(id.get(), 5000), 0);
    } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
      rdma_conn_param parameters{};
      parameters.private_data = data.data();
      parameters.private_data_len = static_cast<std::uint8_t>(data.size());
      parameters.qp_num = 77;
      parameters.retry_count = 7;
      EXPECT_EQ(rdma_connect(id.get(), &parameters), 0);
    } else {
      EXPECT_EQ(type, RDMA_CM_EVENT_REJECTED) << rdma_event_str(type);
      return static_cast<Refusal>(refusal.reason);
    }
  }
}

TEST(CmFabric, connects_and_carries_in_both_directions) {
  End a(1, 0), b(2, 1);
  EXPECT_EQ(connect(a, b), "no error, no error");
  EXPECT_TRUE(carries(a, b));
  EXPECT_TRUE(carries(b, a));
}

TEST(CmFabric, strangers_are_refused_while_it_waits_and_disturb_nothing) {
  End a(2), b(1);  // a waits to be asked
  const NewPartner forth = a.towards(b), back = b.towards(a);
  std::string first;
  std::thread thread([&] { first = error_of(a, forth, 20s); });
  EXPECT_EQ(ask_as_stranger(back.remote, {}), Refusal::foreign);
  ConnectionRequest forged =
      request_of({.process = 1, .peer = 2, .local = forth.remote, .remote = back.remote});
  ++forged.from_sequence;
  EXPECT_EQ(ask_as_stranger(back.remote, std::as_bytes(std::span(&forged, 1))),
            Refusal::not_expected);
  --forged.from_sequence;  // all right, but asked by another queue pair than it says
  EXPECT_EQ(ask_as_stranger(back.remote, std::as_bytes(std::span(&forged, 1))),
            Refusal::not_expected);
  ++forged.to_process;
  EXPECT_EQ(ask_as_stranger(back.remote, std::as_bytes(std::span(&forged, 1))),
            Refusal::other_process);
  EXPECT_EQ(error_of(b, back, 20s), "no error");
  thread.join();
  EXPECT_EQ(first, "no error");
  EXPECT_TRUE(carries(a, b));
  EXPECT_EQ(first, "no error");
}

TEST(CmFabric, a_peer_that_never_takes_part_is_named_in_time_and_can_be_connected_later) {
  End a(1), b(2);
  for (End* end : {&a, &b}) {
    End& other = end == &a ? b : a;
    const auto begin = Clock::now();
    const std::string text = error_of(*end, end->towards(other), 1s);
    EXPECT_LT(Clock::now() - begin, 15s);
    EXPECT_NE(text.find("rank 3"), std::string::npos) << text;
    EXPECT_NE(text.find("the time is up"), std::string::npos) << text;
    // Its unanswered request is still with the other one.
    a.fabric.connections().abandon_from(0);
    b.fabric.connections().abandon_from(0);
  }
  EXPECT_EQ(connect(a, b), "no error, no error");
  EXPECT_TRUE(carries(a, b));
}

TEST(CmFabric, abandoned_connections_can_be_made_again_at_once) {
  End a(1), b(2);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(connect(a, b), "no error, no error");
    EXPECT_TRUE(carries(b, a));
    a.fabric.connections().abandon_from(0);
    b.fabric.connections().abandon_from(0);
  }
}

TEST(CmFabric, the_end_of_one_connection_disturbs_no_other) {
  End a(1), b(2), c(3);
  EXPECT_EQ(connect(a, b), "no error, no error");
  const std::uint64_t later = a.fabric.connections().made();
  EXPECT_EQ(connect(a, c), "no error, no error");
  a.fabric.connections().abandon_from(later);
  std::this_thread::sleep_for(200ms);
  EXPECT_TRUE(carries(a, b));
  EXPECT_TRUE(carries(b, a));
}

/// One end without a fabric, so that its id can go before its queue pair.
struct BareEnd {
  explicit BareEnd(std::uint64_t given_key)
      : key(given_key),
        port(open_port(test::devices()[0])),
        manager(port, given_key),
        domain(port.driver().alloc_pd(port.device.get()), {&port.driver()}),
        queue(port.driver().create_cq(port.device.get(), 16, nullptr, nullptr, 0),
              {&port.driver()}),
        pair(port, domain.get(), queue.get(), {.sends_max = 4, .receives_max = 4}) {}

  Endpoint endpoint() const {
    Endpoint made = pair.endpoint();
    made.service_port = manager.service_port();
    return made;
  }
  void connect(const BareEnd& other) {
    CmPartner partner{.ends = {.process = key,
                               .peer = other.key,
                               .local = endpoint(),
                               .remote = other.endpoint()},
                      .pair = &pair,
                      .name = "the other end"};
    detail::MonotonicClock clock;
    manager.connect({&partner, 1}, clock, {.timeout = 20s});
    id = std::move(partner.id);
  }
  ibv_wc_status wait() {
    ibv_wc completion{};
    for (const auto end = Clock::now() + 10s; Clock::now() < end;)
      if (ibv_poll_cq(queue.get(), 1, &completion) == 1) return completion.status;
    return IBV_WC_GENERAL_ERR;
  }

  std::uint64_t key;
  Port port;
  ConnectionManager manager;
  ProtectionDomainHandle domain;
  CompletionQueueHandle queue;
  QueuePair pair;
  IdHandle id;
};

TEST(CmFabric, a_queue_pair_outlives_the_id_that_connected_it) {
  BareEnd a(1), b(2);
  std::thread thread([&] { a.connect(b); });
  b.connect(a);
  thread.join();
  a.id.reset();
  std::this_thread::sleep_for(500ms);  // the kernel tells the other end of it
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    ibv_recv_wr receive{}, *bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(to->pair.get(), &receive, &bad_receive), 0);
    ibv_send_wr send{}, *bad_send = nullptr;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(ibv_post_send(from->pair.get(), &send, &bad_send), 0);
    EXPECT_EQ(to->wait(), IBV_WC_SUCCESS);
    EXPECT_EQ(from->wait(), IBV_WC_SUCCESS);
  }
}

TEST(CmFabric, an_address_that_nobody_has_is_named) {
  End a(1), b(2);
  NewPartner partner = a.towards(b);
  partner.remote.gid[15] ^= 0x80;  // in the same network
  const auto begin = Clock::now();
  const std::string text = error_of(a, partner, 20s);
  EXPECT_LT(Clock::now() - begin, 60s);
  ibv_gid gid{};
  std::memcpy(gid.raw, partner.remote.gid, sizeof gid.raw);
  for (const std::string& word :
       {std::string("rank 3"), text_of(address_of(gid, partner.remote.service_port)),
        std::string("resolving its address")})
    EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(CmFabric, a_port_where_nobody_listens_is_named) {
  End a(1), b(2);
  NewPartner partner = a.towards(b);
  partner.remote.service_port = 9;
  const std::string text = error_of(a, partner, 20s);
  EXPECT_NE(text.find("nobody listens"), std::string::npos) << text;
  EXPECT_NE(text.find("port 9"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::verbs
