// Promise: what the specification says about the corners of the reliable connection holds: who is
// told of a responder's error, what comes before what, which names stay dead, and what the end of a
// process, however it comes, means to its peers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

bool reaches_shared_files_only() {
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  return device_is_soft() && transport && std::strcmp(transport, "shared") == 0;
}

void connect_both(const Endpoint& left, const Endpoint& right) {
  left.connect(right.address());
  right.connect(left.address());
}

/// Two pairs of queue pairs, whose right ends share their receives.
struct SharingScene {
  SharingScene() {
    connect_both(left, right);
    connect_both(other_left, other_right);
  }
  /// The receive with this id is still there for the other queue pair.
  void expect_next(std::uint64_t id) const {
    EXPECT_EQ(other_left.send(IBV_WR_SEND, {region.piece(0, 8)}), 0);
    EXPECT_EQ(other_right.wait().wr_id, id);
  }

  Device device;
  SharedReceives shared{device};
  Buffer buffer{4096};
  Region region{device, buffer};
  Endpoint left{device}, other_left{device};
  Endpoint right{device, {.shared_receives = shared.handle}};
  Endpoint other_right{device, {.shared_receives = shared.handle}};
};

TEST(Responder, keeps_its_shared_receives_when_a_request_has_no_right) {
  const SharingScene scene;
  ASSERT_EQ(scene.shared.receive({scene.region.piece(64, 8)}, 1), 0);
  ASSERT_EQ(scene.left.send(IBV_WR_RDMA_WRITE_WITH_IMM, {scene.region.piece(0, 8)}, 0, 1), 0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(scene.right.comes_to(IBV_QPS_ERR));
  ASSERT_TRUE(scene.right.is_quiet());
  scene.expect_next(1);
}

TEST(Responder, completes_the_shared_receive_that_is_too_short) {
  const SharingScene scene;
  for (std::uint64_t id = 1; id < 3; ++id)
    ASSERT_EQ(scene.shared.receive({scene.region.piece(64, 8)}, id), 0);
  ASSERT_EQ(scene.left.send(IBV_WR_SEND, {scene.region.piece(0, 9)}), 0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_REM_INV_REQ_ERR);
  const ibv_wc completion = scene.right.wait();
  EXPECT_EQ(completion.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(completion.wr_id, 1u);
  EXPECT_TRUE(scene.right.comes_to(IBV_QPS_ERR));
  scene.expect_next(2);
}

/// A receive that may not be written: the initiator hears of an error of operation.
void expect_bad_receive(const Loopback& ends, const Region& source, const ibv_sge& piece) {
  ASSERT_EQ(ends.right.receive({piece}, 8), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {source.piece(0, 8)}), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_REM_OP_ERR);
  const ibv_wc completion = ends.right.wait();
  EXPECT_EQ(completion.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(completion.wr_id, 8u);
  EXPECT_TRUE(ends.right.comes_to(IBV_QPS_ERR));
}

TEST(Responder, writes_no_receive_without_the_right_to_do_so) {
  const Loopback ends;
  const Buffer buffer(64);
  const Region source(ends.left.device, buffer);
  const Region constant(ends.left.device, buffer, IBV_ACCESS_REMOTE_READ);
  expect_bad_receive(ends, source, constant.piece(8, 8));
}

TEST(Responder, writes_no_receive_of_another_domain) {
  const Loopback ends;
  const Buffer buffer(64);
  const Region source(ends.left.device, buffer);
  ibv_pd* const domain = driver().alloc_pd(ends.left.device.context);
  {
    const Region foreign(domain, buffer.data(), 64, all_access);
    expect_bad_receive(ends, source, foreign.piece(8, 8));
  }
  EXPECT_EQ(driver().dealloc_pd(domain), 0);
}

TEST(Responder, asks_for_the_queue_pairs_right_even_of_zero_bytes) {
  const Loopback ends({}, {.access = IBV_ACCESS_LOCAL_WRITE});
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {}), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(ends.right.comes_to(IBV_QPS_ERR));
}

TEST(Responder, takes_back_a_right_while_connected) {
  const Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  const auto write = [&] {
    EXPECT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address() + 8,
                             region.handle->rkey),
              0);
    return ends.left.wait().status;
  };
  EXPECT_EQ(write(), IBV_WC_SUCCESS);
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  ASSERT_EQ(driver().modify_qp(ends.right.pair, &attributes, IBV_QP_ACCESS_FLAGS), 0);
  EXPECT_EQ(write(), IBV_WC_REM_INV_REQ_ERR);
}

