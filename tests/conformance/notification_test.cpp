// Promise: who arms a completion queue, polls it empty and then waits for its channel misses no
// completion, gets one event for each arming, and is woken by errors in any case.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

/// With sanitizers, which look for something else, each event is waited for longer.
int rounds_max() {
  if (!device_is_soft()) return 300;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return 10'000;
#else
  return 100'000;
#endif
}

bool is_readable(int descriptor, std::chrono::milliseconds patience = 0ms) {
  pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(patience.count())) == 1;
}

/// A channel with one completion queue, and an endpoint that completes to it.
struct Listener {
  explicit Listener(const Device& device, EndpointOptions options = {})
      : channel(driver().create_comp_channel(device.context)),
        queue(driver().create_cq(device.context, options.completions, this, channel, 0)) {
    EXPECT_NE(channel, nullptr);
    EXPECT_NE(queue, nullptr);
    options.queue = queue;
    endpoint = std::make_unique<Endpoint>(device, options);
  }
  ~Listener() {
    endpoint.reset();
    EXPECT_EQ(driver().destroy_cq(queue), 0);
    EXPECT_EQ(driver().destroy_comp_channel(channel), 0);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void arm(bool solicited_only = false) const {
    EXPECT_EQ(ibv_req_notify_cq(queue, solicited_only ? 1 : 0), 0);
  }
  /// Waits for an event and acknowledges it; false when none comes.
  bool takes_event() const { return takes_event(device_is_soft() ? 10s : 1s); }
  bool takes_event(std::chrono::milliseconds patience) const {
    if (!is_readable(channel->fd, patience)) return false;
    take_event();
    return true;
  }
  void take_event() const {
    ibv_cq* of = nullptr;
    void* context = nullptr;
    ASSERT_EQ(driver().get_cq_event(channel, &of, &context), 0) << std::strerror(errno);
    EXPECT_EQ(of, queue);
    EXPECT_EQ(context, this);
    driver().ack_cq_events(queue, 1);
  }
  bool is_quiet() const { return !is_readable(channel->fd, 20ms); }
  /// The next completion, waiting without a busy loop.
  ibv_wc wait() const {
    ibv_wc completion{};
    while (ibv_poll_cq(queue, 1, &completion) == 0) {
      arm();
      if (ibv_poll_cq(queue, 1, &completion) != 0) break;
      take_event();
    }
    return completion;
  }

  ibv_comp_channel* channel;
  ibv_cq* queue;
  std::unique_ptr<Endpoint> endpoint;
};

/// A listener on the right, and a sender on the left.
struct Scene {
  explicit Scene(const EndpointOptions& options = {}) : left(device), right(device, options) {
    left.connect(right.endpoint->address());
    right.endpoint->connect(left.address());
  }
  void receive(int count = 1) const {
    for (; count > 0; --count) ASSERT_EQ(right.endpoint->receive({}), 0);
  }
  void send(unsigned flags = 0) const { ASSERT_EQ(left.send(IBV_WR_SEND, {}, 0, 0, flags), 0); }

