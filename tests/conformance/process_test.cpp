// Promise: processes that share nothing but the host reach each other with every payload, whatever
// memory it lies in; and the death, the stop or the fork of one never blocks or corrupts another.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>
#include <tuple>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

bool transport_is(const char* name) {
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  return device_is_soft() && transport && std::strcmp(transport, name) == 0;
}
/// With this setting private memory cannot be reached, and requests to it fail.
bool reaches_shared_files_only() {
  return transport_is("shared");
}

class Storages : public testing::TestWithParam<std::tuple<Storage, Storage>> {};
INSTANTIATE_TEST_SUITE_P(
    Processes, Storages,
    testing::Combine(testing::Values(Storage::private_pages, Storage::shared_file),
                     testing::Values(Storage::private_pages, Storage::shared_file)));

// Long ones go in steps, whose ends are nowhere to be seen.
constexpr std::size_t mapped_step = std::size_t{256} << 10, largest = 5 * mapped_step + 1;
const std::vector<std::size_t> sizes{
    0,      1, 2, 3, 7, 8, 9, 63, 64, 65, 4095, 4096, 65537, mapped_step + 1, 2 * mapped_step + 65,
    largest};

/// The target of the tests below: takes messages until told the end.
void receive_all(Line& line, Storage storage) {
  const Device device;
  const Buffer buffer(largest + 64, storage);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  connect_over(line, endpoint);
  line.put(remote_of(region));
  unsigned seed = 0;
  for (const std::size_t bytes : sizes) {
    // A write with immediate at an odd place, then a send into two pieces.
    ASSERT_EQ(endpoint.receive({}), 0);
    line.meet();
    ibv_wc completion = endpoint.wait();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.byte_len, bytes);
    EXPECT_TRUE(buffer.holds(++seed, bytes, 5)) << bytes;
    line.meet();
    std::fill_n(buffer.data(), buffer.size(), std::byte{0});
    const std::size_t half = bytes / 2;
    ASSERT_EQ(endpoint.receive({region.piece(0, half), region.piece(half, bytes - half + 1)}), 0);
    line.meet();
    completion = endpoint.wait();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.byte_len, bytes);
    EXPECT_TRUE(buffer.holds(seed, bytes)) << bytes;
    line.meet();
  }
  line.meet();
}

TEST_P(Storages, every_size_arrives_whole) {
  if (reaches_shared_files_only() && std::get<1>(GetParam()) == Storage::private_pages)
    GTEST_SKIP();
  OtherProcess other([](Line& line) { receive_all(line, std::get<1>(GetParam())); });
  Line& line = other.line();
  {
    const Device device;
    const Buffer buffer(largest, std::get<0>(GetParam())), back(largest);
    const Region region(device, buffer), back_region(device, back);
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    const auto peer = line.get<RemoteRegion>();
    unsigned seed = 0;
    for (const std::size_t bytes : sizes) {
      buffer.fill(++seed);
      line.meet();
      ASSERT_EQ(endpoint.send(IBV_WR_RDMA_WRITE_WITH_IMM, {region.piece(0, bytes)},
                              peer.address + 5, peer.key),
                0);
      EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
      if (bytes > 0) {
        ASSERT_EQ(endpoint.send(IBV_WR_RDMA_READ, {back_region.piece(0, bytes)}, peer.address + 5,
                                peer.key),
                  0);
        EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
        EXPECT_TRUE(back.holds(seed, bytes));
      }
      line.meet();
      line.meet();
      const std::size_t third = bytes / 3;
      ASSERT_EQ(
          endpoint.send(IBV_WR_SEND, {region.piece(0, third), region.piece(third, bytes - third)}),
          0);
      EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
      line.meet();
    }
    line.meet();
  }
  other.expect_success();
}

