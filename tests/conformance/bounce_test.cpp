// Promise: private memory is reached even where the system keeps processes out of each other's
// memory, with the help of its owner; whoever is stopped, killed or takes something down meanwhile,
// the others see what they would see of a wire.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <tuple>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

constexpr std::size_t large = std::size_t{1} << 20;  // many chunks

/// As some containers do.
void forbid_access_to_other_processes(std::uint32_t error) {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  // All threads, as some tests have opened the device before.
  ASSERT_EQ(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program),
            0);
}

/// One side of a connection, with private memory.
struct Side {
  explicit Side(Line& line,
                const EndpointOptions& options = {.sends = 64, .receives = 64, .completions = 256},
                std::size_t bytes = large)
      : buffer(bytes),
        region(device, buffer, all_access | IBV_ACCESS_REMOTE_ATOMIC),
        endpoint(device, options) {
    connect_over(line, endpoint,
                 {.access = all_access | IBV_ACCESS_REMOTE_ATOMIC, .timeout = 8, .retries = 1});
  }
  int write(std::size_t bytes, const RemoteRegion& peer, unsigned flags = IBV_SEND_SIGNALED) const {
    return endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, bytes)}, peer.address, peer.key,
                         flags);
  }

  Device device;
  Buffer buffer;
  Region region;
  Endpoint endpoint;
};

/// The other process opens the device under this setting, and this one, too.
class Bounce : public testing::Test {
 protected:
  void SetUp() override {
    if (!device_is_soft()) GTEST_SKIP() << "an adapter reaches all memory by itself";
    ::setenv("TUTTI_SOFT_TRANSPORT", "bounce", 1);
  }
  void TearDown() override { ::unsetenv("TUTTI_SOFT_TRANSPORT"); }
};

/// A target that waits for `count` completions and then for the word to end.
void take(Line& line, int count) {
  const Side side(line);
  for (int index = 0; index < count; ++index)
    ASSERT_EQ(side.endpoint.receive({side.region.piece(0, 4096)}), 0);
  line.put(remote_of(side.region));
  for (int index = 0; index < count; ++index)
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
  line.meet();
}

/// Both errors that a system refuses with, from the beginning or in the middle.
class Refusal : public testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(Errors, Refusal,
                         testing::Combine(testing::Values(EPERM, ENOSYS), testing::Bool()));

TEST_P(Refusal, of_other_processes_memory_makes_the_owner_help) {
  if (!device_is_soft()) GTEST_SKIP();
  const int error = std::get<0>(GetParam());
  const bool from_the_beginning = std::get<1>(GetParam());
  OtherProcess initiator([&](Line& line) {
    const auto forbid = [&] { forbid_access_to_other_processes(static_cast<unsigned>(error)); };
    if (from_the_beginning) forbid();
    const Side side(line);
    const auto peer = line.get<RemoteRegion>();
    side.buffer.fill(4);
    ASSERT_EQ(side.write(large / 2, peer), 0);
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
    if (!from_the_beginning) forbid();
    // A claimed receive must not get lost on the way from one transport to the other.
    ASSERT_EQ(side.endpoint.send(IBV_WR_SEND, {side.region.piece(0, 100)}), 0);
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
    std::fill_n(side.buffer.data(), large, std::byte{0});
    ASSERT_EQ(side.endpoint.send(IBV_WR_RDMA_READ, {side.region.piece(0, large / 2)}, peer.address,
                                 peer.key),
              0);
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(side.buffer.holds(4, large / 2));
    line.meet();
  });
  {
    const Device device;
    const SharedReceives shared(device);
    const Buffer buffer(large);
    const Region region(device, buffer);
    const Endpoint endpoint(device, {.shared_receives = shared.handle});
    ASSERT_EQ(shared.receive({region.piece(large / 2, 100)}, 1), 0);
    ASSERT_EQ(shared.receive({region.piece(large / 2, 100)}, 2), 0);
    connect_over(initiator.line(), endpoint);
    initiator.line().put(remote_of(region));
    const ibv_wc completion = endpoint.wait();
    EXPECT_EQ(completion.wr_id, 1u);
    EXPECT_EQ(completion.byte_len, 100u);
    EXPECT_TRUE(buffer.holds(4, 100, large / 2));
    initiator.line().meet();
    EXPECT_TRUE(buffer.holds(4, large / 2));
    EXPECT_TRUE(endpoint.is_quiet());
  }
  initiator.expect_success();
}

