// Promise: a datagram arrives whole, behind the room for a global route header, or not at all; what
// cannot be delivered is dropped without a trace, and its sender completes all the same.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

constexpr std::uint32_t queue_key = 0x1234;
constexpr std::size_t header_bytes = 40;

int modify(const Endpoint& endpoint, ibv_qp_state state, int mask) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  attributes.port_num = 1;
  attributes.qkey = queue_key;
  return driver().modify_qp(endpoint.pair, &attributes, IBV_QP_STATE | mask);
}

constexpr int initial_mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

void make_ready(const Endpoint& endpoint) {
  EXPECT_EQ(modify(endpoint, IBV_QPS_INIT, initial_mask), 0);
  EXPECT_EQ(modify(endpoint, IBV_QPS_RTR, 0), 0);
  EXPECT_EQ(modify(endpoint, IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
}

EndpointOptions datagrams(EndpointOptions options = {}) {
  options.type = IBV_QPT_UD;
  return options;
}

class Handle {
 public:
  Handle(ibv_pd* domain, const Address& address, bool is_global = false)
      : Handle(domain, attributes_of(address, is_global)) {}
  Handle(ibv_pd* domain, ibv_ah_attr attributes) : handle(driver().create_ah(domain, &attributes)) {
    EXPECT_NE(handle, nullptr) << std::strerror(errno);
  }
  ~Handle() { EXPECT_EQ(driver().destroy_ah(handle), 0); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  static ibv_ah_attr attributes_of(const Address& address, bool is_global = false) {
    ibv_ah_attr attributes{};
    set_path(attributes, address);
    attributes.sl = 3;
    if (is_global || address.lid == 0) {
      attributes.is_global = 1;
      attributes.grh.dgid = address.gid;
      attributes.grh.hop_limit = 9;
    }
    return attributes;
  }

  ibv_ah* handle;
};

/// What a datagram may carry.
std::size_t longest(const Device& device) {
  ibv_port_attr port{};
  EXPECT_EQ(driver().query_port(device.context, 1, &port), 0);
  return std::size_t{128} << port.active_mtu;
}

struct Datagram {
  std::vector<ibv_sge> pieces;
  std::uint32_t target;
  std::uint32_t key = queue_key;
  unsigned flags = IBV_SEND_SIGNALED;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  std::uint32_t immediate = 0;
};

int post(const Endpoint& endpoint, const Handle& handle, Datagram datagram) {
  ibv_send_wr request{};
  request.wr_id = 6;
  request.sg_list = datagram.pieces.data();
  request.num_sge = static_cast<int>(datagram.pieces.size());
  request.opcode = datagram.opcode;
  request.send_flags = datagram.flags;
  request.imm_data = datagram.immediate;
  request.wr.ud.ah = handle.handle;
  request.wr.ud.remote_qpn = datagram.target;
  request.wr.ud.remote_qkey = datagram.key;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(endpoint.pair, &request, &bad);
}

/// Two queue pairs of one process, and a handle that leads to both.
struct Scene {
  explicit Scene(bool is_global = false, const EndpointOptions& options = {})
      : left(device, datagrams(options)),
        right(device, datagrams(options)),
        handle(device.domain, right.address(), is_global) {
    make_ready(left);
    make_ready(right);
    source.fill(3);
  }
  ibv_wc_status send(std::size_t bytes, std::uint32_t key = queue_key) const {
    EXPECT_EQ(post(left, handle, {{from.piece(0, bytes)}, right.pair->qp_num, key}), 0);
    return left.wait().status;
  }
  int receive(std::size_t bytes = 4096 + header_bytes, std::uint64_t id = 1) const {
    return right.receive({to.piece(0, bytes)}, id);
  }
  /// Nothing else is on its way: datagrams keep their order, so it would arrive before this one.
  void expect_nothing_but(std::size_t bytes) const {
    EXPECT_EQ(send(bytes), IBV_WC_SUCCESS);
    const ibv_wc completion = right.wait();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.byte_len, header_bytes + bytes);
    EXPECT_TRUE(target.holds(3, bytes, header_bytes));
    EXPECT_TRUE(right.is_quiet());
  }

  Device device;
  Endpoint left, right;
  Handle handle;
  Buffer source{8192}, target{8192};
  Region from{device, source}, to{device, target};
};

TEST(Datagrams, each_transition_needs_its_attributes_and_no_foreign_one) {
  const Device device;
  const Endpoint endpoint(device, datagrams());
  for (const int missing : {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY})
    EXPECT_EQ(modify(endpoint, IBV_QPS_INIT, initial_mask & ~missing), EINVAL);
  EXPECT_EQ(modify(endpoint, IBV_QPS_INIT, initial_mask | IBV_QP_ACCESS_FLAGS), EINVAL);
  EXPECT_EQ(modify(endpoint, IBV_QPS_INIT, initial_mask), 0);
  EXPECT_EQ(modify(endpoint, IBV_QPS_RTS, IBV_QP_SQ_PSN), EINVAL);
  EXPECT_EQ(modify(endpoint, IBV_QPS_RTR, IBV_QP_AV), EINVAL);
  EXPECT_EQ(modify(endpoint, IBV_QPS_RTR, 0), 0);
  EXPECT_EQ(modify(endpoint, IBV_QPS_RTS, 0), EINVAL);
  EXPECT_EQ(modify(endpoint, IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
  EXPECT_EQ(modify(endpoint, IBV_QPS_RTS, IBV_QP_QKEY), 0);
  EXPECT_EQ(endpoint.state(), IBV_QPS_RTS);
}

TEST(Datagrams, arrive_behind_the_room_for_a_header) {
  const Scene scene;
  ASSERT_EQ(scene.receive(1000, 77), 0);
  ASSERT_EQ(post(scene.left, scene.handle,
                 {.pieces = {scene.from.piece(0, 60), scene.from.piece(60, 40)},
                  .target = scene.right.pair->qp_num,
                  .opcode = IBV_WR_SEND_WITH_IMM,
                  .immediate = 99}),
            0);
  const ibv_wc received = scene.right.wait();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 77u);
  EXPECT_EQ(received.byte_len, 140u);
  EXPECT_EQ(received.imm_data, 99u);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(received.qp_num, scene.right.pair->qp_num);
  EXPECT_EQ(received.src_qp, scene.left.pair->qp_num);
  EXPECT_EQ(received.slid, scene.left.address().lid);
  if (received.slid != 0) {
    EXPECT_EQ(received.sl, 3);  // an Ethernet frame has none
  }
  EXPECT_TRUE(scene.target.holds(3, 100, header_bytes));
  EXPECT_EQ(scene.target.data()[header_bytes + 100], std::byte{0});
  const ibv_wc sent = scene.left.wait();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wr_id, 6u);
}

TEST(Datagrams, with_a_global_route_bring_its_header) {
  const Scene scene(true);
  ASSERT_EQ(scene.receive(), 0);
  EXPECT_EQ(scene.send(8), IBV_WC_SUCCESS);
  EXPECT_NE(scene.right.wait().wc_flags & IBV_WC_GRH, 0u);
  if (!device_is_soft()) return;  // over Ethernet it is an IP header
  ibv_grh header;
  std::memcpy(&header, scene.target.data(), sizeof(header));
  const ibv_gid gid = scene.left.address().gid;
  EXPECT_EQ(std::memcmp(&header.sgid, &gid, sizeof(gid)), 0);
  EXPECT_EQ(std::memcmp(&header.dgid, &gid, sizeof(gid)), 0);
  EXPECT_EQ(header.hop_limit, 9);
}

TEST(Datagrams, without_a_global_route_have_no_header) {
  const Scene scene;
  if (scene.left.address().lid == 0) GTEST_SKIP() << "Ethernet always has one";
  ASSERT_EQ(scene.receive(), 0);
  EXPECT_EQ(scene.send(8), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.right.wait().wc_flags & IBV_WC_GRH, 0u);
}

TEST(Datagrams, may_be_inline_and_may_be_empty) {
  const Scene scene;
  ASSERT_EQ(scene.receive(), 0);
  ASSERT_EQ(scene.receive(header_bytes), 0);
  std::uint64_t word = 0x1122334455667788;
  ASSERT_EQ(
      post(scene.left, scene.handle,
           {.pieces = {{.addr = reinterpret_cast<std::uint64_t>(&word), .length = 8, .lkey = 0}},
            .target = scene.right.pair->qp_num,
            .flags = IBV_SEND_INLINE}),
      0);
  word = 0;
  EXPECT_EQ(scene.right.wait().byte_len, header_bytes + 8);
  std::memcpy(&word, scene.target.data() + header_bytes, 8);
  EXPECT_EQ(word, 0x1122334455667788u);
  EXPECT_EQ(scene.send(0), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.right.wait().byte_len, header_bytes);
}

TEST(Datagrams, with_another_queue_key_are_dropped) {
  const Scene scene;
  ASSERT_EQ(scene.receive(), 0);
  EXPECT_EQ(scene.send(8, queue_key + 1), IBV_WC_SUCCESS);
  scene.expect_nothing_but(16);
}

TEST(Datagrams, use_the_queue_pairs_own_key_where_the_high_bit_says_so) {
  const Scene scene;
  ASSERT_EQ(scene.receive(), 0);
  EXPECT_EQ(scene.send(8, 0x80000000), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.right.wait().status, IBV_WC_SUCCESS);
}

TEST(Datagrams, without_a_receive_are_dropped) {
  const Scene scene;
  EXPECT_EQ(scene.send(8), IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.right.is_quiet(20ms));
  ASSERT_EQ(scene.receive(), 0);
  scene.expect_nothing_but(16);
}

TEST(Datagrams, longer_than_the_receive_are_dropped) {
  if (!device_is_soft()) GTEST_SKIP() << "adapters differ";
  const Scene scene;
  ASSERT_EQ(scene.receive(header_bytes + 16), 0);
  EXPECT_EQ(scene.send(17), IBV_WC_SUCCESS);
  scene.expect_nothing_but(16);  // the receive is still there
  EXPECT_EQ(scene.right.state(), IBV_QPS_RTS);
}

TEST(Datagrams, to_nobody_are_dropped) {
  const Scene scene;
  const Endpoint connected(scene.device);
  connected.connect(connected.address());
  ASSERT_EQ(connected.receive({scene.to.piece(0, 100)}), 0);
  for (const std::uint32_t target : {0u, 1u, 0xffffffu, connected.pair->qp_num}) {
    ASSERT_EQ(post(scene.left, scene.handle, {{scene.from.piece(0, 8)}, target}), 0);
    EXPECT_EQ(scene.left.wait().status, IBV_WC_SUCCESS);
  }
  EXPECT_TRUE(connected.is_quiet());
}

TEST(Datagrams, to_another_host_are_dropped) {
  const Scene scene;
  Address elsewhere = scene.right.address();
  if (elsewhere.lid == 0) GTEST_SKIP() << "Ethernet resolves addresses";
  elsewhere.lid = static_cast<std::uint16_t>(elsewhere.lid % 1000 + 1001);
  const Handle handle(scene.device.domain, elsewhere);
  ASSERT_EQ(scene.receive(), 0);
  ASSERT_EQ(post(scene.left, handle, {{scene.from.piece(0, 8)}, scene.right.pair->qp_num}), 0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_SUCCESS);
  scene.expect_nothing_but(16);
}

TEST(Datagrams, are_limited_by_the_path) {
  const Scene scene;
  const std::size_t limit = longest(scene.device);
  ASSERT_EQ(scene.receive(limit + header_bytes), 0);
  scene.expect_nothing_but(limit);
}

/// Some devices complete them as if they had been sent; the software device says what is wrong.
TEST(Datagrams, longer_than_the_path_do_not_arrive) {
  const Scene scene;
  ASSERT_EQ(scene.receive(), 0);
  const ibv_wc_status status = scene.send(longest(scene.device) + 1);
  if (device_is_soft()) {
    EXPECT_EQ(status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(scene.left.state(), IBV_QPS_SQE);
  }
  EXPECT_TRUE(scene.right.is_quiet(20ms));
}

TEST(Datagrams, that_fail_stop_the_sender_and_not_the_receiver) {
  const Scene scene;
  ASSERT_EQ(scene.receive(), 0);
  ibv_sge wrong = scene.from.piece(0, 8);
  wrong.lkey ^= 0x10;
  ASSERT_EQ(post(scene.left, scene.handle,
                 {.pieces = {wrong}, .target = scene.right.pair->qp_num, .flags = 0}),
            0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_LOC_PROT_ERR);
  ASSERT_TRUE(scene.left.comes_to(IBV_QPS_SQE));
  EXPECT_EQ(scene.send(8), IBV_WC_WR_FLUSH_ERR);
  // It still receives.
  ASSERT_EQ(scene.left.receive({scene.to.piece(4096, 100)}), 0);
  ASSERT_EQ(post(scene.right, scene.handle, {{scene.from.piece(0, 8)}, scene.left.pair->qp_num}),
            0);
  EXPECT_EQ(scene.right.wait().opcode, IBV_WC_SEND);
  EXPECT_EQ(scene.left.wait().opcode, IBV_WC_RECV);
  EXPECT_EQ(modify(scene.left, IBV_QPS_RTS, 0), 0);
  scene.expect_nothing_but(16);
}

TEST(Datagrams, into_a_bad_receive_fail_the_receiver) {
  const Scene scene;
  ibv_sge wrong = scene.to.piece(0, 100);
  wrong.lkey ^= 0x10;
  ASSERT_EQ(scene.right.receive({wrong}, 8), 0);
  ASSERT_EQ(scene.receive(100, 9), 0);
  EXPECT_EQ(scene.send(8), IBV_WC_SUCCESS);
  const ibv_wc failed = scene.right.wait(), flushed = scene.right.wait();
  EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(failed.wr_id, 8u);
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 9u);
  EXPECT_TRUE(scene.right.comes_to(IBV_QPS_ERR));
}

TEST(Datagrams, are_sends_and_nothing_else) {
  const Scene scene;
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV})
    EXPECT_EQ(post(scene.left, scene.handle,
                   {.pieces = {}, .target = scene.right.pair->qp_num, .opcode = opcode}),
              EINVAL);
}

