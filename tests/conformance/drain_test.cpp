// Promise: in the state SQD what was posted before is still done, what is posted then waits for
// RTS, receives go on, and attributes may be changed once the queue has drained.
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

int modify(const Endpoint& endpoint, ibv_qp_attr attributes, int mask) {
  return driver().modify_qp(endpoint.pair, &attributes, mask);
}

int move_to(const Endpoint& endpoint, ibv_qp_state state, int mask = 0) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  attributes.en_sqd_async_notify = 1;
  attributes.port_num = 1;
  set_path(attributes.ah_attr, endpoint.address());
  attributes.path_mtu = IBV_MTU_1024;
  attributes.cur_qp_state = endpoint.state();
  attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1;
  return modify(endpoint, attributes, IBV_QP_STATE | mask);
}

ibv_qp_attr query(const Endpoint& endpoint) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  EXPECT_EQ(driver().query_qp(endpoint.pair, &attributes, all_attributes, &initial), 0);
  return attributes;
}

bool is_draining(const Endpoint& endpoint) {
  return query(endpoint).sq_draining != 0;
}

/// Waits: on an adapter the requests before may take their time.
void expect_drained(const Endpoint& endpoint) {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (is_draining(endpoint) && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_FALSE(is_draining(endpoint));
  EXPECT_EQ(endpoint.state(), IBV_QPS_SQD);
}

bool has_event(const Device& device, std::chrono::milliseconds patience) {
  pollfd entry{.fd = device.context->async_fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(patience.count())) == 1;
}

void expect_drained_event(const Device& device, const Endpoint& endpoint) {
  ASSERT_TRUE(has_event(device, 10s));
  ibv_async_event event{};
  ASSERT_EQ(driver().get_async_event(device.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(event.element.qp, endpoint.pair);
  driver().ack_async_event(&event);
}

void expect_completion(const Endpoint& endpoint, std::uint64_t id,
                       ibv_wc_status status = IBV_WC_SUCCESS) {
  const ibv_wc completion = endpoint.wait(device_is_soft() ? 10s : 2s);
  EXPECT_EQ(completion.wr_id, id);
  EXPECT_EQ(completion.status, status);
}

// --- The table ----------------------------------------------------------------------------------

/// All attributes that are not in `allowed` are refused, one by one; those that are, accepted.
/// Alternate paths are in the table, too, for devices that have them.
void expect_attributes(const Endpoint& endpoint, ibv_qp_state to, int allowed) {
  const ibv_qp_state from = endpoint.state();
  const int unasked = device_is_soft() ? 0 : IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
  for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
    if (bit == IBV_QP_STATE || ((allowed | unasked) & bit) != 0) continue;
    EXPECT_NE(move_to(endpoint, to, bit), 0) << bit;
    EXPECT_EQ(endpoint.state(), from);
  }
  EXPECT_EQ(move_to(endpoint, to, allowed), 0);
  EXPECT_EQ(endpoint.state(), to);
}

TEST(Draining, has_its_transitions_and_attributes) {
  Loopback ends;
  expect_attributes(ends.left, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY);
  expect_drained_event(ends.device, ends.left);
  expect_attributes(ends.left, IBV_QPS_SQD,
                    IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS |
                        IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER);
  expect_attributes(ends.left, IBV_QPS_RTS,
                    IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_SQD), 0);
  EXPECT_EQ(move_to(ends.left, IBV_QPS_INIT), EINVAL);
  EXPECT_EQ(move_to(ends.left, IBV_QPS_RTR), EINVAL);
  EXPECT_EQ(ends.left.fail(), 0);
  EXPECT_EQ(move_to(ends.left, IBV_QPS_SQD), EINVAL);
}

TEST(Draining, is_reached_from_ready_to_send_only) {
  const Device device;
  const Endpoint endpoint(device);
  EXPECT_EQ(move_to(endpoint, IBV_QPS_SQD), EINVAL);
  ASSERT_EQ(endpoint.initialise(), 0);
  EXPECT_EQ(move_to(endpoint, IBV_QPS_SQD), EINVAL);
  ASSERT_EQ(endpoint.make_ready_to_receive(endpoint.address()), 0);
  EXPECT_EQ(move_to(endpoint, IBV_QPS_SQD), EINVAL);
  ASSERT_EQ(endpoint.make_ready_to_send(), 0);
  EXPECT_EQ(move_to(endpoint, IBV_QPS_SQE), EINVAL);  // no program can ask for that state
  EXPECT_EQ(move_to(endpoint, IBV_QPS_SQD), 0);
  EXPECT_EQ(move_to(endpoint, IBV_QPS_SQE), EINVAL);
  EXPECT_EQ(endpoint.reset(), 0);
}

TEST(Draining, attributes_change_for_what_is_sent_afterwards) {
  Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.device, buffer);
  ASSERT_EQ(move_to(ends.right, IBV_QPS_SQD), 0);
  expect_drained(ends.right);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  attributes.rnr_retry = 0;
  attributes.timeout = 11;
  ASSERT_EQ(modify(ends.right, attributes,
                   IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT),
            0);
  EXPECT_EQ(query(ends.right).rnr_retry, 0);
  EXPECT_EQ(query(ends.right).timeout, 11);
  ASSERT_EQ(move_to(ends.right, IBV_QPS_RTS), 0);
  ASSERT_EQ(ends.right.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(ends.right.wait().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(Draining, a_new_address_counts_for_what_is_sent_afterwards) {
  Loopback ends({}, {.timeout = 8, .retries = 0});
  Address elsewhere = ends.right.address();
  if (elsewhere.lid == 0) GTEST_SKIP() << "Ethernet resolves addresses";
  ASSERT_EQ(move_to(ends.left, IBV_QPS_SQD), 0);
  expect_drained(ends.left);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.dlid = static_cast<std::uint16_t>(elsewhere.lid % 1000 + 1001);
  ASSERT_EQ(modify(ends.left, attributes, IBV_QP_STATE | IBV_QP_AV), 0);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_RTS), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {}), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_RETRY_EXC_ERR);
}

