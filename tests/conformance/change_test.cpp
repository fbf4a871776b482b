// Promise: a region that is registered anew, and a completion queue that is resized, become what
// was asked for and nothing else: what the region was is refused from then on, what the queue held
// stays there, and a change that is refused changes nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

int change_translation(const Region& region, const Buffer& buffer) {
  return driver().rereg_mr(region.handle, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer.data(),
                           buffer.size(), 0);
}

int change_access(const Region& region, int access) {
  return driver().rereg_mr(region.handle, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access);
}

/// With this setting private memory cannot be reached, and requests to it fail.
bool reaches_shared_files_only() {
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  return device_is_soft() && transport && std::strcmp(transport, "shared") == 0;
}

/// What a write of the first 8 bytes of `source` completes with.
ibv_wc_status write(const Endpoint& from, const Region& source, std::uint64_t address,
                    std::uint32_t key) {
  EXPECT_EQ(from.send(IBV_WR_RDMA_WRITE, {source.piece(0, 8)}, address, key), 0);
  return from.wait().status;
}

// --- Regions ------------------------------------------------------------------------------------

class Reregistration : public testing::Test {
 protected:
  void SetUp() override {
    const Device device;
    const Buffer buffer(4096);
    const Region region(device, buffer);
    if (change_access(region, all_access) == IBV_REREG_MR_ERR_CMD && errno == EOPNOTSUPP)
      GTEST_SKIP() << "this device does not offer it";
  }
};

