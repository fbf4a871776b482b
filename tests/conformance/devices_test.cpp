// Promise: the devices and ports that the environment names are there, each with an address of its
// own; queue pairs meet only where their address handles say so; a port whose link is down reaches
// nobody; and no object is made of those of two devices.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

/// Before main() asks for the devices; a real one ignores it.
const bool named = ::setenv("TUTTI_SOFT_DEVICES", "soft0:1,soft1:2,west-1.b:4", 1) == 0 &&
                   ::setenv("TUTTI_SOFT_LINK_DOWN", "west-1.b:2,west-1.b:4", 1) == 0;

class Devices : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(named);
    if (!device_is_soft()) GTEST_SKIP() << "these are the software device's";
  }
};

int connect(const Endpoint& endpoint, const Address& peer, std::uint8_t retries = 3) {
  const ConnectionOptions options{.timeout = 8, .retries = retries};
  if (const int error = endpoint.initialise()) return error;
  if (const int error = endpoint.make_ready_to_receive(peer, options)) return error;
  return endpoint.make_ready_to_send(options);
}

/// By its GID instead of its LID.
Address by_gid(Address address) {
  address.lid = 0;
  return address;
}

/// What a write of 8 bytes completes with.
ibv_wc_status write(const Endpoint& from, const RemoteRegion& to) {
  const Buffer buffer(64);
  const Region region(from.device, buffer);
  std::memset(buffer.data(), 7, 8);
  EXPECT_EQ(from.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, to.address, to.key), 0);
  return from.wait().status;
}

ibv_port_attr query(const Device& device, std::uint8_t port) {
  ibv_port_attr attributes{};
  EXPECT_EQ(driver().query_port(device.context, port, &attributes), 0);
  return attributes;
}

// --- The list -----------------------------------------------------------------------------------

TEST_F(Devices, are_listed_in_order_with_their_ports) {
  int count = 0;
  ibv_device** const list = driver().get_device_list(&count);
  ASSERT_EQ(count, 3);
  const char* const names[] = {"soft0", "soft1", "west-1.b"};
  const int ports[] = {1, 2, 4};
  for (int index = 0; index < count; ++index) {
    EXPECT_STREQ(driver().get_device_name(list[index]), names[index]);
    const Device device(names[index]);
    EXPECT_EQ(device.context->device, list[index]);
    ibv_device_attr attributes{};
    EXPECT_EQ(driver().query_device(device.context, &attributes), 0);
    EXPECT_EQ(attributes.phys_port_cnt, ports[index]);
    EXPECT_NE(attributes.vendor_id, 0u);
    EXPECT_NE(attributes.vendor_part_id, 0u);
    const detail::Descriptor command(::dup(device.context->cmd_fd));
    EXPECT_TRUE(command) << "programs duplicate it for an import";
    ibv_port_attr port{};
    ibv_gid_entry entry{};
    for (const int absent : {0, ports[index] + 1, 255}) {
      const auto number = static_cast<std::uint8_t>(absent);
      EXPECT_EQ(driver().query_port(device.context, number, &port), EINVAL);
      EXPECT_EQ(driver().query_gid(device.context, number, 0, &entry), EINVAL);
    }
  }
  EXPECT_EQ(list[count], nullptr);
  driver().free_device_list(list);
}

TEST_F(Devices, each_port_has_an_address_of_its_own) {
  std::set<std::uint16_t> lids;
  std::set<std::string> gids;
  std::set<std::uint64_t> devices, systems;
  for (const auto& [name, ports] :
       {std::pair("soft0", 1), std::pair("soft1", 2), std::pair("west-1.b", 4)}) {
    const Device device(name);
    ibv_device_attr attributes{};
    EXPECT_EQ(driver().query_device(device.context, &attributes), 0);
    devices.insert(attributes.node_guid);
    systems.insert(attributes.sys_image_guid);
    for (std::uint8_t port = 1; port <= ports; ++port) {
      const Address address = Endpoint(device, {.port = port}).address();
      EXPECT_NE(address.lid, 0);
      EXPECT_LT(address.lid, 0xc000);
      lids.insert(address.lid);
      gids.insert(std::string(reinterpret_cast<const char*>(address.gid.raw), 16));
    }
  }
  EXPECT_EQ(lids.size(), 7u);
  EXPECT_EQ(gids.size(), 7u);
  EXPECT_EQ(devices.size(), 3u);
  EXPECT_EQ(systems.size(), 1u);
}

// --- Who meets whom -----------------------------------------------------------------------------