// --- Requests -----------------------------------------------------------------------------------

TEST(Draining, what_is_posted_meanwhile_waits_and_keeps_its_order) {
  Loopback ends;
  const Buffer source(64), target(64);
  const Region from(ends.device, source), to(ends.device, target);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_SQD), 0);
  for (std::uint64_t id = 0; id < 8; ++id) {
    std::memcpy(source.data(), &id, sizeof(id));  // inline data are the program's again at once
    ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {from.piece(0, 8)}, to.address() + 8 * id,
                             to.handle->rkey, IBV_SEND_SIGNALED | IBV_SEND_INLINE, id),
              0);
  }
  EXPECT_TRUE(ends.left.is_quiet(20ms));
  const Buffer zeros(64);
  EXPECT_EQ(std::memcmp(target.data(), zeros.data(), 64), 0);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_RTS), 0);
  for (std::uint64_t id = 0; id < 8; ++id) {
    expect_completion(ends.left, id);
    std::uint64_t arrived = 0;
    std::memcpy(&arrived, target.data() + 8 * id, sizeof(arrived));
    EXPECT_EQ(arrived, id);
  }
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {}, 0, 0, IBV_SEND_SIGNALED, 9), 0);
  expect_completion(ends.left, 9);
}

TEST(Draining, what_was_posted_before_is_still_done) {
  Loopback ends;
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, IBV_SEND_SIGNALED, 2), 0);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  EXPECT_TRUE(is_draining(ends.left));
  EXPECT_FALSE(has_event(ends.device, 10ms));
  if (device_is_soft()) {  // others do not look
    EXPECT_EQ(move_to(ends.left, IBV_QPS_SQD, IBV_QP_TIMEOUT), EBUSY);
  }
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, IBV_SEND_SIGNALED, 3), 0);
  for (std::uint64_t id = 11; id <= 13; ++id) ASSERT_EQ(ends.right.receive({}, id), 0);
  expect_completion(ends.left, 1);
  expect_completion(ends.left, 2);
  expect_drained_event(ends.device, ends.left);
  expect_drained(ends.left);
  expect_completion(ends.right, 11);
  expect_completion(ends.right, 12);
  EXPECT_TRUE(ends.right.is_quiet(20ms));
  EXPECT_TRUE(ends.left.is_quiet());
  ASSERT_EQ(move_to(ends.left, IBV_QPS_RTS), 0);
  expect_completion(ends.left, 3);
  expect_completion(ends.right, 13);
  EXPECT_FALSE(has_event(ends.device, 10ms));
}

