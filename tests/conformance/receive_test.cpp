// Promise: a message without a receive waits and is repeated as the attributes say, is delivered as
// soon as a receive is posted, and shared receive queues serve several queue pairs.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

TEST(Receive, no_retries_fail_at_the_first_refusal) {
  Loopback ends({}, {.rnr_retries = 0});
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_TRUE(ends.left.comes_to(IBV_QPS_ERR));
}

TEST(Receive, retries_last_as_long_as_the_targets_timer_says) {
  Loopback ends({}, {.rnr_retries = 3, .rnr_timer = 20});  // 10.24 ms
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 30ms);
}

TEST(Receive, seven_retries_wait_until_a_receive_is_posted) {
  Loopback ends({}, {.rnr_retries = 7, .rnr_timer = 1});
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}), 0);
  EXPECT_TRUE(ends.left.is_quiet(60ms));
  ASSERT_EQ(ends.right.receive({}, 3), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ends.right.wait().wr_id, 3u);
}

/// The answers that ask for patience are answers.
TEST(Receive, waiting_for_one_uses_up_no_timeouts) {
  Loopback ends({}, {.timeout = 8, .retries = 1, .rnr_retries = 7, .rnr_timer = 1});  // 1 ms, twice
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}), 0);
  ASSERT_TRUE(ends.left.is_quiet(300ms));
  ASSERT_EQ(ends.right.receive({}), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
}

/// Nobody polls the initiator: the posted receive itself must bring the message.
TEST(Receive, a_posted_receive_fetches_the_message_long_before_the_timer) {
  if (!device_is_soft()) GTEST_SKIP() << "verbs promise the repetition after the timer, not before";
  Loopback ends({}, {.rnr_retries = 7, .rnr_timer = 0});  // 655 ms
  // Five times, as the machine may be busy with something else; the timer keeps to its time.
  auto shortest = std::chrono::nanoseconds::max();
  for (int attempt = 0; attempt < 5 && shortest >= 300ms; ++attempt) {
    ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}), 0);
    std::this_thread::sleep_for(20ms);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(ends.right.receive({}), 0);
    ibv_wc completion;
    while (ibv_poll_cq(ends.right.queue, 1, &completion) == 0) std::this_thread::yield();
    shortest =
        std::min<std::chrono::nanoseconds>(shortest, std::chrono::steady_clock::now() - start);
    EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  }
  EXPECT_LT(shortest, 300ms);
}

TEST(Receive, messages_behind_a_waiting_one_keep_their_order) {
  Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND_WITH_IMM, {}, 0, 0, 0, 1, 1), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address() + 8,
                           region.handle->rkey, IBV_SEND_SIGNALED),
            0);
  EXPECT_TRUE(ends.left.is_quiet());  // a write needs no receive, but must not overtake
  ASSERT_EQ(ends.left.send(IBV_WR_SEND_WITH_IMM, {}, 0, 0, 0, 1, 2), 0);
  ASSERT_EQ(ends.right.receive({}), 0);
  ASSERT_EQ(ends.right.receive({}), 0);
  EXPECT_EQ(ends.left.wait().opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(ends.right.wait().imm_data, 1u);
  EXPECT_EQ(ends.right.wait().imm_data, 2u);
}

TEST(Receive, a_full_queue_refuses_until_completions_are_polled) {
  Loopback ends({.receives = 4});
  int posted = 0;
  while (posted < 100 && ends.right.receive({}) == 0) ++posted;
  EXPECT_GE(posted, 4);
  EXPECT_EQ(ends.right.receive({}), ENOMEM);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(ends.right.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ends.right.receive({}), 0);
}

