// Promise: a request that violates a right, a bound or a length completes with the proper error on
// both ends, moves both queue pairs to the error state and leaves the target's memory alone.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

/// Two connected queue pairs, a region on either side, and a receive posted on the right.
struct Scene {
  explicit Scene(unsigned access = all_access, int target_access = all_access)
      : ends({}, {.access = access}),
        source(4096),
        target(4096),
        from(ends.left.device, source),
        to(ends.left.device, target, target_access) {
    source.fill(5);
    EXPECT_EQ(ends.right.receive({to.piece(0, 64)}, 70), 0);
  }

  /// The request fails with `status`, and the receive is flushed or completes with `receive`.
  void expect(ibv_wc_status status, ibv_wc_status receive = IBV_WC_WR_FLUSH_ERR) const {
    EXPECT_EQ(ends.left.wait().status, status);
    const ibv_wc completion = ends.right.wait();
    EXPECT_EQ(completion.status, receive);
    EXPECT_EQ(completion.wr_id, 70u);
    EXPECT_TRUE(ends.left.comes_to(IBV_QPS_ERR));
    EXPECT_TRUE(ends.right.comes_to(IBV_QPS_ERR));
    for (std::size_t index = 0; index < target.size(); ++index)
      ASSERT_EQ(target.data()[index], std::byte{0});
  }

  Loopback ends;
  Buffer source, target;
  Region from, to;
};

TEST(Errors, unknown_remote_key) {
  Scene scene;
  // Unsignaled: errors complete all the same.
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE, {scene.from.piece(0, 8)}, scene.to.address(),
                                 scene.to.handle->rkey ^ 0x10, 0),
            0);
  scene.expect(IBV_WC_REM_ACCESS_ERR);
}

TEST(Errors, stale_remote_key_after_deregistration) {
  Scene scene;
  const Buffer other(4096);
  std::uint32_t key = 0;
  {
    const Region region(scene.ends.left.device, other);
    key = region.handle->rkey;
  }
  const Region again(scene.ends.left.device, other);
  ASSERT_NE(again.handle->rkey, key);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE, {scene.from.piece(0, 8)}, other.address(), key),
            0);
  scene.expect(IBV_WC_REM_ACCESS_ERR);
}

/// It has no part in the receive, which is flushed like all others.
TEST(Errors, refused_write_with_immediate) {
  Scene scene;
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE_WITH_IMM, {scene.from.piece(0, 8)},
                                 scene.to.address(), scene.to.handle->rkey ^ 0x10),
            0);
  scene.expect(IBV_WC_REM_ACCESS_ERR);
}

TEST(Errors, bounds_of_the_remote_region) {
  const auto fails = [](std::int64_t offset, std::size_t bytes) {
    Scene scene;
    ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE, {scene.from.piece(0, bytes)},
                                   scene.to.address() + static_cast<std::uint64_t>(offset),
                                   scene.to.handle->rkey),
              0);
    scene.expect(IBV_WC_REM_ACCESS_ERR);
  };
  fails(-1, 8);
  fails(4089, 8);
  fails(4096, 1);
  fails(1, 4096);
}

TEST(Errors, an_address_that_wraps_around) {
  Scene scene;
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE, {scene.from.piece(0, 4096)}, ~0ull - 15,
                                 scene.to.handle->rkey),
            0);
  scene.expect(IBV_WC_REM_ACCESS_ERR);
}

TEST(Errors, region_without_the_right) {
  Scene scene(all_access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE, {scene.from.piece(0, 8)}, scene.to.address(),
                                 scene.to.handle->rkey),
            0);
  scene.expect(IBV_WC_REM_ACCESS_ERR);
}

TEST(Errors, region_without_the_right_to_read) {
  Scene scene(all_access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_READ, {scene.from.piece(0, 8)}, scene.to.address(),
                                 scene.to.handle->rkey),
            0);
  scene.expect(IBV_WC_REM_ACCESS_ERR);
}

TEST(Errors, queue_pair_without_the_right) {
  Scene scene(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE, {scene.from.piece(0, 8)}, scene.to.address(),
                                 scene.to.handle->rkey),
            0);
  scene.expect(IBV_WC_REM_INV_REQ_ERR);
}

TEST(Errors, region_of_another_domain) {
  Scene scene;
  ibv_pd* const domain = driver().alloc_pd(scene.ends.left.device.context);
  {
    const Region region(domain, scene.target.data(), 4096, all_access);
    ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE, {scene.from.piece(0, 8)}, region.address(),
                                   region.handle->rkey),
              0);
    scene.expect(IBV_WC_REM_ACCESS_ERR);
    EXPECT_NE(driver().dealloc_pd(domain), 0);  // it is in use
  }
  EXPECT_EQ(driver().dealloc_pd(domain), 0);
}