TEST(Draining, says_so_only_to_whom_asked) {
  Loopback ends;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  ASSERT_EQ(modify(ends.left, attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  ASSERT_EQ(move_to(ends.right, IBV_QPS_SQD), 0);
  expect_drained(ends.left);
  expect_drained(ends.right);
  EXPECT_FALSE(has_event(ends.device, 10ms));
  ASSERT_EQ(move_to(ends.left, IBV_QPS_RTS), 0);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  expect_drained_event(ends.device, ends.left);
  EXPECT_FALSE(has_event(ends.device, 10ms));
}

TEST(Draining, may_be_given_up) {
  Loopback ends;
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, IBV_SEND_SIGNALED, 2), 0);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_RTS), 0);
  EXPECT_FALSE(is_draining(ends.left));
  ASSERT_EQ(ends.right.receive({}, 3), 0);
  ASSERT_EQ(ends.right.receive({}, 4), 0);
  expect_completion(ends.left, 1);
  expect_completion(ends.left, 2);
  EXPECT_FALSE(has_event(ends.device, 10ms));
}

TEST(Draining, receives_and_answers_go_on) {
  Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.device, buffer);
  ASSERT_EQ(ends.right.receive({region.piece(0, 8)}, 1), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {region.piece(8, 8)}, 0, 0, 0), 0);
  expect_completion(ends.right, 1);
  ASSERT_EQ(move_to(ends.right, IBV_QPS_SQD), 0);
  ASSERT_EQ(ends.right.receive({region.piece(0, 8)}, 2), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {region.piece(8, 8)}, 0, 0, 0), 0);
  expect_completion(ends.right, 2);
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_READ, {region.piece(16, 8)}, region.address(),
                           region.handle->rkey, IBV_SEND_SIGNALED, 3),
            0);
  expect_completion(ends.left, 3);
}

TEST(Draining, held_requests_count) {
  Loopback ends({.sends = 4});
  ASSERT_EQ(move_to(ends.left, IBV_QPS_SQD), 0);
  std::uint64_t posted = 0;
  while (posted < 1000 &&
         ends.left.send(IBV_WR_RDMA_WRITE, {}, 0, 0, IBV_SEND_SIGNALED, posted) == 0)
    ++posted;
  EXPECT_GE(posted, 4u);
  EXPECT_LT(posted, 1000u);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_RTS), 0);
  for (std::uint64_t id = 0; id < posted; ++id) expect_completion(ends.left, id);
}

// --- Errors -------------------------------------------------------------------------------------

void hold_three(const Endpoint& endpoint) {
  ASSERT_EQ(move_to(endpoint, IBV_QPS_SQD), 0);
  for (std::uint64_t id = 1; id <= 3; ++id)
    ASSERT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {}, 0, 0, 0, id), 0);
  EXPECT_TRUE(endpoint.is_quiet());
}

void expect_three_flushed(const Endpoint& endpoint) {
  for (std::uint64_t id = 1; id <= 3; ++id) expect_completion(endpoint, id, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(endpoint.is_quiet());
}

TEST(Draining, held_requests_are_flushed_in_order) {
  Loopback ends;
  hold_three(ends.left);
  ASSERT_EQ(ends.left.fail(), 0);
  expect_three_flushed(ends.left);
}

TEST(Draining, held_requests_are_flushed_when_the_other_side_fails_the_queue_pair) {
  Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.device, buffer);
  hold_three(ends.left);
  ASSERT_EQ(ends.right.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address(), 1), 0);
  EXPECT_EQ(ends.right.wait().status, IBV_WC_REM_ACCESS_ERR);
  expect_three_flushed(ends.left);
  EXPECT_TRUE(ends.left.comes_to(IBV_QPS_ERR));
}

TEST(Draining, held_requests_vanish_with_a_reset) {
  Loopback ends;
  hold_three(ends.left);
  ASSERT_EQ(ends.left.reset(), 0);
  EXPECT_TRUE(ends.left.is_quiet());
  ASSERT_EQ(ends.right.reset(), 0);
  ends.left.connect(ends.right.address());
  ends.right.connect(ends.left.address());
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {}, 0, 0, IBV_SEND_SIGNALED, 7), 0);
  expect_completion(ends.left, 7);
}