TEST_F(Devices, queue_pairs_of_all_ports_meet) {
  const Device zero("soft0"), one("soft1"), west("west-1.b");
  const Endpoint ends[] = {Endpoint(zero), Endpoint(one, {.port = 1}), Endpoint(one, {.port = 2}),
                           Endpoint(west, {.port = 3})};
  const Buffer buffer(64);
  for (const Endpoint& left : ends)
    for (const Endpoint& right : ends)
      for (const bool is_global : {false, true}) {
        if (&left == &right) continue;
        const Region target(right.device, buffer);
        const auto name = [is_global](const Endpoint& end) {
          return is_global ? by_gid(end.address()) : end.address();
        };
        ASSERT_EQ(connect(left, name(right)), 0);
        ASSERT_EQ(connect(right, name(left)), 0);
        std::memset(buffer.data(), 0, 8);
        EXPECT_EQ(write(left, remote_of(target)), IBV_WC_SUCCESS);
        EXPECT_EQ(buffer.data()[7], std::byte{7});
        ASSERT_EQ(left.reset(), 0);
        ASSERT_EQ(right.reset(), 0);
      }
}

TEST_F(Devices, processes_meet_by_their_ports) {
  OtherProcess other([](Line& line) {
    const Device device("west-1.b");
    const Buffer buffer(64);
    const Region region(device, buffer);
    const Endpoint endpoint(device, {.port = 3});
    const Address peer = line.swap(endpoint.address());
    ASSERT_EQ(connect(endpoint, peer), 0);
    line.put(remote_of(region));
    line.meet();
    EXPECT_EQ(buffer.data()[0], std::byte{7});
  });
  {
    const Device device("soft1");
    const Endpoint endpoint(device, {.port = 2});
    const Address peer = other.line().swap(endpoint.address());
    ASSERT_EQ(connect(endpoint, peer), 0);
    EXPECT_EQ(write(endpoint, other.line().get<RemoteRegion>()), IBV_WC_SUCCESS);
    other.line().meet();
  }
  other.expect_success();
}

TEST_F(Devices, an_address_of_another_port_does_not_lead_to_the_queue_pair) {
  const Device zero("soft0"), one("soft1");
  const Endpoint left(zero), right(one, {.port = 1}), neighbour(one, {.port = 2});
  const Buffer buffer(64);
  const Region target(one, buffer);
  for (const bool is_global : {false, true})
    for (const Endpoint* const elsewhere : {&neighbour, &left}) {
      Address wrong = elsewhere->address();
      wrong.queue_pair = right.pair->qp_num;
      ASSERT_EQ(connect(left, is_global ? by_gid(wrong) : wrong, 0), 0);
      ASSERT_EQ(connect(right, left.address()), 0);
      EXPECT_EQ(write(left, remote_of(target)), IBV_WC_RETRY_EXC_ERR);
      EXPECT_EQ(buffer.data()[0], std::byte{0});
      EXPECT_EQ(right.state(), IBV_QPS_RTS);  // it has not heard of it
      ASSERT_EQ(left.reset(), 0);
      ASSERT_EQ(right.reset(), 0);
    }
}