/// A write without notification, then a write with immediate: who sees the second sees the first.
TEST_P(Storages, a_notification_follows_its_data) {
  if (reaches_shared_files_only() && std::get<1>(GetParam()) == Storage::private_pages)
    GTEST_SKIP();
  const std::uint64_t rounds = device_is_soft() ? 2000 : 200;
  constexpr std::size_t bytes = 8192;
  OtherProcess other([rounds](Line& line) {
    const Device device;
    const Buffer buffer(bytes, std::get<1>(GetParam()));
    const Region region(device, buffer);
    const Endpoint endpoint(device, {.receives = 64});
    connect_over(line, endpoint);
    line.put(remote_of(region));
    for (int count = 0; count < 32; ++count) ASSERT_EQ(endpoint.receive({}), 0);
    line.meet();
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const ibv_wc completion = endpoint.wait();
      ASSERT_EQ(completion.imm_data, round);
      std::uint64_t first = 0, last = 0;
      std::memcpy(&first, buffer.data(), 8);
      std::memcpy(&last, buffer.data() + bytes - 8, 8);
      ASSERT_GE(first, round);
      ASSERT_GE(last, round);
      ASSERT_EQ(endpoint.receive({}), 0);
    }
    line.meet();
  });
  Line& line = other.line();
  {
    const Device device;
    const Buffer buffer(bytes, std::get<0>(GetParam()));
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    const auto peer = line.get<RemoteRegion>();
    line.meet();
    for (std::uint64_t round = 0; round < rounds; ++round) {
      std::memcpy(buffer.data(), &round, 8);
      std::memcpy(buffer.data() + bytes - 8, &round, 8);
      ASSERT_EQ(
          endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, bytes)}, peer.address, peer.key, 0), 0);
      ASSERT_EQ(endpoint.send(IBV_WR_RDMA_WRITE_WITH_IMM, {}, 0, 0, IBV_SEND_SIGNALED, 1,
                              static_cast<std::uint32_t>(round)),
                0);
      ASSERT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    }
    line.meet();
  }
  other.expect_success();
}

TEST(Transport, private_memory_is_refused_where_only_shared_files_are_allowed) {
  if (!reaches_shared_files_only()) GTEST_SKIP();
  OtherProcess other([](Line& line) {
    const Device device;
    const Buffer buffer(64);
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    line.put(remote_of(region));
    line.meet();
    EXPECT_TRUE(endpoint.comes_to(IBV_QPS_ERR));
  });
  const Device device;
  const Buffer buffer(64);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  connect_over(other.line(), endpoint);
  const auto peer = other.line().get<RemoteRegion>();
  ASSERT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, peer.address, peer.key), 0);
  EXPECT_EQ(endpoint.wait().status, IBV_WC_REM_OP_ERR);
  other.line().meet();
  other.expect_success();
}

/// Runs `act` against a connected peer that does nothing but hold its objects.
template <class Act>
void with_passive_peer(const ConnectionOptions& options, int receives, const Act& act) {
  OtherProcess other([&](Line& line) {
    const Device device;
    const Buffer buffer(4096, Storage::shared_file);
    const Region region(device, buffer);
    const Endpoint endpoint(device, {.receives = 64});
    connect_over(line, endpoint, options);
    for (int count = 0; count < receives; ++count) ASSERT_EQ(endpoint.receive({}), 0);
    line.put(remote_of(region));
    (void)line.get<char>();  // ends by signal, or when told
    while (line.get<char>() == 'r') {
      ASSERT_EQ(endpoint.receive({}), 0);
      line.put('d');
    }
  });
  const Device device;
  const Buffer buffer(4096);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  connect_over(other.line(), endpoint, options);
  act(other, endpoint, region, other.line().template get<RemoteRegion>());
}

TEST(Death, of_the_target_ends_the_next_request) {
  with_passive_peer({.timeout = 14, .retries = 6}, 0,
                    [](OtherProcess& other, const Endpoint& endpoint, const Region& region,
                       const RemoteRegion& peer) {
                      const auto write = [&] {
                        return endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, peer.address,
                                             peer.key);
                      };
                      ASSERT_EQ(write(), 0);
                      EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
                      other.kill();
                      const auto start = std::chrono::steady_clock::now();
                      for (;;) {  // a request may still meet the memory of the dead
                        ASSERT_EQ(write(), 0);
                        const ibv_wc completion = endpoint.wait();
                        if (completion.status == IBV_WC_RETRY_EXC_ERR) break;
                        ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
                        std::this_thread::sleep_for(1ms);
                      }
                      EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
                      EXPECT_TRUE(endpoint.comes_to(IBV_QPS_ERR));
                    });
}

