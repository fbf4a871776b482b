// Promise: on an emulated network data and completions come when they are due, never earlier, in
// order, and its faults are those of a wire.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Sets TUTTI_SOFT_FABRIC to a file of this content.
class Fabric {
 public:
  explicit Fabric(const std::string& json)
      : name_("fabric_test." + std::to_string(::getpid()) + ".json") {
    std::ofstream(name_) << json;
    ::setenv("TUTTI_SOFT_FABRIC", name_.c_str(), 1);
  }
  ~Fabric() {
    ::unsetenv("TUTTI_SOFT_FABRIC");
    std::remove(name_.c_str());
  }
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

 private:
  std::string name_;
};

class EmulatedFabric : public testing::Test {
 protected:
  void SetUp() override {
    if (!device_is_soft()) GTEST_SKIP() << "of the software device";
  }
};

SteadyClock::duration since(SteadyClock::time_point begin) {
  return SteadyClock::now() - begin;
}

/// Two queue pairs, and memory of both.
struct Scene : Loopback {
  explicit Scene(const ConnectionOptions& connection = {})
      : Loopback({.sends = 64, .receives = 64, .completions = 256}, connection) {
    source.fill(4);
  }
  int write(std::size_t bytes, std::uint32_t immediate = 0) const {
    return left.send(IBV_WR_RDMA_WRITE_WITH_IMM, {from.piece(0, bytes)}, to.address(),
                     to.handle->rkey, IBV_SEND_SIGNALED, 1, immediate);
  }

  Buffer source{1 << 18}, target{1 << 18};
  Region from{device, source}, to{device, target};
};

TEST_F(EmulatedFabric, data_and_completions_come_when_they_are_due) {
  const Fabric fabric(R"({"latency_us": 20000})");
  const Scene scene;
  ASSERT_EQ(scene.right.receive({}), 0);
  const auto begin = SteadyClock::now();
  ASSERT_EQ(scene.write(8), 0);
  // What is seen is judged by a clock read after it: this process may lose its core in between.
  ibv_wc completion{};
  int completions = 0;
  while (completions == 0 && since(begin) < 10s) {
    // The helper thread, too, may be the one that brings them.
    const bool data = std::atomic_ref(*scene.target.data()).load() != std::byte{0};
    completions = ibv_poll_cq(scene.right.queue, 1, &completion);
    if (data || completions != 0) {
      ASSERT_GE(since(begin), 20ms) << (data ? "data" : "completion");
    }
  }
  ASSERT_EQ(completions, 1);
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.target.holds(4, 8));
  EXPECT_EQ(scene.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_GE(since(begin), 40ms) << "the answer travels, too";
}

