// Promise: two queue pairs of one process reach each other, whichever threads own them, and every
// offered operation moves exactly the bytes it names.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

TEST(Loopback, write_with_immediate_completes_on_both_ends) {
  Loopback ends;
  const Buffer source(4096), target(4096);
  const Region from(ends.left.device, source), to(ends.left.device, target);
  source.fill(1);

  ASSERT_EQ(ends.right.receive({}, 77), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE_WITH_IMM, {from.piece(0, 100)}, to.address() + 8,
                           to.handle->rkey, IBV_SEND_SIGNALED, 55, 0xabcd1234),
            0);

  const ibv_wc received = ends.right.wait();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wr_id, 77u);
  EXPECT_EQ(received.byte_len, 100u);
  EXPECT_EQ(received.imm_data, 0xabcd1234u);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(received.qp_num, ends.right.pair->qp_num);
  EXPECT_TRUE(target.holds(1, 100, 8));
  EXPECT_EQ(target.data()[108], std::byte{0});
  const ibv_wc sent = ends.left.wait();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(sent.wr_id, 55u);
  EXPECT_EQ(sent.qp_num, ends.left.pair->qp_num);
}

TEST(Loopback, plain_write_takes_no_receive) {
  Loopback ends;
  const Buffer source(64), target(64);
  const Region from(ends.left.device, source), to(ends.left.device, target);
  source.fill(2);
  ASSERT_EQ(ends.right.receive({}), 0);

  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {from.piece(0, 64)}, to.address(), to.handle->rkey),
            0);

  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(target.holds(2, 64));
  EXPECT_TRUE(ends.right.is_quiet());
}

TEST(Loopback, send_fills_the_scatter_list_in_order) {
  Loopback ends;
  const Buffer source(1000), target(1000);
  const Region from(ends.left.device, source), to(ends.left.device, target);
  source.fill(3);

  ASSERT_EQ(ends.right.receive(
                {to.piece(500, 3), to.piece(0, 0), to.piece(100, 20), to.piece(200, 400)}, 9),
            0);
  ASSERT_EQ(
      ends.left.send(IBV_WR_SEND_WITH_IMM, {from.piece(0, 7), from.piece(7, 30), from.piece(37, 1)},
                     0, 0, IBV_SEND_SIGNALED, 1, 42),
      0);

  const ibv_wc received = ends.right.wait();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, 38u);
  EXPECT_EQ(received.imm_data, 42u);
  std::array<std::byte, 38> gathered;
  std::copy_n(target.data() + 500, 3, gathered.begin());
  std::copy_n(target.data() + 100, 20, gathered.begin() + 3);
  std::copy_n(target.data() + 200, 15, gathered.begin() + 23);
  EXPECT_TRUE(std::equal(gathered.begin(), gathered.end(), source.data()));
  EXPECT_EQ(target.data()[215], std::byte{0});
  EXPECT_EQ(ends.left.wait().opcode, IBV_WC_SEND);
}

TEST(Loopback, send_without_immediate_says_so) {
  Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ASSERT_EQ(ends.right.receive({region.piece(0, 8)}), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {region.piece(8, 8)}), 0);
  EXPECT_EQ(ends.right.wait().wc_flags & IBV_WC_WITH_IMM, 0u);
}

TEST(Loopback, read_gathers_into_the_local_list) {
  Loopback ends;
  const Buffer local(300), remote(300);
  const Region to(ends.left.device, local), from(ends.left.device, remote);
  remote.fill(4);

  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_READ, {to.piece(0, 100), to.piece(100, 150)}, from.address(),
                           from.handle->rkey),
            0);

  const ibv_wc completion = ends.left.wait();
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(completion.byte_len, 250u);
  EXPECT_TRUE(local.holds(4, 250));
  EXPECT_TRUE(ends.right.is_quiet());
}

TEST(Loopback, inline_data_may_be_reused_at_once_and_needs_no_region) {
  Loopback ends;
  const Buffer target(64);
  const Region to(ends.left.device, target);
  std::uint64_t word = 0x1122334455667788;
  const ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(&word), .length = 8, .lkey = 0xdead};

  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {piece}, 0, 0, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
  word = 0;  // the request waits for its receive
  ASSERT_EQ(ends.right.receive({to.piece(0, 8)}), 0);

  EXPECT_EQ(ends.right.wait().status, IBV_WC_SUCCESS);
  std::uint64_t arrived = 0;
  std::memcpy(&arrived, target.data(), 8);
  EXPECT_EQ(arrived, 0x1122334455667788u);
}

