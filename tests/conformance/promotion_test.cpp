// Promise: with TUTTI_SOFT_PROMOTE=1 private memory is reached by plain stores once it is
// registered, and is otherwise what it was: contents, address, neighbours; what cannot be promoted
// stays private and is reached all the same.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

constexpr std::size_t page_bytes = 4096;

class Promotion : public testing::Test {
 protected:
  void SetUp() override {
    if (!device_is_soft()) GTEST_SKIP();
    ::setenv("TUTTI_SOFT_PROMOTE", "1", 1);
  }
  void TearDown() override {
    for (const char* const name : {"TUTTI_SOFT_PROMOTE", "TUTTI_SOFT_TRANSPORT", "TUTTI_SOFT_LOG"})
      ::unsetenv(name);
  }
};

/// Writes 64 bytes to the start of `target` from another process; what the write completes with.
void write_from_elsewhere(const Device& device, const Region& region, ibv_wc_status expected) {
  OtherProcess other([&](Line& line) {
    const Device own;
    const Buffer buffer(64);
    buffer.fill(6);
    const Region source(own, buffer);
    const Endpoint endpoint(own);
    connect_over(line, endpoint);
    const auto peer = line.get<RemoteRegion>();
    ASSERT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {source.piece(0, 64)}, peer.address, peer.key), 0);
    EXPECT_EQ(endpoint.wait().status, expected);
    line.meet();
  });
  {
    const Endpoint endpoint(device);
    connect_over(other.line(), endpoint);
    other.line().put(remote_of(region));
    other.line().meet();
  }
  other.expect_success();
}

TEST_F(Promotion, makes_private_memory_shared_and_changes_nothing_else) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer ends a forked child that starts a thread";
#endif
  ::setenv("TUTTI_SOFT_TRANSPORT", "shared", 1);
  const Buffer buffer(3 * page_bytes);
  buffer.fill(1);
  const Device device;
  const Region region(device.domain, buffer.data() + 4000, 4096, all_access);  // two of three pages
  EXPECT_TRUE(buffer.holds(1, buffer.size()));
  write_from_elsewhere(device, region, IBV_WC_SUCCESS);
  EXPECT_TRUE(buffer.holds(6, 64, 4000));
  const Buffer as_before(buffer.size());
  as_before.fill(1);
  EXPECT_TRUE(std::equal(buffer.data(), buffer.data() + 4000, as_before.data()));
  EXPECT_TRUE(
      std::equal(buffer.data() + 4064, buffer.data() + buffer.size(), as_before.data() + 4064));
}

TEST_F(Promotion, is_not_done_unless_asked_for) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer ends a forked child that starts a thread";
#endif
  ::setenv("TUTTI_SOFT_PROMOTE", "0", 1);
  ::setenv("TUTTI_SOFT_TRANSPORT", "shared", 1);
  const Buffer buffer(4096);
  const Device device;
  const Region region(device, buffer);
  write_from_elsewhere(device, region, IBV_WC_REM_OP_ERR);
}

/// Regions that share pages share the file, whichever of them goes first.
TEST_F(Promotion, serves_regions_on_the_same_page) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer ends a forked child that starts a thread";
#endif
  ::setenv("TUTTI_SOFT_TRANSPORT", "shared", 1);
  const Buffer buffer(4096);
  const Device device;
  Region first(device.domain, buffer.data(), 1024, all_access);
  const Region second(device.domain, buffer.data() + 2048, 1024, all_access);
  write_from_elsewhere(device, first, IBV_WC_SUCCESS);
  EXPECT_TRUE(buffer.holds(6, 64));
  first.deregister();
  write_from_elsewhere(device, second, IBV_WC_SUCCESS);
  EXPECT_TRUE(buffer.holds(6, 64, 2048));
}

/// What a registration says.
std::string words_of_registration(void* address, std::size_t bytes, int access) {
  ::setenv("TUTTI_SOFT_LOG", "transport", 1);
  CaptureStderr();
  {
    const Device device;
    const Region region(device.domain, address, bytes, access);
  }
  return GetCapturedStderr();
}

TEST_F(Promotion, says_what_it_does) {
  const Buffer buffer(4096);
  EXPECT_NE(words_of_registration(buffer.data(), 64, all_access).find("promoted to a sealed file"),
            std::string::npos);
}

TEST_F(Promotion, leaves_all_other_memory_alone) {
  const auto expect_private = [](void* address, std::size_t bytes, int access) {
    const std::string words = words_of_registration(address, bytes, access);
    EXPECT_NE(words.find("stays private, as it is not"), std::string::npos) << words;
  };
  char on_the_stack[64];
  expect_private(on_the_stack, sizeof(on_the_stack), all_access);
  const detail::Descriptor file(::memfd_create("conformance", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  const detail::Mapping copy(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0), 4096);
  expect_private(copy.data(), 4096, all_access);
  const detail::Mapping constant(
      ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
  expect_private(constant.data(), 4096, IBV_ACCESS_REMOTE_READ);
}

}  // namespace
}  // namespace tutti::conformance
