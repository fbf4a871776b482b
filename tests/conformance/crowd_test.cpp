// Promise: a completion queue of many receivers works like one of few.  Every completion is polled
// and raises its event, receivers and own sends take turns, errors are noticed, and an initiator
// that is killed or stopped at any instruction takes no completion of others with it; and a poll
// that finds nothing takes no longer because there are many.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "harness.hpp"
#include "verbs/soft/queue_pair.hpp"

namespace tutti::conformance {
namespace {

using Clock = std::chrono::steady_clock;

/// More than the software device looks at one by one.
constexpr std::uint32_t many = 100;

/// A completion queue, with a channel, of many receivers.
struct Crowd {
  Crowd(const Device& opened, std::uint32_t count, const EndpointOptions& wanted = {.receives = 4})
      : device(opened),
        channel(driver().create_comp_channel(device.context)),
        queue(
            driver().create_cq(device.context, static_cast<int>(count * 40), nullptr, channel, 0)),
        options(wanted) {
    EXPECT_NE(channel, nullptr);
    EXPECT_NE(queue, nullptr);
    options.queue = queue;
    for (std::uint32_t number = 0; number < count; ++number) add();
  }
  ~Crowd() {
    members.clear();
    EXPECT_EQ(driver().destroy_cq(queue), 0);
    EXPECT_EQ(driver().destroy_comp_channel(channel), 0);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  void add() { members.push_back(std::make_unique<Endpoint>(device, options)); }
  const Endpoint& operator[](std::size_t number) const { return *members[number]; }
  int poll(ibv_wc& completion) const { return ibv_poll_cq(queue, 1, &completion); }
  /// The next completion; fails the test when none comes.
  ibv_wc wait() const {
    ibv_wc completion{};
    const auto deadline = Clock::now() + 10s;
    while (poll(completion) == 0 && Clock::now() < deadline) let_others_work();
    EXPECT_NE(completion.qp_num, 0u) << "no completion came";
    return completion;
  }
  void arm() const { EXPECT_EQ(ibv_req_notify_cq(queue, 0), 0); }
  bool takes_event(std::chrono::milliseconds patience) const {
    pollfd entry{.fd = channel->fd, .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, static_cast<int>(patience.count())) != 1) return false;
    ibv_cq* of = nullptr;
    void* context = nullptr;
    EXPECT_EQ(driver().get_cq_event(channel, &of, &context), 0);
    driver().ack_cq_events(queue, 1);
    return true;
  }

  const Device& device;
  ibv_comp_channel* channel;
  ibv_cq* queue;
  EndpointOptions options;
  std::vector<std::unique_ptr<Endpoint>> members;
};

/// As many senders, each connected with the member of its number.
struct Audience {
  explicit Audience(std::uint32_t count, std::uint32_t receives = 4)
      : crowd(device, count, {.receives = receives}) {
    for (std::uint32_t number = 0; number < count; ++number) {
      senders.push_back(std::make_unique<Endpoint>(device));
      connect(number);
    }
  }
  void connect(std::uint32_t number) const {
    senders[number]->connect(crowd[number].address());
    crowd[number].connect(senders[number]->address());
  }
  void receive(std::uint32_t number, int count = 1) const {
    for (; count > 0; --count) ASSERT_EQ(crowd[number].receive({}, number), 0);
  }
  void send(std::uint32_t number) const {
    ASSERT_EQ(senders[number]->send(IBV_WR_SEND, {}), 0);
    ASSERT_EQ(senders[number]->wait().status, IBV_WC_SUCCESS);
  }

  Device device;
  Crowd crowd;
  std::vector<std::unique_ptr<Endpoint>> senders;
};

TEST(Crowd, every_completion_of_every_member_is_polled) {
  const Audience all(many);
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::uint32_t> expected;
    for (std::uint32_t number = 0; number < many; ++number)
      if (round == 0 || random() % 8 == 0)
        for (auto count = 1 + random() % 4; count > 0; --count) expected.push_back(number);
    for (const std::uint32_t number : expected) {
      all.receive(number);
      all.send(number);
    }
    std::vector<std::uint32_t> found;
    std::array<ibv_wc, 7> completions;
    for (const int at_once = 1 + static_cast<int>(random() % 7); found.size() < expected.size();) {
      const int count = ibv_poll_cq(all.crowd.queue, at_once, completions.data());
      ASSERT_GT(count, 0) << "one is there";
      for (const ibv_wc& one : std::span(completions).first(static_cast<std::size_t>(count)))
        found.push_back(static_cast<std::uint32_t>(one.wr_id));
    }
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, expected);
    ibv_wc nothing;
    ASSERT_EQ(all.crowd.poll(nothing), 0);
  }
}

