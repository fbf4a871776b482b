// Promise: what befalls an object without its owner's doing is an asynchronous event, once, of the
// right kind, at a descriptor that can be waited for; and no object ends before its events are
// acknowledged.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

bool is_readable(const Device& device, std::chrono::milliseconds patience) {
  pollfd entry{.fd = device.context->async_fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(patience.count())) == 1;
}

ibv_async_event take_event(const Device& device) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  if (!is_readable(device, device_is_soft() ? 10s : 1s)) {
    ADD_FAILURE() << "no event";
    return event;
  }
  EXPECT_EQ(driver().get_async_event(device.context, &event), 0) << std::strerror(errno);
  return event;
}

void expect_event(const Device& device, ibv_event_type type, const ibv_qp* pair) {
  ibv_async_event event = take_event(device);
  EXPECT_EQ(event.event_type, type);
  EXPECT_EQ(event.element.qp, pair);
  if (event.event_type == type) driver().ack_async_event(&event);
}

bool is_quiet(const Device& device) {
  return !is_readable(device, 20ms);
}

TEST(Events, the_responder_hears_of_a_refused_access) {
  const Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address(), 1), 0);
  expect_event(ends.device, IBV_EVENT_QP_ACCESS_ERR, ends.right.pair);
  EXPECT_TRUE(ends.right.comes_to(IBV_QPS_ERR));
  EXPECT_TRUE(is_quiet(ends.device));  // the initiator has a completion
}

TEST(Events, the_responder_hears_of_an_invalid_request) {
  const Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ASSERT_EQ(ends.right.receive({region.piece(0, 4)}), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {region.piece(8, 8)}), 0);  // too long
  expect_event(ends.device, IBV_EVENT_QP_REQ_ERR, ends.right.pair);
  EXPECT_TRUE(is_quiet(ends.device));
}

TEST(Events, the_responder_hears_of_a_receive_that_failed) {
  const Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ibv_sge piece = region.piece(0, 8);
  piece.lkey ^= 0x10;
  ASSERT_EQ(ends.right.receive({piece}), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {region.piece(8, 8)}), 0);
  expect_event(ends.device, IBV_EVENT_QP_FATAL, ends.right.pair);
  EXPECT_TRUE(is_quiet(ends.device));
}

TEST(Events, an_incarnation_fails_once_and_the_next_one_again) {
  const Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address(), 1), 0);
    EXPECT_EQ(ends.left.wait().status, IBV_WC_REM_ACCESS_ERR);
    expect_event(ends.device, IBV_EVENT_QP_ACCESS_ERR, ends.right.pair);
    ASSERT_FALSE(testing::Test::HasFailure());
    ASSERT_EQ(ends.left.reset(), 0);
    ASSERT_EQ(ends.right.reset(), 0);
    ends.left.connect(ends.right.address());
    ends.right.connect(ends.left.address());
  }
  EXPECT_TRUE(is_quiet(ends.device));
}

TEST(Events, the_owners_own_changes_of_state_are_none) {
  const Loopback ends;
  ASSERT_EQ(ends.left.fail(), 0);
  ASSERT_EQ(ends.right.reset(), 0);
  EXPECT_TRUE(is_quiet(ends.device));
}

TEST(Events, a_failed_queue_pair_leaves_its_shared_receives) {
  const Device device;
  const SharedReceives shared(device);
  const Endpoint left(device, {.shared_receives = shared.handle});
  const Endpoint right(device, {.shared_receives = shared.handle});
  left.connect(right.address());
  right.connect(left.address());
  const Buffer buffer(64);
  const Region region(device, buffer);
  // The initiator's completion moves its own queue pair to the error state as well.
  ASSERT_EQ(left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address(), 1), 0);
  bool access = false, left_last = false, right_last = false;
  for (int count = 0; count < 3; ++count) {
    ibv_async_event event = take_event(device);
    ASSERT_FALSE(testing::Test::HasFailure());
    access |= event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == right.pair;
    if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
      (event.element.qp == left.pair ? left_last : right_last) = true;
    driver().ack_async_event(&event);
  }
  EXPECT_TRUE(access && left_last && right_last);
  EXPECT_TRUE(is_quiet(device));
}

