// Promise: what the device reports as its limits is what it grants; what it does not offer it
// refuses; and objects in use cannot be destroyed.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

TEST(Limits, unsignaled_slots_retire_only_with_a_polled_completion) {
  Loopback ends({.sends = 8});
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  const auto put = [&](unsigned flags) {
    return ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address() + 8,
                          region.handle->rkey, flags);
  };
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  ASSERT_EQ(driver().query_qp(ends.left.pair, &attributes, IBV_QP_CAP, &initial), 0);
  const std::uint32_t slots = initial.cap.max_send_wr;
  ASSERT_GE(slots, 8u);
  for (std::uint32_t count = 0; count + 1 < slots; ++count) ASSERT_EQ(put(0), 0);
  ASSERT_EQ(put(IBV_SEND_SIGNALED), 0);
  // No program may count on more; other devices may have room all the same.
  if (device_is_soft()) {
    EXPECT_EQ(put(0), ENOMEM);
  }
  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  for (std::uint32_t count = 0; count < slots; ++count) ASSERT_EQ(put(0), 0);
  if (device_is_soft()) {
    EXPECT_EQ(put(0), ENOMEM);
  }
  EXPECT_TRUE(ends.left.is_quiet());
}

TEST(Limits, signal_all_signals_all) {
  Loopback ends({.signal_all = true});
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address() + 8,
                           region.handle->rkey, 0),
            0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
}

TEST(Limits, inline_limit) {
  Loopback ends;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  ASSERT_EQ(driver().query_qp(ends.left.pair, &attributes, IBV_QP_CAP, &initial), 0);
  const std::uint32_t limit = initial.cap.max_inline_data;
  ASSERT_GE(limit, 64u);
  const Buffer source(limit + 1), target(limit + 1);
  const Region to(ends.left.device, target);
  source.fill(8);
  const auto put = [&](std::uint32_t bytes) {
    return ends.left.send(IBV_WR_RDMA_WRITE,
                          {{.addr = source.address(), .length = bytes, .lkey = 0}}, to.address(),
                          to.handle->rkey, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
  };
  EXPECT_NE(put(limit + 1), 0);
  ASSERT_EQ(put(limit), 0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(target.holds(8, limit));
  EXPECT_EQ(target.data()[limit], std::byte{0});
}

TEST(Limits, too_many_pieces) {
  Loopback ends({.pieces = 2});
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  ASSERT_EQ(driver().query_qp(ends.left.pair, &attributes, IBV_QP_CAP, &initial), 0);
  const std::vector<ibv_sge> pieces(initial.cap.max_send_sge + 1);
  EXPECT_NE(ends.left.send(IBV_WR_SEND, pieces), 0);
  const std::vector<ibv_sge> more(initial.cap.max_recv_sge + 1);
  EXPECT_NE(ends.left.receive(more), 0);
}

TEST(Limits, an_overrun_completion_queue_fails_loudly) {
  if (!device_is_soft()) GTEST_SKIP() << "real devices report it by an event only";
  {
    Loopback ends({.receives = 16, .completions = 4});  // more remote completions than entries
    for (int count = 0; count < 8; ++count) ASSERT_EQ(ends.right.receive({}), 0);
    for (int count = 0; count < 5; ++count) ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
    ibv_wc completion;
    EXPECT_EQ(ibv_poll_cq(ends.right.queue, 1, &completion), -1);
    EXPECT_EQ(ibv_poll_cq(ends.right.queue, 1, &completion), -1);
  }
  {
    Loopback ends({.completions = 4});  // more local ones
    for (int count = 0; count < 8; ++count) ASSERT_EQ(ends.right.receive({}), 0);
    for (int count = 0; count < 5; ++count) ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}), 0);
    ibv_wc completion;
    EXPECT_EQ(ibv_poll_cq(ends.left.queue, 1, &completion), -1);
  }
}