TEST_F(Devices, a_drained_queue_pair_may_turn_to_another_address_but_not_move) {
  const Device zero("soft0"), one("soft1");
  const Endpoint left(zero), right(one, {.port = 1}), neighbour(one, {.port = 2});
  const Buffer buffer(64);
  const Region target(one, buffer);
  ASSERT_EQ(connect(left, right.address(), 0), 0);
  ASSERT_EQ(connect(right, left.address()), 0);
  EXPECT_EQ(write(left, remote_of(target)), IBV_WC_SUCCESS);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.port_num = 2;
  ASSERT_EQ(driver().modify_qp(right.pair, &attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(driver().modify_qp(right.pair, &attributes, IBV_QP_STATE | IBV_QP_PORT), EOPNOTSUPP);
  attributes.port_num = 1;
  EXPECT_EQ(driver().modify_qp(right.pair, &attributes, IBV_QP_STATE | IBV_QP_PORT), 0);
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.dlid = neighbour.address().lid;
  ASSERT_EQ(driver().modify_qp(left.pair, &attributes, IBV_QP_STATE), 0);
  ASSERT_EQ(driver().modify_qp(left.pair, &attributes, IBV_QP_STATE | IBV_QP_AV), 0);
  attributes.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(driver().modify_qp(left.pair, &attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(write(left, remote_of(target)), IBV_WC_RETRY_EXC_ERR);
}

// --- Datagrams ----------------------------------------------------------------------------------

int make_ready(const Endpoint& endpoint) {
  ibv_qp_attr attributes{};
  attributes.port_num = endpoint.port;
  attributes.qkey = 5;
  attributes.qp_state = IBV_QPS_INIT;
  constexpr int initial = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  if (const int error = driver().modify_qp(endpoint.pair, &attributes, initial)) return error;
  attributes.qp_state = IBV_QPS_RTR;
  if (const int error = driver().modify_qp(endpoint.pair, &attributes, IBV_QP_STATE)) return error;
  attributes.qp_state = IBV_QPS_RTS;
  return driver().modify_qp(endpoint.pair, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/// Sends an empty datagram to the queue pair `target`, at `address`.
void send_datagram(const Endpoint& from, const Address& address, const Endpoint& target) {
  ibv_ah_attr attributes{};
  attributes.port_num = from.port;
  attributes.dlid = address.lid;
  attributes.is_global = address.lid == 0;
  attributes.grh.dgid = address.gid;
  ibv_ah* const handle = driver().create_ah(from.device.domain, &attributes);
  ASSERT_NE(handle, nullptr) << std::strerror(errno);
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = handle;
  request.wr.ud.remote_qpn = target.pair->qp_num;
  request.wr.ud.remote_qkey = 5;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(from.pair, &request, &bad), 0);
  EXPECT_EQ(from.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(driver().destroy_ah(handle), 0);
}

TEST_F(Devices, datagrams_arrive_at_their_port_only_and_name_the_senders) {
  const Device zero("soft0"), one("soft1");
  const Endpoint left(zero, {.type = IBV_QPT_UD});
  const Endpoint right(one, {.type = IBV_QPT_UD, .port = 2});
  const Endpoint neighbour(one, {.type = IBV_QPT_UD, .port = 1});
  const Buffer buffer(64);
  const Region region(one, buffer);
  ASSERT_EQ(make_ready(left), 0);
  ASSERT_EQ(make_ready(right), 0);
  for (int count = 0; count < 2; ++count) ASSERT_EQ(right.receive({region.piece(0, 40)}), 0);
  send_datagram(left, neighbour.address(), right);
  send_datagram(left, by_gid(left.address()), right);
  EXPECT_TRUE(right.is_quiet(20ms));
  send_datagram(left, right.address(), right);
  const ibv_wc plain = right.wait();
  EXPECT_EQ(plain.slid, left.address().lid);
  EXPECT_EQ(plain.wc_flags & IBV_WC_GRH, 0u);
  send_datagram(left, by_gid(right.address()), right);
  const ibv_wc routed = right.wait();
  EXPECT_NE(routed.wc_flags & IBV_WC_GRH, 0u);
  ibv_grh route{};
  std::memcpy(&route, buffer.data(), sizeof(route));
  const ibv_gid sender = left.address().gid, receiver = right.address().gid;
  EXPECT_EQ(std::memcmp(&route.sgid, &sender, sizeof(sender)), 0);
  EXPECT_EQ(std::memcmp(&route.dgid, &receiver, sizeof(receiver)), 0);
}

// --- Links --------------------------------------------------------------------------------------

TEST_F(Devices, a_port_whose_link_is_down_says_so) {
  const Device west("west-1.b");
  for (const std::uint8_t port : {std::uint8_t{2}, std::uint8_t{4}}) {
    EXPECT_EQ(query(west, port).state, IBV_PORT_DOWN);
    EXPECT_EQ(query(west, port).phys_state, 3);  // disabled
  }
  for (const std::uint8_t port : {std::uint8_t{1}, std::uint8_t{3}}) {
    EXPECT_EQ(query(west, port).state, IBV_PORT_ACTIVE);
    EXPECT_EQ(query(west, port).phys_state, 5);  // link up
  }
}

TEST_F(Devices, a_port_whose_link_is_down_reaches_nobody_and_is_not_reached) {
  const Device west("west-1.b");
  const Endpoint up(west, {.port = 1}), down(west, {.port = 2});
  const Buffer buffer(64);
  const Region target(west, buffer);
  for (const auto& [from, to] : {std::pair(&up, &down), std::pair(&down, &up)}) {
    ASSERT_EQ(connect(*from, to->address(), 1), 0);
    ASSERT_EQ(connect(*to, from->address(), 1), 0);
    EXPECT_EQ(write(*from, remote_of(target)), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(buffer.data()[0], std::byte{0});
    ASSERT_EQ(from->reset(), 0);
    ASSERT_EQ(to->reset(), 0);
  }
  const Endpoint left(west, {.type = IBV_QPT_UD, .port = 1});
  const Endpoint right(west, {.type = IBV_QPT_UD, .port = 2});
  for (const auto& [from, to] : {std::pair(&left, &right), std::pair(&right, &left)}) {
    ASSERT_EQ(make_ready(*from), 0);
    ASSERT_EQ(make_ready(*to), 0);
    ASSERT_EQ(to->receive({target.piece(0, 40)}), 0);
    send_datagram(*from, to->address(), *to);
    EXPECT_TRUE(to->is_quiet(20ms));
    ASSERT_EQ(from->reset(), 0);
    ASSERT_EQ(to->reset(), 0);
  }
}

// --- Objects ------------------------------------------------------------------------------------

TEST_F(Devices, objects_of_two_devices_do_not_mix) {
  const Device zero("soft0"), one("soft1");
  ibv_cq* const queue = driver().create_cq(zero.context, 4, nullptr, nullptr, 0);
  ibv_cq* const foreign = driver().create_cq(one.context, 4, nullptr, nullptr, 0);
  const SharedReceives shared(one);
  const auto refused = [&](ibv_cq* sends, ibv_cq* receives, ibv_srq* receive_queue) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = sends;
    attributes.recv_cq = receives;
    attributes.srq = receive_queue;
    attributes.cap = {.max_send_wr = 1,
                      .max_recv_wr = 1,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = 0};
    attributes.qp_type = IBV_QPT_RC;
    errno = 0;
    EXPECT_EQ(driver().create_qp(zero.domain, &attributes), nullptr);
    EXPECT_EQ(errno, EINVAL);
  };
  refused(foreign, queue, nullptr);
  refused(queue, foreign, nullptr);
  refused(queue, queue, shared.handle);
  ibv_comp_channel* const channel = driver().create_comp_channel(one.context);
  errno = 0;
  EXPECT_EQ(driver().create_cq(zero.context, 4, nullptr, channel, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  {
    const Buffer buffer(64);
    const Region region(zero, buffer);
    EXPECT_EQ(driver().rereg_mr(region.handle, IBV_REREG_MR_CHANGE_PD, one.domain, nullptr, 0, 0),
              IBV_REREG_MR_ERR_INPUT);
    // And a region of one device is no memory of another's queue pairs.
    const Endpoint left(one), right(one);
    left.connect(right.address());
    right.connect(left.address());
    ASSERT_EQ(left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}), 0);
    EXPECT_EQ(left.wait().status, IBV_WC_LOC_PROT_ERR);
  }
  EXPECT_EQ(driver().destroy_comp_channel(channel), 0);
  EXPECT_EQ(driver().destroy_cq(queue), 0);
  EXPECT_EQ(driver().destroy_cq(foreign), 0);
}

TEST_F(Devices, ports_that_a_device_does_not_have_are_refused) {
  const Device zero("soft0"), one("soft1");
  EXPECT_EQ(Endpoint(zero, {.port = 1}).initialise(), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 2;
  constexpr int initial = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  const Endpoint here(zero), there(one);
  EXPECT_EQ(driver().modify_qp(here.pair, &attributes, initial), EINVAL);
  ASSERT_EQ(driver().modify_qp(there.pair, &attributes, initial), 0);
  // Its path begins at its own port, which is 2, and not at the 1 of `there`.
  EXPECT_EQ(there.make_ready_to_receive(here.address()), EINVAL);
  ibv_ah_attr path{};
  path.dlid = here.address().lid;
  path.port_num = 2;
  EXPECT_EQ(driver().create_ah(zero.domain, &path), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_ah* const handle = driver().create_ah(one.domain, &path);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(driver().destroy_ah(handle), 0);
}

TEST_F(Devices, events_are_those_of_their_own_device) {
  const Device zero("soft0"), one("soft1");
  const Endpoint left(zero), right(one);
  ASSERT_EQ(connect(left, right.address()), 0);
  ASSERT_EQ(connect(right, left.address()), 0);
  EXPECT_EQ(write(left, {1, 1}), IBV_WC_REM_ACCESS_ERR);
  const auto is_readable = [](const Device& device, int patience_ms) {
    pollfd entry{.fd = device.context->async_fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, patience_ms) == 1;
  };
  EXPECT_TRUE(is_readable(one, 10'000));
  EXPECT_FALSE(is_readable(zero, 20));
}

}  // namespace
}  // namespace tutti::conformance
