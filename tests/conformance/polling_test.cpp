// Promise: a completion that is there is polled, whatever else keeps the queue busy, and none is
// lost to a poll that runs at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

struct SharedQueue {
  explicit SharedQueue(const Device& device, int entries = 256)
      : handle(driver().create_cq(device.context, entries, nullptr, nullptr, 0)) {
    EXPECT_NE(handle, nullptr);
  }
  ~SharedQueue() { EXPECT_EQ(driver().destroy_cq(handle), 0); }
  SharedQueue(const SharedQueue&) = delete;
  SharedQueue& operator=(const SharedQueue&) = delete;

  ibv_cq* handle;
};

void connect_both(const Endpoint& left, const Endpoint& right) {
  left.connect(right.address());
  right.connect(left.address());
}

/// Polls one by one until a completion with this id comes; `feed` keeps the rest of the queue busy
/// and is called for each other one.
template <class Feed>
bool comes_although_fed(ibv_cq* queue, std::uint64_t id, const Feed& feed) {
  ibv_wc completion;
  for (int round = 0; round < 10000; ++round) {
    if (ibv_poll_cq(queue, 1, &completion) != 1) continue;
    if (completion.wr_id == id) return true;
    feed();
  }
  return false;
}

TEST(Polling, a_busy_receiver_does_not_starve_another) {
  const Device device;
  const SharedQueue queue(device);
  const Endpoint busy_source(device), quiet_source(device);
  const Endpoint busy(device, {.queue = queue.handle}), quiet(device, {.queue = queue.handle});
  connect_both(busy_source, busy);
  connect_both(quiet_source, quiet);
  for (int count = 0; count < 8; ++count) ASSERT_EQ(busy.receive({}, 1), 0);
  ASSERT_EQ(quiet.receive({}, 2), 0);
  ASSERT_EQ(quiet_source.send(IBV_WR_SEND, {}), 0);
  const auto send_to_busy = [&] {
    ASSERT_EQ(busy_source.send(IBV_WR_SEND, {}), 0);
    (void)busy_source.wait();
  };
  for (int count = 0; count < 4; ++count) send_to_busy();
  EXPECT_TRUE(comes_although_fed(queue.handle, 2, [&] {
    ASSERT_EQ(busy.receive({}, 1), 0);
    send_to_busy();
  }));
}

TEST(Polling, own_sends_do_not_starve_receives) {
  Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ASSERT_EQ(ends.left.receive({}, 2), 0);
  ASSERT_EQ(ends.right.send(IBV_WR_SEND, {}), 0);
  const auto put = [&] {
    ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address() + 8,
                             region.handle->rkey),
              0);
  };
  for (int count = 0; count < 8; ++count) put();
  EXPECT_TRUE(comes_although_fed(ends.left.queue, 2, put));
}

TEST(Polling, receives_do_not_starve_own_sends) {
  Loopback ends;
  for (int count = 0; count < 9; ++count) ASSERT_EQ(ends.left.receive({}), 0);
  ASSERT_EQ(ends.right.receive({}), 0);
  const auto send_to_left = [&] {
    ASSERT_EQ(ends.right.send(IBV_WR_SEND, {}), 0);
    (void)ends.right.wait();
  };
  for (int count = 0; count < 8; ++count) send_to_left();
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, IBV_SEND_SIGNALED, 2), 0);
  EXPECT_EQ(ends.right.wait().opcode, IBV_WC_RECV);
  EXPECT_TRUE(comes_although_fed(ends.left.queue, 2, [&] {
    ASSERT_EQ(ends.left.receive({}), 0);
    send_to_left();
  }));
}

/// One thread moves a queue pair to the error state while another polls the queue, which is busy
/// flushing a second one: the flush of the first must come all the same.
TEST(Polling, a_flush_asked_for_during_a_flush_is_not_lost) {
  const Device device;
  const SharedQueue queue(device);
  const Endpoint failing(device, {.queue = queue.handle});
  const Endpoint flushing(device, {.queue = queue.handle});
  std::atomic<unsigned> allowed{0}, failed{0};
  std::atomic<bool> stopping{false};
  std::thread other([&] {
    for (unsigned round = 1;; ++round) {
      while (allowed.load() != round)
        if (stopping.load()) return;
      EXPECT_EQ(failing.fail(), 0);
      failed.store(round);
    }
  });
  bool lost = false;
  const auto end = std::chrono::steady_clock::now() + 3s;
  for (unsigned round = 1; !lost && std::chrono::steady_clock::now() < end; ++round) {
    for (const Endpoint* const endpoint : {&failing, &flushing}) {
      ASSERT_EQ(endpoint->reset(), 0);
      ASSERT_EQ(endpoint->initialise(), 0);
    }
    ASSERT_EQ(failing.receive({}, 2), 0);
    ASSERT_EQ(flushing.fail(), 0);
    bool seen = false;
    const auto poll = [&] {
      ibv_wc completion{};
      const int count = ibv_poll_cq(queue.handle, 1, &completion);
      seen = seen || (count == 1 && completion.wr_id == 2);
      return count;
    };
    allowed.store(round);
    for (unsigned delay = 0; delay < round % 400; ++delay)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    while (failed.load() != round) {
      (void)flushing.receive({}, 1);
      (void)poll();
    }
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!seen && !lost) lost = poll() == 0 && std::chrono::steady_clock::now() > deadline;
  }
  EXPECT_FALSE(lost);
  stopping.store(true);
  other.join();
}

}  // namespace
}  // namespace tutti::conformance