TEST(Limits, a_full_completion_queue_is_no_overrun) {
  Loopback ends({.receives = 16, .completions = 4});
  for (int count = 0; count < 4; ++count) ASSERT_EQ(ends.right.receive({}), 0);
  for (int count = 0; count < 4; ++count) ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  for (int count = 0; count < 4; ++count) EXPECT_EQ(ends.right.wait().status, IBV_WC_SUCCESS);
}

/// The error that a request causes is no completion of the target's queue.
TEST(Limits, an_error_behind_a_full_completion_queue_is_no_overrun) {
  Loopback ends({.receives = 16, .completions = 4});
  const Buffer buffer(64);
  const Region region(ends.left.device, buffer);
  for (int count = 0; count < 4; ++count) ASSERT_EQ(ends.right.receive({}), 0);
  for (int count = 0; count < 4; ++count) ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, 0, 1, 0), 0);
  for (int count = 0; count < 4; ++count) EXPECT_EQ(ends.right.wait().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(ends.right.is_quiet());
  EXPECT_TRUE(ends.right.comes_to(IBV_QPS_ERR));
}

TEST(Limits, completions_forgotten_by_a_reset_take_no_room) {
  if (!device_is_soft()) GTEST_SKIP() << "other devices may keep them";
  const Device device;
  const Endpoint self(device, {.sends = 16, .completions = 32});
  const Buffer buffer(64);
  const Region region(device, buffer);
  const auto put = [&](std::uint64_t id) {
    return self.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address() + 8,
                     region.handle->rkey, IBV_SEND_SIGNALED, id);
  };
  for (int round = 0; round < 5; ++round) {
    self.connect(self.address());
    for (std::uint64_t id = 0; id < 16; ++id) ASSERT_EQ(put(id), 0);
    ASSERT_EQ(self.reset(), 0);
  }
  self.connect(self.address());
  ASSERT_EQ(put(77), 0);
  EXPECT_EQ(self.wait().wr_id, 77u);
  EXPECT_TRUE(self.is_quiet());
}

TEST(Limits, queued_completions_of_a_destroyed_queue_pair_vanish) {
  if (!device_is_soft()) GTEST_SKIP() << "other devices may keep them";
  const Device device;
  ibv_cq* const queue = driver().create_cq(device.context, 64, nullptr, nullptr, 0);
  {
    Endpoint left(device, {.queue = queue}), right(device, {.queue = queue});
    left.connect(right.address());
    right.connect(left.address());
    ASSERT_EQ(right.receive({}), 0);
    ASSERT_EQ(left.send(IBV_WR_SEND, {}), 0);
    EXPECT_EQ(driver().destroy_cq(queue), EBUSY);
    left.destroy_queue_pair();
    EXPECT_EQ(right.wait().opcode, IBV_WC_RECV);
    ASSERT_EQ(right.receive({}), 0);
    EXPECT_TRUE(right.is_quiet());
  }
  EXPECT_EQ(driver().destroy_cq(queue), 0);
}

TEST(Limits, the_reported_maxima_are_granted_and_not_exceeded) {
  const Device device;
  ibv_device_attr limits{};
  ASSERT_EQ(driver().query_device(device.context, &limits), 0);
  EXPECT_GE(limits.max_qp, 1024);
  ibv_cq* const queue = driver().create_cq(device.context, limits.max_cqe, nullptr, nullptr, 0);
  ASSERT_NE(queue, nullptr);
  EXPECT_EQ(driver().create_cq(device.context, limits.max_cqe + 1, nullptr, nullptr, 0), nullptr);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = queue;
  attributes.recv_cq = queue;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = static_cast<std::uint32_t>(limits.max_qp_wr);
  attributes.cap.max_recv_wr = 1;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  ibv_qp* const pair = driver().create_qp(device.domain, &attributes);
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(driver().destroy_qp(pair), 0);
  ++attributes.cap.max_send_wr;
  EXPECT_EQ(driver().create_qp(device.domain, &attributes), nullptr);
  attributes.cap.max_send_wr = 1;
  attributes.cap.max_send_sge = static_cast<std::uint32_t>(limits.max_sge) + 1;
  EXPECT_EQ(driver().create_qp(device.domain, &attributes), nullptr);
  EXPECT_EQ(driver().destroy_cq(queue), 0);
}