/// The initiator sleeps until an event comes; nothing but the owner's answer can wake it.
TEST_F(Bounce, wakes_an_initiator_that_sleeps) {
  OtherProcess other([](Line& line) { take(line, 0); });
  {
    const Device device;
    ibv_comp_channel* const channel = driver().create_comp_channel(device.context);
    ibv_cq* const queue = driver().create_cq(device.context, 16, nullptr, channel, 0);
    {
      const Buffer buffer(large);
      const Region region(device, buffer);
      const Endpoint endpoint(device, {.queue = queue});
      connect_over(other.line(), endpoint);
      const auto peer = other.line().get<RemoteRegion>();
      for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(ibv_req_notify_cq(queue, 0), 0);
        ASSERT_EQ(
            endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, large)}, peer.address, peer.key), 0);
        pollfd event{.fd = channel->fd, .events = POLLIN, .revents = 0};
        ASSERT_EQ(::poll(&event, 1, 10'000), 1);
        void* context = nullptr;
        ibv_cq* of = nullptr;
        ASSERT_EQ(driver().get_cq_event(channel, &of, &context), 0);
        driver().ack_cq_events(of, 1);
        EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
      }
      other.line().meet();
    }
    EXPECT_EQ(driver().destroy_cq(queue), 0);
    EXPECT_EQ(driver().destroy_comp_channel(channel), 0);
  }
  other.expect_success();
}