TEST(Loopback, a_queue_pair_may_be_connected_to_itself) {
  const Device device;
  const Endpoint self(device);
  self.connect(self.address());
  const Buffer buffer(64);
  const Region region(device, buffer);
  ASSERT_EQ(self.receive({}, 5), 0);
  ASSERT_EQ(self.send(IBV_WR_RDMA_WRITE_WITH_IMM, {region.piece(0, 8)}, region.address() + 8,
                      region.handle->rkey, IBV_SEND_SIGNALED, 6),
            0);
  const ibv_wc first = self.wait(), second = self.wait();
  EXPECT_EQ(first.status, IBV_WC_SUCCESS);
  EXPECT_EQ(first.wr_id + second.wr_id, 11u);
}

TEST(Loopback, a_list_of_requests_is_executed_in_order) {
  Loopback ends;
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(ends.right.receive({}, id), 0);
  ibv_sge piece = region.piece(0, 8);
  std::array<ibv_send_wr, 3> requests{};
  for (std::size_t index = 0; index < 3; ++index) {
    ibv_send_wr& request = requests[index];
    request.wr_id = index;
    request.next = index < 2 ? &requests[index + 1] : nullptr;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = static_cast<std::uint32_t>(100 + index);
    request.wr.rdma.remote_addr = region.address() + 32;
    request.wr.rdma.rkey = region.handle->rkey;
  }
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(ends.left.pair, requests.data(), &bad), 0);
  for (std::uint32_t index = 0; index < 3; ++index) {
    const ibv_wc received = ends.right.wait();
    EXPECT_EQ(received.wr_id, index);
    EXPECT_EQ(received.imm_data, 100 + index);
  }
}

/// Two threads, each with a context of its own, play ping-pong; the second word of the payload
/// must be as new as the immediate.
TEST(Loopback, ranks_may_be_threads) {
  const std::uint32_t rounds = device_is_soft() ? 20000 : 500;
  struct Rank {
    Device device;
    Endpoint endpoint{device};
    Buffer inbox{64};
    Buffer outbox{64};
    Region inbox_region{device, inbox};
    Region outbox_region{device, outbox};
  };
  std::array<Rank, 2> ranks;
  ranks[0].endpoint.connect(ranks[1].endpoint.address());
  ranks[1].endpoint.connect(ranks[0].endpoint.address());

  const auto play = [&](std::size_t self) {
    Rank& rank = ranks[self];
    const RemoteRegion peer = remote_of(ranks[1 - self].inbox_region);
    for (int index = 0; index < 4; ++index) EXPECT_EQ(rank.endpoint.receive({}), 0);
    std::uint32_t received = 0, sent = 0;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      std::array<std::uint32_t, 4> payload;
      payload.fill(round);
      // The peer may be one round ahead, not two: two places.
      const std::size_t place = round % 2 * std::size_t{32};
      std::memcpy(rank.outbox.data() + place, payload.data(), sizeof(payload));
      const bool signaled = round % 8 == 7;
      ASSERT_EQ(rank.endpoint.send(
                    IBV_WR_RDMA_WRITE_WITH_IMM, {rank.outbox_region.piece(place, sizeof(payload))},
                    peer.address + place, peer.key, signaled ? IBV_SEND_SIGNALED : 0, 7, round),
                0);
      // What this rank has sent may complete after the peer's next message.
      while (received <= round || sent < (round + 1) / 8) {
        const ibv_wc completion = rank.endpoint.wait();
        ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
        if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
          ++sent;
          continue;
        }
        ASSERT_EQ(completion.imm_data, received);
        const std::size_t there = received % 2 * std::size_t{32};
        std::memcpy(payload.data(), rank.inbox.data() + there, sizeof(payload));
        ASSERT_EQ(payload[3], received++);
        ASSERT_EQ(rank.endpoint.receive({}), 0);
      }
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
}

}  // namespace
}  // namespace tutti::conformance
