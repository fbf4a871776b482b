// Promise: the extended interfaces, which the inline functions of libibverbs reach through the
// context, do what the plain ones do: queries, requests built piece by piece, polling field by
// field.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

constexpr std::uint64_t all_operations =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

ibv_qp_init_attr_ex queue_pair_attributes(const Endpoint& like, std::uint64_t operations) {
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = like.queue;
  attributes.recv_cq = like.queue;
  attributes.cap = {.max_send_wr = 4,
                    .max_recv_wr = 4,
                    .max_send_sge = 2,
                    .max_recv_sge = 1,
                    .max_inline_data = 64};
  attributes.qp_type = IBV_QPT_RC;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.pd = like.device.domain;
  attributes.send_ops_flags = operations;
  return attributes;
}

/// Its left queue pair is an extended one.
struct ExtendedLoopback {
  explicit ExtendedLoopback(std::uint64_t operations = all_operations) {
    ibv_qp_init_attr_ex attributes = queue_pair_attributes(left, operations);
    left.destroy_queue_pair();
    left.pair = ibv_create_qp_ex(device.context, &attributes);
    if (!left.pair) return;
    pair = driver().qp_to_qp_ex(left.pair);
    const ConnectionOptions connection{.access = all_access | IBV_ACCESS_REMOTE_ATOMIC};
    left.connect(right.address(), connection);
    right.connect(left.address(), connection);
  }

  Device device;
  Endpoint left{device};
  Endpoint right{device};
  Buffer source{4096}, target{4096};
  Region from{device, source}, to{device, target, all_access | IBV_ACCESS_REMOTE_ATOMIC};
  ibv_qp_ex* pair = nullptr;
};

TEST(Extended, queries_agree_with_the_plain_ones) {
  const Device device;
  ibv_device_attr plain{};
  ibv_device_attr_ex extended{};
  ASSERT_EQ(driver().query_device(device.context, &plain), 0);
  ASSERT_EQ(ibv_query_device_ex(device.context, nullptr, &extended), 0);
  EXPECT_EQ(std::memcmp(&plain, &extended.orig_attr, sizeof(plain)), 0);
  const ibv_query_device_ex_input unknown{.comp_mask = 1};
  EXPECT_EQ(ibv_query_device_ex(device.context, &unknown, &extended), EINVAL);

  ibv_port_attr port{}, port_by_context{};
  ASSERT_EQ(driver().query_port(device.context, 1, &port), 0);
  ASSERT_EQ(ibv_query_port(device.context, 1, &port_by_context), 0);
  EXPECT_EQ(std::memcmp(&port, &port_by_context, sizeof(port)), 0);
  EXPECT_NE(ibv_query_port(device.context, 99, &port_by_context), 0);
}