TEST_F(Bounce, keeps_the_order_of_requests_that_need_help_and_those_that_do_not) {
  constexpr std::uint32_t rounds = 200;
  OtherProcess other([](Line& line) {
    const Side side(line);
    for (int count = 0; count < 60; ++count) ASSERT_EQ(side.endpoint.receive({}), 0);
    line.put(remote_of(side.region));
    const auto word_at = [&](std::size_t offset) {
      std::uint64_t word = 0;
      std::memcpy(&word, side.buffer.data() + offset, sizeof(word));
      return word;
    };
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const ibv_wc completion = side.endpoint.wait();
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      ASSERT_EQ(completion.imm_data, round);
      ASSERT_GE(word_at(0), round);
      ASSERT_GE(word_at(300'000 - 8), round);
      ASSERT_EQ(side.endpoint.receive({}), 0);
    }
    line.meet();
  });
  {
    const Side side(other.line());
    const auto peer = other.line().get<RemoteRegion>();
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::size_t half = round % 2 * (large / 2);  // the other one may still be on its way
      std::memcpy(side.buffer.data() + half, &round, 8);
      std::memcpy(side.buffer.data() + half + 300'000 - 8, &round, 8);
      ASSERT_EQ(side.endpoint.send(IBV_WR_RDMA_WRITE, {side.region.piece(half, 300'000)},
                                   peer.address, peer.key, 0),
                0);
      ASSERT_EQ(side.endpoint.send(IBV_WR_RDMA_WRITE_WITH_IMM, {}, 0, 0, IBV_SEND_SIGNALED, round,
                                   static_cast<std::uint32_t>(round)),
                0);
      if (round == 0) continue;
      const ibv_wc completion = side.endpoint.wait();
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      ASSERT_EQ(completion.wr_id, round - 1);
    }
    EXPECT_EQ(side.endpoint.wait().wr_id, rounds - 1);
    other.line().meet();
  }
  other.expect_success();
}

/// Inline data are the program's again when the request is posted, whenever it is executed.
TEST_F(Bounce, takes_inline_data_at_once) {
  OtherProcess other([](Line& line) {
    const Side side(line);
    line.put(remote_of(side.region));
    line.meet();
    for (std::size_t index = 0; index < 16; ++index)
      EXPECT_EQ(side.buffer.data()[index], static_cast<std::byte>(index));
    line.meet();
  });
  {
    const Side side(other.line());
    const auto peer = other.line().get<RemoteRegion>();
    for (std::size_t index = 0; index < 16; ++index) {
      side.buffer.data()[0] = static_cast<std::byte>(index);
      ASSERT_EQ(
          side.endpoint.send(IBV_WR_RDMA_WRITE, {side.region.piece(0, 1)}, peer.address + index,
                             peer.key, IBV_SEND_INLINE | (index == 15 ? IBV_SEND_SIGNALED : 0)),
          0);
    }
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
    other.line().meet();
    other.line().meet();
  }
  other.expect_success();
}

TEST_F(Bounce, waits_for_a_stopped_target_and_does_not_fail) {
  OtherProcess other([](Line& line) { take(line, 1); });
  {
    const Side side(other.line());
    const auto peer = other.line().get<RemoteRegion>();
    ASSERT_EQ(side.write(8, peer), 0);
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
    other.stop();
    ASSERT_EQ(side.write(large, peer), 0);
    ASSERT_EQ(side.endpoint.send(IBV_WR_SEND, {side.region.piece(0, 64)}), 0);
    EXPECT_TRUE(side.endpoint.is_quiet(200ms));  // the attributes allow 2 ms
    other.resume();
    for (int count = 0; count < 2; ++count) EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
    other.line().meet();
  }
  other.expect_success();
}

TEST_F(Bounce, ends_with_the_death_of_the_target) {
  OtherProcess other([](Line& line) { take(line, 1); });
  const Side side(other.line());
  const auto peer = other.line().get<RemoteRegion>();
  ASSERT_EQ(side.write(8, peer), 0);
  EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
  other.stop();
  ASSERT_EQ(side.write(large, peer), 0);
  EXPECT_TRUE(side.endpoint.is_quiet(20ms));
  other.kill();
  EXPECT_EQ(side.endpoint.wait(20s).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Bounce, fails_as_other_transports_do) {
  const auto expect_failure = [](std::size_t offset, std::uint32_t key_change,
                                 ibv_wc_status expected) {
    OtherProcess other([](Line& line) {
      const Side side(line);
      line.put(remote_of(side.region));
      line.meet();
      EXPECT_EQ(side.endpoint.state(), IBV_QPS_ERR);
    });
    {
      const Side side(other.line());
      const auto peer = other.line().get<RemoteRegion>();
      ASSERT_EQ(side.write(64, {peer.address + offset, peer.key ^ key_change}), 0);
      EXPECT_EQ(side.endpoint.wait().status, expected);
      EXPECT_EQ(side.endpoint.state(), IBV_QPS_ERR);
      other.line().meet();
    }
    other.expect_success();
  };
  expect_failure(large - 63, 0, IBV_WC_REM_ACCESS_ERR);
  expect_failure(0, 1, IBV_WC_REM_ACCESS_ERR);
}

/// A send that is too long for its receive completes both sides.
TEST_F(Bounce, tells_both_sides_of_a_receive_that_is_too_short) {
  OtherProcess other([](Line& line) {
    const Side side(line);
    ASSERT_EQ(side.endpoint.receive({side.region.piece(0, 8)}, 3), 0);
    line.meet();
    const ibv_wc completion = side.endpoint.wait();
    EXPECT_EQ(completion.status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(completion.wr_id, 3u);
    line.meet();
  });
  {
    const Side side(other.line());
    other.line().meet();
    ASSERT_EQ(side.endpoint.send(IBV_WR_SEND, {side.region.piece(0, 9)}), 0);
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_REM_INV_REQ_ERR);
    other.line().meet();
  }
  other.expect_success();
}

/// The owner's helper thread copies: it must survive what a peer's system call would only fail at.
TEST_F(Bounce, of_memory_that_is_gone_fails_the_request_and_not_its_owner) {
  OtherProcess other([](Line& line) {
    void* const pages =
        ::mmap(nullptr, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const Device device;
    {
      const Region region(device.domain, pages, large, all_access);
      const Endpoint endpoint(device);
      connect_over(line, endpoint);
      line.put(remote_of(region));
      EXPECT_EQ(::mprotect(pages, large, PROT_NONE), 0);  // registered as it is
      line.meet();
      line.meet();
    }
    ::munmap(pages, large);
    line.meet();
  });
  {
    const Side side(other.line());
    const auto peer = other.line().get<RemoteRegion>();
    other.line().meet();
    ASSERT_EQ(side.write(large, peer), 0);
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_REM_OP_ERR);
    other.line().meet();
    other.line().meet();
  }
  other.expect_success();
}

/// Once a region is deregistered its memory is the program's, whatever was under way.
TEST_F(Bounce, writes_nothing_after_the_deregistration) {
  OtherProcess other([](Line& line) {
    const Side side(line);
    side.buffer.fill(9);
    const auto peer = line.get<RemoteRegion>();
    ibv_wc_status status = IBV_WC_SUCCESS;
    while (status == IBV_WC_SUCCESS) {
      ASSERT_EQ(side.write(large, peer), 0);
      status = side.endpoint.wait().status;
    }
    EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR);
    line.meet();
  });
  {
    const Device device;
    const Buffer buffer(large);
    const Endpoint endpoint(device);
    Region region(device, buffer);
    connect_over(other.line(), endpoint);
    other.line().put(remote_of(region));
    const auto words = reinterpret_cast<std::uint64_t*>(buffer.data());
    while (std::atomic_ref(words[0]).load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(3ms);
    region.deregister();
    for (std::size_t index = 0; index < large / 8; ++index) std::atomic_ref(words[index]).store(0);
    other.line().meet();
    for (std::size_t index = 0; index < large / 8; ++index)
      ASSERT_EQ(std::atomic_ref(words[index]).load(), 0u);
  }
  other.expect_success();
}

/// What a write has claimed before its memory went is completed: no receive gets lost.
TEST_F(Bounce, completes_a_shared_receive_whose_write_fails_midway) {
  OtherProcess other([](Line& line) {
    const Side side(line);
    const auto peer = line.get<RemoteRegion>();
    ibv_wc_status status = IBV_WC_SUCCESS;
    while (status == IBV_WC_SUCCESS) {
      ASSERT_EQ(side.endpoint.send(IBV_WR_RDMA_WRITE_WITH_IMM, {side.region.piece(0, large)},
                                   peer.address, peer.key),
                0);
      status = side.endpoint.wait().status;
    }
    EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR);
    line.meet();
  });
  {
    const Device device;
    const SharedReceives shared(device, 8192);
    const Buffer buffer(large);
    Region region(device, buffer);
    for (std::uint64_t id = 0; id < 8192; ++id) ASSERT_EQ(shared.receive({}, id), 0);
    const EndpointOptions options{.completions = 16384, .shared_receives = shared.handle};
    const Endpoint endpoint(device, options), left(device), right(device, options);
    connect_over(other.line(), endpoint);
    left.connect(right.address());
    right.connect(left.address());
    other.line().put(remote_of(region));
    EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    std::this_thread::sleep_for(3ms);
    region.deregister();
    other.line().meet();
    std::uint64_t completed = 1;
    ibv_wc completion;
    for (; ibv_poll_cq(endpoint.queue, 1, &completion) == 1; ++completed) {
      EXPECT_EQ(completion.wr_id, completed);
      if (completion.status != IBV_WC_SUCCESS) {
        EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
      }
    }
    ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
    EXPECT_EQ(right.wait().wr_id, completed);
  }
  other.expect_success();
}

/// The buffer of a receive is the program's again after a reset.
TEST_F(Bounce, writes_no_receive_after_a_reset_and_serves_the_next_connection) {
  OtherProcess other([](Line& line) {
    const Side side(line);
    line.meet();
    side.buffer.fill(5);
    ASSERT_EQ(side.endpoint.send(IBV_WR_SEND, {side.region.piece(0, large)}), 0);
    EXPECT_TRUE(side.endpoint.is_quiet(0ms));
    line.meet();
    (void)side.endpoint.reset();
    connect_over(line, side.endpoint);
    line.meet();
    ASSERT_EQ(side.endpoint.send(IBV_WR_SEND, {side.region.piece(0, large)}), 0);
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
    line.meet();
  });
  {
    const Device device;
    const Buffer buffer(large);
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(other.line(), endpoint);
    ASSERT_EQ(endpoint.receive({region.piece(0, large)}), 0);
    other.line().meet();
    const auto words = reinterpret_cast<std::uint64_t*>(buffer.data());
    std::this_thread::sleep_for(500us);
    ASSERT_EQ(endpoint.reset(), 0);
    for (std::size_t index = 0; index < large / 8; ++index) std::atomic_ref(words[index]).store(0);
    other.line().meet();
    for (std::size_t index = 0; index < large / 8; ++index)
      ASSERT_EQ(std::atomic_ref(words[index]).load(), 0u);
    connect_over(other.line(), endpoint);
    ASSERT_EQ(endpoint.receive({region.piece(0, large)}), 0);
    other.line().meet();
    EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(buffer.holds(5, large));
    other.line().meet();
  }
  other.expect_success();
}

/// An initiator that begins again finds what its former life has asked.
TEST_F(Bounce, goes_on_after_a_reset_of_the_initiator_alone) {
  OtherProcess other([](Line& line) { take(line, 0); });
  {
    const Side side(other.line());
    const auto peer = other.line().get<RemoteRegion>();
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    ASSERT_EQ(driver().query_qp(side.endpoint.pair, &attributes, IBV_QP_DEST_QPN, &initial), 0);
    const Address target{attributes.dest_qp_num, side.endpoint.address().lid,
                         side.endpoint.address().gid};
    ASSERT_EQ(side.write(8, peer), 0);
    EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
    for (int round = 0; round < 20; ++round) {
      ASSERT_EQ(side.write(large, peer), 0);
      ASSERT_EQ(side.endpoint.reset(), 0);
      side.endpoint.connect(target);
      ASSERT_EQ(side.write(large, peer), 0);
      EXPECT_EQ(side.endpoint.wait().status, IBV_WC_SUCCESS);
    }
    other.line().meet();
  }
  other.expect_success();
}

/// Both directions at once, all kinds of requests, until one of them is killed.
TEST_F(Bounce, survives_the_death_of_an_initiator_at_any_moment) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    OtherProcess other([](Line& line) {
      const Side side(line);
      const RemoteRegion peer = line.swap(remote_of(side.region));
      ibv_wc completion;
      for (int count = 0; count < 60; ++count)
        (void)side.endpoint.receive({side.region.piece(0, 4096)});
      for (;;) {
        (void)side.write(200'000, peer);
        (void)side.endpoint.send(IBV_WR_SEND, {side.region.piece(0, 4096)});
        (void)side.endpoint.send(IBV_WR_RDMA_READ, {side.region.piece(0, 4096)}, peer.address,
                                 peer.key);
        while (ibv_poll_cq(side.endpoint.queue, 1, &completion) == 1)
          if (completion.opcode == IBV_WC_RECV)
            (void)side.endpoint.receive({side.region.piece(0, 4096)});
      }
    });
    const Device device;
    const SharedReceives shared(device, 64);
    const Buffer buffer(large);
    const Region region(device, buffer);
    const Endpoint endpoint(device, {.sends = 64,
                                     .receives = 64,
                                     .completions = 1024,
                                     .shared_receives = round % 2 == 0 ? shared.handle : nullptr});
    connect_over(other.line(), endpoint);
    const RemoteRegion peer = other.line().swap(remote_of(region));
    const auto receive = [&] {
      const std::vector<ibv_sge> pieces{region.piece(0, 4096)};
      return endpoint.pair->srq ? shared.receive(pieces, 0) : endpoint.receive(pieces);
    };
    for (int count = 0; count < 60; ++count) (void)receive();
    ibv_wc completion;
    const auto step = [&] {
      (void)endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 200'000)}, peer.address, peer.key);
      (void)endpoint.send(IBV_WR_SEND, {region.piece(0, 4096)});
      while (ibv_poll_cq(endpoint.queue, 1, &completion) == 1) {
        if (completion.status == IBV_WC_RETRY_EXC_ERR) return false;
        EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
        if (completion.opcode == IBV_WC_RECV) (void)receive();
      }
      return true;
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 10000);
    bool alive = true;
    while (alive && std::chrono::steady_clock::now() < end) alive = step();
    ASSERT_TRUE(alive);
    other.kill();
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (alive && std::chrono::steady_clock::now() < deadline) alive = step();
    ASSERT_FALSE(alive) << "the death was not noticed in round " << round;
  }
}

}  // namespace
}  // namespace tutti::conformance