TEST(Responder, needs_not_be_ready_to_send) {
  const Device device;
  const Endpoint left(device), right(device);
  ASSERT_EQ(right.initialise(), 0);
  ASSERT_EQ(right.receive({}, 4), 0);
  ASSERT_EQ(right.make_ready_to_receive(left.address()), 0);
  left.connect(right.address());
  ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(left.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(right.wait().wr_id, 4u);
}

TEST(Requester, fails_a_message_that_is_longer_than_the_port_carries) {
  constexpr std::size_t pieces = 16;
  const Loopback ends({.pieces = pieces});
  ibv_port_attr port{};
  ASSERT_EQ(driver().query_port(ends.left.device.context, 1, &port), 0);
  const std::size_t bytes = port.max_msg_sz / pieces + 4096;
  const Buffer buffer(bytes);  // never touched
  const Region region(ends.left.device, buffer);
  const std::vector<ibv_sge> list(pieces, region.piece(0, bytes));
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, list, region.address(), region.handle->rkey), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_LOC_LEN_ERR);
}

class Kinds : public testing::TestWithParam<Storage> {
 protected:
  void SetUp() override {
    if (reaches_shared_files_only() && GetParam() == Storage::private_pages) GTEST_SKIP();
  }
};
INSTANTIATE_TEST_SUITE_P(Processes, Kinds,
                         testing::Values(Storage::private_pages, Storage::shared_file));

std::atomic_ref<std::uint64_t> word_of(const Buffer& buffer, std::size_t index) {
  return std::atomic_ref(reinterpret_cast<std::uint64_t*>(buffer.data())[index]);
}

/// Polls as who waits for a write without immediate; false after ten seconds.
bool word_comes_to(const Buffer& buffer, std::size_t index, std::uint64_t wanted) {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (word_of(buffer, index).load(std::memory_order_acquire) != wanted) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    let_others_work();
  }
  return true;
}

/// Who polls the last word of a plain write finds all words before it, pages apart as they are. The
/// next write waits until they were looked at: the words of one that is on its way may be torn.
void expect_last_word_last(Storage kind, std::size_t words, std::uint64_t rounds) {
  OtherProcess other([rounds, kind, words](Line& line) {
    const Device device;
    const Buffer buffer((words + 2) * 8, kind);
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    line.put(remote_of(region));
    const auto answer = line.get<RemoteRegion>();
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      ASSERT_TRUE(word_comes_to(buffer, words, round));
      // Backwards: what was stored last is the likeliest to be late.
      for (std::size_t index = words - 1; index > 0; --index)
        ASSERT_EQ(word_of(buffer, index).load(std::memory_order_relaxed), round) << index;
      ASSERT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(words * 8, 8)}, answer.address,
                              answer.key),
                0);
      ASSERT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    }
    line.meet();
  });
  const Device device;
  const Buffer buffer((words + 1) * 8, kind);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  connect_over(other.line(), endpoint);
  const auto peer = other.line().get<RemoteRegion>();
  other.line().put(remote_of(region));
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (std::size_t index = 1; index <= words; ++index)
      word_of(buffer, index).store(round, std::memory_order_relaxed);
    ASSERT_EQ(
        endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(8, words * 8)}, peer.address + 8, peer.key),
        0);
    ASSERT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    ASSERT_TRUE(word_comes_to(buffer, 0, round));
  }
  other.line().meet();
  other.expect_success();
}

TEST_P(Kinds, of_memory_get_the_last_word_of_a_write_last) {
  expect_last_word_last(GetParam(), 1025, device_is_soft() ? 2000 : 200);
}

/// With other instructions than a small one; see bulk_copy.hpp.
TEST_P(Kinds, of_memory_get_the_last_word_of_a_large_write_last) {
  expect_last_word_last(GetParam(), 8200, device_is_soft() ? 500 : 50);
}