TEST(Death, beats_waiting_for_a_receive) {
  with_passive_peer(
      {.timeout = 14, .retries = 6, .rnr_retries = 7}, 0,
      [](OtherProcess& other, const Endpoint& endpoint, const Region&, const RemoteRegion&) {
        ASSERT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
        EXPECT_TRUE(endpoint.is_quiet(20ms));
        other.kill();
        EXPECT_EQ(endpoint.wait(20s).status, IBV_WC_RETRY_EXC_ERR);
      });
}

TEST(Death, before_the_first_request) {
  with_passive_peer(
      {.timeout = 14, .retries = 6}, 0,
      [](OtherProcess& other, const Endpoint& endpoint, const Region&, const RemoteRegion&) {
        other.kill();
        ASSERT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
        EXPECT_EQ(endpoint.wait(20s).status, IBV_WC_RETRY_EXC_ERR);
      });
}

/// A child of this process with that process-id, which must be free; -1 with errno.
pid_t fork_as(pid_t number) {
  clone_args wanted{};
  wanted.exit_signal = SIGCHLD;
  wanted.set_tid = reinterpret_cast<std::uint64_t>(&number);
  wanted.set_tid_size = 1;
  return static_cast<pid_t>(::syscall(SYS_clone3, &wanted, sizeof(wanted)));
}

/// Only what may be done in a child of a process with threads.  0: nobody has written to the page.
int watch_page(std::uint64_t address, int ready, int done) {
  constexpr std::size_t bytes = 4096;
  auto* const page = static_cast<volatile char*>(
      ::mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  if (page == MAP_FAILED) return 2;
  page[0] = 'x';
  char byte = 'r';
  if (::write(ready, &byte, 1) != 1 || ::read(done, &byte, 1) != 1) return 3;
  return page[0] == 'x' ? 0 : 1;
}

TEST(Death, is_not_undone_by_another_process_with_the_same_number) {
  if (!device_is_soft()) GTEST_SKIP() << "a decision of the software device";
  OtherProcess other([](Line& line) {
    const Device device;
    const Buffer buffer(4096);
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    line.put(remote_of(region));
    (void)line.get<char>();  // until it is killed
  });
  const Device device;
  const Buffer buffer(4096);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  connect_over(other.line(), endpoint);
  const auto peer = other.line().get<RemoteRegion>();
  const auto write = [&] {
    EXPECT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, peer.address, peer.key), 0);
    return endpoint.wait().status;
  };
  if (!reaches_shared_files_only()) {
    ASSERT_EQ(write(), IBV_WC_SUCCESS);
  }
  int ready[2], done[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(done, O_CLOEXEC), 0);
  const pid_t number = other.id();
  other.kill();
  std::this_thread::sleep_for(2ms);  // a number that comes round takes longer
  const pid_t successor = fork_as(number);
  if (successor == 0) ::_exit(watch_page(peer.address, ready[1], done[0]));
  const int error = errno;
  char byte = 0;
  if (successor == number) {
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(::write(done[1], &byte, 1), 1);
    int status = 0;
    EXPECT_EQ(::waitpid(successor, &status, 0), successor);
    EXPECT_EQ(status, 0) << "another process's memory was written to";
  }
  for (const int end : {ready[0], ready[1], done[0], done[1]}) ::close(end);
  if (successor < 0) GTEST_SKIP() << "no choice of process-ids for this user: errno " << error;
}