TEST(Limits, registration_is_checked) {
  const Device device;
  const Buffer buffer(4096);
  EXPECT_EQ(driver().reg_mr(device.domain, buffer.data(), 4096, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // Half of the range may not be touched.
  const Buffer pages(8192);
  ASSERT_EQ(::mprotect(pages.data() + 4096, 4096, PROT_NONE), 0);
  EXPECT_EQ(driver().reg_mr(device.domain, pages.data(), 8192, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST(Limits, the_software_device_refuses_what_it_does_not_offer) {
  if (!device_is_soft()) GTEST_SKIP();
  Loopback ends;
  const Device& device = ends.device;
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_RAW_PACKET}) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = ends.left.queue;
    attributes.qp_type = type;
    EXPECT_EQ(driver().create_qp(device.domain, &attributes), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW})
    EXPECT_EQ(ends.left.send(opcode, {}), EOPNOTSUPP);
  const Buffer buffer(64);
  for (const int access : {IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED}) {
    EXPECT_EQ(driver().reg_mr(device.domain, buffer.data(), 64, IBV_ACCESS_LOCAL_WRITE | access),
              nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

TEST(Limits, unknown_settings_are_refused) {
  if (!device_is_soft()) GTEST_SKIP();
  ibv_device** const list = driver().get_device_list(nullptr);
  const auto opens = [&](const char* name, const char* value) {
    ::setenv(name, value, 1);
    ibv_context* const context = driver().open_device(list[0]);
    const int error = errno;
    ::unsetenv(name);
    if (context) driver().close_device(context);
    return context ? 0 : error;
  };
  const char* const before = std::getenv("TUTTI_SOFT_TRANSPORT");
  const std::string kept = before ? before : "auto";
  EXPECT_EQ(opens("TUTTI_SOFT_TRANSPORT", "pigeon"), EINVAL);
  EXPECT_EQ(opens("TUTTI_SOFT_COLOUR", "blue"), EINVAL);
  EXPECT_EQ(opens("TUTTI_SOFT_STORES", "fast"), EINVAL);
  EXPECT_EQ(opens("TUTTI_SOFT_STORES", "streaming"), 0);
  EXPECT_EQ(opens("TUTTI_SOFT_LOG", "off"), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(opens("TUTTI_SOFT_LOG", "loudly"), EINVAL);
  const std::string reason = testing::internal::GetCapturedStderr();
  EXPECT_NE(reason.find("TUTTI_SOFT_LOG=loudly"), std::string::npos) << reason;
  EXPECT_NE(reason.find("TUTTI_SOFT_LOG=off|transport"), std::string::npos) << reason;
  EXPECT_EQ(opens("TUTTI_SOFT_TRANSPORT", "cma"), 0);
  ::setenv("TUTTI_SOFT_TRANSPORT", kept.c_str(), 1);
  driver().free_device_list(list);
}

TEST(Limits, one_process_has_one_transport) {
  if (!device_is_soft()) GTEST_SKIP();
  const char* const before = std::getenv("TUTTI_SOFT_TRANSPORT");
  const std::string kept = before ? before : "auto";
  const Device device;
  ibv_device** const list = driver().get_device_list(nullptr);
  ::setenv("TUTTI_SOFT_TRANSPORT", kept == "cma" ? "shared" : "cma", 1);
  EXPECT_EQ(driver().open_device(list[0]), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ::setenv("TUTTI_SOFT_TRANSPORT", kept.c_str(), 1);
  { const Device again; }
  driver().free_device_list(list);
}

}  // namespace
}  // namespace tutti::conformance