TEST(Draining, an_error_is_no_end_of_it) {
  Loopback ends({}, {.rnr_retries = 1, .rnr_timer = 30});  // 0.3 s
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0, 1), 0);
  ASSERT_EQ(move_to(ends.left, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0, 2), 0);
  expect_completion(ends.left, 1, IBV_WC_RNR_RETRY_EXC_ERR);
  expect_completion(ends.left, 2, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(ends.left.comes_to(IBV_QPS_ERR));
  EXPECT_FALSE(is_draining(ends.left));
  EXPECT_FALSE(has_event(ends.device, 10ms));
}

TEST(Draining, held_requests_to_a_process_that_died_fail_when_they_are_sent) {
  OtherProcess other([](Line& line) {
    const Device device;
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    line.meet();
    line.meet();
  });
  const Device device;
  const Endpoint endpoint(device);
  connect_over(other.line(), endpoint);
  other.line().meet();
  hold_three(endpoint);
  other.kill();
  EXPECT_TRUE(endpoint.is_quiet(20ms));
  ASSERT_EQ(move_to(endpoint, IBV_QPS_RTS), 0);
  expect_completion(endpoint, 1, IBV_WC_RETRY_EXC_ERR);
  expect_completion(endpoint, 2, IBV_WC_WR_FLUSH_ERR);
  expect_completion(endpoint, 3, IBV_WC_WR_FLUSH_ERR);
}

// --- Datagrams ----------------------------------------------------------------------------------