/// By how much a first message, the next one and an answer are late, each at a quarter of 101
/// rounds: others may take this process's core away in most of them.
std::array<SteadyClock::duration, 3> late_messages() {
  const Scene scene;
  std::array<std::vector<SteadyClock::duration>, 3> late;
  for (int round = 0; round < 101; ++round) {
    EXPECT_EQ(scene.right.receive({}), 0);
    EXPECT_EQ(scene.right.receive({}), 0);
    const auto begin = SteadyClock::now();
    EXPECT_EQ(scene.write(8), 0);
    EXPECT_EQ(scene.write(8), 0);
    EXPECT_EQ(scene.right.wait().status, IBV_WC_SUCCESS);
    late[0].push_back(since(begin) - 200us);
    EXPECT_EQ(scene.right.wait().status, IBV_WC_SUCCESS);
    late[1].push_back(since(begin) - 500us);
    EXPECT_EQ(scene.left.wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(scene.left.wait().status, IBV_WC_SUCCESS);
    late[2].push_back(since(begin) - 700us);
  }
  std::array<SteadyClock::duration, 3> quarters;
  for (std::size_t i = 0; i < late.size(); ++i) {
    std::nth_element(late[i].begin(), late[i].begin() + 25, late[i].end());
    quarters[i] = late[i][25];
  }
  return quarters;
}

// The helper thread would bring them, too, but on average half a millisecond later: about one in
// seven is late by so little then, one in four in less than one of 300 runs.  Others may keep this
// process from its core throughout a run, so it has a dozen.
TEST_F(EmulatedFabric, polls_find_what_has_become_due_since_the_last_one) {
  const Fabric fabric(R"({"latency_us": 200, "gap_us": 300})");
  auto best = late_messages();
  for (int run = 1; run < 12 && *std::max_element(best.begin(), best.end()) >= 150us; ++run) {
    const auto late = late_messages();
    for (std::size_t i = 0; i < best.size(); ++i) best[i] = std::min(best[i], late[i]);
  }
  for (const SteadyClock::duration late : best) EXPECT_LT(late, 150us);
}

TEST_F(EmulatedFabric, a_read_goes_there_and_back) {
  const Fabric fabric(R"({"latency_us": 10000, "gigabytes_per_second": 0.01})");
  const Scene scene;
  const auto begin = SteadyClock::now();
  ASSERT_EQ(scene.left.send(IBV_WR_RDMA_READ, {scene.from.piece(0, 200'000)}, scene.to.address(),
                            scene.to.handle->rkey),
            0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_GE(since(begin), 40ms);  // 20 ms of latency, 20 ms of data
}

TEST_F(EmulatedFabric, ports_take_one_message_after_the_other) {
  const Fabric fabric(R"({"messages_per_second": 1000})");
  const Scene scene;
  const auto begin = SteadyClock::now();
  for (int count = 0; count < 21; ++count) {
    ASSERT_EQ(scene.right.receive({}), 0);
    ASSERT_EQ(scene.write(8), 0);
  }
  for (int count = 0; count < 21; ++count) EXPECT_EQ(scene.right.wait().status, IBV_WC_SUCCESS);
  EXPECT_GE(since(begin), 20ms);
}

TEST_F(EmulatedFabric, delays_keep_the_order_of_a_queue_pair) {
  const Fabric fabric(R"({"faults": {"seed": 5, "delay_probability": 1, "delay_us": 20000}})");
  const Scene scene;
  const auto begin = SteadyClock::now();
  for (std::uint32_t count = 0; count < 50; ++count) {
    ASSERT_EQ(scene.right.receive({}), 0);
    ASSERT_EQ(scene.write(8, count), 0);
  }
  for (std::uint32_t count = 0; count < 50; ++count) EXPECT_EQ(scene.right.wait().imm_data, count);
  EXPECT_GE(since(begin), 10ms) << "the longest of 50 delays of up to 20 ms";
}

TEST_F(EmulatedFabric, what_is_lost_is_repeated_until_the_retries_are_used_up) {
  const Fabric fabric(R"({"faults": {"drop_probability": 1}})");
  const Scene scene({.timeout = 10, .retries = 3});
  ASSERT_EQ(scene.right.receive({}), 0);
  const auto begin = SteadyClock::now();
  ASSERT_EQ(scene.write(8), 0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(since(begin), 16ms);  // 4 x 4.2 ms
  EXPECT_EQ(scene.left.state(), IBV_QPS_ERR);
  EXPECT_EQ(scene.target.data()[0], std::byte{0});
  EXPECT_EQ(scene.right.state(), IBV_QPS_RTS) << "the target has heard nothing";
}

TEST_F(EmulatedFabric, few_losses_only_delay) {
  const Fabric fabric(R"({"faults": {"seed": 3, "drop_probability": 0.3}})");
  const Scene scene({.timeout = 8, .retries = 7});
  const auto begin = SteadyClock::now();
  for (std::uint32_t count = 0; count < 50; ++count) {
    ASSERT_EQ(scene.right.receive({}), 0);
    ASSERT_EQ(scene.write(8, count), 0);
  }
  for (std::uint32_t count = 0; count < 50; ++count) EXPECT_EQ(scene.right.wait().imm_data, count);
  EXPECT_GE(since(begin), 1ms) << "one loss costs a timeout of 1.05 ms";
}

TEST_F(EmulatedFabric, a_receiver_that_is_never_ready_uses_up_its_own_retries) {
  const Fabric fabric(R"({"faults": {"not_ready_probability": 1}})");
  const Scene scene({.rnr_retries = 2});
  ASSERT_EQ(scene.right.receive({}), 0);
  ASSERT_EQ(scene.write(8), 0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(EmulatedFabric, a_link_that_comes_back_in_time_was_only_slow) {
  const Fabric fabric(
      R"({"faults": {"link_down": [{"place": 0, "from_us": 0, "until_us": 30000}]}})");
  const auto begin = SteadyClock::now();
  const Scene scene({.timeout = 11, .retries = 7});  // 8 x 8.4 ms
  ASSERT_EQ(scene.right.receive({}), 0);
  ASSERT_EQ(scene.write(8), 0);
  EXPECT_EQ(scene.right.wait().status, IBV_WC_SUCCESS);
  EXPECT_GE(since(begin), 30ms);
}

TEST_F(EmulatedFabric, what_is_on_its_way_is_flushed_with_its_queue_pair) {
  const Fabric fabric(R"({"latency_us": 10000000})");
  const Scene scene;
  ASSERT_EQ(scene.right.receive({}), 0);
  ASSERT_EQ(scene.write(8), 0);
  ASSERT_EQ(scene.left.fail(), 0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(scene.left.reset(), 0);
  EXPECT_EQ(scene.target.data()[0], std::byte{0});
}

TEST_F(EmulatedFabric, a_new_connection_owes_nothing_to_the_one_before) {
  const Fabric fabric(R"({"faults": {"drop_probability": 1}})");
  const Scene scene({.timeout = 23, .retries = 7});  // 8 x 34 s
  ASSERT_EQ(scene.write(8), 0);
  ASSERT_EQ(scene.left.fail(), 0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(scene.left.reset(), 0);
  scene.left.connect(scene.right.address(), {.timeout = 8, .retries = 0});
  ASSERT_EQ(scene.write(8), 0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(EmulatedFabric, a_receiver_that_is_never_ready_does_not_hold_up_the_call) {
  const Fabric fabric(R"({"faults": {"not_ready_probability": 1}})");
  const Scene scene;  // repeats for ever
  ASSERT_EQ(scene.write(8), 0);
  EXPECT_TRUE(scene.left.is_quiet());
}

TEST_F(EmulatedFabric, a_busy_sender_does_not_hold_up_its_messages) {
  const Fabric fabric(R"({"latency_us": 5000, "receive_overhead_us": 1})");
  OtherProcess sender([](Line& line) {
    const Device device;
    const Buffer buffer(64);
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    line.meet();
    EXPECT_EQ(endpoint.send(IBV_WR_SEND, {region.piece(0, 8)}), 0);
    line.meet();     // and does not poll
    buffer.fill(9);  // as the receiver has it: nobody reads it any more, a race detector agrees
    EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
  });
  const Device device;
  const Buffer buffer(64);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  ASSERT_EQ(endpoint.initialise(), 0);
  ASSERT_EQ(endpoint.receive({region.piece(0, 64)}), 0);
  connect_over(sender.line(), endpoint);
  const auto begin = SteadyClock::now();
  sender.line().meet();
  EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
  EXPECT_GE(since(begin), 5ms);
  sender.line().meet();
  sender.expect_success();
}

TEST_F(EmulatedFabric, a_file_with_a_mistake_is_refused) {
  const Fabric fabric(R"({"latency": 3})");
  int count = 0;
  ibv_device** const list = driver().get_device_list(&count);
  ASSERT_GT(count, 0);
  EXPECT_EQ(driver().open_device(list[0]), nullptr);
  EXPECT_EQ(errno, EINVAL);
  driver().free_device_list(list);
}

}  // namespace
}  // namespace tutti::conformance