TEST(Errors, zero_bytes_need_no_key) {
  Scene scene;
  ASSERT_EQ(
      scene.ends.left.send(IBV_WR_RDMA_WRITE_WITH_IMM, {}, 0x1234, 0xdeadbeef, IBV_SEND_SIGNALED),
      0);
  EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_SUCCESS);
  const ibv_wc received = scene.ends.right.wait();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.byte_len, 0u);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_READ, {scene.from.piece(0, 0)}, 0, 0xdeadbeef), 0);
  EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_SUCCESS);
}

/// A local error does not reach the target.
void expect_local_error(Scene& scene) {
  EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(scene.ends.left.comes_to(IBV_QPS_ERR));
  EXPECT_EQ(scene.ends.right.state(), IBV_QPS_RTS);
}

TEST(Errors, local_ones_leave_the_target_alone) {
  Scene scene;
  ibv_sge piece = scene.from.piece(0, 8);
  piece.lkey ^= 0x10;
  ASSERT_EQ(scene.ends.left.send(IBV_WR_SEND, {piece}, 0, 0, 0), 0);
  EXPECT_NE(scene.ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.ends.left.comes_to(IBV_QPS_ERR));
  EXPECT_TRUE(scene.ends.right.is_quiet());
  EXPECT_EQ(scene.ends.right.state(), IBV_QPS_RTS);
}

TEST(Errors, local_key_and_bounds) {
  const auto fails = [](const std::function<void(ibv_sge&)>& change) {
    Scene scene;
    ibv_sge piece = scene.from.piece(0, 8);
    change(piece);
    ASSERT_EQ(scene.ends.left.send(IBV_WR_SEND, {piece}, 0, 0, 0), 0);
    expect_local_error(scene);
  };
  fails([](ibv_sge& piece) { piece.lkey ^= 0x10; });
  fails([](ibv_sge& piece) { piece.addr += 4090; });
  fails([](ibv_sge& piece) { piece.addr = ~0ull - 3; });
}

TEST(Errors, local_region_of_another_domain) {
  Scene scene;
  ibv_pd* const domain = driver().alloc_pd(scene.ends.left.device.context);
  {
    const Region region(domain, scene.source.data(), 64, all_access);
    ASSERT_EQ(scene.ends.left.send(IBV_WR_SEND, {region.piece(0, 8)}), 0);
    expect_local_error(scene);
  }
  EXPECT_EQ(driver().dealloc_pd(domain), 0);
}

TEST(Errors, read_into_a_region_without_local_write) {
  Scene scene;
  const Region region(scene.ends.left.device, scene.source, IBV_ACCESS_REMOTE_READ);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_READ, {region.piece(0, 8)}, scene.to.address(),
                                 scene.to.handle->rkey),
            0);
  expect_local_error(scene);
}

TEST(Errors, message_longer_than_the_receive) {
  Scene scene;
  ASSERT_EQ(scene.ends.left.send(IBV_WR_SEND, {scene.from.piece(0, 65)}), 0);
  scene.expect(IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
}

TEST(Errors, receive_with_a_bad_local_key) {
  Scene scene;
  ASSERT_EQ(scene.ends.left.send(IBV_WR_SEND, {scene.from.piece(0, 64)}), 0);  // takes the good one
  ASSERT_EQ(scene.ends.left.wait().status, IBV_WC_SUCCESS);
  ASSERT_EQ(scene.ends.right.wait().status, IBV_WC_SUCCESS);
  std::fill_n(scene.target.data(), 64, std::byte{0});
  ibv_sge piece = scene.to.piece(0, 64);
  piece.lkey ^= 0x10;
  ASSERT_EQ(scene.ends.right.receive({piece}, 70), 0);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_SEND, {scene.from.piece(0, 8)}), 0);
  scene.expect(IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
}

TEST(Errors, completions_before_the_error_are_kept_in_order) {
  Scene scene;
  ASSERT_EQ(scene.ends.right.receive({}, 71), 0);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_SEND, {}), 0);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE, {scene.from.piece(0, 8)}, 0, 1), 0);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(scene.ends.right.wait().status, IBV_WC_SUCCESS);
  const ibv_wc flushed = scene.ends.right.wait();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 71u);
}