TEST(Crowd, members_take_turns_with_each_other_and_with_own_sends) {
  Audience all(many, 16);
  // One of the first, and two of the last.
  for (const std::uint32_t busy : {0u, many - 1}) {
    for (const std::uint32_t quiet : {1u, many - 2}) {
      all.receive(busy, 8);
      for (int count = 0; count < 8; ++count) all.send(busy);
      all.receive(quiet);
      all.send(quiet);
      bool seen = false, own_seen = false;
      ASSERT_EQ(all.senders[2]->receive({}), 0);
      ASSERT_EQ(all.crowd[2].send(IBV_WR_SEND, {}, 0, 0, IBV_SEND_SIGNALED, 1000), 0);
      for (std::uint32_t polls = 0; polls < 2 * many && !(seen && own_seen); ++polls) {
        const ibv_wc completion = all.crowd.wait();
        seen |= completion.wr_id == quiet;
        own_seen |= completion.wr_id == 1000;
        if (completion.wr_id != busy) continue;
        all.receive(busy);
        all.send(busy);
      }
      EXPECT_TRUE(seen) << quiet << " beside " << busy;
      EXPECT_TRUE(own_seen) << "beside " << busy;
      ibv_wc completion{};
      while (all.crowd.poll(completion) == 1) {
      }
      ASSERT_EQ(all.senders[2]->wait().opcode, IBV_WC_RECV);
    }
  }
}

TEST(Crowd, members_come_and_go) {
  Audience all(many);
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    for (int count = 0; count < 10; ++count) {
      const auto number = static_cast<std::uint32_t>(random() % many);
      all.receive(number);
      all.send(number);  // never polled
      all.crowd.members[number].reset();
      all.senders[number] = std::make_unique<Endpoint>(all.device);
      all.crowd.members[number] = std::make_unique<Endpoint>(all.device, all.crowd.options);
      all.connect(number);
    }
    ibv_wc completion;
    ASSERT_EQ(all.crowd.poll(completion), 0) << "of one that is gone";
    for (std::uint32_t number = 0; number < many; ++number) {
      all.receive(number);
      all.send(number);
      EXPECT_EQ(all.crowd.wait().wr_id, number);
    }
  }
}

TEST(Crowd, members_that_an_initiator_moves_to_the_error_state_are_flushed) {
  Audience all(many);
  const Buffer buffer(64);
  const Region region(all.device, buffer);
  for (const std::uint32_t number : {0u, many - 1}) {
    all.receive(number, 2);
    // A write to nowhere is the initiator's fault, and fails both sides.
    ASSERT_EQ(all.senders[number]->send(IBV_WR_RDMA_WRITE, {region.piece(0, 8)}, region.address(),
                                        region.handle->rkey + 1),
              0);
    EXPECT_EQ(all.senders[number]->wait().status, IBV_WC_REM_ACCESS_ERR);
    for (int count = 0; count < 2; ++count) {
      const ibv_wc completion = all.crowd.wait();
      EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
      EXPECT_EQ(completion.wr_id, number);
    }
  }
}

/// Two threads send to all members, and a third sleeps whenever a poll finds nothing.
TEST(Crowd, no_event_is_lost) {
  const std::uint32_t rounds = device_is_soft() ? 100 : 5;
  Audience all(many, 16);
  for (std::uint32_t number = 0; number < many; ++number) all.receive(number, 8);
  std::vector<std::thread> threads;
  for (const std::uint32_t first : {0u, 1u})
    threads.emplace_back([&, first] {
      for (std::uint32_t round = 0; round < rounds; ++round)
        for (std::uint32_t number = first; number < many; number += 2) {
          all.send(number);
          if ((round + number) % 64 == 0) std::this_thread::sleep_for(100us);
        }
    });
  std::vector<std::uint32_t> counts(many);
  for (std::uint32_t left = rounds * many; left > 0;) {
    ibv_wc completion{};
    int count = all.crowd.poll(completion);
    if (count == 0) {
      all.crowd.arm();
      count = all.crowd.poll(completion);
      if (count == 0 && !all.crowd.takes_event(10s)) break;
    }
    if (count == 0) continue;
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    ++counts.at(completion.wr_id);
    all.receive(static_cast<std::uint32_t>(completion.wr_id));
    --left;
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::uint32_t count : counts) EXPECT_EQ(count, rounds);
}

/// The time of an empty poll of so many receivers: the least of several.
std::chrono::nanoseconds empty_poll(const Device& device, std::uint32_t receivers) {
  const Crowd crowd(device, receivers, {.sends = 1, .receives = 1});
  constexpr int polls = 1000;
  auto least = std::chrono::nanoseconds::max();
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto begin = Clock::now();
    ibv_wc completion;
    for (int count = 0; count < polls; ++count) EXPECT_EQ(crowd.poll(completion), 0);
    least = std::min<std::chrono::nanoseconds>(least, (Clock::now() - begin) / polls);
  }
  return least;
}