  Device device;
  Endpoint left;
  Listener right;
};

TEST(Notification, comes_once_for_each_arming) {
  const Scene scene;
  scene.receive(8);
  scene.send();
  EXPECT_TRUE(scene.right.is_quiet());  // not armed
  for (int round = 0; round < 3; ++round) {
    scene.right.arm();
    EXPECT_TRUE(scene.right.is_quiet());  // what was there before does not count
    scene.send();
    EXPECT_TRUE(scene.right.takes_event());
    scene.send();
    EXPECT_TRUE(scene.right.is_quiet());
  }
  for (int count = 0; count < 7; ++count)
    EXPECT_EQ(scene.right.endpoint->wait().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.right.endpoint->is_quiet());
}

TEST(Notification, unread_events_are_kept) {
  const Scene scene;
  scene.receive(3);
  for (int round = 0; round < 3; ++round) {
    scene.right.arm();
    scene.send();
  }
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(scene.right.takes_event());
  EXPECT_TRUE(scene.right.is_quiet());
}

TEST(Notification, comes_for_local_completions) {
  const Scene scene;
  const Endpoint& right = *scene.right.endpoint;
  ASSERT_EQ(scene.left.receive({}), 0);
  scene.right.arm();
  ASSERT_EQ(right.send(IBV_WR_SEND, {}), 0);
  EXPECT_TRUE(scene.right.takes_event());
  EXPECT_EQ(right.wait().opcode, IBV_WC_SEND);
  // And for one that completes later, without any poll.
  scene.right.arm();
  ASSERT_EQ(right.send(IBV_WR_SEND, {}), 0);
  EXPECT_TRUE(scene.right.is_quiet());
  ASSERT_EQ(scene.left.receive({}), 0);
  EXPECT_TRUE(scene.right.takes_event());
}

TEST(Notification, solicited_only_waits_for_the_flag) {
  const Scene scene;
  scene.receive(4);
  scene.right.arm(true);
  scene.send();
  EXPECT_TRUE(scene.right.is_quiet());
  scene.send(IBV_SEND_SOLICITED);
  EXPECT_TRUE(scene.right.takes_event());
  // Whoever waits for all goes on to.
  scene.right.arm(false);
  scene.right.arm(true);
  scene.send();
  EXPECT_TRUE(scene.right.takes_event());
  // And may begin to.
  scene.right.arm(true);
  scene.right.arm(false);
  scene.send();
  EXPECT_TRUE(scene.right.takes_event());
}

TEST(Notification, solicited_writes_with_immediate_count) {
  const Scene scene;
  scene.receive();
  scene.right.arm(true);
  ASSERT_EQ(scene.left.send(IBV_WR_RDMA_WRITE_WITH_IMM, {}, 0, 0, IBV_SEND_SOLICITED), 0);
  EXPECT_TRUE(scene.right.takes_event());
}

/// A receive that `act` makes fail notifies though only solicited ones do, whether or not a
/// completion before it has been polled.
void expect_failure_notifies(const std::function<void(const Scene&)>& act) {
  for (const bool unpolled : {false, true}) {
    const Scene scene;
    scene.receive(2);
    if (unpolled) scene.send();
    scene.right.arm(true);
    act(scene);
    ASSERT_TRUE(scene.right.takes_event());
    ibv_wc completion = scene.right.endpoint->wait();
    if (unpolled) {
      EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
      completion = scene.right.endpoint->wait();
    }
    EXPECT_NE(completion.status, IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.right.is_quiet());
  }
}

TEST(Notification, receives_flushed_by_the_initiators_error_notify) {
  const Buffer buffer(64);
  expect_failure_notifies([&](const Scene& scene) {
    const Region region(scene.device, buffer);
    ASSERT_EQ(scene.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, 0, 1), 0);
    EXPECT_EQ(scene.left.wait().status, IBV_WC_REM_ACCESS_ERR);
  });
}

TEST(Notification, receives_flushed_by_their_owner_notify) {
  expect_failure_notifies([](const Scene& scene) { ASSERT_EQ(scene.right.endpoint->fail(), 0); });
}

TEST(Notification, receives_that_are_too_short_notify) {
  const Buffer buffer(64);
  expect_failure_notifies([&](const Scene& scene) {
    const Region region(scene.device, buffer);
    ASSERT_EQ(scene.left.send(IBV_WR_SEND, {region.piece(0, 8)}), 0);
    EXPECT_NE(scene.left.wait().status, IBV_WC_SUCCESS);
  });
}

TEST(Notification, receives_posted_in_the_error_state_notify) {
  const Scene scene;
  ASSERT_EQ(scene.right.endpoint->fail(), 0);
  scene.right.arm(true);
  scene.receive();
  EXPECT_TRUE(scene.right.takes_event());
}