TEST(Events, the_owner_hears_that_the_last_shared_receive_was_reached) {
  const Device device;
  const SharedReceives shared(device);
  const Endpoint self(device, {.shared_receives = shared.handle});
  self.connect(self.address());
  ASSERT_EQ(self.fail(), 0);
  expect_event(device, IBV_EVENT_QP_LAST_WQE_REACHED, self.pair);
  ASSERT_EQ(self.fail(), 0);
  EXPECT_TRUE(is_quiet(device));
}

TEST(Events, the_first_message_before_ready_to_send_is_reported) {
  const Device device;
  const Endpoint left(device), right(device);
  ASSERT_EQ(right.initialise(), 0);
  ASSERT_EQ(right.make_ready_to_receive(left.address()), 0);
  left.connect(right.address());
  for (int count = 0; count < 2; ++count) {
    ASSERT_EQ(right.receive({}), 0);
    ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
  }
  expect_event(device, IBV_EVENT_COMM_EST, right.pair);
  EXPECT_TRUE(is_quiet(device));
}

TEST(Events, an_overrun_completion_queue_is_reported) {
  const Loopback ends({.completions = 4});
  const int sends = device_is_soft() ? 5 : 16;  // others may have more entries than was asked for
  for (int count = 0; count < sends; ++count) ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {}), 0);
  ibv_async_event event = take_event(ends.device);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, ends.left.queue);
  driver().ack_async_event(&event);
}

/// A shared receive queue with a limit, and an endpoint that takes from it.
struct Limited {
  explicit Limited(int receives) : shared(device, 16), self(device, options()) {
    self.connect(self.address());
    post(receives);
  }
  EndpointOptions options() const { return {.shared_receives = shared.handle}; }
  void post(int receives) const {
    for (; receives > 0; --receives) ASSERT_EQ(shared.receive({}, 1), 0);
  }
  void take(int receives) const {
    for (; receives > 0; --receives) {
      ASSERT_EQ(self.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
      EXPECT_EQ(self.wait().status, IBV_WC_SUCCESS);
    }
  }
  int set_limit(std::uint32_t limit) const {
    ibv_srq_attr attributes{};
    attributes.srq_limit = limit;
    return driver().modify_srq(shared.handle, &attributes, IBV_SRQ_LIMIT);
  }
  std::uint32_t limit() const {
    ibv_srq_attr attributes{};
    EXPECT_EQ(driver().query_srq(shared.handle, &attributes), 0);
    return attributes.srq_limit;
  }
  void expect_event() const {
    ibv_async_event event = take_event(device);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event.element.srq, shared.handle);
    driver().ack_async_event(&event);
  }

  Device device;
  SharedReceives shared;
  Endpoint self;
};

TEST(Events, the_limit_of_a_shared_queue_is_reached_once) {
  const Limited scene(8);
  scene.take(1);
  EXPECT_TRUE(is_quiet(scene.device));
  ASSERT_EQ(scene.set_limit(5), 0);
  EXPECT_EQ(scene.limit(), 5u);
  scene.take(2);
  EXPECT_TRUE(is_quiet(scene.device));  // 5 are not fewer than 5
  scene.take(1);
  scene.expect_event();
  EXPECT_EQ(scene.limit(), 0u);
  scene.take(1);
  EXPECT_TRUE(is_quiet(scene.device));
  scene.post(4);
  ASSERT_EQ(scene.set_limit(7), 0);
  scene.take(1);
  scene.expect_event();
  EXPECT_TRUE(is_quiet(scene.device));
}