/// The initiator has mapped the first memory; the second may even lie at its address.
TEST_P(Kinds, of_memory_are_written_no_more_by_their_old_key) {
  OtherProcess other([](Line& line) {
    const Device device;
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    std::optional<Buffer> buffer;
    std::optional<Region> region;
    buffer.emplace(4096, GetParam());
    region.emplace(device, *buffer);
    line.put(remote_of(*region));
    line.meet();
    region.reset();
    buffer.reset();
    buffer.emplace(4096, GetParam());
    region.emplace(device, *buffer);
    line.put(remote_of(*region));
    line.meet();
    EXPECT_TRUE(buffer->holds(2, 64));
    line.meet();
    line.meet();
    EXPECT_TRUE(buffer->holds(2, 64));
  });
  const Device device;
  const Buffer buffer(64);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  connect_over(other.line(), endpoint);
  const auto write = [&](unsigned seed, const RemoteRegion& peer) {
    buffer.fill(seed);
    EXPECT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 64)}, peer.address, peer.key), 0);
    return endpoint.wait().status;
  };
  const auto first = other.line().get<RemoteRegion>();
  for (int count = 0; count < 10; ++count) {
    EXPECT_EQ(write(1, first), IBV_WC_SUCCESS);
    std::this_thread::sleep_for(1ms);  // a mapping comes meanwhile
  }
  other.line().meet();
  const auto second = other.line().get<RemoteRegion>();
  EXPECT_EQ(write(2, second), IBV_WC_SUCCESS);
  other.line().meet();
  other.line().meet();
  EXPECT_EQ(write(3, {second.address, first.key}), IBV_WC_REM_ACCESS_ERR);
  other.line().meet();
  other.expect_success();
}

/// Connects to another process, which then does `end`; writes to it must fail as to the dead.
void expect_death(const std::function<void(Line&)>& end,
                  const std::function<void(OtherProcess&)>& act) {
  OtherProcess other([&](Line& line) {
    // Alive until the very end of the process: nothing is closed.
    static const auto* const device = new Device;
    static const auto* const buffer = new Buffer(4096, Storage::shared_file);
    static const auto* const region = new Region(*device, *buffer);
    static const auto* const endpoint = new Endpoint(*device);
    connect_over(line, *endpoint);
    line.put(remote_of(*region));
    end(line);
  });
  const Device device;
  const Buffer buffer(4096);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  // The software device notices a death though its patience is without end; others wait it out.
  const std::uint8_t timeout = device_is_soft() ? 0 : 14;
  connect_over(other.line(), endpoint, {.timeout = timeout});
  const auto peer = other.line().get<RemoteRegion>();
  const auto write = [&] {
    EXPECT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 4096)}, peer.address, peer.key), 0);
    return endpoint.wait().status;
  };
  EXPECT_EQ(write(), IBV_WC_SUCCESS);
  act(other);
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  ibv_wc_status status = IBV_WC_SUCCESS;
  while (status == IBV_WC_SUCCESS && std::chrono::steady_clock::now() < deadline) status = write();
  EXPECT_EQ(status, IBV_WC_RETRY_EXC_ERR);
}

TEST(End, of_a_process_that_nobody_has_waited_for_is_a_death) {
  expect_death([](Line& line) { (void)line.get<char>(); },
               [](OtherProcess& other) { EXPECT_EQ(::kill(other.id(), SIGKILL), 0); });
}

TEST(End, of_a_program_that_is_replaced_is_a_death) {
  expect_death(
      [](Line& line) {
        (void)line.get<char>();
        ::execl("/bin/sleep", "sleep", "30", nullptr);
        ADD_FAILURE();
      },
      [](OtherProcess& other) { other.line().put('x'); });
}

/// Static objects are destroyed while the helper thread runs and peers write.
TEST(End, by_exit_with_an_open_device_is_clean) {
  expect_death(
      [](Line& line) {
        (void)line.get<char>();
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      },
      [](OtherProcess& other) {
        other.line().put('x');
        other.expect_success();
      });
}

/// What a child of fork runs on its way out leaves the objects of its parent alone.
TEST(End, of_a_child_by_exit_leaves_its_parents_device_alone) {
  const Loopback ends;
  OtherProcess other([](Line&) { std::exit(testing::Test::HasFailure() ? 1 : 0); });
  other.expect_success();
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}), 0);  // pending: needs the helper thread
  std::this_thread::sleep_for(5ms);
  ASSERT_EQ(ends.right.receive({}), 0);
  EXPECT_EQ(ends.right.wait().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace tutti::conformance