TEST(Notification, sends_posted_in_the_error_state_notify) {
  const Scene scene;
  ASSERT_EQ(scene.right.endpoint->fail(), 0);
  scene.right.arm(true);
  ASSERT_EQ(scene.right.endpoint->send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  EXPECT_TRUE(scene.right.takes_event());
}

/// Who waits for errors is told of those that come, and of no others.
TEST(Notification, flushes_behind_unpolled_completions_notify_once) {
  const Scene scene;
  const Buffer buffer(64);
  const Region region(scene.device, buffer);
  scene.receive();
  scene.send();
  scene.right.arm(true);
  // The queue pair fails, with no receive to flush.
  ASSERT_EQ(scene.left.send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, 0, 1), 0);
  EXPECT_EQ(scene.left.wait().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(scene.right.is_quiet());
  for (int count = 0; count < 2; ++count) {
    scene.receive();
    ASSERT_TRUE(scene.right.takes_event());
    EXPECT_TRUE(scene.right.is_quiet());
    scene.right.arm(true);
  }
  EXPECT_EQ(scene.right.endpoint->wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.right.endpoint->wait().status, IBV_WC_WR_FLUSH_ERR);
}

TEST(Notification, a_descriptor_without_waiting_says_so) {
  const Scene scene;
  scene.receive();
  ASSERT_EQ(::fcntl(scene.right.channel->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  EXPECT_EQ(driver().get_cq_event(scene.right.channel, &queue, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
  const detail::Descriptor set(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted{.events = EPOLLIN | EPOLLET, .data = {.u64 = 7}};
  ASSERT_EQ(::epoll_ctl(set.get(), EPOLL_CTL_ADD, scene.right.channel->fd, &wanted), 0);
  scene.right.arm();
  scene.send();
  epoll_event got{};
  ASSERT_EQ(::epoll_wait(set.get(), &got, 1, 10'000), 1);
  const std::uint64_t tag = got.data.u64;  // epoll_event is packed: no reference into it
  EXPECT_EQ(tag, 7u);
  scene.right.take_event();
  EXPECT_EQ(driver().get_cq_event(scene.right.channel, &queue, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Notification, several_queues_share_a_channel) {
  const Device device;
  ibv_comp_channel* const channel = driver().create_comp_channel(device.context);
  ibv_cq* queues[3];
  for (ibv_cq*& queue : queues) queue = driver().create_cq(device.context, 16, &queue, channel, 0);
  EXPECT_NE(driver().destroy_comp_channel(channel), 0);  // in use
  {
    std::vector<std::unique_ptr<Endpoint>> ends;
    for (ibv_cq* const queue : queues) {
      ends.push_back(std::make_unique<Endpoint>(device, EndpointOptions{.queue = queue}));
      ends.back()->connect(ends.back()->address());
      ASSERT_EQ(ends.back()->receive({}), 0);
      ASSERT_EQ(ibv_req_notify_cq(queue, 0), 0);
    }
    for (const std::size_t index : {2UL, 0UL})
      ASSERT_EQ(ends[index]->send(IBV_WR_SEND, {}, 0, 0, 0), 0);
    for (const std::size_t index : {2UL, 0UL}) {
      ibv_cq* queue = nullptr;
      void* context = nullptr;
      ASSERT_EQ(driver().get_cq_event(channel, &queue, &context), 0);
      EXPECT_EQ(queue, queues[index]);
      EXPECT_EQ(context, &queues[index]);
      driver().ack_cq_events(queue, 1);
    }
    EXPECT_FALSE(is_readable(channel->fd, 20ms));
    ASSERT_EQ(ends[1]->send(IBV_WR_SEND, {}, 0, 0, 0), 0);
    ASSERT_TRUE(is_readable(channel->fd, 10s));
  }
  // The unread event of a queue that is destroyed vanishes.
  for (ibv_cq* const queue : queues) EXPECT_EQ(driver().destroy_cq(queue), 0);
  EXPECT_FALSE(is_readable(channel->fd));
  EXPECT_EQ(driver().destroy_comp_channel(channel), 0);
}

TEST(Notification, the_destruction_of_a_queue_waits_for_acknowledgements) {
  const Device device;
  ibv_comp_channel* const channel = driver().create_comp_channel(device.context);
  ibv_cq* const queue = driver().create_cq(device.context, 16, nullptr, channel, 0);
  {
    const Endpoint self(device, {.queue = queue});
    self.connect(self.address());
    for (int count = 0; count < 2; ++count) {
      ASSERT_EQ(self.receive({}), 0);
      ASSERT_EQ(ibv_req_notify_cq(queue, 0), 0);
      ASSERT_EQ(self.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
      ibv_cq* of = nullptr;
      void* context = nullptr;
      ASSERT_EQ(driver().get_cq_event(channel, &of, &context), 0);
    }
  }
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    EXPECT_EQ(driver().destroy_cq(queue), 0);
    destroyed.store(true);
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(destroyed.load());
  driver().ack_cq_events(queue, 1);
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(destroyed.load());
  driver().ack_cq_events(queue, 1);
  destroyer.join();
  EXPECT_EQ(driver().destroy_comp_channel(channel), 0);
}

TEST(Notification, a_queue_without_a_channel_may_be_armed) {
  const Loopback ends;
  EXPECT_EQ(ibv_req_notify_cq(ends.right.queue, 0), 0);
  ASSERT_EQ(ends.right.receive({}), 0);
  ASSERT_EQ(ends.left.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  EXPECT_EQ(ends.right.wait().status, IBV_WC_SUCCESS);
}

/// Both sides wait for their channel and never poll busily: a lost event ends in the time limit.
void play(const Listener& self, bool begins, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    if (begins || round > 0) {
      ASSERT_EQ(self.endpoint->send(IBV_WR_SEND, {}), 0);
    }
    for (int received = 0; received == 0;) {
      const ibv_wc completion = self.wait();
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      received = completion.opcode == IBV_WC_RECV ? 1 : 0;
    }
    ASSERT_EQ(self.endpoint->receive({}), 0);
  }
  if (!begins) {
    ASSERT_EQ(self.endpoint->send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  }
}

TEST(Notification, no_event_is_lost_between_threads) {
  const Device device;
  const Listener left(device), right(device);
  left.endpoint->connect(right.endpoint->address());
  right.endpoint->connect(left.endpoint->address());
  for (const Listener* const side : {&left, &right})
    for (int count = 0; count < 2; ++count) ASSERT_EQ(side->endpoint->receive({}), 0);
  std::thread other([&] { play(right, false, rounds_max()); });
  play(left, true, rounds_max());
  other.join();
}

void play_over(Line& line, bool begins) {
  const Device device;
  const Listener self(device);
  for (int count = 0; count < 2; ++count) {
    ASSERT_EQ(self.endpoint->initialise(), 0);
    ASSERT_EQ(self.endpoint->receive({}), 0);
  }
  connect_over(line, *self.endpoint);
  play(self, begins, rounds_max());
  line.meet();
}

TEST(Notification, no_event_is_lost_between_processes) {
  OtherProcess other([](Line& line) { play_over(line, false); });
  play_over(other.line(), true);
  other.expect_success();
}

/// A process that connects one endpoint, and does with it what `act` says.
struct Initiator {
  explicit Initiator(const std::function<void(Line&, const Endpoint&)>& act)
      : process([act](Line& line) {
          const Device device;
          const Endpoint endpoint(device, {.sends = 1024, .completions = 2048});
          connect_over(line, endpoint);
          act(line, endpoint);
        }) {}
  OtherProcess process;
};

/// Kills the initiator at a random instant of a stream of messages: if a completion has come after
/// the queue was armed, so has the event.
TEST(Notification, an_initiator_killed_in_between_takes_no_event_with_it) {
  for (int kill = 0; kill < 10; ++kill) {
    Initiator initiator([](Line& line, const Endpoint& endpoint) {
      line.meet();
      while (endpoint.send(IBV_WR_SEND, {}) == 0) (void)endpoint.wait();
    });
    const Device device;
    const Listener self(device, {.receives = 256, .completions = 512});
    ASSERT_EQ(self.endpoint->initialise(), 0);
    for (int count = 0; count < 256; ++count) ASSERT_EQ(self.endpoint->receive({}), 0);
    connect_over(initiator.process.line(), *self.endpoint);
    std::atomic<bool> ends{false};
    std::thread owner([&] {
      ibv_wc completion{};
      for (bool last = false, woken = true; woken || !last;) {
        self.arm();
        while (ibv_poll_cq(self.queue, 1, &completion) == 1)
          ASSERT_EQ(self.endpoint->receive({}), 0);
        last = ends.load();  // time enough for the death to be heard of
        woken = self.takes_event(last ? 300ms : 20ms);
      }
      EXPECT_EQ(ibv_poll_cq(self.queue, 1, &completion), 0) << "a completion without an event";
    });
    initiator.process.line().meet();
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 1370 * kill));
    initiator.process.kill();
    ends.store(true);
    owner.join();
  }
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/// Lets the initiator go on by single instructions until its data are there, by `more` after that,
/// and kills it.
void kill_behind_data(OtherProcess& initiator, const Buffer& buffer, int more) {
  const auto step = [&] {
    int status = 0;
    ASSERT_EQ(::ptrace(PTRACE_SINGLESTEP, initiator.id(), nullptr, nullptr), 0);
    ASSERT_EQ(::waitpid(initiator.id(), &status, 0), initiator.id());
    ASSERT_TRUE(WIFSTOPPED(status));
  };
  const volatile std::byte& first = *buffer.data();
  for (int count = 0; count < 1'000'000 && first == std::byte{0}; ++count) step();
  ASSERT_TRUE(first != std::byte{0});
  for (int count = 0; count < more; ++count) step();
  initiator.kill();
}

/// The initiator dies at chosen instants: every few instructions, from the first store of the data
/// to the end of the call.
TEST(Notification, an_initiator_killed_at_any_instruction_takes_no_event_with_it) {
  if (!device_is_soft()) GTEST_SKIP() << "requests are not the instructions of their process";
  int with_completion = 0, without = 0;
  for (int more = 0; more < 240; more += 6) {
    OtherProcess initiator([](Line& line) {
      const Device device;
      const Buffer buffer(64);
      buffer.fill(3);
      const Region region(device, buffer);
      const Endpoint endpoint(device, {.sends = 1024, .completions = 2048});
      connect_over(line, endpoint);
      const auto peer = line.get<RemoteRegion>();
      // Attached, and everything looked up.
      for (int count = 0; count < 2; ++count) {
        ASSERT_EQ(
            endpoint.send(IBV_WR_RDMA_WRITE_WITH_IMM, {region.piece(0, 8)}, peer.address, peer.key),
            0);
        ASSERT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
      }
      line.meet();
      const long traced = ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      line.put(traced);
      if (traced != 0) return;
      (void)std::raise(SIGSTOP);
      (void)endpoint.send(IBV_WR_RDMA_WRITE_WITH_IMM, {region.piece(0, 8)}, peer.address, peer.key);
      (void)std::raise(SIGSTOP);  // not reached
    });
    Line& line = initiator.line();
    const Device device;
    const Buffer buffer(64, Storage::shared_file);
    const Region region(device, buffer);
    const Listener self(device);
    ASSERT_EQ(self.endpoint->initialise(), 0);
    for (int count = 0; count < 3; ++count) ASSERT_EQ(self.endpoint->receive({}), 0);
    connect_over(line, *self.endpoint);
    line.put(remote_of(region));
    for (int count = 0; count < 2; ++count) ASSERT_EQ(self.endpoint->wait().status, IBV_WC_SUCCESS);
    line.meet();
    std::memset(buffer.data(), 0, 64);
    self.arm();
    if (line.get<long>() != 0) GTEST_SKIP() << "processes may not be traced here";
    int status = 0;
    ASSERT_EQ(::waitpid(initiator.id(), &status, 0), initiator.id());
    kill_behind_data(initiator, buffer, more);
    const bool told = self.takes_event(300ms);
    ibv_wc completion{};
    const bool completed = ibv_poll_cq(self.queue, 1, &completion) == 1;
    EXPECT_EQ(told, completed) << more;
    ++(completed ? with_completion : without);
  }
  // The instants enclose the one of the completion.
  EXPECT_GT(with_completion, 10);
  EXPECT_GT(without, 0);
}
#endif

TEST(Notification, a_stopped_owner_is_told_when_it_goes_on_and_blocks_nobody) {
  const int queues = device_is_soft() ? 400 : 20;  // more than its socket has room for
  OtherProcess owner([queues](Line& line) {
    const Device device;
    std::vector<std::unique_ptr<Listener>> listeners;
    for (int index = 0; index < queues; ++index) {
      listeners.push_back(std::make_unique<Listener>(device));
      const Listener& listener = *listeners.back();
      ASSERT_EQ(listener.endpoint->initialise(), 0);
      ASSERT_EQ(listener.endpoint->receive({}), 0);
      listener.endpoint->connect(line.swap(listener.endpoint->address()));
      listener.arm();
    }
    line.meet();
    line.meet();  // stopped before, or here
    for (const auto& listener : listeners) EXPECT_TRUE(listener->takes_event());
    line.meet();
  });
  Line& line = owner.line();
  {
    const Device device;
    std::vector<std::unique_ptr<Endpoint>> ends;
    for (int index = 0; index < queues; ++index) {
      ends.push_back(std::make_unique<Endpoint>(device));
      ends.back()->connect(line.swap(ends.back()->address()));
    }
    line.meet();
    // Attached before the stop.
    ASSERT_EQ(ends[0]->send(IBV_WR_RDMA_WRITE, {}), 0);
    EXPECT_EQ(ends[0]->wait().status, IBV_WC_SUCCESS);
    owner.stop();
    for (const auto& end : ends) {
      ASSERT_EQ(end->send(IBV_WR_SEND, {}), 0);
      EXPECT_EQ(end->wait().status, IBV_WC_SUCCESS);
    }
    owner.resume();
    line.meet();
    line.meet();
  }
  owner.expect_success();
}

}  // namespace
}  // namespace tutti::conformance
