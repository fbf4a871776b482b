// Promise: for lack of memory a function of the device refuses with ENOMEM, whichever of its
// allocations fails, and has done nothing; and what takes something down needs none.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>

#include "harness.hpp"

namespace {

constexpr std::int64_t without_limit = std::numeric_limits<std::int64_t>::max();
// Allocations that this thread still gets.
thread_local std::int64_t allocations_left = without_limit;

void* allocate(std::size_t bytes, std::size_t alignment = 0) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left != without_limit) --allocations_left;
  if (alignment == 0) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment = 0) {
  if (void* const memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace tutti::conformance {
namespace {

/// With so many allocations.
template <class Call>
auto limited(std::int64_t allocations, const Call& call) {
  allocations_left = allocations;
  const auto result = call();
  allocations_left = without_limit;
  return result;
}

/// What the call makes when it gets enough memory; with less, one allocation after the other, it
/// fails for that reason.
template <class Call>
auto made_in_the_end(const char* what, const Call& call) {
  for (std::int64_t allocations = 0;; ++allocations) {
    errno = 0;
    const auto made = limited(allocations, call);
    if (made || allocations == 1000) {
      EXPECT_GT(allocations, 0) << what << " needs none: nothing was tried";
      return made;
    }
    EXPECT_EQ(errno, ENOMEM) << what << " with " << allocations << " allocations";
  }
}

void expect_done_in_the_end(const char* what, const std::function<int()>& call) {
  for (std::int64_t allocations = 0; allocations < 1000; ++allocations) {
    const int error = limited(allocations, call);
    if (error == 0) return;
    ASSERT_EQ(error, ENOMEM) << what << " with " << allocations << " allocations";
  }
  FAIL() << what;
}

void expect_undone(const char* what, const std::function<int()>& call) {
  EXPECT_EQ(limited(0, call), 0) << what;
}

class Scarcity : public testing::TestWithParam<Storage> {};
INSTANTIATE_TEST_SUITE_P(Of, Scarcity,
                         testing::Values(Storage::private_pages, Storage::shared_file));

TEST_P(Scarcity, memory_is_said_at_every_step_and_undoes_nothing) {
  if (!device_is_soft()) GTEST_SKIP() << "the allocations of other drivers are their own";
  const verbs::Driver& soft = driver();
  const std::size_t descriptors = open_descriptors_count();
  for (int round = 0; round < 2; ++round) {
    ibv_device** const list =
        made_in_the_end("list", [&] { return soft.get_device_list(nullptr); });
    ASSERT_TRUE(list);
    ibv_context* const context =
        made_in_the_end("context", [&] { return soft.open_device(list[0]); });
    ASSERT_TRUE(context);
    soft.free_device_list(list);
    ibv_pd* const domain = made_in_the_end("domain", [&] { return soft.alloc_pd(context); });
    ibv_comp_channel* const channel =
        made_in_the_end("channel", [&] { return soft.create_comp_channel(context); });
    ASSERT_TRUE(domain && channel);
    ibv_cq* const queue =
        made_in_the_end("queue", [&] { return soft.create_cq(context, 16, nullptr, channel, 0); });
    ASSERT_TRUE(queue);
    expect_done_in_the_end("resize", [&] { return soft.resize_cq(queue, 100); });
    ibv_srq_init_attr shared_wanted{};
    shared_wanted.attr = {.max_wr = 8, .max_sge = 2, .srq_limit = 0};
    ibv_srq* const shared =
        made_in_the_end("shared receives", [&] { return soft.create_srq(domain, &shared_wanted); });
    ASSERT_TRUE(shared);
    const Buffer buffer(4096, GetParam()), other(4096, GetParam());
    ibv_mr* const region = made_in_the_end(
        "region", [&] { return soft.reg_mr(domain, buffer.data(), buffer.size(), all_access); });
    ASSERT_TRUE(region);
    const std::uint32_t key = region->rkey;
    expect_done_in_the_end("translation", [&] {
      const int result = soft.rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr,
                                       other.data(), other.size(), 0);
      if (result == 0) return 0;
      EXPECT_EQ(result, IBV_REREG_MR_ERR_INPUT);
      EXPECT_EQ(region->rkey, key);
      return errno;
    });
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue;
    wanted.cap = {.max_send_wr = 4,
                  .max_recv_wr = 4,
                  .max_send_sge = 1,
                  .max_recv_sge = 1,
                  .max_inline_data = 0};
    wanted.qp_type = IBV_QPT_RC;
    ibv_qp* pairs[70];  // more than a queue has room for at first
    for (ibv_qp*& pair : pairs) {
      wanted.srq = &pair == pairs ? shared : nullptr;
      pair = made_in_the_end("queue pair", [&] { return soft.create_qp(domain, &wanted); });
      ASSERT_TRUE(pair);
    }
    ibv_port_attr port{};
    ASSERT_EQ(soft.query_port(context, 1, &port), 0);
    ibv_ah_attr path{};
    path.dlid = port.lid;
    path.port_num = 1;
    ibv_ah* const handle =
        made_in_the_end("address handle", [&] { return soft.create_ah(domain, &path); });
    ASSERT_TRUE(handle);
    ibv_qp_attr values{};
    values.qp_state = IBV_QPS_INIT;
    values.port_num = 1;
    ASSERT_EQ(soft.modify_qp(pairs[1], &values,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    values.qp_state = IBV_QPS_RTR;
    values.ah_attr = path;
    values.path_mtu = IBV_MTU_1024;
    values.dest_qp_num = pairs[1]->qp_num ^ 0x800000;  // of a process that is not there
    expect_done_in_the_end("connection", [&] {
      return soft.modify_qp(pairs[1], &values,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    });

    expect_undone("address handle", [&] { return soft.destroy_ah(handle); });
    for (ibv_qp* const pair : pairs)
      expect_undone("queue pair", [&] { return soft.destroy_qp(pair); });
    expect_undone("region", [&] { return soft.dereg_mr(region); });
    expect_undone("shared receives", [&] { return soft.destroy_srq(shared); });
    expect_undone("queue", [&] { return soft.destroy_cq(queue); });
    expect_undone("channel", [&] { return soft.destroy_comp_channel(channel); });
    expect_undone("domain", [&] { return soft.dealloc_pd(domain); });
    expect_undone("context", [&] { return soft.close_device(context); });
  }
  EXPECT_EQ(open_descriptors_count(), descriptors);
}

}  // namespace
}  // namespace tutti::conformance
