// Promise: what the system refuses - another process's memory, descriptors, the pages of a file -
// delays a request or fails it, and neither ends a process nor declares a living one dead.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "verbs/soft/layout.hpp"
#include "verbs/soft/rendezvous.hpp"

namespace tutti::conformance {
namespace {

bool transport_is(const char* name) {
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  return device_is_soft() && std::strcmp(transport ? transport : "auto", name) == 0;
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

TEST(Confined, initiators_reach_private_memory_with_its_owners_help) {
  if (!device_is_soft() || transport_is("cma") || transport_is("shared")) GTEST_SKIP();
  with_confined_initiator(Storage::private_pages, IBV_WC_SUCCESS,
                          [](const Buffer& buffer, const Endpoint& receiver) {
                            EXPECT_TRUE(buffer.holds(3, 8));
                            EXPECT_EQ(receiver.wait().wr_id, 5u);
                            EXPECT_TRUE(buffer.holds(3, 8, 64));
                          });
}

TEST(Confined, initiators_fail_at_private_memory_where_no_help_is_allowed) {
  if (!transport_is("cma") && !transport_is("shared")) GTEST_SKIP();
  with_confined_initiator(Storage::private_pages, IBV_WC_REM_OP_ERR,
                          [](const Buffer&, const Endpoint&) {});
}

/// A memfd of two pages, mapped, that may be cut short.
struct LooseFile {
  LooseFile() : descriptor(::memfd_create("conformance", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(descriptor.get(), bytes), 0);
    mapping = detail::Mapping(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0), bytes);
  }

  static constexpr std::size_t bytes = 8192;
  detail::Descriptor descriptor;
  detail::Mapping mapping;
};

TEST(Files, that_shrink_fail_the_request_and_not_the_initiator) {
  if (!device_is_soft()) GTEST_SKIP() << "an adapter keeps the pages";
  OtherProcess other([](Line& line) {
    const Device device;
    const Buffer buffer(4096);
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    const auto peer = line.get<RemoteRegion>();
    const auto write = [&] {
      EXPECT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)},
                              peer.address + LooseFile::bytes - 8, peer.key),
                0);
      return endpoint.wait().status;
    };
    for (int count = 0; count < 20 && !transport_is("shared"); ++count) {
      EXPECT_EQ(write(), IBV_WC_SUCCESS);
      std::this_thread::sleep_for(1ms);  // a mapping might come
    }
    line.meet();
    line.meet();
    EXPECT_EQ(write(), IBV_WC_REM_OP_ERR);
    line.meet();
  });
  {
    const LooseFile file;
    const Device device;
    const Region region(device.domain, file.mapping.data(), LooseFile::bytes, all_access);
    const Endpoint endpoint(device);
    connect_over(other.line(), endpoint);
    other.line().put(remote_of(region));
    other.line().meet();
    ASSERT_EQ(::ftruncate(file.descriptor.get(), 4096), 0);
    other.line().meet();
    other.line().meet();
  }
  other.expect_success();
}