TEST(Crowd, polls_in_vain_take_no_longer_because_it_is_large) {
  if (!device_is_soft()) GTEST_SKIP() << "other devices have one ring for all";
  const Device device;
  const auto few = empty_poll(device, 40), lots = empty_poll(device, 1000);
  EXPECT_LT(lots, 3 * few) << few.count() << " ns of 40 receivers, " << lots.count() << " of 1000";
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/// Lets the initiator go on by single instructions until its data are there, and by `more` after
/// that.
void go_behind_data(const OtherProcess& initiator, const Buffer& buffer, int more) {
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
}

/// Whether a completion lies in the ring of the receiver, marked or not.
bool is_stored(ibv_qp* handle) {
  const verbs::soft::QueuePair& pair = verbs::soft::pair_of(handle);
  return pair.ring[pair.ring_head & pair.ring_mask].sequence.load() == pair.ring_head + 1;
}

/// An initiator stands still, and then dies, at chosen instants of its call.  Meanwhile a neighbour
/// of its target gets a message; and after the death its own completion, if it had been stored, is
/// polled and has raised its event.
TEST(Crowd, an_initiator_killed_at_any_instruction_takes_nothing_with_it) {
  if (!device_is_soft()) GTEST_SKIP() << "requests are not the instructions of their process";
  int with_completion = 0, without = 0, unmarked = 0;
  for (int more = 0; more < 240; more += 4) {
    OtherProcess initiator([](Line& line) {
      const Device device;
      const Buffer buffer(64);
      buffer.fill(3);
      const Region region(device, buffer);
      const Endpoint endpoint(device, {.sends = 64, .completions = 64});
      connect_over(line, endpoint);
      const auto peer = line.get<RemoteRegion>();
      const auto put = [&] {
        return endpoint.send(IBV_WR_RDMA_WRITE_WITH_IMM, {region.piece(0, 8)}, peer.address,
                             peer.key);
      };
      // Attached, and everything looked up.
      for (int count = 0; count < 2; ++count) {
        ASSERT_EQ(put(), 0);
        ASSERT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
      }
      line.meet();
      const long traced = ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      line.put(traced);
      if (traced != 0) return;
      (void)std::raise(SIGSTOP);
      (void)put();
      (void)std::raise(SIGSTOP);  // not reached
    });
    Line& line = initiator.line();
    const Buffer buffer(64, Storage::shared_file);
    Audience all(50);
    const Region region(all.device, buffer);
    Crowd& crowd = all.crowd;
    crowd.add();
    const Endpoint& self = crowd[50];
    ASSERT_EQ(self.initialise(), 0);
    for (int count = 0; count < 3; ++count) ASSERT_EQ(self.receive({}, 50), 0);
    connect_over(line, self);
    line.put(remote_of(region));
    for (int count = 0; count < 2; ++count) ASSERT_EQ(crowd.wait().status, IBV_WC_SUCCESS);
    ibv_wc completion{};
    ASSERT_EQ(crowd.poll(completion), 0) << "so that nobody is looked at without a mark";
    line.meet();
    std::memset(buffer.data(), 0, 64);
    if (line.get<long>() != 0) GTEST_SKIP() << "processes may not be traced here";
    int status = 0;
    ASSERT_EQ(::waitpid(initiator.id(), &status, 0), initiator.id());
    go_behind_data(initiator, buffer, more);
    bool completed = false;
    all.receive(49);
    all.send(49);
    for (bool neighbour = false; !neighbour && !testing::Test::HasFailure();) {
      const std::uint64_t number = crowd.wait().wr_id;
      neighbour = number == 49;
      completed |= number == 50;
    }
    while (crowd.poll(completion) == 1) completed = true;
    const bool stored = is_stored(self.pair);
    EXPECT_FALSE(completed && stored) << more;
    crowd.arm();
    initiator.kill();
    EXPECT_EQ(crowd.takes_event(stored ? 10s : 20ms), stored) << more;
    EXPECT_EQ(crowd.poll(completion) == 1, stored) << more;
    EXPECT_EQ(crowd.poll(completion), 0);
    ++(completed || stored ? with_completion : without);
    if (stored) ++unmarked;
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  // The instants enclose the one of the completion, and some lie between it and its mark.
  EXPECT_GT(with_completion, 10);
  EXPECT_GT(without, 0);
  EXPECT_GT(unmarked, 0);
}
#endif

}  // namespace
}  // namespace tutti::conformance