TEST(Extended, what_is_not_offered_is_refused) {
  const Device device;
  if (!device_is_soft()) GTEST_SKIP() << "another device may offer it";
  const Endpoint end(device);
  ibv_qp_init_attr_ex attributes = queue_pair_attributes(end, IBV_QP_EX_WITH_BIND_MW);
  EXPECT_EQ(ibv_create_qp_ex(device.context, &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attributes = queue_pair_attributes(end, IBV_QP_EX_WITH_RDMA_WRITE);
  attributes.qp_type = IBV_QPT_UD;
  EXPECT_EQ(ibv_create_qp_ex(device.context, &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attributes = queue_pair_attributes(end, all_operations);
  attributes.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
  EXPECT_EQ(ibv_create_qp_ex(device.context, &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_cq_init_attr_ex queue{};
  queue.cqe = 8;
  queue.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  EXPECT_EQ(ibv_create_cq_ex(device.context, &queue), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_alloc_td(device.context, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(Extended, a_plain_queue_pair_is_no_extended_one) {
  const Loopback ends;
  EXPECT_EQ(driver().qp_to_qp_ex(ends.left.pair), nullptr);
}

TEST(Extended, every_operation_arrives) {
  ExtendedLoopback ends;
  ASSERT_NE(ends.pair, nullptr);
  ends.source.fill(1);
  ASSERT_EQ(ends.right.receive({ends.to.piece(1000, 100)}, 11), 0);
  ASSERT_EQ(ends.right.receive({ends.to.piece(2000, 100)}, 12), 0);
  ASSERT_EQ(ends.right.receive({}, 13), 0);

  ibv_qp_ex* const pair = ends.pair;
  ibv_wr_start(pair);
  pair->wr_flags = 0;
  pair->wr_id = 1;
  ibv_wr_rdma_write(pair, ends.to.handle->rkey, ends.to.address());
  ibv_wr_set_sge(pair, ends.from.handle->lkey, ends.from.address(), 100);
  pair->wr_id = 2;
  ibv_wr_send(pair);
  ibv_wr_set_sge(pair, ends.from.handle->lkey, ends.from.address(), 90);
  pair->wr_id = 3;
  ibv_wr_send_imm(pair, 0x1234);
  ibv_wr_set_sge(pair, ends.from.handle->lkey, ends.from.address(), 80);
  pair->wr_id = 4;
  pair->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write_imm(pair, ends.to.handle->rkey, ends.to.address() + 3000, 0x5678);
  ibv_wr_set_sge(pair, ends.from.handle->lkey, ends.from.address(), 70);
  EXPECT_TRUE(ends.right.is_quiet());  // nothing is posted yet
  ASSERT_EQ(ibv_wr_complete(pair), 0);

  const ibv_wc sent = ends.left.wait();
  EXPECT_EQ(sent.wr_id, 4u);
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(ends.left.is_quiet());
  EXPECT_EQ(ends.right.wait().byte_len, 90u);
  EXPECT_EQ(ends.right.wait().imm_data, 0x1234u);
  const ibv_wc written = ends.right.wait();
  EXPECT_EQ(written.imm_data, 0x5678u);
  EXPECT_EQ(written.wr_id, 13u);
  EXPECT_TRUE(ends.target.holds(1, 100));
  EXPECT_TRUE(ends.target.holds(1, 90, 1000));
  EXPECT_TRUE(ends.target.holds(1, 80, 2000));
  EXPECT_TRUE(ends.target.holds(1, 70, 3000));
}

TEST(Extended, pieces_are_put_together) {
  ExtendedLoopback ends;
  ASSERT_NE(ends.pair, nullptr);
  ends.source.fill(1);
  const std::array<ibv_sge, 2> pieces{ends.from.piece(0, 30), ends.from.piece(30, 50)};
  ibv_wr_start(ends.pair);
  ends.pair->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(ends.pair, ends.to.handle->rkey, ends.to.address());
  ibv_wr_set_sge_list(ends.pair, pieces.size(), pieces.data());
  ASSERT_EQ(ibv_wr_complete(ends.pair), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(ends.target.holds(1, 80));
}

TEST(Extended, a_read_fetches) {
  ExtendedLoopback ends;
  ASSERT_NE(ends.pair, nullptr);
  ends.target.fill(5);
  ibv_wr_start(ends.pair);
  ends.pair->wr_id = 9;
  ends.pair->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_read(ends.pair, ends.to.handle->rkey, ends.to.address());
  ibv_wr_set_sge(ends.pair, ends.from.handle->lkey, ends.from.address(), 200);
  ASSERT_EQ(ibv_wr_complete(ends.pair), 0);
  const ibv_wc read = ends.left.wait();
  EXPECT_EQ(read.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(read.wr_id, 9u);
  EXPECT_TRUE(ends.source.holds(5, 200));
}

TEST(Extended, atomics_change_the_word_and_fetch_it) {
  ExtendedLoopback ends;
  ASSERT_NE(ends.pair, nullptr);
  std::uint64_t word = 40;
  std::memcpy(ends.target.data(), &word, sizeof(word));
  ibv_wr_start(ends.pair);
  ends.pair->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_fetch_add(ends.pair, ends.to.handle->rkey, ends.to.address(), 2);
  ibv_wr_set_sge(ends.pair, ends.from.handle->lkey, ends.from.address(), 8);
  ibv_wr_atomic_cmp_swp(ends.pair, ends.to.handle->rkey, ends.to.address(), 42, 7);
  ibv_wr_set_sge(ends.pair, ends.from.handle->lkey, ends.from.address() + 8, 8);
  ASSERT_EQ(ibv_wr_complete(ends.pair), 0);
  EXPECT_EQ(ends.left.wait().opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(ends.left.wait().opcode, IBV_WC_COMP_SWAP);
  std::array<std::uint64_t, 2> former{};
  std::memcpy(&word, ends.target.data(), sizeof(word));
  std::memcpy(former.data(), ends.source.data(), sizeof(former));
  EXPECT_EQ(word, 7u);
  EXPECT_EQ(former, (std::array<std::uint64_t, 2>{40, 42}));
}

TEST(Extended, inline_data_are_taken_when_they_are_set) {
  ExtendedLoopback ends;
  ASSERT_NE(ends.pair, nullptr);
  std::array<char, 8> first{"abcdefg"}, second{"hijklmn"};
  const std::array<ibv_data_buf, 2> parts{ibv_data_buf{first.data(), 7},
                                          ibv_data_buf{second.data(), 8}};
  ibv_wr_start(ends.pair);
  ends.pair->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(ends.pair, ends.to.handle->rkey, ends.to.address());
  ibv_wr_set_inline_data(ends.pair, first.data(), 8);
  ibv_wr_rdma_write(ends.pair, ends.to.handle->rkey, ends.to.address() + 100);
  ibv_wr_set_inline_data_list(ends.pair, parts.size(), parts.data());
  first.fill('x');
  second.fill('x');
  ASSERT_EQ(ibv_wr_complete(ends.pair), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(ends.target.data(), "abcdefg", 8), 0);
  EXPECT_EQ(std::memcmp(ends.target.data() + 100, "abcdefghijklmn", 15), 0);
}

TEST(Extended, an_aborted_list_is_forgotten) {
  ExtendedLoopback ends;
  ASSERT_NE(ends.pair, nullptr);
  ends.source.fill(1);
  ibv_wr_start(ends.pair);
  ends.pair->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(ends.pair, ends.to.handle->rkey, ends.to.address());
  ibv_wr_set_sge(ends.pair, ends.from.handle->lkey, ends.from.address(), 100);
  ibv_wr_abort(ends.pair);
  ibv_wr_start(ends.pair);
  ASSERT_EQ(ibv_wr_complete(ends.pair), 0);
  EXPECT_TRUE(ends.left.is_quiet());
  EXPECT_EQ(ends.target.data()[0], std::byte{0});
}

TEST(Extended, a_list_is_posted_whole_or_not_at_all) {
  ExtendedLoopback ends;
  ASSERT_NE(ends.pair, nullptr);
  const auto write = [&] {
    ibv_wr_rdma_write(ends.pair, ends.to.handle->rkey, ends.to.address());
    ibv_wr_set_sge(ends.pair, ends.from.handle->lkey, ends.from.address(), 8);
  };
  ends.pair->wr_flags = IBV_SEND_SIGNALED;
  ibv_qp_attr granted{};
  ibv_qp_init_attr initial{};
  ASSERT_EQ(driver().query_qp(ends.left.pair, &granted, IBV_QP_CAP, &initial), 0);
  ibv_wr_start(ends.pair);  // one more than there is room for
  for (std::uint32_t count = 0; count <= granted.cap.max_send_wr; ++count) write();
  const int error = ibv_wr_complete(ends.pair);
  EXPECT_NE(error, 0);
  if (device_is_soft()) {
    EXPECT_EQ(error, ENOMEM);
  }
  ibv_wr_start(ends.pair);  // an error in the second request
  write();
  ibv_wr_rdma_write(ends.pair, ends.to.handle->rkey, ends.to.address());
  ibv_wr_set_inline_data(ends.pair, ends.source.data(), granted.cap.max_inline_data + 1);
  write();
  EXPECT_NE(ibv_wr_complete(ends.pair), 0);
  EXPECT_TRUE(ends.left.is_quiet());
  ibv_wr_start(ends.pair);
  for (std::uint32_t count = 0; count < granted.cap.max_send_wr; ++count) write();
  EXPECT_EQ(ibv_wr_complete(ends.pair), 0);
  for (std::uint32_t count = 0; count < granted.cap.max_send_wr; ++count)
    EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
}

TEST(Extended, an_operation_that_was_not_asked_for_is_refused) {
  if (!device_is_soft()) GTEST_SKIP() << "others leave it undefined";
  ExtendedLoopback ends(IBV_QP_EX_WITH_RDMA_WRITE);
  ASSERT_NE(ends.pair, nullptr);
  ibv_wr_start(ends.pair);
  ibv_wr_send(ends.pair);
  EXPECT_EQ(ibv_wr_complete(ends.pair), EOPNOTSUPP);
  ibv_wr_start(ends.pair);
  ibv_wr_local_inv(ends.pair, 0);
  EXPECT_EQ(ibv_wr_complete(ends.pair), EOPNOTSUPP);
  EXPECT_TRUE(ends.left.is_quiet());
}

TEST(Extended, an_unconnected_queue_pair_takes_no_list) {
  const Device device;
  Endpoint end(device);
  ibv_qp_init_attr_ex attributes = queue_pair_attributes(end, all_operations);
  end.destroy_queue_pair();
  end.pair = ibv_create_qp_ex(device.context, &attributes);
  ASSERT_NE(end.pair, nullptr);
  ibv_qp_ex* const pair = driver().qp_to_qp_ex(end.pair);
  ibv_wr_start(pair);
  ibv_wr_send(pair);
  EXPECT_NE(ibv_wr_complete(pair), 0);
}

class ExtendedPolling : public testing::TestWithParam<std::uint32_t> {};

TEST_P(ExtendedPolling, reads_completions_one_after_the_other) {
  const Device device;
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 16;
  attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attributes.flags = GetParam();
  ibv_cq_ex* const queue = ibv_create_cq_ex(device.context, &attributes);
  ASSERT_NE(queue, nullptr);
  {
    EndpointOptions options;
    options.queue = ibv_cq_ex_to_cq(queue);
    const Endpoint left(device, options), right(device);
    left.connect(right.address());
    right.connect(left.address());
    const Buffer buffer(64);
    const Region region(device, buffer);
    ibv_poll_cq_attr none{};
    EXPECT_EQ(ibv_start_poll(queue, &none), ENOENT);

    ASSERT_EQ(left.receive({region.piece(0, 64)}, 21), 0);
    ASSERT_EQ(left.receive({region.piece(0, 64)}, 22), 0);
    ASSERT_EQ(right.send(IBV_WR_SEND, {region.piece(0, 10)}), 0);
    ASSERT_EQ(right.send(IBV_WR_SEND_WITH_IMM, {region.piece(0, 20)}, 0, 0, 0, 1, 0x99), 0);
    EXPECT_EQ(right.wait().status, IBV_WC_SUCCESS);

    ASSERT_EQ(ibv_start_poll(queue, &none), 0);
    EXPECT_EQ(queue->wr_id, 21u);
    EXPECT_EQ(queue->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(queue), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_byte_len(queue), 10u);
    EXPECT_EQ(ibv_wc_read_qp_num(queue), left.pair->qp_num);
    EXPECT_EQ(ibv_wc_read_wc_flags(queue) & IBV_WC_WITH_IMM, 0u);
    ASSERT_EQ(ibv_next_poll(queue), 0);
    EXPECT_EQ(queue->wr_id, 22u);
    EXPECT_EQ(ibv_wc_read_byte_len(queue), 20u);
    EXPECT_EQ(ibv_wc_read_imm_data(queue), 0x99u);
    EXPECT_NE(ibv_wc_read_wc_flags(queue) & IBV_WC_WITH_IMM, 0u);
    ibv_end_poll(queue);
    EXPECT_EQ(ibv_start_poll(queue, &none), ENOENT);
    EXPECT_TRUE(left.is_quiet());  // the plain poll finds the same queue
  }
  EXPECT_EQ(driver().destroy_cq(ibv_cq_ex_to_cq(queue)), 0);
}

TEST_P(ExtendedPolling, ends_behind_the_last_completion) {
  const Device device;
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 16;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attributes.flags = GetParam();
  ibv_cq_ex* const queue = ibv_create_cq_ex(device.context, &attributes);
  ASSERT_NE(queue, nullptr);
  {
    EndpointOptions options;
    options.queue = ibv_cq_ex_to_cq(queue);
    const Endpoint self(device, options);
    self.connect(self.address());
    ASSERT_EQ(self.send(IBV_WR_RDMA_WRITE, {}), 0);
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    ibv_poll_cq_attr none{};
    int result = ENOENT;
    while (result == ENOENT && std::chrono::steady_clock::now() < deadline)
      result = ibv_start_poll(queue, &none);
    ASSERT_EQ(result, 0);
    EXPECT_EQ(ibv_next_poll(queue), ENOENT);
    ibv_end_poll(queue);
    EXPECT_TRUE(self.is_quiet());
  }
  EXPECT_EQ(driver().destroy_cq(ibv_cq_ex_to_cq(queue)), 0);
}
INSTANTIATE_TEST_SUITE_P(Threads, ExtendedPolling,
                         testing::Values(0, IBV_CREATE_CQ_ATTR_SINGLE_THREADED));

}  // namespace
}  // namespace tutti::conformance