/// Two queue pairs of one process, and a handle that leads to both.
struct Datagrams {
  Datagrams() {
    for (const Endpoint* const endpoint : {&left, &right}) {
      EXPECT_EQ(move_to(*endpoint, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
      EXPECT_EQ(move_to(*endpoint, IBV_QPS_RTR), 0);
      EXPECT_EQ(move_to(*endpoint, IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
    }
    const Address address = right.address();
    ibv_ah_attr attributes{};
    set_path(attributes, address);
    handle = driver().create_ah(device.domain, &attributes);
    EXPECT_NE(handle, nullptr);
  }
  ~Datagrams() { EXPECT_EQ(driver().destroy_ah(handle), 0); }
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  /// From `left` to `right` or the other way.
  int post(const Endpoint& endpoint, ibv_sge piece, std::uint64_t id,
           unsigned flags = IBV_SEND_SIGNALED) const {
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = static_cast<std::uint32_t>(id);
    request.send_flags = flags;
    request.wr.ud.ah = handle;
    request.wr.ud.remote_qpn = (&endpoint == &left ? right : left).pair->qp_num;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(endpoint.pair, &request, &bad);
  }
  void expect_arrival(const Endpoint& endpoint, std::uint32_t immediate) const {
    const ibv_wc completion = endpoint.wait();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.opcode, IBV_WC_RECV);
    EXPECT_EQ(completion.imm_data, immediate);
  }

  Device device;
  Endpoint left{device, {.type = IBV_QPT_UD}}, right{device, {.type = IBV_QPT_UD}};
  Buffer buffer{4096};
  Region region{device, buffer};
  ibv_ah* handle;
};

TEST(DrainingDatagrams, has_its_transitions_and_attributes) {
  const Datagrams scene;
  expect_attributes(scene.left, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY);
  expect_drained_event(scene.device, scene.left);
  expect_attributes(scene.left, IBV_QPS_SQD, IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
  expect_attributes(scene.left, IBV_QPS_RTS, IBV_QP_CUR_STATE | IBV_QP_QKEY);
}

TEST(DrainingDatagrams, that_are_posted_meanwhile_wait_and_keep_their_order) {
  const Datagrams scene;
  ASSERT_EQ(move_to(scene.left, IBV_QPS_SQD), 0);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(scene.right.receive({scene.region.piece(100 * id, 100)}), 0);
    std::memcpy(scene.buffer.data(), &id, sizeof(id));
    unsigned flags = IBV_SEND_INLINE;
    if (id != 2) flags |= IBV_SEND_SIGNALED;
    ASSERT_EQ(scene.post(scene.left, scene.region.piece(0, 8), id, flags), 0);
  }
  EXPECT_TRUE(scene.right.is_quiet(20ms));
  EXPECT_TRUE(scene.left.is_quiet());
  // It still receives.
  ASSERT_EQ(scene.left.receive({scene.region.piece(1000, 100)}), 0);
  ASSERT_EQ(scene.post(scene.right, scene.region.piece(0, 8), 7, 0), 0);
  scene.expect_arrival(scene.left, 7);

  ASSERT_EQ(move_to(scene.left, IBV_QPS_RTS), 0);
  for (std::uint32_t id = 1; id <= 3; ++id) {
    scene.expect_arrival(scene.right, id);
    EXPECT_EQ(static_cast<unsigned>(scene.buffer.data()[100 * id + 40]), id);
  }
  expect_completion(scene.left, 1);
  expect_completion(scene.left, 3);
  EXPECT_TRUE(scene.left.is_quiet());
}

TEST(DrainingDatagrams, one_that_fails_stops_those_behind_it) {
  const Datagrams scene;
  ASSERT_EQ(move_to(scene.left, IBV_QPS_SQD), 0);
  ASSERT_EQ(scene.right.receive({scene.region.piece(100, 100)}), 0);
  ibv_sge wrong = scene.region.piece(0, 8);
  wrong.lkey ^= 0x10;
  ASSERT_EQ(scene.post(scene.left, scene.region.piece(0, 8), 1), 0);
  ASSERT_EQ(scene.post(scene.left, wrong, 2, 0), 0);
  ASSERT_EQ(scene.post(scene.left, scene.region.piece(0, 8), 3), 0);
  ASSERT_EQ(move_to(scene.left, IBV_QPS_RTS), 0);
  scene.expect_arrival(scene.right, 1);
  expect_completion(scene.left, 1);
  expect_completion(scene.left, 2, IBV_WC_LOC_PROT_ERR);
  expect_completion(scene.left, 3, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(scene.left.state(), IBV_QPS_SQE);
  // And SQE leads back to RTS, to RESET and to ERR, and nowhere else.
  EXPECT_EQ(move_to(scene.left, IBV_QPS_SQD), EINVAL);
  EXPECT_EQ(move_to(scene.left, IBV_QPS_SQE), EINVAL);
  EXPECT_EQ(move_to(scene.left, IBV_QPS_RTR), EINVAL);
  expect_attributes(scene.left, IBV_QPS_RTS, IBV_QP_CUR_STATE | IBV_QP_QKEY);
  ASSERT_EQ(scene.right.receive({scene.region.piece(100, 100)}), 0);
  ASSERT_EQ(scene.post(scene.left, scene.region.piece(0, 8), 4), 0);
  scene.expect_arrival(scene.right, 4);
}

TEST(DrainingDatagrams, are_flushed_in_order_by_an_error) {
  const Datagrams scene;
  ASSERT_EQ(move_to(scene.left, IBV_QPS_SQD), 0);
  for (std::uint64_t id = 1; id <= 3; ++id)
    ASSERT_EQ(scene.post(scene.left, scene.region.piece(0, 8), id, 0), 0);
  ASSERT_EQ(scene.left.fail(), 0);
  ASSERT_EQ(scene.post(scene.left, scene.region.piece(0, 8), 4, 0), 0);
  for (std::uint64_t id = 1; id <= 4; ++id) expect_completion(scene.left, id, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(scene.left.reset(), 0);
}

TEST(DrainingDatagrams, are_flushed_when_a_receive_fails_the_queue_pair) {
  const Datagrams scene;
  ASSERT_EQ(move_to(scene.left, IBV_QPS_SQD), 0);
  for (std::uint64_t id = 1; id <= 3; ++id)
    ASSERT_EQ(scene.post(scene.left, scene.region.piece(0, 8), id, 0), 0);
  ibv_sge wrong = scene.region.piece(0, 100);
  wrong.lkey ^= 0x10;
  ASSERT_EQ(scene.left.receive({wrong}, 9), 0);
  ASSERT_EQ(scene.post(scene.right, scene.region.piece(0, 8), 5, 0), 0);
  bool received = false;
  for (std::uint64_t next = 1; next <= 3 || !received;) {
    const ibv_wc completion = scene.left.wait();
    if (completion.status == IBV_WC_LOC_PROT_ERR) {
      received = true;
      continue;
    }
    ASSERT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wr_id, next++);
  }
  EXPECT_TRUE(scene.left.comes_to(IBV_QPS_ERR));
}

}  // namespace
}  // namespace tutti::conformance
