// Promise: the state machine accepts exactly the transitions and attribute masks of the table, and
// each state allows exactly its posts.
#include <gtest/gtest.h>

#include <cerrno>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

int modify(const Endpoint& endpoint, ibv_qp_attr attributes, int mask) {
  return driver().modify_qp(endpoint.pair, &attributes, mask);
}

struct Step {
  const char* name;
  int required;
  ibv_qp_attr attributes;
};

std::vector<Step> steps_to_ready(const Address& peer) {
  ibv_qp_attr attributes{};
  attributes.port_num = 1;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer.queue_pair;
  set_path(attributes.ah_attr, peer);
  attributes.max_rd_atomic = 1;
  attributes.max_dest_rd_atomic = 1;
  attributes.timeout = 10;
  std::vector<Step> steps{
      {"INIT", IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, attributes},
      {"RTR",
       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
           IBV_QP_MIN_RNR_TIMER,
       attributes},
      {"RTS",
       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
           IBV_QP_MAX_QP_RD_ATOMIC,
       attributes}};
  steps[0].attributes.qp_state = IBV_QPS_INIT;
  steps[1].attributes.qp_state = IBV_QPS_RTR;
  steps[2].attributes.qp_state = IBV_QPS_RTS;
  return steps;
}

TEST(State, each_transition_needs_each_of_its_attributes_and_no_foreign_one) {
  const Device device;
  const Endpoint endpoint(device);
  for (const Step& step : steps_to_ready(endpoint.address())) {
    SCOPED_TRACE(step.name);
    const ibv_qp_state before = endpoint.state();
    for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
      if ((step.required & bit) == 0) continue;
      EXPECT_EQ(modify(endpoint, step.attributes, IBV_QP_STATE | (step.required & ~bit)), EINVAL)
          << bit;
      EXPECT_EQ(endpoint.state(), before);
    }
    EXPECT_EQ(modify(endpoint, step.attributes, IBV_QP_STATE | step.required | IBV_QP_QKEY),
              EINVAL);
    EXPECT_EQ(modify(endpoint, step.attributes, IBV_QP_STATE | step.required), 0);
    EXPECT_EQ(endpoint.state(), step.attributes.qp_state);
  }
}

TEST(State, transitions_outside_the_table_are_refused) {
  const Device device;
  const Endpoint endpoint(device);
  const auto steps = steps_to_ready(endpoint.address());
  EXPECT_EQ(modify(endpoint, steps[1].attributes, IBV_QP_STATE | steps[1].required), EINVAL);
  EXPECT_EQ(modify(endpoint, steps[2].attributes, IBV_QP_STATE | steps[2].required), EINVAL);
  EXPECT_NE(endpoint.fail(), 0);  // RESET to ERR
  EXPECT_EQ(endpoint.initialise(), 0);
  EXPECT_EQ(endpoint.initialise(), 0);  // INIT to INIT
  EXPECT_EQ(modify(endpoint, steps[2].attributes, IBV_QP_STATE | steps[2].required), EINVAL);
  EXPECT_EQ(endpoint.make_ready_to_receive(endpoint.address()), 0);
  EXPECT_EQ(endpoint.initialise(), EINVAL);
  EXPECT_EQ(endpoint.make_ready_to_send(), 0);
  EXPECT_EQ(endpoint.make_ready_to_receive(endpoint.address()), EINVAL);
  EXPECT_EQ(endpoint.fail(), 0);
  EXPECT_EQ(endpoint.fail(), 0);
  EXPECT_EQ(endpoint.make_ready_to_send(), EINVAL);
  EXPECT_EQ(endpoint.reset(), 0);
  EXPECT_EQ(endpoint.state(), IBV_QPS_RESET);
}

TEST(State, values_out_of_range_are_refused) {
  const Device device;
  const Endpoint endpoint(device);
  auto steps = steps_to_ready(endpoint.address());
  const auto refused = [&](const Step& step, auto change) {
    ibv_qp_attr attributes = step.attributes;
    change(attributes);
    EXPECT_EQ(modify(endpoint, attributes, IBV_QP_STATE | step.required), EINVAL);
  };
  refused(steps[0], [](ibv_qp_attr& values) { values.port_num = 2; });
  ASSERT_EQ(endpoint.initialise(), 0);
  refused(steps[1], [](ibv_qp_attr& values) { values.ah_attr.port_num = 9; });
  refused(steps[1], [](ibv_qp_attr& values) { values.path_mtu = static_cast<ibv_mtu>(6); });
}

