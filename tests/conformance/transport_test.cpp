// Promise: by which way data reach the memory of another process is said when that is asked for, in
// one line with its reason; and never otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

/// What an initiator says on stderr that writes a few times to memory in `storage`.
std::string words_of_initiator(Storage storage, const char* transport, const char* log,
                               ibv_wc_status expected = IBV_WC_SUCCESS) {
  OtherProcess other([&](Line& line) {
    const Device device;
    const Buffer buffer(4096, storage);
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    line.put(remote_of(region));
    line.meet();
  });
  ::setenv("TUTTI_SOFT_TRANSPORT", transport, 1);
  if (log) ::setenv("TUTTI_SOFT_LOG", log, 1);
  CaptureStderr();
  {
    const Device device;
    const Buffer buffer(64);
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(other.line(), endpoint);
    const auto peer = other.line().get<RemoteRegion>();
    ibv_wc_status status = IBV_WC_SUCCESS;
    for (int count = 0; count < 5 && status == IBV_WC_SUCCESS; ++count) {
      EXPECT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, peer.address, peer.key), 0);
      status = endpoint.wait().status;
    }
    EXPECT_EQ(status, expected);
    other.line().meet();
  }
  std::string words = GetCapturedStderr();
  ::unsetenv("TUTTI_SOFT_TRANSPORT");
  ::unsetenv("TUTTI_SOFT_LOG");
  other.expect_success();
  return words;
}

std::ptrdiff_t lines_of(const std::string& words) {
  return std::count(words.begin(), words.end(), '\n');
}
bool contains(const std::string& words, const char* part) {
  return words.find(part) != std::string::npos;
}

class Log : public testing::Test {
 protected:
  void SetUp() override {
    if (!device_is_soft()) GTEST_SKIP();
  }
};

TEST_F(Log, is_silent_unless_asked_for) {
  EXPECT_EQ(words_of_initiator(Storage::private_pages, "auto", nullptr), "");
  EXPECT_EQ(words_of_initiator(Storage::shared_file, "auto", "off"), "");
}

TEST_F(Log, says_once_that_private_memory_is_reached_by_system_calls) {
  const std::string words = words_of_initiator(Storage::private_pages, "auto", "transport");
  EXPECT_EQ(lines_of(words), 1) << words;
  EXPECT_TRUE(contains(words, "tutti: soft0: queue pair 0x")) << words;
  EXPECT_TRUE(contains(words, " of 4096 bytes: process_vm_writev, as the memory is private"))
      << words;
}

TEST_F(Log, says_that_a_sealed_file_is_mapped) {
  const std::string words = words_of_initiator(Storage::shared_file, "shared", "transport");
  EXPECT_EQ(lines_of(words), 1) << words;
  EXPECT_TRUE(contains(words, "shared map, as it lies in a sealed file")) << words;
}

TEST_F(Log, says_that_a_setting_decides) {
  const std::string words = words_of_initiator(Storage::shared_file, "cma", "transport");
  EXPECT_EQ(lines_of(words), 1) << words;
  EXPECT_TRUE(contains(words, "process_vm_writev, as TUTTI_SOFT_TRANSPORT=cma demands it"))
      << words;
}

TEST_F(Log, says_why_there_is_no_transport) {
  const std::string words =
      words_of_initiator(Storage::private_pages, "shared", "transport", IBV_WC_REM_OP_ERR);
  EXPECT_EQ(lines_of(words), 1) << words;
  EXPECT_TRUE(contains(words, "no transport, as the memory is private")) << words;
}

TEST_F(Log, names_the_process_itself) {
  ::setenv("TUTTI_SOFT_LOG", "transport", 1);
  CaptureStderr();
  {
    const Device device;
    const Endpoint endpoint(device);
    endpoint.connect(endpoint.address());
    for (int count = 0; count < 2; ++count) {
      EXPECT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {}), 0);
      EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    }
  }
  const std::string words = GetCapturedStderr();
  ::unsetenv("TUTTI_SOFT_LOG");
  EXPECT_EQ(lines_of(words), 1) << words;
  EXPECT_TRUE(contains(words, "plain copies, as both belong to this process")) << words;
}

}  // namespace
}  // namespace tutti::conformance