TEST_F(Reregistration, moves_a_region_and_refuses_the_former_translation) {
  for (const Storage storage : {Storage::private_pages, Storage::shared_file}) {
    Loopback ends;
    const Buffer source(4096), former(4096, storage), next(8192, storage);
    const Region from(ends.device, source), region(ends.device, former);
    source.fill(1);
    former.fill(2);
    next.fill(3);
    const RemoteRegion before = remote_of(region);
    ASSERT_EQ(change_translation(region, next), 0);
    EXPECT_EQ(region.handle->addr, next.data());
    EXPECT_EQ(region.handle->length, next.size());
    EXPECT_EQ(write(ends.left, from, next.address() + 8000, region.handle->rkey), IBV_WC_SUCCESS);
    EXPECT_TRUE(next.holds(1, 8, 8000));
    EXPECT_EQ(ends.right.send(IBV_WR_RDMA_WRITE, {region.piece(8000, 8)}, source.address(),
                              from.handle->rkey),
              0);
    EXPECT_EQ(ends.right.wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(write(ends.left, from, before.address, before.key), IBV_WC_REM_ACCESS_ERR);
    EXPECT_TRUE(former.holds(2, former.size()));
  }
}

TEST_F(Reregistration, former_addresses_are_refused_under_the_present_key) {
  Loopback ends;
  const Buffer source(4096), former(4096), next(4096);
  const Region from(ends.device, source), region(ends.device, former);
  ASSERT_EQ(change_translation(region, next), 0);
  EXPECT_EQ(write(ends.left, from, former.address(), region.handle->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Reregistration, changes_what_a_region_may_be_used_for) {
  Loopback ends;
  const Buffer buffer(4096);
  const Region from(ends.device, buffer), region(ends.device, buffer, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(change_access(region, all_access), 0);
  EXPECT_EQ(write(ends.left, from, buffer.address() + 64, region.handle->rkey), IBV_WC_SUCCESS);
  ASSERT_EQ(change_access(region, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(region.handle->addr, buffer.data());
  EXPECT_EQ(write(ends.left, from, buffer.address() + 64, region.handle->rkey),
            IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Reregistration, keeps_the_keys_where_only_the_rights_change) {
  for (const Storage storage : {Storage::private_pages, Storage::shared_file}) {
    Loopback ends;
    const Buffer source(4096), buffer(4096, storage);
    const Region from(ends.device, source), region(ends.device, buffer, IBV_ACCESS_LOCAL_WRITE);
    const std::uint32_t local = region.handle->lkey, remote = region.handle->rkey;
    source.fill(7);
    ASSERT_EQ(change_access(region, all_access), 0);
    EXPECT_EQ(region.handle->lkey, local);
    EXPECT_EQ(region.handle->rkey, remote);
    EXPECT_EQ(write(ends.left, from, buffer.address() + 64, remote), IBV_WC_SUCCESS);
    EXPECT_TRUE(buffer.holds(7, 8, 64));
    ASSERT_EQ(change_access(region, IBV_ACCESS_LOCAL_WRITE), 0);
    EXPECT_EQ(region.handle->rkey, remote);
    EXPECT_EQ(write(ends.left, from, buffer.address() + 64, remote), IBV_WC_REM_ACCESS_ERR);
  }
}

/// The other process writes one number after the other until it is refused.
void write_until_refused(Line& line) {
  const Device device;
  const Buffer buffer(4096);
  const Region region(device, buffer);
  const Endpoint writer(device);
  connect_over(line, writer);
  const auto target = line.get<RemoteRegion>();
  for (std::uint64_t number = 1;; ++number) {
    std::memcpy(buffer.data(), &number, sizeof(number));
    const ibv_wc_status status = write(writer, region, target.address, target.key);
    if (number == 100) line.meet();
    if (status == IBV_WC_SUCCESS) continue;
    EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR);
    break;
  }
  line.meet();
}

/// A right that stays is never missing while others come and go.
TEST_F(Reregistration, of_rights_refuses_nobody_who_keeps_his) {
  if (!device_is_soft()) GTEST_SKIP() << "verbs leave open what requests meet meanwhile";
  for (const Storage storage : {Storage::private_pages, Storage::shared_file}) {
    if (storage == Storage::private_pages && reaches_shared_files_only()) continue;
    OtherProcess other(write_until_refused);
    {
      const Device device;
      const Buffer buffer(4096, storage);
      const Region region(device, buffer);
      const Endpoint written(device);
      connect_over(other.line(), written);
      other.line().put(remote_of(region));
      other.line().meet();
      for (int round = 0; round < 200; ++round)
        ASSERT_EQ(
            change_access(region, round % 2 == 0 ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                                                 : all_access),
            0);
      std::uint64_t before = 0, now = 0;
      std::memcpy(&before, buffer.data(), sizeof(before));
      const auto end = std::chrono::steady_clock::now() + 10s;
      while (now <= before && std::chrono::steady_clock::now() < end)
        now = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(buffer.data())).load();
      EXPECT_GT(now, before) << "it was refused";
      ASSERT_EQ(change_access(region, IBV_ACCESS_LOCAL_WRITE), 0);
      buffer.fill(5);
      other.line().meet();
      EXPECT_TRUE(buffer.holds(5, buffer.size()));
    }
    other.expect_success();
  }
}

TEST_F(Reregistration, moves_a_region_to_another_domain) {
  Loopback ends;
  const Buffer buffer(4096);
  const Region from(ends.device, buffer), region(ends.device, buffer);
  ibv_pd* const former = driver().alloc_pd(ends.device.context);
  ibv_pd* const other = driver().alloc_pd(ends.device.context);
  {
    const Region moved(former, buffer.data(), buffer.size(), all_access);
    EXPECT_EQ(driver().dealloc_pd(former), EBUSY);
    ASSERT_EQ(driver().rereg_mr(moved.handle, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
    EXPECT_EQ(moved.handle->pd, other);
    EXPECT_EQ(driver().dealloc_pd(former), 0);
    EXPECT_EQ(driver().dealloc_pd(other), EBUSY);
    EXPECT_EQ(write(ends.left, from, buffer.address(), moved.handle->rkey), IBV_WC_REM_ACCESS_ERR);
  }
  EXPECT_EQ(driver().dealloc_pd(other), 0);
}

TEST_F(Reregistration, changes_everything_at_once) {
  Loopback ends;
  const Buffer source(4096), former(4096), next(4096);
  ibv_pd* const other = driver().alloc_pd(ends.device.context);
  {
    const Region from(ends.device, source);
    const Region region(other, former.data(), former.size(), 0);
    ASSERT_EQ(driver().rereg_mr(region.handle,
                                IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
                                    IBV_REREG_MR_CHANGE_ACCESS,
                                ends.device.domain, next.data(), next.size(), all_access),
              0);
    EXPECT_EQ(write(ends.left, from, next.address(), region.handle->rkey), IBV_WC_SUCCESS);
  }
  EXPECT_EQ(driver().dealloc_pd(other), 0);
}

TEST_F(Reregistration, wrong_input_leaves_the_region_as_it_was) {
  Loopback ends;
  const Device stranger;
  const Buffer source(4096), buffer(4096);
  const Region from(ends.device, source), region(ends.device, buffer);
  const std::uint32_t key = region.handle->rkey;
  const auto refused = [&](int flags, ibv_pd* domain, void* address, std::size_t bytes,
                           int access) {
    EXPECT_EQ(driver().rereg_mr(region.handle, flags, domain, address, bytes, access),
              IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(region.handle->addr, buffer.data());
    EXPECT_EQ(region.handle->pd, ends.device.domain);
    EXPECT_EQ(region.handle->rkey, key);
  };
  refused(1 << 7, nullptr, nullptr, 0, 0);
  refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, buffer.data(), 0, 0);
  // Nothing is mapped there unasked; memory that was given back may be another mapping by now.
  void* const unmapped = reinterpret_cast<void*>(std::uintptr_t{4096});
  if (device_is_soft()) {  // on an adapter the kernel finds these, and the region is lost
    refused(0, nullptr, nullptr, 0, 0);
    refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, unmapped, 4096, 0);
    refused(IBV_REREG_MR_CHANGE_PD, stranger.domain, nullptr, 0, 0);
    refused(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0);
    refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE);
    refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_ZERO_BASED);
  }
  EXPECT_EQ(write(ends.left, from, buffer.address(), key), IBV_WC_SUCCESS);
}

TEST_F(Reregistration, nobody_writes_to_the_former_memory_when_it_has_returned) {
  for (const Storage storage : {Storage::private_pages, Storage::shared_file}) {
    if (storage == Storage::private_pages && reaches_shared_files_only()) continue;
    OtherProcess other(write_until_refused);
    {
      const Device device;
      const Buffer former(4096, storage), next(4096, storage);
      const Region region(device, former);
      const Endpoint written(device);
      connect_over(other.line(), written);
      other.line().put(remote_of(region));
      other.line().meet();
      ASSERT_EQ(change_translation(region, next), 0);
      former.fill(5);
      other.line().meet();
      EXPECT_TRUE(former.holds(5, former.size()));
    }
    other.expect_success();
  }
}

/// Nobody knows when the other process's requests begin and end: whatever moment it is stopped at,
/// mostly within one, the memory is either withdrawn or said not to be.
TEST_F(Reregistration, is_refused_while_an_initiator_is_stopped_within_a_request) {
  constexpr std::size_t bytes = std::size_t{16} << 20;
  OtherProcess other([](Line& line) {
    const Device device;
    const Buffer buffer(bytes);
    const Region region(device, buffer);
    const Endpoint writer(device);
    connect_over(line, writer);
    const auto target = line.get<RemoteRegion>();
    line.meet();
    ibv_wc completion{};
    while (completion.status == IBV_WC_SUCCESS) {
      ASSERT_EQ(
          writer.send(IBV_WR_RDMA_WRITE, {region.piece(0, bytes)}, target.address, target.key), 0);
      completion = writer.wait();
    }
    EXPECT_EQ(completion.status, IBV_WC_REM_ACCESS_ERR);
    line.meet();
  });
  {
    const Device device;
    const Buffer former(bytes, Storage::shared_file), next(4096);
    const Region region(device, former);
    const Endpoint written(device);
    connect_over(other.line(), written);
    other.line().put(remote_of(region));
    other.line().meet();
    std::this_thread::sleep_for(20ms);
    other.stop();
    const int result = change_translation(region, next);
    if (result != 0) {
      EXPECT_EQ(result, IBV_REREG_MR_ERR_CMD);
      EXPECT_EQ(errno, EBUSY);
    }
    other.resume();
    if (result != 0) {
      EXPECT_EQ(change_translation(region, next), 0);
    }
    other.line().meet();
    EXPECT_EQ(region.handle->addr, next.data());
  }
  other.expect_success();
}

// --- Completion queues --------------------------------------------------------------------------

/// Polls `count` completions, numbered from `first` on.
void expect_in_order(const Endpoint& end, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t id = first; id < first + count; ++id) {
    const ibv_wc completion = end.wait();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.wr_id, id);
  }
}

void post_numbered(const Endpoint& end, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t id = first; id < first + count; ++id)
    ASSERT_EQ(end.send(IBV_WR_RDMA_WRITE, {}, 0, 0, IBV_SEND_SIGNALED, id), 0);
}

/// Until all `count` requests have completed, which nobody can see without polling.
void let_complete() {
  if (!device_is_soft()) std::this_thread::sleep_for(100ms);
}

TEST(Resizing, keeps_completions_and_their_order) {
  Loopback ends({.completions = 8});
  post_numbered(ends.left, 0, 5);
  expect_in_order(ends.left, 0, 3);  // what is left does not begin at the beginning
  post_numbered(ends.left, 5, 6);
  let_complete();
  ASSERT_EQ(driver().resize_cq(ends.left.queue, 100), 0);
  EXPECT_GE(ends.left.queue->cqe, 100);
  expect_in_order(ends.left, 3, 8);
  post_numbered(ends.left, 20, 16);
  let_complete();
  ASSERT_EQ(driver().resize_cq(ends.left.queue, 17), 0);
  expect_in_order(ends.left, 20, 16);
}

TEST(Resizing, a_grown_queue_holds_more) {
  Loopback ends({.completions = 2});
  ASSERT_EQ(driver().resize_cq(ends.left.queue, 40), 0);
  for (std::uint64_t id = 16; id < 32; ++id) ASSERT_EQ(ends.left.receive({}, id), 0);
  post_numbered(ends.left, 0, 16);
  for (std::uint64_t id = 0; id < 16; ++id) ASSERT_EQ(ends.right.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  let_complete();
  for (int count = 0; count < 32; ++count) EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
}

TEST(Resizing, refuses_less_than_is_outstanding) {
  Loopback ends({.completions = 16});
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(ends.left.receive({}, id), 0);
  post_numbered(ends.left, 0, 4);
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(ends.right.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  let_complete();
  EXPECT_EQ(driver().resize_cq(ends.left.queue, 0), EINVAL);
  ibv_device_attr limits{};
  ASSERT_EQ(driver().query_device(ends.device.context, &limits), 0);
  EXPECT_EQ(driver().resize_cq(ends.left.queue, limits.max_cqe + 1), EINVAL);
  if (device_is_soft()) {  // others may round up, and then have room
    EXPECT_EQ(driver().resize_cq(ends.left.queue, 7), EINVAL);
    EXPECT_EQ(ends.left.queue->cqe, 16);
  }
  EXPECT_EQ(driver().resize_cq(ends.left.queue, 8), 0);
  for (int count = 0; count < 8; ++count) EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(ends.left.is_quiet());
}

TEST(Resizing, a_shrunk_queue_is_overrun_as_a_small_one) {
  if (!device_is_soft()) GTEST_SKIP() << "others may round up";
  Loopback ends;
  ASSERT_EQ(driver().resize_cq(ends.left.queue, 2), 0);
  post_numbered(ends.left, 0, 3);
  ibv_wc completion{};
  EXPECT_EQ(ibv_poll_cq(ends.left.queue, 1, &completion), -1);
}

TEST(Resizing, loses_nothing_while_completions_come_and_are_polled) {
  Loopback ends({.completions = 32});
  std::atomic<bool> finished{false};
  std::thread resizes([&] {
    for (int entries = 32; !finished; entries = 32 + (entries * 5 + 1) % 97) {
      EXPECT_EQ(driver().resize_cq(ends.left.queue, entries), 0);
      // Where a spin lock keeps polls out of a resizing, they would hardly ever get in.
      if (!device_is_soft()) std::this_thread::sleep_for(1ms);
    }
  });
  const std::uint64_t rounds = device_is_soft() ? 2000 : 200;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    ASSERT_EQ(ends.left.receive({}, 3 * round), 0);
    ASSERT_EQ(ends.right.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
    EXPECT_EQ(ends.left.wait().wr_id, 3 * round);
    post_numbered(ends.left, 3 * round + 1, 2);
    expect_in_order(ends.left, 3 * round + 1, 2);
    // Unsignaled requests give their room back with a later signaled one only.
    post_numbered(ends.right, 0, 1);
    expect_in_order(ends.right, 0, 1);
  }
  finished = true;
  resizes.join();
}

}  // namespace
}  // namespace tutti::conformance