TEST(Death, at_random_moments_leaves_the_survivor_whole) {
  std::mt19937 random(7);
  for (int round = 0; round < (device_is_soft() ? 100 : 8); ++round) {
    OtherProcess other([](Line& line) {
      const Device device;
      const Buffer buffer(65536, Storage::shared_file);
      const Region region(device, buffer);
      const Endpoint endpoint(device, {.sends = 64, .receives = 64, .completions = 256});
      connect_over(line, endpoint);
      const RemoteRegion peer = line.swap(remote_of(region));
      ibv_wc completion;
      for (int count = 0; count < 64; ++count) (void)endpoint.receive({region.piece(0, 4096)});
      for (;;) {  // until killed: both directions, sends and writes
        while (endpoint.send(IBV_WR_SEND, {region.piece(0, 4096)}) == ENOMEM ||
               ibv_poll_cq(endpoint.queue, 1, &completion) == 1)
          if (ibv_poll_cq(endpoint.queue, 1, &completion) == 1 && completion.opcode == IBV_WC_RECV)
            (void)endpoint.receive({region.piece(0, 4096)});
        (void)endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 65536)}, peer.address, peer.key);
      }
    });
    const Device device;
    const SharedReceives shared(device, 64);
    const bool shares = reaches_shared_files_only() || round % 2 == 0;
    const Buffer buffer(65536, shares ? Storage::shared_file : Storage::private_pages);
    const Region region(device, buffer);
    const Endpoint endpoint(device, {.sends = 64,
                                     .receives = 64,
                                     .completions = 1024,
                                     .shared_receives = round % 4 < 2 ? shared.handle : nullptr});
    connect_over(other.line(), endpoint);
    const RemoteRegion peer = other.line().swap(remote_of(region));
    const auto receive = [&] {
      const std::vector<ibv_sge> pieces{region.piece(0, 4096)};
      return endpoint.pair->srq ? shared.receive(pieces, 0) : endpoint.receive(pieces);
    };
    for (int count = 0; count < 64; ++count) (void)receive();
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 20000);
    ibv_wc completion;
    const auto step = [&] {
      (void)endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 65536)}, peer.address, peer.key);
      (void)endpoint.send(IBV_WR_SEND, {region.piece(0, 4096)});
      int count = 0;
      while ((count = ibv_poll_cq(endpoint.queue, 1, &completion)) == 1) {
        if (completion.status == IBV_WC_RETRY_EXC_ERR) return false;
        if (completion.opcode == IBV_WC_RECV) (void)receive();
      }
      return count == 0;
    };
    bool alive = true;
    while (alive && std::chrono::steady_clock::now() < end) alive = step();
    ASSERT_TRUE(alive);
    other.kill();
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (alive && std::chrono::steady_clock::now() < deadline) alive = step();
    ASSERT_FALSE(alive) << "the death was not noticed in round " << round;
    ASSERT_EQ(completion.status, IBV_WC_RETRY_EXC_ERR);
  }
}

TEST(Stop, of_the_target_neither_blocks_nor_fails_the_initiator) {
  // 1 ms, twice; others may count as timeouts what is spent in waiting for a receive.
  const std::uint8_t timeout = device_is_soft() ? 8 : 14, retries = device_is_soft() ? 1 : 7;
  with_passive_peer(
      {.timeout = timeout, .retries = retries}, 4,
      [](OtherProcess& other, const Endpoint& endpoint, const Region& region,
         const RemoteRegion& peer) {
        // So that nothing has to be fetched from the stopped process.
        ASSERT_EQ(endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, peer.address, peer.key),
                  0);
        EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
        other.stop();
        // Without data where those need the target's help.
        const std::size_t bytes = transport_is("bounce") ? 0 : 8;
        for (int count = 0; count < 4; ++count)
          ASSERT_EQ(endpoint.send(IBV_WR_RDMA_WRITE_WITH_IMM, {region.piece(0, bytes)},
                                  peer.address, peer.key),
                    0);
        for (int count = 0; count < 4; ++count) EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
        // The fifth finds no receive: it waits, well beyond the retries.
        ASSERT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
        EXPECT_TRUE(endpoint.is_quiet(100ms));
        other.resume();
        EXPECT_TRUE(endpoint.is_quiet(10ms));
        other.line().put('s');
        other.line().put('r');
        EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
        EXPECT_EQ(other.line().get<char>(), 'd');
      });
}

