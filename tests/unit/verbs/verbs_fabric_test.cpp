// Promise: a notification reaches the operation it is meant for or none, and a connection that
// fails takes no other with it.
#include "verbs/verbs_fabric.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <tutti/status.hpp>

namespace tutti::verbs {
namespace {

using namespace std::chrono_literals;

// A dead end is noticed after 40 ms.
const VerbsFabricOptions on_software_device{
    .device = "soft0", .arena_bytes = 1 << 16, .connections = {.path = {.timeout = 10}}};

/// One end of a channel of one put and one slot, with memory for both.
struct End {
  explicit End(std::uint64_t given_key, const VerbsFabricOptions& options = on_software_device)
      : key(given_key), fabric(options) {
    attach(true);
    block = fabric.arena().allocate(128);
  }
  ~End() { fabric.detach(*channel, true); }

  /// The next operation.
  void attach(bool orderly) {
    if (channel) fabric.detach(*channel, orderly);
    channel.emplace(1, 1);
    id = fabric.attach(*channel);
  }

  Connection& to(const End& other) {
    return fabric.connections()[fabric.connections().to(other.key)];
  }

  std::uint64_t key;
  VerbsFabric fabric;
  std::optional<VerbsChannel> channel;
  std::uint32_t id = 0;
  std::byte* block;  // slot, then what is sent
};

Connection& connect(End& from, End& to) {
  Connection& there = from.to(to);
  const Connection& back = to.to(from);
  const Endpoint mine = from.fabric.connections().endpoint(there.index);
  const NewPartner other{there.index, to.fabric.connections().endpoint(back.index),
                         "the other end"};
  const NewPartner first{back.index, mine, "the first end"};
  from.fabric.connections().connect({&other, 1});
  to.fabric.connections().connect({&first, 1});
  return there;
}

/// Makes the put of `from`'s channel one of 8 bytes into the slot of `to`, as it is attached now.
void aim(End& from, End& to) {
  const Connection& connection = from.to(to);
  for (std::uint32_t parity = 0; parity < 2; ++parity)
    from.channel->prepare(connection, parity, 0,
                          {.local = from.block + 64,
                           .bytes = 8,
                           .local_key = from.fabric.arena().local_key(),
                           .remote_address = reinterpret_cast<std::uint64_t>(to.block),
                           .remote_key = to.fabric.arena().remote_key(),
                           .notification = {.operation = to.id, .parity = parity, .slot = 0}});
}

template <class Condition>
bool within(std::chrono::milliseconds time, Condition&& condition) {
  for (const auto end = std::chrono::steady_clock::now() + time;;) {
    if (condition()) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
}

bool arrives(End& end) {
  return within(20s, [&] {
    end.fabric.poll();
    return end.fabric.take(*end.channel, 0, 0);
  });
}

/// Polls both ends until every send has its completion and every arrival has been seen.
void settle(End& one, End& other) {
  detail::MonotonicClock clock;
  EXPECT_TRUE(one.fabric.drain(*one.channel, clock, 20s, [](std::uint64_t) { return false; }));
  while (other.fabric.poll() > 0) {
  }
}

TEST(VerbsFabric, payload_is_there_when_its_notification_is) {
  End a(1), b(2);
  connect(a, b);
  aim(a, b);
  std::memset(a.block + 64, 0x5a, 8);
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  ASSERT_TRUE(arrives(b));
  EXPECT_EQ(b.block[7], std::byte{0x5a});
  EXPECT_FALSE(b.fabric.take(*b.channel, 0, 0));
  settle(a, b);
}

TEST(VerbsFabric, a_peer_that_has_taken_leave_is_not_waited_for) {
  detail::MonotonicClock clock;
  auto a = std::make_unique<End>(1);
  End b(2);
  connect(*a, b);
  aim(b, *a);
  a->fabric.take_leave(clock, 20s);
  a.reset();
  // What b sends now is never answered.
  ASSERT_EQ(b.fabric.put(*b.channel, 0, 0), Status::ok);
  EXPECT_TRUE(b.fabric.drain(*b.channel, clock, 20s, [](std::uint64_t) { return false; }));
  EXPECT_FALSE(b.fabric.connections()[b.fabric.connections().to(1)].failed)
      << "that is how it would end otherwise";
  const auto begin = clock.now();
  b.fabric.take_leave(clock, 60s);
  EXPECT_LT(clock.now() - begin, 20s) << "nobody is there to be told";
}

TEST(VerbsFabric, ends_that_take_leave_together_do_not_wait_for_each_other) {
  for (int round = 0; round < 200 && !HasFailure(); ++round) {
    detail::MonotonicClock clock;
    auto a = std::make_unique<End>(1), b = std::make_unique<End>(2);
    connect(*a, *b);
    const auto leave = [&](std::unique_ptr<End>& end) {
      const auto begin = clock.now();
      end->fabric.take_leave(clock, 60s);
      EXPECT_LT(clock.now() - begin, 20s);
      end.reset();
    };
    std::thread other([&] { leave(b); });
    leave(a);
    other.join();
  }
}

TEST(VerbsFabric, what_comes_too_late_reaches_no_later_operation) {
  End a(1), b(2);
  connect(a, b);
  aim(a, b);
  // b's operation fails before a's message comes, and another one takes its place.
  b.attach(false);
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  settle(a, b);
  EXPECT_FALSE(b.fabric.arrived(*b.channel, 0, 0));
  EXPECT_FALSE(b.fabric.connections().has_news());
  aim(a, b);
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  EXPECT_TRUE(arrives(b));
  settle(a, b);
}

TEST(VerbsFabric, a_message_for_an_operation_that_ended_well_fails_its_connection) {
  End a(1), b(2);
  connect(a, b);
  aim(a, b);
  b.attach(true);
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  ASSERT_TRUE(within(2s, [&] {
    b.fabric.poll();
    return b.fabric.connections().has_news();
  }));
  EXPECT_EQ(b.fabric.connections().next_failure().process, 1u);
  EXPECT_FALSE(b.fabric.arrived(*b.channel, 0, 0));
  settle(a, b);
}

TEST(VerbsFabric, a_channel_without_connections_is_drained) {
  End a(1);
  settle(a, a);
}

TEST(VerbsFabric, channel_ids_come_back_after_all_others_only) {
  VerbsFabric fabric(on_software_device);
  VerbsChannel kept(0, 1);
  const std::uint32_t kept_id = fabric.attach(kept);
  std::vector<bool> seen(Immediate::operations_max);
  for (std::uint32_t i = 1; i < Immediate::operations_max; ++i) {
    VerbsChannel brief(0, 1);
    const std::uint32_t id = fabric.attach(brief);
    ASSERT_NE(id, kept_id);
    ASSERT_FALSE(seen[id]) << id << " came back after " << i;
    seen[id] = true;
    fabric.detach(brief, i % 2 == 0);
  }
  VerbsChannel again(0, 1);
  EXPECT_NE(fabric.attach(again), kept_id);
  fabric.detach(again, true);
  fabric.detach(kept, true);
}

/// Each connection has so many receives that it needs a completion queue of its own.
TEST(VerbsFabric, events_of_several_completion_queues_are_taken_at_once) {
  VerbsFabricOptions options = on_software_device;
  options.connections.raises_events = true;
  options.connections.queue_pair.receives_max = UINT32_MAX;
  End sleeper(1, options), one(2), other(3);
  connect(one, sleeper);
  connect(other, sleeper);
  ASSERT_EQ(sleeper.fabric.connections().completion_queues().all().size(), 2u);
  aim(one, sleeper);
  aim(other, sleeper);
  pollfd event{.fd = sleeper.fabric.event_descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(sleeper.fabric.take_events(), 0u) << "and this does not block";
  for (int sleep = 0; sleep < 3; ++sleep) {
    ASSERT_TRUE(sleeper.fabric.request_event());
    ASSERT_EQ(::poll(&event, 1, 0), 0);
    // Each has a notification of its own, by the parity.
    ASSERT_EQ(one.fabric.put(*one.channel, 0, 0), Status::ok);
    ASSERT_EQ(other.fabric.put(*other.channel, 1, 0), Status::ok);
    settle(one, one);
    settle(other, other);
    ASSERT_EQ(::poll(&event, 1, 20'000), 1);
    EXPECT_EQ(sleeper.fabric.take_events(), 2u);
    EXPECT_EQ(::poll(&event, 1, 0), 0) << "no event is left that would end the next sleep";
    sleeper.fabric.poll();
    EXPECT_TRUE(sleeper.fabric.take(*sleeper.channel, 0, 0));
    EXPECT_TRUE(sleeper.fabric.take(*sleeper.channel, 1, 0));
  }
}

TEST(VerbsFabric, a_failed_connection_takes_no_other_with_it) {
  End a(1), b(3);
  {
    End gone(2);
    connect(a, gone);
    connect(a, b);
    aim(a, gone);
    // Its queue pair goes with it.
  }
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  ASSERT_TRUE(within(10s, [&] {
    a.fabric.poll();
    return a.fabric.connections().has_news();
  }));
  const TransportFailure failure = a.fabric.connections().next_failure();
  EXPECT_EQ(failure.process, 2u);
  EXPECT_EQ(failure.completion, IBV_WC_RETRY_EXC_ERR);
  EXPECT_FALSE(a.fabric.connections().has_news());
  EXPECT_EQ(a.fabric.put(*a.channel, 0, 0), Status::transport_failed);
  // Nothing leaves it any more, so nothing has to be waited for.
  settle(a, b);

  a.attach(true);
  aim(a, b);
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  EXPECT_TRUE(arrives(b));
  settle(a, b);
}

TEST(VerbsFabric, a_second_message_for_a_slot_fails_its_connection) {
  End a(1), b(2);
  connect(a, b);
  aim(a, b);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  ASSERT_TRUE(within(2s, [&] {
    b.fabric.poll();
    return b.fabric.connections().has_news();
  }));
  EXPECT_EQ(b.fabric.connections().next_failure().process, 1u);
  settle(a, b);
}

TEST(VerbsFabric, the_software_device_is_not_connected_by_address) {
  VerbsFabricOptions options = on_software_device;
  options.connections.by_cm = true;
  try {
    const VerbsFabric fabric(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("TUTTI_CONNECT"), std::string::npos) << error.what();
  }
}

TEST(VerbsFabric, an_abandoned_connection_can_be_made_again) {
  End a(1), b(2);
  const std::uint64_t first = a.fabric.connections().made();
  connect(a, b);
  a.fabric.connections().abandon_from(first);
  b.fabric.connections().abandon_from(0);
  EXPECT_GT(connect(a, b).serial, first);
  aim(a, b);
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  EXPECT_TRUE(arrives(b));
  settle(a, b);
}

std::uint64_t word_at(std::byte* place) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(place)).load(std::memory_order_acquire);
}

TEST(VerbsFabric, a_chunk_is_there_when_its_word_is_and_both_have_credits) {
  End a(1), b(2);
  Connection& there = connect(a, b);
  a.channel->assign(0, there);
  EXPECT_EQ(there.why_not_worded(), "");
  // Registered once more, as memory of a neighbour is.
  std::byte* const chunk = b.fabric.arena().allocate(4096);
  std::byte* const from = a.fabric.arena().allocate(4096);
  const RegionHandle region = b.fabric.register_memory(
      chunk, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, "a part of it");
  WordedWrite write{.local = from,
                    .bytes = 4096 - 64,
                    .local_key = a.fabric.arena().local_key(),
                    .remote_address = reinterpret_cast<std::uint64_t>(chunk),
                    .remote_word = reinterpret_cast<std::uint64_t>(chunk + 4096 - 64),
                    .remote_key = region->rkey};
  std::uint64_t refused = 0;
  for (write.word = 1; write.word <= 1000; ++write.word) {
    std::memset(from, static_cast<int>(write.word), write.bytes);
    // Now and then a word alone, so that one credit may be left.
    const std::uint32_t bytes = write.bytes;
    if (write.word % 3 == 0) write.bytes = 0;
    Status status = a.fabric.write(there, write);
    if (status == Status::in_progress) {
      ++refused;
      EXPECT_EQ(word_at(chunk + 4096 - 64), write.word - 1) << "neither is sent";
      ASSERT_TRUE(within(2s, [&] {
        a.fabric.poll();
        return there.room(2) == Status::ok;
      }));
      status = a.fabric.write(there, write);
    }
    ASSERT_EQ(status, Status::ok);
    ASSERT_TRUE(within(2s, [&] { return word_at(chunk + 4096 - 64) == write.word; }));
    const std::uint64_t last = write.word % 3 == 0 ? write.word - 1 : write.word;
    for (std::uint32_t i = 0; i < bytes; i += 97)
      ASSERT_EQ(chunk[i], static_cast<std::byte>(last)) << "chunk " << write.word;
    write.bytes = bytes;
  }
  EXPECT_GT(refused, 10u);
  settle(a, b);
  EXPECT_FALSE(a.fabric.connections().has_news());
}

TEST(VerbsFabric, drain_waits_for_writes_of_an_assigned_connection) {
  End a(1), b(2);
  Connection& there = connect(a, b);
  a.channel->assign(0, there);
  const WordedWrite word{.local = nullptr,
                         .remote_word = reinterpret_cast<std::uint64_t>(b.block),
                         .remote_key = b.fabric.arena().remote_key(),
                         .word = 1};
  while (a.fabric.write(there, word) == Status::ok) {
  }
  EXPECT_EQ(there.room(2), Status::in_progress);
  settle(a, b);
  // Every credit is back, but for the one of the flush if there was one.
  std::uint32_t sent = 0;
  while (a.fabric.write(there, word) == Status::ok) ++sent;
  EXPECT_GE(sent, 62u);
  settle(a, b);
}

TEST(VerbsFabric, a_failed_connection_has_no_room) {
  End a(1);
  Connection& there = [&]() -> Connection& {
    End gone(2);
    return connect(a, gone);
  }();
  const WordedWrite word{.local = nullptr, .remote_word = 64, .remote_key = 1, .word = 1};
  ASSERT_EQ(a.fabric.write(there, word), Status::ok);
  ASSERT_TRUE(within(10s, [&] {
    a.fabric.poll();
    return a.fabric.connections().has_news();
  }));
  (void)a.fabric.connections().next_failure();
  EXPECT_EQ(there.room(2), Status::transport_failed);
  EXPECT_EQ(a.fabric.write(there, word), Status::transport_failed);
}

/// `a` sends to `b`, whose channel has words for two slots, on lines of their own.
struct Republishing {
  End a{1}, b{2};
  Connection& there = connect(a, b);
  std::byte* memory = b.fabric.arena().allocate(512);  // words, then what is sent
  std::uint64_t consumed = 0;                          // the last lap that b has consumed
  NotifiedWrite write;

  Republishing() {
    b.channel->republish(
        {.first = memory, .stride = 64, .count = 2, .copies = 1, .consumed = &consumed});
    a.channel->assign(0, there);
    write = {.local = a.block,
             .bytes = 8,
             .local_key = a.fabric.arena().local_key(),
             .remote_address = reinterpret_cast<std::uint64_t>(memory + 256),
             .remote_key = b.fabric.arena().remote_key(),
             .notification = {.operation = b.id, .parity = 1, .slot = 1}};
  }
  std::uint64_t word(std::uint32_t slot) const { return word_at(memory + slot * 64); }
  /// Sends, and polls until it has come.
  [[nodiscard]] bool passes() {
    return a.fabric.write(there, write) == Status::ok && within(2s, [&] {
             a.fabric.poll();
             return b.fabric.poll() > 0;
           });
  }
};

TEST(VerbsFabric, a_polled_notification_is_republished_with_the_number_of_its_lap) {
  Republishing pair;
  for (std::uint64_t number = 1; number <= 300; ++number) {
    // Every third notification comes before this end has consumed the lap before.
    pair.consumed = number % 3 == 0 ? number - 2 : number - 1;
    pair.write.notification = {.operation = pair.b.id,
                               .parity = static_cast<std::uint32_t>(number & 1),
                               .slot = static_cast<std::uint32_t>(number / 2 % 2)};
    std::memcpy(pair.a.block, &number, sizeof number);
    ASSERT_TRUE(pair.passes());
    EXPECT_EQ(pair.word(number / 2 % 2), number);
    EXPECT_EQ(word_at(pair.memory + 256), number);
  }
  EXPECT_FALSE(pair.b.fabric.connections().has_news());
  settle(pair.a, pair.b);
}

TEST(VerbsFabric, what_nobody_may_have_sent_is_not_republished) {
  for (const Immediate bad : {Immediate{0, 1, 0}, Immediate{0, 1, 2}}) {
    Republishing pair;
    pair.write.notification = {.operation = pair.b.id, .parity = 1, .slot = 0};
    ASSERT_TRUE(pair.passes());  // of lap 1
    ASSERT_FALSE(pair.b.fabric.connections().has_news());
    // A second notification of one message; one of no slot.
    pair.write.notification = bad;
    pair.write.notification.operation = pair.b.id;
    ASSERT_TRUE(pair.passes());
    ASSERT_TRUE(pair.b.fabric.connections().has_news()) << bad.parity << bad.slot;
    EXPECT_NE(std::string(pair.b.fabric.connections().next_failure().what).find("calls more often"),
              std::string::npos);
    EXPECT_EQ(pair.word(1), 0u);
  }
}

TEST(VerbsFabric, what_comes_for_a_detached_channel_is_not_republished) {
  for (const bool orderly : {false, true}) {
    Republishing pair;
    pair.b.fabric.detach(*pair.b.channel, orderly);
    ASSERT_TRUE(pair.passes());
    EXPECT_EQ(pair.word(1), 0u);
    EXPECT_EQ(pair.b.fabric.connections().has_news(), orderly);
    pair.b.fabric.attach(*pair.b.channel);
  }
}

/// Sends a marker and waits until it has come.
bool marks(End& from, End& to, std::uint16_t number) {
  const Connection& there = to.to(from);
  return from.fabric.mark(from.to(to), number) == Status::ok && within(20s, [&] {
           to.fabric.poll();
           from.fabric.poll();
           return there.marker_heard == number;
         });
}

TEST(VerbsFabric, a_marker_comes_behind_what_was_sent_and_then_both_ends_can_begin_anew) {
  End a(1), b(2);
  connect(a, b);
  aim(a, b);
  ASSERT_EQ(a.fabric.put(*a.channel, 1, 0), Status::ok);
  ASSERT_TRUE(marks(a, b, 1));
  ASSERT_TRUE(b.fabric.take(*b.channel, 1, 0));
  for (std::uint16_t round = 2; round <= 600; ++round) {  // more than there are receives
    const auto number = static_cast<std::uint16_t>(round * 109 % Immediate::markers_max + 1);
    for (std::uint32_t parity = 0; parity < 2; ++parity)
      ASSERT_EQ(a.fabric.put(*a.channel, parity, 0), Status::ok);
    ASSERT_TRUE(marks(a, b, number));
    EXPECT_TRUE(b.fabric.arrived(*b.channel, 0, 0));
    EXPECT_TRUE(b.fabric.arrived(*b.channel, 1, 0));
    // As often as calls are given up: one message is not taken for another one.
    a.channel->forget_messages();
    b.channel->forget_messages();
    EXPECT_FALSE(b.fabric.arrived(*b.channel, 0, 0));
    EXPECT_FALSE(b.fabric.arrived(*b.channel, 1, 0));
  }
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  ASSERT_TRUE(arrives(b));
  EXPECT_FALSE(a.fabric.connections().has_news() || b.fabric.connections().has_news());
  settle(a, b);
}

TEST(VerbsFabric, words_are_polled_only_where_writes_are_placed_in_order) {
  const WordedLimits good{.places_writes_in_order = true, .inline_bytes = 8, .sends_max = 2};
  EXPECT_EQ(why_not_worded(good, "mlx5_0:1"), "");
  WordedLimits bad = good;
  bad.places_writes_in_order = false;
  EXPECT_NE(why_not_worded(bad, "mlx5_0:1")
                .find("mlx5_0:1 does not promise that who sees one sees all before it"),
            std::string::npos);
  bad.found = "by t.json, 3 of them early";
  EXPECT_NE(why_not_worded(bad, "mlx5_0:1").find("device does; by t.json, 3 of them early)"),
            std::string::npos);
  bad = good;
  bad.inline_bytes = 4;
  EXPECT_NE(why_not_worded(bad, "mlx5_0:1").find("has 2 and 4"), std::string::npos);
  bad = good;
  bad.sends_max = 1;
  EXPECT_NE(why_not_worded(bad, "mlx5_0:1").find("has 1 and 8"), std::string::npos);
}

/// Makes the put of `from`'s channel a line into the slot of `to`, as it is attached now.
void aim_line(End& from, End& to, std::uint32_t bytes) {
  const Connection& connection = from.to(to);
  connection.require_lines();
  for (std::uint32_t parity = 0; parity < 2; ++parity) {
    to.channel->await_lines(parity, 0, to.block, to.to(from));
    from.channel->prepare_line(connection, parity, 0,
                               {.local = from.block + 64,
                                .bytes = bytes,
                                .remote_address = reinterpret_cast<std::uint64_t>(to.block),
                                .remote_key = to.fabric.arena().remote_key(),
                                .numbers_from = to.channel->numbers_from()});
  }
}

TEST(Lines, payload_is_there_when_its_number_is_for_all_sizes) {
  for (const std::uint32_t bytes : {0u, 1u, 8u, 40u, 56u}) {
    End a(1), b(2);
    connect(a, b);
    aim_line(a, b, bytes);
    for (int i = 1; i <= 300; ++i) {  // more than there are credits, and receives
      std::memset(a.block + 64, i, 56);
      while (a.fabric.put(*a.channel, 0, 0) == Status::in_progress) a.fabric.poll();
      ASSERT_TRUE(within(2s, [&] { return b.fabric.arrived(*b.channel, 0, 0); })) << i;
      ASSERT_TRUE(b.fabric.take(*b.channel, 0, 0));
      EXPECT_FALSE(b.fabric.take(*b.channel, 0, 0)) << "taken once";
      for (std::uint32_t k = 0; k < bytes; ++k) ASSERT_EQ(b.block[k], std::byte(i)) << k;
      for (std::uint32_t k = bytes; k < 56; ++k) ASSERT_EQ(b.block[k], std::byte(0)) << k;
    }
    EXPECT_EQ(b.fabric.poll(), 0u) << "a line takes no receive";
    settle(a, b);
    EXPECT_FALSE(a.fabric.connections().has_news() || b.fabric.connections().has_news());
  }
}

TEST(Lines, begin_anew_behind_a_marker) {
  End a(1), b(2);
  connect(a, b);
  aim_line(a, b, 8);
  for (std::uint16_t round = 1; round <= 100; ++round) {
    for (int i = 0; i < round % 3; ++i) {
      ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
      ASSERT_TRUE(within(2s, [&] { return b.fabric.take(*b.channel, 0, 0); }));
    }
    ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
    ASSERT_TRUE(marks(a, b, round));
    EXPECT_TRUE(b.fabric.arrived(*b.channel, 0, 0));
    a.channel->forget_messages();
    b.channel->forget_messages();
    EXPECT_FALSE(b.fabric.arrived(*b.channel, 0, 0));
  }
  EXPECT_FALSE(a.fabric.connections().has_news() || b.fabric.connections().has_news());
  settle(a, b);
}

TEST(Lines, drain_waits_for_them_and_a_failed_connection_sends_none) {
  End a(1), b(3);
  {
    End gone(2);
    connect(a, gone);
    connect(a, b);
    aim_line(a, gone, 8);
  }
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  ASSERT_TRUE(within(10s, [&] {
    a.fabric.poll();
    // Whoever awaits lines alone polls all the same: the failure comes with no message.
    while (a.fabric.put(*a.channel, 0, 0) == Status::ok) {
    }
    return a.fabric.connections().has_news();
  }));
  EXPECT_EQ(a.fabric.connections().next_failure().process, 2u);
  EXPECT_EQ(a.fabric.put(*a.channel, 0, 0), Status::transport_failed);
  settle(a, b);
}

TEST(Lines, a_second_message_for_a_slot_fails_its_connection) {
  End a(1), b(2);
  connect(a, b);
  aim_line(a, b, 8);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  EXPECT_FALSE(b.fabric.take(*b.channel, 0, 0));
  ASSERT_TRUE(b.fabric.connections().has_news());
  const TransportFailure failure = b.fabric.connections().next_failure();
  EXPECT_EQ(failure.process, 1u);
  EXPECT_NE(failure.what.find("calls more often"), std::string_view::npos);
  settle(a, b);
}

TEST(Lines, a_message_that_nobody_takes_fails_its_connection_at_an_orderly_end) {
  for (const bool orderly : {true, false}) {
    End a(1), b(2);
    connect(a, b);
    aim_line(a, b, 8);
    ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
    settle(a, b);
    b.attach(orderly);
    EXPECT_EQ(b.fabric.connections().has_news(), orderly);
    if (orderly) {
      EXPECT_EQ(b.fabric.connections().next_failure().process, 1u);
    }
    settle(a, b);
  }
}

TEST(Lines, what_comes_too_late_is_no_message_of_a_later_operation) {
  End a(1), b(2);
  connect(a, b);
  aim_line(a, b, 8);
  // Another operation has the same memory by then, and expects its first message there, too.
  b.attach(true);
  b.channel->await_lines(0, 0, b.block, b.to(a));
  EXPECT_FALSE(b.fabric.take(*b.channel, 0, 0));
  ASSERT_FALSE(b.fabric.connections().has_news());
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  settle(a, b);
  EXPECT_FALSE(b.fabric.take(*b.channel, 0, 0));
  EXPECT_TRUE(b.fabric.connections().has_news()) << "and the next one would be lost";
  EXPECT_EQ(b.fabric.connections().next_failure().process, 1u);
}

TEST(Lines, an_immediate_for_a_slot_of_lines_fails_its_connection) {
  End a(1), b(2);
  connect(a, b);
  aim(a, b);
  b.channel->await_lines(0, 0, b.block, b.to(a));
  ASSERT_EQ(a.fabric.put(*a.channel, 0, 0), Status::ok);
  ASSERT_TRUE(within(2s, [&] {
    b.fabric.poll();
    return b.fabric.connections().has_news();
  }));
  EXPECT_EQ(b.fabric.connections().next_failure().process, 1u);
  settle(a, b);
}

TEST(Lines, devices_that_tear_them_are_refused_by_name) {
  const std::string text = why_not_lines("it is not on the list", "mlx5_0:1");
  for (const char* word :
       {"64 bytes", "mlx5_0:1 does not promise", "it is not on the list", "use immediate"})
    EXPECT_NE(text.find(word), std::string::npos) << text;
  EXPECT_NE(libibverbs_driver().keep_lines_whole(nullptr), nullptr) << "no device is known yet";
}

/// What lets a device be used for lines, and for words after other writes.
TEST(Lines, what_was_found_allows_a_real_device_and_forbids_any) {
  using Says = FoundFact::Says;
  Port real;
  real.description = {.driver = &libibverbs_driver(), .device = "mlx5_0", .port = 1};
  EXPECT_NE(why_not_lines(real).find("tutti-tune looks"), std::string::npos);
  EXPECT_FALSE(places_writes_in_order(real));
  real.placement = {.lines = {.source = "by t.json, 5 lines"}, .order = {.source = "5 words"}};
  EXPECT_NE(why_not_lines(real).find("is seen: by t.json, 5 lines; or use immediate"),
            std::string::npos)
      << why_not_lines(real);
  EXPECT_FALSE(places_writes_in_order(real));
  real.placement.lines.says = Says::holds;
  EXPECT_EQ(why_not_lines(real), "");
  EXPECT_FALSE(places_writes_in_order(real));
  real.placement.order.says = Says::holds;
  EXPECT_TRUE(places_writes_in_order(real));
  real.placement.lines.says = real.placement.order.says = Says::violated;
  EXPECT_NE(why_not_lines(real).find("by t.json, 5 lines"), std::string::npos);
  EXPECT_FALSE(places_writes_in_order(real));

  Port soft = open_port("soft0");
  EXPECT_EQ(why_not_lines(soft), "");
  EXPECT_TRUE(places_writes_in_order(soft));
  soft.placement.lines = {.says = Says::violated, .source = "by t.json, 1 of them torn"};
  EXPECT_NE(why_not_lines(soft).find("1 of them torn"), std::string::npos);
  soft.placement.order.says = Says::violated;
  EXPECT_FALSE(places_writes_in_order(soft));
}

TEST(LinesDeathTest, what_does_not_fit_is_a_programmers_error) {
  // A forked child has no arena, so the test begins anew there.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  End a(1), b(2);
  connect(a, b);
  EXPECT_DEATH(aim_line(a, b, 57), "fits");
}

}  // namespace
}  // namespace tutti::verbs
