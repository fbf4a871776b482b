// Promise: what the system refuses - another process's memory, descriptors, the pages of a file -
// delays a request or fails it, and neither ends a process nor declares a living one dead.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

bool transport_is(const char* name) {
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  return std::strcmp(transport ? transport : "auto", name) == 0;
}

/// As some containers do.
void forbid_access_to_other_processes() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/// The first write and the first send of an initiator that may not touch other processes, to memory
/// in `storage`; `act` gets their outcomes.
template <class Act>
void with_confined_initiator(Storage storage, ibv_wc_status expected, const Act& act) {
  OtherProcess other([&](Line& line) {
    forbid_access_to_other_processes();
    const Device device;
    const Buffer buffer(4096);
    const Region region(device, buffer);
    buffer.fill(3);
    const Endpoint writer(device), sender(device);
    connect_over(line, writer);
    connect_over(line, sender);
    const auto peer = line.get<RemoteRegion>();
    ASSERT_EQ(writer.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, peer.address, peer.key), 0);
    ASSERT_EQ(sender.send(IBV_WR_SEND, {region.piece(0, 8)}), 0);
    EXPECT_EQ(writer.wait().status, expected);
    EXPECT_EQ(sender.wait().status, expected);
    line.meet();
  });
  {
    const Device device;
    const SharedReceives shared(device);
    const Buffer buffer(4096, storage);
    const Region region(device, buffer);
    const Endpoint written(device), receiver(device, {.shared_receives = shared.handle});
    ASSERT_EQ(shared.receive({region.piece(64, 8)}, 5), 0);
    connect_over(other.line(), written);
    connect_over(other.line(), receiver);
    other.line().put(remote_of(region));
    other.line().meet();
    act(buffer, receiver);
  }
  other.expect_success();
}

TEST(Confined, initiators_reach_memory_that_both_sides_can_map) {
  if (!device_is_soft() || transport_is("cma")) GTEST_SKIP();
  with_confined_initiator(Storage::shared_file, IBV_WC_SUCCESS,
                          [](const Buffer& buffer, const Endpoint& receiver) {
                            EXPECT_TRUE(buffer.holds(3, 8));
                            EXPECT_EQ(receiver.wait().wr_id, 5u);
                            EXPECT_TRUE(buffer.holds(3, 8, 64));
                          });
}

TEST(Confined, initiators_fail_at_private_memory) {
  if (!device_is_soft()) GTEST_SKIP();
  with_confined_initiator(Storage::private_pages, IBV_WC_REM_OP_ERR,
                          [](const Buffer&, const Endpoint&) {});
}

/// Processes find each other by names that a network namespace has to itself.
TEST(Confined, another_network_is_another_subnet) {
  if (!device_is_soft()) GTEST_SKIP();
  const auto address_in = [](bool own_network) {
    Address address{};
    bool possible = false;
    OtherProcess other([&](Line& line) {
      if (own_network && ::unshare(CLONE_NEWNET) != 0 &&
          ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return line.put(false);
      line.put(true);
      const Device device;
      const Endpoint endpoint(device);
      line.put(endpoint.address());
    });
    possible = other.line().get<bool>();
    if (possible) address = other.line().get<Address>();
    other.expect_success();
    return std::pair(possible, address);
  };
  const auto [possible, foreign] = address_in(true);
  if (!possible) GTEST_SKIP() << "network namespaces are not allowed here";
  const Address here = address_in(false).second, there = address_in(false).second;
  EXPECT_EQ(std::memcmp(&here.gid, &there.gid, sizeof(ibv_gid)), 0);
  EXPECT_EQ(here.lid, there.lid);
  EXPECT_NE(std::memcmp(&here.gid, &foreign.gid, sizeof(ibv_gid)), 0);
}

}  // namespace
}  // namespace tutti::conformance