TEST(Stop, before_the_attachment_does_not_fail_the_initiator) {
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
  const Device device;
  const Endpoint endpoint(device);
  const Address peer = other.line().swap(endpoint.address());
  other.line().meet();
  other.stop();
  const std::uint8_t timeout = device_is_soft() ? 8 : 14;
  endpoint.connect(peer, {.timeout = timeout, .retries = 1});
  ASSERT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
  if (device_is_soft()) {  // on others the stopped process has no part in it
    EXPECT_TRUE(endpoint.is_quiet(100ms));
    other.resume();
  }
  EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
  if (!device_is_soft()) other.resume();
  other.line().meet();
  other.expect_success();
}

TEST(Receive, posted_by_another_process_fetches_the_message_long_before_the_timer) {
  if (!device_is_soft()) GTEST_SKIP() << "verbs promise the repetition after the timer, not before";
  with_passive_peer(
      {.rnr_retries = 7, .rnr_timer = 0}, 0,  // 655 ms
      [](OtherProcess& other, const Endpoint& endpoint, const Region&, const RemoteRegion&) {
        other.line().put('s');
        // Five times, as the machine may be busy with something else; the timer keeps to its time.
        auto shortest = std::chrono::nanoseconds::max();
        for (int attempt = 0; attempt < 5 && shortest >= 300ms; ++attempt) {
          ASSERT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
          std::this_thread::sleep_for(20ms);
          const std::chrono::nanoseconds start =
              std::chrono::steady_clock::now().time_since_epoch();
          other.line().put('r');
          EXPECT_EQ(other.line().get<char>(), 'd');
          EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
          shortest =
              std::min(shortest, std::chrono::steady_clock::now().time_since_epoch() - start);
        }
        EXPECT_LT(shortest, 300ms);
      });
}

// A request that takes milliseconds; under the sanitizer a larger one would take a second.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t stream_bytes = std::size_t{8} << 20;
#else
constexpr std::size_t stream_bytes = std::size_t{64} << 20;
#endif

/// Where there are fewer cores, the process stays where it is.
void use_core_only(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)::sched_setaffinity(0, sizeof(set), &set);
}
/// One core for both processes: what one sees of the other is then always the middle of a request.
void use_first_core_only() {
  use_core_only(0);
}

/// Writes without a pause, each for milliseconds, until a write fails.
void stream(Line& line) {
  use_first_core_only();
  const Device device;
  const Buffer buffer(stream_bytes);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  connect_over(line, endpoint);
  const auto peer = line.get<RemoteRegion>();
  line.meet();
  ibv_wc completion{};
  while (completion.status == IBV_WC_SUCCESS) {
    ASSERT_EQ(
        endpoint.send(IBV_WR_RDMA_WRITE, {region.piece(0, stream_bytes)}, peer.address, peer.key),
        0);
    completion = endpoint.wait();
  }
  line.meet();
}