TEST(SharedReceives, several_queue_pairs_take_from_one_queue) {
  const Device device;
  const SharedReceives shared(device, 32);
  const Buffer buffer(4096);
  const Region region(device, buffer);
  {
    const Endpoint left_1(device), left_2(device);
    const Endpoint right_1(device, {.shared_receives = shared.handle});
    const Endpoint right_2(device, {.shared_receives = shared.handle});
    left_1.connect(right_1.address());
    right_1.connect(left_1.address());
    left_2.connect(right_2.address());
    right_2.connect(left_2.address());
    EXPECT_NE(right_1.receive({}), 0);
    EXPECT_EQ(driver().destroy_srq(shared.handle), EBUSY);

    ASSERT_EQ(left_2.send(IBV_WR_SEND, {region.piece(0, 8)}), 0);  // none is posted yet
    EXPECT_TRUE(left_2.is_quiet());
    std::set<std::uint64_t> seen;
    for (std::uint64_t round = 0; round < 100; ++round) {
      ASSERT_EQ(shared.receive({region.piece(64, 8)}, round), 0);
      if (round == 0) {
        EXPECT_EQ(left_2.wait().status, IBV_WC_SUCCESS);
        seen.insert(right_2.wait().wr_id);
        continue;
      }
      const bool first = round % 2 == 0;
      ASSERT_EQ((first ? left_1 : left_2).send(IBV_WR_SEND, {region.piece(0, 8)}), 0);
      const ibv_wc completion = (first ? right_1 : right_2).wait();
      EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
      EXPECT_EQ(completion.qp_num, (first ? right_1 : right_2).pair->qp_num);
      seen.insert(completion.wr_id);
      EXPECT_EQ((first ? left_1 : left_2).wait().status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(seen.size(), 100u);
  }
}

/// Two threads send through queue pairs of their own while the receives are posted again as they
/// complete: each message must lie in the receive it completes, and each receive complete once.
TEST(SharedReceives, initiators_at_the_same_time_take_different_receives) {
  constexpr std::size_t receives = 4;  // few, so that both want the same
  const std::uint32_t messages = device_is_soft() ? 2000 : 500;
  const Device device;
  const SharedReceives shared(device, receives);
  const Buffer buffer(64 * receives);
  const Region region(device, buffer);
  ibv_cq* const queue = driver().create_cq(device.context, 64, nullptr, nullptr, 0);
  {
    const Endpoint left_1(device), left_2(device);
    const EndpointOptions options{.shared_receives = shared.handle, .queue = queue};
    const Endpoint right_1(device, options), right_2(device, options);
    const ConnectionOptions patient{.retries = 7};  // many waits for a receive
    left_1.connect(right_1.address(), patient);
    right_1.connect(left_1.address(), patient);
    left_2.connect(right_2.address(), patient);
    right_2.connect(left_2.address(), patient);
    const auto receive = [&](std::size_t id) {
      return shared.receive({region.piece(id * 64, 8)}, id);
    };
    for (std::size_t id = 0; id < receives; ++id) ASSERT_EQ(receive(id), 0);

    const auto send_all = [messages](const Endpoint& endpoint, std::uint32_t first) {
      for (std::uint32_t number = first; number < messages; number += 2) {
        std::uint64_t word = number;
        const ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(&word), .length = 8, .lkey = 0};
        ASSERT_EQ(endpoint.send(IBV_WR_SEND_WITH_IMM, {piece}, 0, 0,
                                IBV_SEND_INLINE | IBV_SEND_SIGNALED, 1, number),
                  0);
        ASSERT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
      }
    };
    std::thread sender_1(send_all, std::cref(left_1), 0), sender_2(send_all, std::cref(left_2), 1);
    std::vector<bool> seen(messages);
    std::uint32_t seen_count = 0;
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (seen_count < messages && std::chrono::steady_clock::now() < deadline) {
      ibv_wc completion;
      if (ibv_poll_cq(queue, 1, &completion) != 1) {
        std::this_thread::yield();
        continue;
      }
      std::uint64_t word = 0;
      std::memcpy(&word, buffer.data() + completion.wr_id * 64, 8);
      EXPECT_EQ(word, completion.imm_data);
      EXPECT_FALSE(seen.at(completion.imm_data));
      seen.at(completion.imm_data) = true;
      ++seen_count;
      EXPECT_EQ(receive(completion.wr_id), 0);
    }
    EXPECT_EQ(seen_count, messages);
    sender_1.join();
    sender_2.join();
  }
  EXPECT_EQ(driver().destroy_cq(queue), 0);
}

TEST(SharedReceives, error_state_leaves_the_queue_to_the_others) {
  const Device device;
  const SharedReceives shared(device);
  const Endpoint left(device), right(device, {.shared_receives = shared.handle});
  left.connect(right.address());
  right.connect(left.address());
  ASSERT_EQ(shared.receive({}, 1), 0);
  ASSERT_EQ(right.fail(), 0);
  EXPECT_TRUE(right.is_quiet());
}

/// The memory of a destroyed queue belongs to others: here to the receives of a new queue pair,
/// which must all be delivered while a request still waits for the queue that is gone.
TEST(SharedReceives, a_waiting_initiator_leaves_the_memory_of_a_destroyed_queue_alone) {
  const Device device;
  auto shared = std::make_unique<SharedReceives>(device);
  const Endpoint left(device);
  auto right =
      std::make_unique<Endpoint>(device, EndpointOptions{.shared_receives = shared->handle});
  left.connect(right->address(), {.timeout = 0});  // for ever
  right->connect(left.address());
  ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
  EXPECT_TRUE(left.is_quiet());
  right.reset();
  shared.reset();

  const Endpoint target(device, {.pieces = 1}), source(device);
  target.connect(source.address());
  source.connect(target.address());
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(target.receive({}, id), 0);
  EXPECT_TRUE(left.is_quiet(20ms));  // it looks again meanwhile
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(source.send(IBV_WR_SEND, {}), 0);
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(target.wait().wr_id, id);
}

TEST(SharedReceives, capacity_is_kept) {
  const Device device;
  const SharedReceives shared(device, 4);
  int posted = 0;
  while (posted < 100 && shared.receive({}, 0) == 0) ++posted;
  EXPECT_GE(posted, 4);
  EXPECT_LT(posted, 100);
}

}  // namespace
}  // namespace tutti::conformance