/// Who polls the error, on either end, finds the queue pair in the error state: at once on the
/// software device, soon on others.
void expect_state_before_completion(const Loopback& ends, const Endpoint& watched) {
  const int rounds = device_is_soft() ? 1000 : 20;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  std::atomic<int> allowed{0}, seen{0};
  std::thread other([&] {
    for (int round = 1; round <= rounds; ++round) {
      while (allowed.load() != round) std::this_thread::yield();
      ibv_wc completion;
      while (ibv_poll_cq(watched.queue, 1, &completion) == 0) std::this_thread::yield();
      EXPECT_TRUE(watched.comes_to(IBV_QPS_ERR));
      seen.store(round);
    }
  });
  for (int round = 1; round <= rounds; ++round) {
    for (const Endpoint* const end : {&ends.left, &ends.right}) {
      EXPECT_EQ(end->reset(), 0);
      end->forget_completions();
    }
    ends.left.connect(ends.right.address());
    ends.right.connect(ends.left.address());
    EXPECT_EQ(ends.right.receive({region.piece(0, 4)}), 0);
    allowed.store(round);
    EXPECT_EQ(ends.left.send(IBV_WR_SEND, {region.piece(8, 8)}), 0);  // too long
    while (seen.load() != round) std::this_thread::yield();
  }
  other.join();
}

TEST(Errors, the_initiators_state_changes_before_its_completion_comes) {
  Loopback ends;
  expect_state_before_completion(ends, ends.left);
}

TEST(Errors, the_targets_state_changes_before_its_completion_comes) {
  Loopback ends;
  expect_state_before_completion(ends, ends.right);
}

TEST(Errors, the_failed_request_completes_before_the_receives_of_its_queue) {
  if (!device_is_soft()) GTEST_SKIP() << "verbs do not say which comes first";
  constexpr int rounds = 10000;
  Loopback ends;
  std::atomic<int> allowed{0}, seen{0};
  std::thread other([&] {
    for (int round = 1; round <= rounds; ++round) {
      while (allowed.load() != round) std::this_thread::yield();
      EXPECT_EQ(ends.left.wait().status, IBV_WC_LOC_PROT_ERR);
      EXPECT_EQ(ends.left.wait().status, IBV_WC_WR_FLUSH_ERR);
      seen.store(round);
    }
  });
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ibv_sge piece = region.piece(0, 8);
  piece.lkey ^= 0x10;
  for (int round = 1; round <= rounds; ++round) {
    EXPECT_EQ(ends.left.reset(), 0);
    ends.left.connect(ends.right.address());
    EXPECT_EQ(ends.left.receive({}), 0);
    allowed.store(round);
    EXPECT_EQ(ends.left.send(IBV_WR_SEND, {piece}), 0);
    while (seen.load() != round) std::this_thread::yield();
  }
  other.join();
}

TEST(Errors, a_target_that_is_not_ready_exhausts_the_retries) {
  const Device device;
  const Endpoint left(device), right(device);
  ASSERT_EQ(right.initialise(), 0);
  const auto start = std::chrono::steady_clock::now();
  left.connect(right.address(), {.timeout = 10, .retries = 3});  // 4.2 ms, four times
  ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(left.wait().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 4ms);
}

/// The value 7 of `retries` means seven repetitions.  (As the count of repetitions for want of a
/// receive, 7 would mean that they never end.)
TEST(Errors, seven_retries_come_to_an_end) {
  const Device device;
  const Endpoint left(device), right(device);
  ASSERT_EQ(right.initialise(), 0);
  left.connect(right.address(), {.timeout = 8, .retries = 7});  // 1 ms, eight times
  ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(left.wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(Errors, a_target_that_becomes_ready_in_time_is_reached) {
  const Device device;
  const Endpoint left(device), right(device);
  // The software device's 0 is for ever; others then do not repeat what was dropped.
  const std::uint8_t timeout = device_is_soft() ? 0 : 14;
  left.connect(right.address(), {.timeout = timeout, .retries = 6});
  ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
  EXPECT_TRUE(left.is_quiet(50ms));
  right.connect(left.address());
  ASSERT_EQ(right.receive({}), 0);
  EXPECT_EQ(left.wait().status, IBV_WC_SUCCESS);
}

TEST(Errors, a_target_connected_to_another_drops) {
  const Device device;
  const Endpoint left(device), right(device), third(device);
  right.connect(third.address());
  left.connect(right.address());
  ASSERT_EQ(right.receive({}), 0);
  ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(left.wait().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(right.state(), IBV_QPS_RTS);
}

TEST(Errors, a_wrong_address_drops) {
  const Device device;
  const Endpoint left(device), right(device);
  Address address = right.address();
  if (address.lid == 0) GTEST_SKIP() << "Ethernet resolves addresses at RTR";
  address.lid = static_cast<std::uint16_t>(address.lid + 100);
  right.connect(left.address());
  left.connect(address);
  ASSERT_EQ(right.receive({}), 0);
  ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(left.wait().status, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace tutti::conformance