TEST(Events, a_limit_above_the_number_is_reached_at_once) {
  const Limited scene(2);
  ASSERT_EQ(scene.set_limit(3), 0);
  scene.expect_event();
  EXPECT_EQ(scene.limit(), 0u);
}

TEST(Events, a_limit_can_be_withdrawn_and_has_bounds) {
  const Limited scene(4);
  ASSERT_EQ(scene.set_limit(3), 0);
  ASSERT_EQ(scene.set_limit(0), 0);
  scene.take(4);
  EXPECT_TRUE(is_quiet(scene.device));
  EXPECT_EQ(scene.set_limit(1u << 20), EINVAL);
  ibv_srq_attr attributes{};
  attributes.max_wr = 32;
  ibv_device_attr device{};
  ASSERT_EQ(driver().query_device(scene.device.context, &device), 0);
  if ((device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) == 0) {
    EXPECT_NE(driver().modify_srq(scene.shared.handle, &attributes, IBV_SRQ_MAX_WR), 0);
  }
}

TEST(Events, a_descriptor_without_waiting_says_so) {
  const Device device;
  ASSERT_EQ(::fcntl(device.context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event{};
  EXPECT_EQ(driver().get_async_event(device.context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Events, a_waiting_thread_is_woken) {
  const Limited scene(4);
  ASSERT_EQ(scene.set_limit(2), 0);
  std::thread waiter([&] {
    ibv_async_event event{};
    EXPECT_EQ(driver().get_async_event(scene.device.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    driver().ack_async_event(&event);
  });
  std::this_thread::sleep_for(10ms);
  scene.take(3);
  waiter.join();
}

TEST(Events, the_destruction_of_a_queue_pair_waits_for_acknowledgements) {
  Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address(), 1), 0);
  ibv_async_event event = take_event(ends.device);
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    ends.right.destroy_queue_pair();
    destroyed.store(true);
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(destroyed.load());
  driver().ack_async_event(&event);
  destroyer.join();
}

TEST(Events, unread_ones_vanish_with_their_object) {
  Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address(), 1), 0);
  ASSERT_TRUE(is_readable(ends.device, device_is_soft() ? 10s : 1s));
  ends.right.destroy_queue_pair();
  EXPECT_TRUE(is_quiet(ends.device));
}

/// Between processes: each cause, then the death of who has caused it.
TEST(Events, other_processes_cause_them) {
  OtherProcess other([](Line& line) {
    const Device device;
    const Buffer buffer(64);
    const Region region(device, buffer);
    const Endpoint writer(device), sender(device);
    connect_over(line, writer);
    connect_over(line, sender);
    for (int count = 0; count < 3; ++count) ASSERT_EQ(sender.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
    ASSERT_EQ(writer.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, 0, 1), 0);
    EXPECT_EQ(writer.wait().status, IBV_WC_REM_ACCESS_ERR);
    (void)line.get<char>();  // until killed
  });
  const Device device;
  const SharedReceives shared(device);
  const Endpoint written(device), receiver(device, {.shared_receives = shared.handle});
  for (int count = 0; count < 4; ++count) ASSERT_EQ(shared.receive({}, 1), 0);
  ibv_srq_attr attributes{};
  attributes.srq_limit = 2;
  ASSERT_EQ(driver().modify_srq(shared.handle, &attributes, IBV_SRQ_LIMIT), 0);
  connect_over(other.line(), written);
  connect_over(other.line(), receiver);
  bool access = false, limit = false;
  for (int count = 0; count < 2; ++count) {
    ibv_async_event event = take_event(device);
    ASSERT_FALSE(testing::Test::HasFailure());
    access |= event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == written.pair;
    limit |= event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == shared.handle;
    driver().ack_async_event(&event);
  }
  EXPECT_TRUE(access && limit);
  other.kill();
  EXPECT_TRUE(is_quiet(device));
}

}  // namespace
}  // namespace tutti::conformance