/// A sealed file without pages, mapped.
struct HoledFile {
  explicit HoledFile(std::size_t bytes)
      : file(::memfd_create("conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
        mapping(map(file.get(), bytes), bytes) {
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  }
  static void* map(int descriptor, std::size_t bytes) {
    EXPECT_EQ(::ftruncate(descriptor, static_cast<off_t>(bytes)), 0);
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  std::size_t held_bytes() const {
    struct stat status {};
    EXPECT_EQ(::fstat(file.get(), &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }

  detail::Descriptor file;
  detail::Mapping mapping;
};

/// Lack of memory is the error of a registration, not the death of a peer that writes first.
TEST(Files, are_given_their_memory_when_they_are_registered) {
  if (!device_is_soft()) GTEST_SKIP();
  constexpr std::size_t bytes = std::size_t{1} << 20;
  const HoledFile file(2 * bytes);
  const Device device;
  const Region first(device.domain, file.mapping.data(), bytes, all_access);
  EXPECT_EQ(file.held_bytes(), bytes);
  const Region second(device.domain, file.mapping.data() + bytes, bytes, all_access);
  EXPECT_EQ(file.held_bytes(), 2 * bytes);
}

/// A process may have higher numbers of descriptors than those that the device tries first.
TEST(Files, are_found_by_a_descriptor_of_any_number) {
  if (!device_is_soft()) GTEST_SKIP();
  constexpr int number = 2000;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit more = before;
  more.rlim_cur = std::max<rlim_t>(before.rlim_cur, number + 1);
  if (::setrlimit(RLIMIT_NOFILE, &more) != 0) GTEST_SKIP() << "few descriptors are allowed";
  constexpr std::size_t bytes = std::size_t{1} << 20;
  HoledFile file(bytes);
  file.file = detail::Descriptor(::fcntl(file.file.get(), F_DUPFD_CLOEXEC, number));
  ASSERT_GE(file.file.get(), number);
  const Device device;
  const Region region(device.domain, file.mapping.data(), bytes, all_access);
  EXPECT_EQ(file.held_bytes(), bytes);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

/// Unless their owner sees to it.
TEST(Files, keep_their_holes_where_pages_come_on_demand) {
  if (!device_is_soft()) GTEST_SKIP();
  constexpr std::size_t bytes = std::size_t{1} << 20;
  const HoledFile file(bytes);
  Loopback ends;
  const Buffer source(64);
  source.fill(7);
  const Region from(ends.device, source);
  const Region region(ends.device.domain, file.mapping.data(), bytes,
                      all_access | IBV_ACCESS_ON_DEMAND);
  EXPECT_EQ(file.held_bytes(), 0u);
  EXPECT_EQ(ends.left.send(IBV_WR_RDMA_WRITE, {from.piece(0, 64)}, region.address() + bytes / 2,
                           region.handle->rkey),
            0);
  EXPECT_EQ(ends.left.wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(file.mapping.data() + bytes / 2, source.data(), 64), 0);
  EXPECT_LT(file.held_bytes(), bytes);
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

/// No descriptor can be opened while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const detail::Descriptor first_free(::dup(0));
    const rlimit none{.rlim_cur = static_cast<rlim_t>(first_free.get()),
                      .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_;
};

int error_of_opening() {
  int count = 0;
  ibv_device** const list = driver().get_device_list(&count);
  ibv_context* const context = driver().open_device(list[0]);
  const int error = context ? 0 : errno;
  if (context) driver().close_device(context);
  driver().free_device_list(list);
  return error;
}

TEST(Opening, without_room_for_files_is_an_error_and_no_signal) {
  if (!device_is_soft()) GTEST_SKIP() << "of the software device";
  OtherProcess other([](Line&) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_EQ(error_of_opening(), EFBIG);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(error_of_opening(), 0);
    {
      const NoDescriptors none;
      EXPECT_EQ(error_of_opening(), EMFILE);
    }
    EXPECT_EQ(error_of_opening(), 0);
  });
  other.expect_success();
}

TEST(Descriptors, whose_lack_delays_an_attachment) {
  if (!device_is_soft()) GTEST_SKIP() << "of the software device";
  OtherProcess other([](Line& line) {
    const Device device;
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    EXPECT_EQ(endpoint.receive({}), 0);
    line.meet();
    EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    line.meet();
  });
  {
    const Device device;
    const Endpoint endpoint(device);
    {
      const NoDescriptors none;
      connect_over(other.line(), endpoint, {.timeout = 0});  // for ever
      other.line().meet();
      ASSERT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
      EXPECT_TRUE(endpoint.is_quiet(100ms));
    }
    EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    other.line().meet();
  }
  other.expect_success();
}

/// Room for the connection, and none for the descriptor that comes with the answer.
TEST(Descriptors, whose_lack_cuts_an_answer_delay_an_attachment) {
  if (!device_is_soft()) GTEST_SKIP() << "of the software device";
  OtherProcess other([](Line& line) {
    const Device device;
    const Endpoint endpoint(device);
    const Address peer = line.swap(endpoint.address());
    endpoint.connect(peer);
    EXPECT_EQ(endpoint.receive({}), 0);
    line.meet();
    EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    line.meet();
  });
  {
    const Device device;
    const Endpoint endpoint(device);
    const Address peer = other.line().swap(endpoint.address());
    other.line().meet();
    other.stop();
    endpoint.connect(peer, {.timeout = 0});
    ASSERT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
    EXPECT_TRUE(endpoint.is_quiet(50ms));  // the connection waits to be accepted
    {
      const NoDescriptors none;
      other.resume();
      std::this_thread::sleep_for(100ms);
    }
    EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    other.line().meet();
  }
  other.expect_success();
}

TEST(Descriptors, whose_lack_keeps_connections_waiting_does_not_keep_a_thread_busy) {
  if (!device_is_soft()) GTEST_SKIP() << "of the software device";
  OtherProcess other([](Line& line) {
    const Device device;
    const Endpoint endpoint(device);
    const Address peer = line.swap(endpoint.address());
    line.meet();
    endpoint.connect(peer, {.timeout = 0});
    EXPECT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
    line.meet();
    EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
  });
  {
    const Device device;
    const Endpoint endpoint(device);
    const Address peer = other.line().swap(endpoint.address());
    endpoint.connect(peer);
    EXPECT_EQ(endpoint.receive({}), 0);
    const auto used = [] {
      timespec time;
      EXPECT_EQ(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time), 0);
      return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    {
      const NoDescriptors none;
      other.line().meet();
      other.line().meet();
      std::this_thread::sleep_for(20ms);
      const auto start = std::chrono::steady_clock::now();
      const auto before = used();
      std::this_thread::sleep_for(300ms);
      EXPECT_LT(used() - before, (std::chrono::steady_clock::now() - start) / 3);
    }
    EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    other.expect_success();
  }
}

/// They are taken some at a time, as the device's calls wait meanwhile; none is forgotten.
TEST(Crowd, of_connections_is_taken_in_turns) {
  if (!device_is_soft()) GTEST_SKIP() << "connections of the software device";
  constexpr std::size_t crowd_size = 150;  // several turns, and descriptors enough for both ends
  const Device device;
  const Endpoint endpoint(device);
  const std::uint32_t id = verbs::soft::process_id_of(endpoint.pair->qp_num);
  const std::size_t before = open_descriptors_count();
  const auto comes_to = [](std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (open_descriptors_count() != count && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
    return open_descriptors_count() == count;
  };
  std::vector<detail::Descriptor> crowd(crowd_size);
  const Buffer buffer(4096);
  for (detail::Descriptor& one : crowd) {
    while (verbs::soft::connect_to_peer(id, one) == EAGAIN) std::this_thread::yield();
    ASSERT_TRUE(one);
    const Region region(device, buffer);  // goes on meanwhile
  }
  EXPECT_TRUE(comes_to(before + 2 * crowd_size));
  crowd.clear();
  EXPECT_TRUE(comes_to(before));
}

}  // namespace
}  // namespace tutti::conformance
