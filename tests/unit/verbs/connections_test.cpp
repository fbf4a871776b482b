// Promise: a context holds as many connections as its device allows, over several completion queues
// if need be; what is beyond is refused with the numbers before any is made.
#include "verbs/connections.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <string>
#include <tutti/detail/clock.hpp>
#include <tutti/status.hpp>
#include <vector>

#include "../../support/process_memory.hpp"
#include "verbs/verbs_fabric.hpp"

namespace tutti::verbs {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t many = 1023;

std::vector<std::uint64_t> processes(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

struct Device {
  Port port = open_port("soft0");
  ProtectionDomainHandle domain{port.driver().alloc_pd(port.device.get()), {&port.driver()}};
};

std::string refusal_of(const Connections& connections,
                       const std::vector<std::uint64_t>& processes) {
  try {
    (void)connections.in_the_way_of(processes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::limit_exceeded);
    return error.what();
  }
  return "";
}

TEST(Connections, those_beyond_the_device_are_refused_with_the_numbers_before_one_is_made) {
  Device device;
  device.port.limits.max_qp = 150;
  Connections connections(device.port, device.domain.get(), {});
  EXPECT_EQ(connections.count_max(), 150u);
  for (const std::uint64_t process : processes(1, 100)) (void)connections.to(process);
  EXPECT_EQ(refusal_of(connections, processes(51, 100)), "") << "50 of them are there";
  EXPECT_EQ(connections.count(), 100u);
  const std::string refused = refusal_of(connections, processes(51, 101));
  for (const char* const word : {"has 100 connections", "0 can be closed", "51 more", "at most 150",
                                 "150 queue pairs", "takes 318", "fewer messages per round"})
    EXPECT_NE(refused.find(word), std::string::npos) << "no \"" << word << "\" in: " << refused;
  EXPECT_EQ(connections.count(), 100u);
}

TEST(Connections, those_of_a_completion_queue_in_error_fail_and_no_others) {
  Device device;
  Connections connections(device.port, device.domain.get(), {});
  for (const std::uint64_t process : processes(1, 110)) (void)connections.to(process);
  const auto queues = connections.completion_queues().all();
  ASSERT_EQ(queues.size(), 2u);
  connections.fail_all_of(queues[1].handle.get(), "is in error");
  for (std::uint32_t i = 0; i < 110; ++i) EXPECT_EQ(connections[i].failed, i >= 103) << i;
  for (std::uint64_t process = 104; process <= 110; ++process)
    EXPECT_EQ(connections.next_failure().process, process);
  EXPECT_FALSE(connections.has_news());
}

TEST(Connections, abandoned_ones_make_room) {
  Device device;
  device.port.limits.max_qp = 110;
  Connections connections(device.port, device.domain.get(), {});
  for (std::uint64_t round = 0; round < 3; ++round) {
    const std::uint64_t first = connections.made();
    for (const std::uint64_t process : processes(1000 * round, 110)) (void)connections.to(process);
    EXPECT_THROW((void)connections.to(999), Error);
    connections.abandon_from(first);
  }
  EXPECT_EQ(connections.completion_queues().all().size(), 2u);
}

/// Whether there is an orderly end depends on what there is at that time: not on failures whose
/// connections have gone or whose ranks have met again.
TEST(Connections, remember_a_failure_until_they_are_forgotten_or_their_ranks_have_met_again) {
  Device device;
  Connections connections(device.port, device.domain.get(), {});
  for (const std::uint64_t process : processes(1, 4)) (void)connections.to(process);
  EXPECT_FALSE(connections.has_met_failure());
  connections.note_failure(processes(10, 4), true);  // to none of which there is a connection
  EXPECT_FALSE(connections.has_met_failure());
  connections.note_failure(processes(1, 3), true);
  EXPECT_TRUE(connections.has_met_failure());
  connections.forget(processes(2, 1));
  connections.note_failure(processes(1, 1), false);
  EXPECT_TRUE(connections.has_met_failure()) << "the third";
  connections.forget(processes(3, 1));
  EXPECT_FALSE(connections.has_met_failure());
  (void)connections.to(3);
  EXPECT_FALSE(connections.has_met_failure()) << "another one to that process";
}

/// A communicator that has failed may be older than a connection, and so may not use it.
TEST(Connections, remember_no_failure_of_what_is_older) {
  Device device;
  Connections connections(device.port, device.domain.get(), {});
  (void)connections.to(1);
  connections.forget(processes(1, 1));
  const std::uint64_t until = connections.made();
  (void)connections.to(1);
  connections.note_failure(processes(1, 1), true, until);
  EXPECT_FALSE(connections.has_met_failure());
  connections.note_failure(processes(1, 1), true, connections.made());
  EXPECT_TRUE(connections.has_met_failure());
}

TEST(Connections, that_are_let_go_say_so_to_those_that_still_use_them) {
  Device device;
  Connections connections(device.port, device.domain.get(), {});
  for (const std::uint64_t process : processes(1, 2)) (void)connections.to(process);
  Connection& used = connections[connections.to(1)];
  connections.begin_use(used);
  connections.forget(processes(1, 2));
  ASSERT_TRUE(connections.has_news());
  const TransportFailure failure = connections.next_failure();
  EXPECT_EQ(failure.process, 1u);
  EXPECT_TRUE(failure.was_let_go);
  EXPECT_NE(failure.what.find("was let go"), std::string_view::npos) << failure.what;
  EXPECT_FALSE(connections.has_news()) << "nobody uses the other one";
  connections.end_use(used, false);
}

/// Two fabrics that know each other by `many` names, so that each has as many connections.
struct Crowd {
  Crowd() {
    id = receiver.attach(channel);
    std::vector<NewPartner> here, there;
    for (const std::uint64_t process : processes(1, many)) {
      const std::uint32_t index = sender.connections().to(process);
      EXPECT_EQ(receiver.connections().to(process), index);
      here.push_back({index, receiver.connections().endpoint(index), "the receiver"});
      there.push_back({index, sender.connections().endpoint(index), "the sender"});
    }
    sender.connections().connect(here);
    receiver.connections().connect(there);
  }
  ~Crowd() { receiver.detach(channel, true); }

  VerbsFabric sender{{.device = "soft0", .arena_bytes = 1 << 16}};
  VerbsFabric receiver{{.device = "soft0", .arena_bytes = 1 << 16}};
  VerbsChannel channel{0, many};
  std::uint32_t id = 0;
};

// The figure of docs/memory_and_connections.md.
TEST(Connections, memory_of_one_is_bounded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has memory of its own";
#endif
  const test::ProcessMemory before = test::ProcessMemory::now();
  const Crowd crowd;
  const test::ProcessMemory after = test::ProcessMemory::now();
  const std::size_t own = (after.anonymous - before.anonymous) / (2 * std::size_t{many});
  const std::size_t shared = (after.shared - before.shared) / (2 * std::size_t{many});
  std::printf("bytes of a connection: %zu of the process, %zu shared with the peer\n", own, shared);
  EXPECT_LT(own + shared, 40'000u);
}

TEST(Connections, messages_of_1023_partners_arrive_whatever_their_completion_queue) {
  Crowd crowd;
  EXPECT_GT(crowd.receiver.connections().completion_queues().all().size(), 2u);
  detail::MonotonicClock clock;
  const auto end = clock.now() + 60s;
  for (std::uint32_t call = 0; call < 3; ++call) {
    for (std::uint32_t slot = 0; slot < many; ++slot)
      ASSERT_EQ(crowd.sender.write(
                    crowd.sender.connections()[slot],
                    NotifiedWrite{
                        .notification = {.operation = crowd.id, .parity = call & 1, .slot = slot}}),
                Status::ok);
    for (std::uint32_t slot = 0; slot < many && clock.now() < end;) {
      (void)crowd.sender.poll();
      (void)crowd.receiver.poll();
      if (crowd.receiver.take(crowd.channel, call & 1, slot)) ++slot;
    }
    ASSERT_LT(clock.now(), end);
  }
  EXPECT_FALSE(crowd.sender.connections().has_news());
  EXPECT_FALSE(crowd.receiver.connections().has_news());
  crowd.sender.take_leave(clock, 20s);
  for (std::uint32_t i = 0; i < many; ++i) {
    EXPECT_TRUE(crowd.sender.connections()[i].took_leave);
    EXPECT_EQ(crowd.sender.connections()[i].sends.in_flight(), 0u)
        << "its completion is in a queue that was not polled";
  }
}

}  // namespace
}  // namespace tutti::verbs