TEST(Datagrams, are_flushed_in_the_error_state) {
  const Scene scene;
  ASSERT_EQ(scene.receive(100, 4), 0);
  ASSERT_EQ(scene.right.fail(), 0);
  EXPECT_EQ(scene.right.wait().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(post(scene.right, scene.handle, {{scene.from.piece(0, 8)}, scene.left.pair->qp_num}),
            0);
  EXPECT_EQ(scene.right.wait().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(scene.right.reset(), 0);
  make_ready(scene.right);
  ASSERT_EQ(scene.receive(), 0);
  scene.expect_nothing_but(16);
}

TEST(Datagrams, wait_for_no_slot_but_those_of_unpolled_completions) {
  const Scene scene(false, {.sends = 4, .receives = 4});
  int posted = 0;
  const auto send = [&] {
    return post(scene.left, scene.handle, {{scene.from.piece(0, 8)}, scene.right.pair->qp_num});
  };
  // No program may count on more; other devices may have room all the same.
  const int posted_max = device_is_soft() ? 1000 : 4;
  while (posted < posted_max && send() == 0) ++posted;
  EXPECT_GE(posted, 4);
  if (device_is_soft()) {
    EXPECT_EQ(send(), ENOMEM);
  }
  EXPECT_EQ(scene.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(send(), 0);
  // The receive queue wraps, too: a datagram fills each receive before the next is posted.
  for (int count = 0; count < 3 * 4; ++count) {
    ASSERT_EQ(scene.receive(), 0);
    while (send() != 0) (void)scene.left.wait();
    EXPECT_EQ(scene.right.wait().status, IBV_WC_SUCCESS);
  }
}

TEST(Datagrams, of_one_queue_pair_may_go_to_itself) {
  const Scene scene;
  ASSERT_EQ(scene.left.receive({scene.to.piece(0, 100)}), 0);
  ASSERT_EQ(
      post(scene.left, scene.handle,
           {.pieces = {scene.from.piece(0, 8)}, .target = scene.left.pair->qp_num, .flags = 0}),
      0);
  EXPECT_EQ(scene.left.wait().src_qp, scene.left.pair->qp_num);
}

bool becomes_readable(int descriptor, std::chrono::milliseconds patience) {
  pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, static_cast<int>(patience.count())) == 1;
}

TEST(Datagrams, raise_events_of_completion_channels_and_of_limits) {
  const Device device;
  ibv_comp_channel* const channel = driver().create_comp_channel(device.context);
  ASSERT_NE(channel, nullptr);
  ibv_cq* const queue = driver().create_cq(device.context, 16, nullptr, channel, 0);
  ASSERT_NE(queue, nullptr);
  {
    const SharedReceives shared(device, 8);
    const Buffer buffer(4096);
    const Region region(device, buffer);
    const Endpoint left(device, datagrams());
    const Endpoint right(device, datagrams({.shared_receives = shared.handle, .queue = queue}));
    const Handle handle(device.domain, right.address());
    make_ready(left);
    make_ready(right);
    for (std::uint64_t id = 0; id < 3; ++id)
      ASSERT_EQ(shared.receive({region.piece(0, 100)}, id), 0);
    ibv_srq_attr limit{};
    limit.srq_limit = 2;
    ASSERT_EQ(driver().modify_srq(shared.handle, &limit, IBV_SRQ_LIMIT), 0);

    const auto send = [&](unsigned flags) {
      ASSERT_EQ(post(left, handle,
                     {.pieces = {region.piece(200, 8)},
                      .target = right.pair->qp_num,
                      .flags = flags | IBV_SEND_SIGNALED}),
                0);
      EXPECT_EQ(left.wait().status, IBV_WC_SUCCESS);
      EXPECT_EQ(right.wait().status, IBV_WC_SUCCESS);
    };
    ASSERT_EQ(ibv_req_notify_cq(queue, 1), 0);
    send(0);
    EXPECT_FALSE(becomes_readable(channel->fd, 20ms)) << "was not solicited";
    EXPECT_FALSE(becomes_readable(device.context->async_fd, 20ms)) << "two are left";
    send(IBV_SEND_SOLICITED);
    ASSERT_TRUE(becomes_readable(channel->fd, 10s));
    ibv_cq* of = nullptr;
    void* context = nullptr;
    ASSERT_EQ(driver().get_cq_event(channel, &of, &context), 0);
    EXPECT_EQ(of, queue);
    driver().ack_cq_events(queue, 1);
    ASSERT_TRUE(becomes_readable(device.context->async_fd, 10s));
    ibv_async_event event{};
    ASSERT_EQ(driver().get_async_event(device.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    driver().ack_async_event(&event);
  }
  EXPECT_EQ(driver().destroy_cq(queue), 0);
  EXPECT_EQ(driver().destroy_comp_channel(channel), 0);
}

void expect_built_ones_arrive(bool is_inline) {
  const Device device;
  Endpoint left(device, datagrams());
  const Endpoint right(device, datagrams());
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = attributes.recv_cq = left.queue;
  attributes.cap = {.max_send_wr = 2,
                    .max_recv_wr = 1,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 16};
  attributes.qp_type = IBV_QPT_UD;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.pd = device.domain;
  attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  left.destroy_queue_pair();
  left.pair = ibv_create_qp_ex(device.context, &attributes);
  ASSERT_NE(left.pair, nullptr);
  make_ready(left);
  make_ready(right);
  const Handle handle(device.domain, right.address());
  const Buffer buffer(4096);
  const Region region(device, buffer);
  for (int count = 0; count < 2; ++count) ASSERT_EQ(right.receive({region.piece(1000, 200)}), 0);

  ibv_qp_ex* const pair = driver().qp_to_qp_ex(left.pair);
  ibv_wr_start(pair);
  pair->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(pair);
  ibv_wr_set_ud_addr(pair, handle.handle, right.pair->qp_num, queue_key);
  ibv_wr_set_sge(pair, region.handle->lkey, region.address(), 100);
  ibv_wr_send_imm(pair, 5);
  if (is_inline)
    ibv_wr_set_inline_data(pair, buffer.data(), 10);
  else
    ibv_wr_set_sge(pair, region.handle->lkey, region.address(), 10);
  ibv_wr_set_ud_addr(pair, handle.handle, right.pair->qp_num, queue_key);
  ASSERT_EQ(ibv_wr_complete(pair), 0);
  ASSERT_EQ(left.wait().status, IBV_WC_SUCCESS);
  ASSERT_EQ(left.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(right.wait().byte_len, header_bytes + 100);
  EXPECT_EQ(right.wait().imm_data, 5u);

  if (!device_is_soft()) return;  // what is left out is the program's fault
  ibv_wr_start(pair);             // all or none: the second one leads nowhere
  ibv_wr_send(pair);
  ibv_wr_set_ud_addr(pair, handle.handle, right.pair->qp_num, queue_key);
  ibv_wr_send(pair);
  EXPECT_EQ(ibv_wr_complete(pair), EINVAL);
  EXPECT_TRUE(left.is_quiet());
}

TEST(Datagrams, built_piece_by_piece_arrive_too) {
  expect_built_ones_arrive(false);
}

TEST(Datagrams, built_with_inline_data_arrive_too) {
  expect_built_ones_arrive(true);
}

TEST(Datagrams, take_from_shared_receives) {
  const Device device;
  const SharedReceives shared(device, 8);
  const Buffer buffer(4096);
  const Region region(device, buffer);
  const Endpoint left(device, datagrams());
  const Endpoint right(device, datagrams({.shared_receives = shared.handle}));
  const Handle handle(device.domain, right.address());
  make_ready(left);
  make_ready(right);
  for (std::uint64_t id = 0; id < 20; ++id) {
    ASSERT_EQ(shared.receive({region.piece(0, 100)}, id), 0);
    ASSERT_EQ(post(left, handle, {{region.piece(200, 8)}, right.pair->qp_num}), 0);
    EXPECT_EQ(left.wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(right.wait().wr_id, id);
  }
}

TEST(Datagrams, are_not_for_connected_queue_pairs) {
  const Scene scene;
  const Endpoint connected(scene.device);
  connected.connect(scene.right.address());
  ASSERT_EQ(scene.receive(), 0);
  ASSERT_EQ(connected.send(IBV_WR_SEND, {scene.from.piece(0, 8)}), 0);
  EXPECT_EQ(connected.wait().status, IBV_WC_RETRY_EXC_ERR);
  scene.expect_nothing_but(16);
}

TEST(AddressHandles, are_checked_and_keep_their_domain) {
  const Device device;
  const Endpoint endpoint(device, datagrams());
  const ibv_ah_attr good = Handle::attributes_of(endpoint.address(), true);
  ibv_ah_attr wrong = good;
  wrong.port_num = 2;
  EXPECT_EQ(driver().create_ah(device.domain, &wrong), nullptr);
  wrong = good;
  wrong.grh.sgid_index = 200;
  EXPECT_EQ(driver().create_ah(device.domain, &wrong), nullptr);
  ibv_pd* const domain = driver().alloc_pd(device.context);
  {
    const Handle handle(domain, good);
    if (device_is_soft()) {
      EXPECT_EQ(driver().dealloc_pd(domain), EBUSY);
    }
    // The address handle is of another domain than the queue pair.
    make_ready(endpoint);
    if (device_is_soft()) {
      EXPECT_EQ(post(endpoint, handle, {{}, endpoint.pair->qp_num}), EINVAL);
    }
  }
  EXPECT_EQ(driver().dealloc_pd(domain), 0);
}

TEST(AddressHandles, for_many_are_refused_by_the_software_device) {
  if (!device_is_soft()) GTEST_SKIP();
  const Device device;
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  attributes.dlid = 0xc001;
  EXPECT_EQ(driver().create_ah(device.domain, &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attributes.is_global = 1;
  attributes.grh.dgid.raw[0] = 0xff;
  EXPECT_EQ(driver().create_ah(device.domain, &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

/// A queue pair that is ready, memory for its datagrams, and a handle for the other process's.
struct Station {
  explicit Station(Line& line, const EndpointOptions& options = {})
      : endpoint(device, datagrams(options)),
        peer((make_ready(endpoint), line.swap(endpoint.address()))),
        handle(device.domain, peer) {}

  const Device device;
  const Buffer buffer{8192};
  const Region region{device, buffer};
  const Endpoint endpoint;
  const Address peer;
  const Handle handle;
};

constexpr std::uint32_t stream_count = 1000;

/// Answers with what has come: one thousand datagrams, in order.
void receive_stream(Line& line) {
  const Station here(line, {.receives = 2048, .completions = 4096});
  const auto& [device, buffer, region, endpoint, peer, handle] = here;
  for (std::uint32_t count = 0; count < 2 * stream_count; ++count)
    ASSERT_EQ(endpoint.receive({region.piece(0, 4096 + header_bytes)}), 0);
  for (const std::size_t bytes : {std::size_t{8}, longest(device)}) {
    line.meet();
    for (std::uint32_t number = 0; number < stream_count; ++number) {
      const ibv_wc completion = endpoint.wait();
      ASSERT_EQ(completion.imm_data, number);
      ASSERT_EQ(completion.byte_len, header_bytes + bytes);
      ASSERT_EQ(completion.src_qp, peer.queue_pair);
    }
    ASSERT_EQ(post(endpoint, handle, {{region.piece(0, bytes)}, peer.queue_pair}), 0);
    EXPECT_EQ(endpoint.wait().opcode, IBV_WC_SEND);
  }
  line.meet();
}

TEST(Datagrams, reach_another_process_a_thousand_in_a_row) {
  OtherProcess other(receive_stream);
  {
    const Station here(other.line());
    const auto& [device, buffer, region, endpoint, peer, handle] = here;
    for (int count = 0; count < 2; ++count)
      ASSERT_EQ(endpoint.receive({region.piece(0, 4096 + header_bytes)}), 0);
    for (const std::size_t bytes : {std::size_t{8}, longest(device)}) {
      other.line().meet();
      for (std::uint32_t number = 0; number < stream_count; ++number) {
        ASSERT_EQ(post(endpoint, handle,
                       {.pieces = {region.piece(0, bytes)},
                        .target = peer.queue_pair,
                        .opcode = IBV_WR_SEND_WITH_IMM,
                        .immediate = number}),
                  0);
        if (number + 1 < stream_count) {
          ASSERT_EQ(endpoint.wait().opcode, IBV_WC_SEND);
        }
      }
      // The answer may be seen before the completion of what it answers: other queue, no order.
      const ibv_wc_opcode first = endpoint.wait().opcode, second = endpoint.wait().opcode;
      EXPECT_EQ(std::min(first, second), IBV_WC_SEND);
      EXPECT_EQ(std::max(first, second), IBV_WC_RECV);
    }
    other.line().meet();
  }
  other.expect_success();
}

/// Posts this many and polls; nothing waits for anybody.
void send_many(const Station& from, int count) {
  for (int index = 0; index < count; ++index) {
    ASSERT_EQ(
        post(from.endpoint, from.handle, {{from.region.piece(0, 1000)}, from.peer.queue_pair}), 0);
    ASSERT_EQ(from.endpoint.wait().status, IBV_WC_SUCCESS);
  }
}

TEST(Datagrams, to_a_stopped_or_dead_process_cost_their_sender_nothing) {
  OtherProcess other([](Line& line) {
    const Station here(line);
    const Endpoint connected(here.device);
    connect_over(line, connected);
    (void)line.get<char>();
  });
  const Station here(other.line());
  const Endpoint connected(here.device);
  connect_over(other.line(), connected);
  other.stop();
  send_many(here, 5000);
  other.resume();
  send_many(here, 100);
  other.kill();
  send_many(here, 100);
  ASSERT_EQ(connected.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(connected.wait().status, IBV_WC_RETRY_EXC_ERR);
}

/// One hundred times two queue pairs, and a message between them.
std::chrono::nanoseconds time_of_other_business(const Device& device, const Buffer& buffer) {
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 100 && !testing::Test::HasFailure(); ++round) {
    const Region region(device, buffer);
    const Endpoint left(device), right(device);
    left.connect(right.address());
    right.connect(left.address());
    EXPECT_EQ(left.send(IBV_WR_SEND, {region.piece(0, 8)}), 0);
    EXPECT_EQ(right.receive({region.piece(8, 8)}), 0);
    EXPECT_EQ(left.wait().status, IBV_WC_SUCCESS);
  }
  return std::chrono::steady_clock::now() - start;
}

/// A process that is flooded goes about its other business: slower, as it shares the processors
/// with the flood, but not only when the flood pauses.  The flood has an end, so that a process
/// that is held up until then says so.
TEST(Datagrams, in_a_flood_hold_up_nothing_else) {
  OtherProcess other([](Line& line) {
    const Station here(line);
    const auto end = std::chrono::steady_clock::now() + line.get<std::chrono::nanoseconds>() + 5s;
    while (std::chrono::steady_clock::now() < end) send_many(here, 1000);  // or until killed
  });
  const Station here(other.line());
  for (int count = 0; count < 10; ++count)
    ASSERT_EQ(here.endpoint.receive({here.region.piece(0, 4096)}), 0);
  const std::chrono::nanoseconds limit =
      20 * time_of_other_business(here.device, here.buffer) + 10s;
  other.line().put(limit);
  for (int count = 0; count < 10; ++count) EXPECT_EQ(here.endpoint.wait().status, IBV_WC_SUCCESS);
  EXPECT_LT(time_of_other_business(here.device, here.buffer), limit);
  other.kill();
}

// --- Another process, which sends as it is told -------------------------------------------------

constexpr std::size_t words_count = 20;  // of a numbered datagram: each is its number
constexpr std::size_t slot_bytes = 128;

/// Sends as many numbered datagrams as it is told, and says when it has; 0: ends.
void send_as_told(Line& line) {
  const Station here(line);
  std::uint32_t number = 0;
  while (const auto count = line.get<std::uint32_t>()) {
    for (const std::uint32_t end = number + count; number < end; ++number) {
      std::array<std::uint32_t, words_count> words;
      words.fill(number);
      std::memcpy(here.buffer.data(), words.data(), sizeof(words));
      ASSERT_EQ(post(here.endpoint, here.handle,
                     {.pieces = {here.region.piece(0, sizeof(words))},
                      .target = here.peer.queue_pair,
                      .opcode = IBV_WR_SEND_WITH_IMM,
                      .immediate = number}),
                0);
      ASSERT_EQ(here.endpoint.wait().status, IBV_WC_SUCCESS);
    }
    line.put('s');
  }
}

/// Where they arrive.
class Inbox {
 public:
  explicit Inbox(std::uint32_t receives, ibv_cq* queue = nullptr)
      : endpoint(device, datagrams({.receives = 2048, .completions = 4096, .queue = queue})) {
    make_ready(endpoint);
    post_more(receives);
  }
  void post_more(std::uint32_t count) {
    for (; count > 0; --count, ++posted_)
      ASSERT_EQ(endpoint.receive({region_.piece(slot_bytes * (posted_ % slots_count), slot_bytes)},
                                 posted_ % slots_count),
                0);
  }
  /// The next one; it is whole.
  std::uint32_t take() const { return check(endpoint.wait()); }
  std::uint32_t check(const ibv_wc& arrived) const {
    EXPECT_EQ(arrived.status, IBV_WC_SUCCESS);
    EXPECT_EQ(arrived.byte_len, header_bytes + words_count * sizeof(std::uint32_t));
    std::array<std::uint32_t, words_count> words, expected;
    expected.fill(arrived.imm_data);
    std::memcpy(words.data(), buffer_.data() + slot_bytes * arrived.wr_id + header_bytes,
                sizeof(words));
    EXPECT_EQ(words, expected);
    return arrived.imm_data;
  }
  void expect(std::uint32_t first, std::uint32_t end) const {
    for (std::uint32_t number = first; number < end && !testing::Test::HasFailure(); ++number)
      ASSERT_EQ(take(), number);
  }

  const Device device;
  Endpoint endpoint;

 private:
  static constexpr std::uint32_t slots_count = 2048;
  const Buffer buffer_{slot_bytes * slots_count};
  const Region region_{device, buffer_};
  std::uint32_t posted_ = 0;
};

/// To be made before anything that has threads, which a fork does not copy.
class Sender {
 public:
  void greet(const Inbox& inbox) { address = process.line().swap(inbox.endpoint.address()); }
  void tell(std::uint32_t count) { process.line().put(count); }
  void wait() { EXPECT_EQ(process.line().get<char>(), 's'); }
  void send(std::uint32_t count) {
    tell(count);
    wait();
  }
  void end() {
    tell(0);
    process.expect_success();
  }

  OtherProcess process{send_as_told};
  Address address{};
};

/// What a process has sent is on its way, even if it ends right then: the first datagram, those
/// before and after the device changes to a faster way, and what has gone that way.
TEST(Datagrams, of_a_process_that_ends_at_once_arrive) {
  if (!device_is_soft()) GTEST_SKIP() << "adapters may lose them";
  for (const std::uint32_t count : {1u, 15u, 16u, 17u, 60u}) {
    Sender sender;
    Inbox inbox(100);
    sender.greet(inbox);
    sender.send(count);
    sender.process.kill();
    inbox.expect(0, count);
  }
  Sender sender;
  Inbox inbox(200);
  sender.greet(inbox);
  sender.send(40);
  inbox.expect(0, 40);
  sender.send(10);
  inbox.expect(40, 50);
  sender.send(60);
  sender.process.kill();
  inbox.expect(50, 110);
  EXPECT_TRUE(inbox.endpoint.is_quiet());
}

/// The sender goes on while its target is stopped, and the order stays.
TEST(Datagrams, to_a_process_that_is_stopped_arrive_when_it_goes_on) {
  if (!device_is_soft()) GTEST_SKIP() << "how many are kept is the device's decision";
  for (const std::uint32_t before : {0u, 50u}) {
    constexpr std::uint32_t count = 1500;
    OtherProcess other([](Line& line) {
      Inbox inbox(2000);
      (void)line.swap(inbox.endpoint.address());
      const auto first = line.get<std::uint32_t>();
      inbox.expect(0, first);
      line.put('r');
      inbox.expect(first, first + count);
      line.put('r');
    });
    OtherProcess sender(send_as_told);
    const Address target = other.line().get<Address>();
    other.line().put(sender.line().swap(target));
    other.line().put(before);
    if (before != 0) {
      sender.line().put(before);
      EXPECT_EQ(sender.line().get<char>(), 's');
    }
    EXPECT_EQ(other.line().get<char>(), 'r');
    other.stop();
    sender.line().put(count);
    EXPECT_EQ(sender.line().get<char>(), 's');
    other.resume();
    EXPECT_EQ(other.line().get<char>(), 'r');
    sender.line().put(std::uint32_t{0});
    sender.expect_success();
    other.expect_success();
  }
}

TEST(Datagrams, of_one_sender_come_while_another_is_stopped_or_dies) {
  Sender stopped, killed, lively;
  Inbox inbox(2000);
  for (Sender* const sender : {&stopped, &killed, &lively}) {
    sender->greet(inbox);
    sender->send(40);
    inbox.expect(0, 40);
    inbox.post_more(40);
  }
  // Both are in the middle of more than can be received.
  stopped.tell(10'000'000);
  killed.tell(10'000'000);
  std::map<std::uint32_t, std::uint32_t> last;
  const auto take = [&](const ibv_wc& arrived) {
    const std::uint32_t number = inbox.check(arrived);
    EXPECT_GT(number, std::exchange(last[arrived.src_qp], number));
    inbox.post_more(1);
  };
  for (int count = 0; count < 3000 && !HasFailure(); ++count) take(inbox.endpoint.wait());
  stopped.process.stop();
  killed.process.kill();
  const auto take_what_is_left = [&] {
    const auto patience = std::chrono::milliseconds(20);
    for (auto end = std::chrono::steady_clock::now() + patience;
         std::chrono::steady_clock::now() < end && !HasFailure();) {
      ibv_wc arrived;
      if (ibv_poll_cq(inbox.endpoint.queue, 1, &arrived) != 1) continue;
      take(arrived);
      end = std::chrono::steady_clock::now() + patience;
    }
  };
  // Between what the others have sent, if that is slow to come.
  const auto take_of_lively = [&](std::uint32_t first, std::uint32_t end) {
    while (first < end && !HasFailure()) {
      const ibv_wc arrived = inbox.endpoint.wait();
      take(arrived);
      if (arrived.src_qp == lively.address.queue_pair) {
        ASSERT_EQ(arrived.imm_data, first++);
      }
    }
  };
  take_what_is_left();
  lively.send(400);
  take_of_lively(40, 440);
  stopped.process.kill();
  take_what_is_left();
  lively.send(40);
  take_of_lively(440, 480);
  lively.end();
}

TEST(Datagrams, of_another_process_are_dropped_without_a_receive) {
  Sender sender;
  Inbox inbox(60);
  sender.greet(inbox);
  sender.send(40);
  inbox.expect(0, 40);
  sender.send(50);
  inbox.expect(40, 60);
  EXPECT_TRUE(inbox.endpoint.is_quiet(50ms));
  inbox.post_more(100);
  sender.send(30);
  inbox.expect(90, 120);
  sender.end();
}

TEST(Datagrams, to_a_queue_pair_that_is_gone_are_dropped_and_disturb_no_other) {
  Sender sender;
  Inbox inbox(1000);
  sender.greet(inbox);
  sender.send(40);
  inbox.expect(0, 40);
  sender.tell(3000);
  inbox.expect(40, 200);
  inbox.endpoint.destroy_queue_pair();
  const Endpoint next(inbox.device, datagrams());
  make_ready(next);
  const Buffer buffer(4096);
  const Region region(inbox.device, buffer);
  ASSERT_EQ(next.receive({region.piece(0, 4096)}), 0);
  sender.wait();
  EXPECT_TRUE(next.is_quiet(20ms));
  // Its own come.
  const Handle handle(inbox.device.domain, next.address());
  ASSERT_EQ(post(next, handle, {{region.piece(0, 8)}, next.pair->qp_num}), 0);
  EXPECT_EQ(next.wait().qp_num, next.pair->qp_num);
  sender.end();
}

/// Whether its owner has polled until then, or has waited, or has done neither.
TEST(Datagrams, of_another_process_wake_who_waits_for_an_event) {
  OtherProcess sender(send_as_told);
  const Device device;
  ibv_comp_channel* const channel = driver().create_comp_channel(device.context);
  ASSERT_NE(channel, nullptr);
  ibv_cq* const queue = driver().create_cq(device.context, 256, nullptr, channel, 0);
  ASSERT_NE(queue, nullptr);
  {
    const Buffer buffer(4096);
    const Region region(device, buffer);
    const Endpoint endpoint(device, datagrams({.receives = 200, .queue = queue}));
    make_ready(endpoint);
    for (int count = 0; count < 180; ++count)
      ASSERT_EQ(endpoint.receive({region.piece(0, 4096)}), 0);
    (void)sender.line().swap(endpoint.address());
    std::uint32_t number = 0;
    for (int round = 0; round < 60 && !testing::Test::HasFailure(); ++round) {
      // By polls.
      for (int count = 0; count < round % 3; ++count) {
        sender.line().put(std::uint32_t{1});
        ASSERT_EQ(endpoint.wait().imm_data, number++);
        EXPECT_EQ(sender.line().get<char>(), 's');
      }
      if (round % 4 == 3) std::this_thread::sleep_for(3ms);
      // By an event; no poll after this one.
      ASSERT_EQ(ibv_req_notify_cq(queue, 0), 0);
      ibv_wc completion;
      ASSERT_EQ(ibv_poll_cq(queue, 1, &completion), 0);
      sender.line().put(std::uint32_t{1});
      ASSERT_TRUE(becomes_readable(channel->fd, 10s)) << "in round " << round;
      ibv_cq* of = nullptr;
      void* context = nullptr;
      ASSERT_EQ(driver().get_cq_event(channel, &of, &context), 0);
      driver().ack_cq_events(queue, 1);
      ASSERT_EQ(ibv_poll_cq(queue, 1, &completion), 1);
      EXPECT_EQ(completion.imm_data, number++);
      EXPECT_EQ(sender.line().get<char>(), 's');
    }
    sender.line().put(std::uint32_t{0});
    sender.expect_success();
  }
  EXPECT_EQ(driver().destroy_cq(queue), 0);
  EXPECT_EQ(driver().destroy_comp_channel(channel), 0);
}

}  // namespace
}  // namespace tutti::conformance