TEST(State, posts_are_allowed_by_state) {
  const Device device;
  const Endpoint endpoint(device);
  EXPECT_NE(endpoint.receive({}), 0);  // RESET
  EXPECT_NE(endpoint.send(IBV_WR_SEND, {}), 0);
  ASSERT_EQ(endpoint.initialise(), 0);
  EXPECT_EQ(endpoint.receive({}), 0);
  EXPECT_EQ(endpoint.send(IBV_WR_SEND, {}), EINVAL);
  ASSERT_EQ(endpoint.make_ready_to_receive(endpoint.address()), 0);
  EXPECT_EQ(endpoint.receive({}), 0);
  EXPECT_EQ(endpoint.send(IBV_WR_SEND, {}), EINVAL);
  ASSERT_EQ(endpoint.make_ready_to_send(), 0);
  EXPECT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
}

TEST(State, a_refused_request_is_named) {
  const Device device;
  const Endpoint endpoint(device);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_NE(ibv_post_recv(endpoint.pair, &receive, &bad_receive), 0);
  EXPECT_EQ(bad_receive, &receive);
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  EXPECT_NE(ibv_post_send(endpoint.pair, &send, &bad_send), 0);
  EXPECT_EQ(bad_send, &send);
}

TEST(State, error_state_flushes_what_is_queued_and_what_comes_later) {
  Loopback ends;
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(ends.left.receive({}, id), 0);
  ASSERT_EQ(ends.left.fail(), 0);
  for (std::uint64_t id = 0; id < 4; ++id) {
    const ibv_wc completion = ends.left.wait();
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wr_id, id);
  }
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0, 9), 0);  // unsignaled: completes all the same
  const ibv_wc completion = ends.left.wait();
  EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(completion.wr_id, 9u);
  EXPECT_TRUE(ends.left.is_quiet());
}

TEST(State, error_state_flushes_receives_that_come_later) {
  Loopback ends;
  ASSERT_EQ(ends.left.receive({}, 0), 0);
  ASSERT_EQ(ends.left.fail(), 0);
  ASSERT_EQ(ends.left.receive({}, 1), 0);
  for (std::uint64_t id = 0; id < 2; ++id) {
    const ibv_wc completion = ends.left.wait();
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wr_id, id);
  }
}

TEST(State, error_state_flushes_waiting_sends_in_order) {
  Loopback ends;
  for (std::uint64_t id = 0; id < 3; ++id)
    ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0, id), 0);
  EXPECT_TRUE(ends.left.is_quiet());  // no receive is posted
  ASSERT_EQ(ends.left.fail(), 0);
  for (std::uint64_t id = 0; id < 3; ++id) {
    const ibv_wc completion = ends.left.wait();
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wr_id, id);
  }
}

TEST(State, a_reset_queue_pair_can_be_connected_again) {
  Loopback ends;
  ASSERT_EQ(ends.right.receive({}, 1), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  ASSERT_EQ(ends.left.reset(), 0);
  ASSERT_EQ(ends.right.reset(), 0);
  if (device_is_soft()) {
    EXPECT_TRUE(ends.right.is_quiet());  // its queued completion has vanished
  }
  ends.right.forget_completions();
  ends.left.connect(ends.right.address());
  ends.right.connect(ends.left.address());
  ASSERT_EQ(ends.right.receive({}, 2), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  EXPECT_EQ(ends.right.wait().wr_id, 2u);
}

TEST(State, query_returns_what_modify_set) {
  Loopback ends({}, {.timeout = 13, .retries = 5, .rnr_retries = 6, .rnr_timer = 12});
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  ASSERT_EQ(driver().query_qp(ends.left.pair, &attributes, all_attributes, &initial), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attributes.timeout, 13);
  EXPECT_EQ(attributes.retry_cnt, 5);
  EXPECT_EQ(attributes.rnr_retry, 6);
  EXPECT_EQ(attributes.min_rnr_timer, 12);
  EXPECT_EQ(attributes.dest_qp_num, ends.right.pair->qp_num);
  EXPECT_GE(initial.cap.max_send_wr, 16u);
}

TEST(State, queries_of_what_verbs_do_not_know_are_refused) {
  const Loopback ends;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  for (const int mask : {-1, IBV_QP_RATE_LIMIT | 0, IBV_QP_STATE | IBV_QP_RATE_LIMIT})
    EXPECT_EQ(driver().query_qp(ends.left.pair, &attributes, mask, &initial), EOPNOTSUPP);
}

}  // namespace
}  // namespace tutti::conformance