TEST(Busy, initiators_that_live_do_not_hold_up_what_is_taken_down) {
  OtherProcess other(stream);
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  use_first_core_only();
  const Device device;
  const Buffer buffer(stream_bytes, Storage::shared_file), unrelated(4096);
  Region region(device, buffer), unrelated_region(device, unrelated);
  auto shared = std::make_unique<SharedReceives>(device);
  const Endpoint endpoint(device);
  connect_over(other.line(), endpoint);
  other.line().put(remote_of(region));
  other.line().meet();
  std::this_thread::sleep_for(100ms);
  // A request is looked at again after a part of it: nobody waits for the whole, nor for a limit.
  auto shortest = std::chrono::nanoseconds::max();
  for (int round = 0; round < 10; ++round) {
    Region another(device, unrelated);
    const auto start = std::chrono::steady_clock::now();
    another.deregister();
    shortest =
        std::min<std::chrono::nanoseconds>(shortest, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(shortest, 200ms);
  unrelated_region.deregister();
  shared.reset();
  region.deregister();
  other.line().meet();
  other.expect_success();
  (void)::sched_setaffinity(0, sizeof(before), &before);
}

/// What is taken down while a message is on its way to it, and what becomes of the message.
struct Withdrawal {
  const char* name;
  ibv_wr_opcode opcode;
  bool is_shared;  // its receive is one of a shared queue
  void (*withdraw)(Endpoint&, Region&);
  ibv_wc_status sent;
  ibv_wc_status received;  // SUCCESS: nothing completes
};
void take_region(Endpoint&, Region& region) {
  region.deregister();
}
void take_queue_pair(Endpoint& endpoint, Region&) {
  endpoint.destroy_queue_pair();
}
void take_connection(Endpoint& endpoint, Region&) {
  EXPECT_EQ(endpoint.reset(), 0);
}
void take_readiness(Endpoint& endpoint, Region&) {
  EXPECT_EQ(endpoint.fail(), 0);
}
const Withdrawal withdrawals[] = {
    {"region_of_a_write", IBV_WR_RDMA_WRITE, false, take_region, IBV_WC_REM_ACCESS_ERR,
     IBV_WC_SUCCESS},
    {"region_of_a_receive", IBV_WR_SEND, false, take_region, IBV_WC_REM_OP_ERR,
     IBV_WC_LOC_PROT_ERR},
    {"queue_pair_of_a_write", IBV_WR_RDMA_WRITE, false, take_queue_pair, IBV_WC_RETRY_EXC_ERR,
     IBV_WC_SUCCESS},
    {"queue_pair_of_a_receive", IBV_WR_SEND, false, take_queue_pair, IBV_WC_RETRY_EXC_ERR,
     IBV_WC_SUCCESS},
    {"reset_of_a_write", IBV_WR_RDMA_WRITE, false, take_connection, IBV_WC_RETRY_EXC_ERR,
     IBV_WC_SUCCESS},
    {"error_at_a_write", IBV_WR_RDMA_WRITE, false, take_readiness, IBV_WC_RETRY_EXC_ERR,
     IBV_WC_SUCCESS},
    {"error_at_a_receive", IBV_WR_SEND, false, take_readiness, IBV_WC_RETRY_EXC_ERR,
     IBV_WC_WR_FLUSH_ERR},
    {"error_at_a_shared_receive", IBV_WR_SEND, true, take_readiness, IBV_WC_RETRY_EXC_ERR,
     IBV_WC_WR_FLUSH_ERR},
};

class Middle : public testing::TestWithParam<std::tuple<Withdrawal, Storage>> {
 protected:
  void SetUp() override {
    if (!device_is_soft()) GTEST_SKIP() << "where a message stops is for the device to say";
    ASSERT_EQ(::sched_getaffinity(0, sizeof(before_), &before_), 0);
  }
  void TearDown() override { (void)::sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_{};
};
INSTANTIATE_TEST_SUITE_P(
    Of, Middle,
    testing::Combine(testing::ValuesIn(withdrawals),
                     testing::Values(Storage::private_pages, Storage::shared_file)),
    [](const auto& tested) {
      const bool is_private = std::get<Storage>(tested.param) == Storage::private_pages;
      return std::string(std::get<Withdrawal>(tested.param).name) + (is_private ? "_private" : "");
    });

constexpr ConnectionOptions little_patience{.timeout = 8, .retries = 1};

void send_once(Line& line, ibv_wr_opcode opcode, std::size_t bytes) {
  use_first_core_only();
  const Device device;
  const Buffer buffer(bytes);
  std::fill_n(buffer.data(), bytes, std::byte{1});
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  connect_over(line, endpoint, little_patience);
  const auto peer = line.get<RemoteRegion>();
  ASSERT_EQ(endpoint.send(opcode, {region.piece(0, bytes)}, peer.address, peer.key), 0);
  line.put(endpoint.wait().status);
}

/// True when the message was caught in its middle.  This process uses `core`, the sender the first.
bool is_stopped(const Withdrawal& withdrawal, Storage storage, int core, std::size_t bytes) {
  OtherProcess other([&](Line& line) { send_once(line, withdrawal.opcode, bytes); });
  use_core_only(core);
  ibv_wc_status sent{};
  {
    const Device device;
    const Buffer buffer(bytes, storage);
    std::fill_n(buffer.data(), bytes, std::byte{0});
    Region region(device, buffer);
    const SharedReceives shared(device);
    Endpoint endpoint(device, {.shared_receives = withdrawal.is_shared ? shared.handle : nullptr});
    const std::vector<ibv_sge> whole{region.piece(0, bytes)};
    const bool receives = withdrawal.opcode == IBV_WR_SEND;
    if (withdrawal.is_shared) {
      EXPECT_EQ(shared.receive(whole, 1), 0);
    }
    connect_over(other.line(), endpoint, little_patience);
    if (receives && !withdrawal.is_shared) {
      EXPECT_EQ(endpoint.receive(whole), 0);
    }
    other.line().put(remote_of(region));
    const auto byte_at = [&](std::size_t offset) {
      return std::atomic_ref(buffer.data()[offset]).load();
    };
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (byte_at(bytes / 64) == std::byte{0} && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    withdrawal.withdraw(endpoint, region);
    const std::byte last = byte_at(bytes - 1);
    sent = other.line().get<ibv_wc_status>();
    if (sent != IBV_WC_SUCCESS) {
      EXPECT_EQ(sent, withdrawal.sent);
      EXPECT_EQ(byte_at(bytes - 1), std::byte{0}) << "it went on to the end";
      EXPECT_EQ(last, std::byte{0});
      if (withdrawal.received != IBV_WC_SUCCESS) {
        EXPECT_EQ(endpoint.wait().status, withdrawal.received);
      }
    }
  }
  other.expect_success();
  return sent != IBV_WC_SUCCESS;
}

TEST_P(Middle, of_a_message_is_where_it_stops_when_its_target_is_taken_down) {
  const auto& [withdrawal, storage] = GetParam();
  if (storage == Storage::private_pages && reaches_shared_files_only())
    GTEST_SKIP() << "no private memory";
  // In a namespace below, nothing but bouncing reaches private memory.
  const bool bounces = transport_is("bounce") ||
                       (storage == Storage::private_pages && wanted_identity() == Identity::below);
  if (withdrawal.is_shared && bounces)
    GTEST_SKIP() << "what an initiator has claimed is lost there with the connection";
  // A whole message may arrive before this process runs again: where both processes share a core,
  // within one time slice of the scheduler (8 MiB take less than that on a fast machine), else
  // while another program runs on the second core.  So the attempts alternate between one core and
  // two, and where other programs keep both cores busy, the message becomes longer until it takes
  // more than a time slice.
  bool is_caught = false;
  constexpr std::size_t most_bytes = std::size_t{256} << 20;
  for (int attempt = 0; attempt < 48 && !is_caught && !HasFailure(); ++attempt)
    is_caught = is_stopped(withdrawal, storage, 1 - attempt % 2,
                           std::min(stream_bytes << (attempt / 8), most_bytes));
  EXPECT_TRUE(is_caught) << "every message came to its end";
}

/// The buffer of a receive is the program's again when its queue pair is gone.
TEST(Busy, a_destroyed_queue_pairs_buffers_are_not_written_any_more) {
  OtherProcess other([](Line& line) {
    const Device device;
    const Buffer buffer(stream_bytes);
    std::fill_n(buffer.data(), stream_bytes, std::byte{1});
    const Region region(device, buffer);
    const Endpoint endpoint(device);
    connect_over(line, endpoint);
    (void)endpoint.send(IBV_WR_SEND, {region.piece(0, stream_bytes)});
    line.meet();
  });
  {
    const Device device;
    const Buffer buffer(stream_bytes, Storage::shared_file);
    const Region region(device, buffer);
    Endpoint endpoint(device);
    ASSERT_EQ(endpoint.initialise(), 0);
    ASSERT_EQ(endpoint.receive({region.piece(0, stream_bytes)}), 0);
    const Address peer = other.line().swap(endpoint.address());
    ASSERT_EQ(endpoint.make_ready_to_receive(peer), 0);
    ASSERT_EQ(endpoint.make_ready_to_send(), 0);
    other.line().meet();
    const auto byte_at = [&](std::size_t offset) {
      return std::atomic_ref(buffer.data()[offset]).load();
    };
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (byte_at(stream_bytes / 64) == std::byte{0}) {
      std::this_thread::yield();
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "nothing comes";
    }
    endpoint.destroy_queue_pair();
    const bool complete = byte_at(stream_bytes - 1) == std::byte{1};
    other.line().meet();
    EXPECT_EQ(byte_at(stream_bytes - 1) == std::byte{1}, complete);
  }
  other.expect_success();
}

TEST(Fork, a_child_cannot_use_what_it_inherits_but_can_open_the_device_itself) {
  if (!device_is_soft()) GTEST_SKIP() << "undefined on real devices";
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer ends a forked child that starts a thread";
#endif
  const Device device;
  const Endpoint endpoint(device);
  endpoint.connect(endpoint.address());
  OtherProcess other([&](Line&) {
    ibv_wc completion;
    EXPECT_EQ(endpoint.send(IBV_WR_SEND, {}), EINVAL);
    EXPECT_EQ(endpoint.receive({}), EINVAL);
    EXPECT_EQ(ibv_poll_cq(endpoint.queue, 1, &completion), -1);
    EXPECT_EQ(driver().alloc_pd(device.context), nullptr);
    EXPECT_EQ(driver().close_device(device.context), EINVAL);
    Loopback own;
    EXPECT_EQ(own.right.receive({}), 0);
    EXPECT_EQ(own.left.send(IBV_WR_SEND, {}), 0);
    EXPECT_EQ(own.left.wait().status, IBV_WC_SUCCESS);
  });
  other.expect_success();
  ASSERT_EQ(endpoint.receive({}), 0);
  ASSERT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
  EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
}

/// Two namespaces below each other: the process and its child are both number 1.
TEST(Fork, a_child_with_the_number_of_its_parent_is_another_process) {
  if (!device_is_soft()) GTEST_SKIP() << "undefined on real devices";
  if (!may_have_namespaces()) GTEST_SKIP() << "no namespaces of process-ids for this user";
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer ends a forked child that starts a thread";
#endif
  OtherProcess parent(
      [](Line&) {
        const Device device;
        const Endpoint endpoint(device);
        endpoint.connect(endpoint.address());
        OtherProcess child(
            [&](Line&) {
              EXPECT_EQ(::getpid(), 1);
              EXPECT_EQ(endpoint.send(IBV_WR_SEND, {}), EINVAL);
              EXPECT_EQ(driver().alloc_pd(device.context), nullptr);
              EXPECT_EQ(driver().close_device(device.context), EINVAL);
              Loopback own;
              EXPECT_EQ(own.right.receive({}), 0);
              EXPECT_EQ(own.left.send(IBV_WR_SEND, {}), 0);
              EXPECT_EQ(own.left.wait().status, IBV_WC_SUCCESS);
            },
            Identity::below);
        child.expect_success();
        EXPECT_EQ(endpoint.receive({}), 0);
        EXPECT_EQ(endpoint.send(IBV_WR_SEND, {}), 0);
        EXPECT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
      },
      Identity::below);
  parent.expect_success();
}

std::size_t shared_memory_files_count() {
  const std::filesystem::directory_iterator folder("/dev/shm");
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

TEST(Traces, nothing_is_left_after_a_killed_process_or_a_closed_device) {
  const std::size_t files = shared_memory_files_count();
  const std::size_t descriptors = open_descriptors_count();
  with_passive_peer(
      {}, 0, [](OtherProcess& other, const Endpoint& endpoint, const Region&, const RemoteRegion&) {
        EXPECT_EQ(endpoint.receive({}), 0);
        other.kill();
      });
  EXPECT_EQ(shared_memory_files_count(), files);
  // The first device ever opened may leave the process something for its life.
  EXPECT_EQ(open_descriptors_count(), descriptors);
}

}  // namespace
}  // namespace tutti::conformance
