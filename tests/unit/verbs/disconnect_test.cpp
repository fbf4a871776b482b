// Promise: connections that no channel uses are closed when others need their place, the least
// recently used first; no message is lost by it, no other connection is touched, and what both ends
// know of it may differ until they next need each other.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tutti/detail/clock.hpp>
#include <tutti/status.hpp>
#include <vector>

#include "verbs/verbs_fabric.hpp"

namespace tutti::verbs {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t slots = 48;

/// One end, with memory for the slots and what is sent, and at most `most` connections.
struct End {
  explicit End(std::uint64_t given_key, std::uint32_t most = 2, const QueuePairLimits& limits = {})
      : key(given_key),
        fabric(
            {.device = "soft0",
             .arena_bytes = 1 << 16,
             .connections = {.queue_pair = limits, .path = {.timeout = 10}, .count_max = most}}) {
    block = fabric.arena().allocate(8 * 2 * slots);
  }

  Connections& connections() { return fabric.connections(); }
  Connection& to(const End& other) { return connections()[connections().to(other.key)]; }
  bool has(const End& other) { return connections().has(other.key); }
  void make_room_for(std::vector<std::uint64_t> processes) {
    fabric.make_room_for(processes, clock, 10s);
  }
  /// The numbers of a refusal; empty if there is room.
  std::string refusal(std::vector<std::uint64_t> processes) try {
    make_room_for(processes);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::limit_exceeded);
    return error.what();
  }

  std::uint64_t key;
  VerbsFabric fabric;
  detail::MonotonicClock clock;
  std::byte* block;
};

/// An operation of two ends, in which the first one sends.
struct Operation {
  Operation(End& given_from, End& given_to) : from(given_from), to(given_to) {
    from.make_room_for({to.key});
    to.make_room_for({from.key});
    from.fabric.attach(sends);
    id = to.fabric.attach(receives);
    use(from, sends, to);
    use(to, receives, from);
    // As when an operation is made: who has no connection offers one, and who has an old one drops
    // it for that.
    if (from.to(to).connected != to.to(from).connected) {
      End& knows_less = from.to(to).connected ? from : to;
      End& other = &knows_less == &from ? to : from;
      VerbsChannel& channel = &knows_less == &from ? sends : receives;
      knows_less.fabric.supersede(channel, knows_less.to(other));
      use(knows_less, channel, other);
      ++superseded;
    }
    if (!from.to(to).connected) {
      const NewPartner there{from.to(to).index, to.connections().endpoint(to.to(from).index),
                             "the receiver"};
      const NewPartner here{to.to(from).index, from.connections().endpoint(from.to(to).index),
                            "the sender"};
      from.connections().connect({&there, 1});
      to.connections().connect({&here, 1});
    }
    for (std::uint32_t slot = 0; slot < slots; ++slot)
      for (std::uint32_t parity = 0; parity < 2; ++parity)
        sends.prepare(from.to(to), parity, slot,
                      {.local = from.block + 8 * (slots + slot),
                       .bytes = 8,
                       .local_key = from.fabric.arena().local_key(),
                       .remote_address = reinterpret_cast<std::uint64_t>(to.block + 8 * slot),
                       .remote_key = to.fabric.arena().remote_key(),
                       .notification = {.operation = id, .parity = parity, .slot = slot}});
  }
  ~Operation() {
    end_sender();
    end_receiver();
  }

  static void use(End& end, VerbsChannel& channel, const End& other) {
    end.fabric.use(channel, end.to(other));
    if (channel.numbers_from() != 0) channel.reserve_receive(end.to(other));
  }
  /// Sends as many messages, each of another value.
  void send(std::uint32_t count, std::uint64_t value) {
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      const std::uint64_t sent = value + slot;
      std::memcpy(from.block + 8 * (slots + slot), &sent, 8);
      ASSERT_EQ(from.fabric.put(sends, 0, slot), Status::ok);
    }
    EXPECT_TRUE(from.fabric.drain(sends, from.clock, 20s, [](std::uint64_t) { return false; }));
  }
  bool receive(std::uint32_t count, std::uint64_t value) {
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      for (const Timeout end = to.clock.now() + 20s; !to.fabric.take(receives, 0, slot);) {
        to.fabric.poll();
        if (to.clock.now() > end) return false;
      }
      std::uint64_t received = 0;
      std::memcpy(&received, to.block + 8 * slot, 8);
      if (received != value + slot) return false;
    }
    return true;
  }
  void end_sender() {
    if (!sender_ended) from.fabric.detach(sends, true);
    sender_ended = true;
  }
  void end_receiver() {
    if (!receiver_ended) to.fabric.detach(receives, true);
    receiver_ended = true;
  }

  End& from;
  End& to;
  VerbsChannel sends{slots, slots}, receives{slots, slots};
  std::uint32_t id = 0;
  int superseded = 0;
  bool sender_ended = false, receiver_ended = false;
};

/// An operation from beginning to end.  Whether its messages were right, and whether the connection
/// was made anew.
struct Outcome {
  bool right = false, is_new = false;
  int superseded = 0;
};
Outcome run(End& from, End& to, std::uint32_t count, std::uint64_t value) {
  const std::uint64_t made = from.connections().made();
  Operation operation(from, to);
  operation.send(count, value);
  return {.right = operation.receive(count, value),
          .is_new = from.connections().made() > made,
          .superseded = operation.superseded};
}

void expect_no_news(std::initializer_list<End*> ends) {
  for (End* end : ends) {
    while (end->fabric.poll() > 0) {
    }
    EXPECT_FALSE(end->connections().has_news()) << "of end " << end->key;
  }
}

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* const word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "no \"" << word << "\" in: " << text;
}

TEST(Disconnect, the_least_recently_used_connection_makes_room) {
  End a(1), b(2), c(3), d(4);
  EXPECT_TRUE(run(a, b, 3, 10).is_new);
  EXPECT_TRUE(run(a, c, 3, 20).is_new);
  EXPECT_FALSE(run(a, b, 3, 30).is_new);  // b is now used later than c
  EXPECT_TRUE(run(a, d, 3, 40).right);
  EXPECT_EQ(a.connections().count(), 2u);
  EXPECT_TRUE(a.has(b) && a.has(d));
  EXPECT_FALSE(a.has(c));
  // c has not looked yet, and learns of it when it makes its next operation.
  EXPECT_EQ(c.connections().count(), 1u);
  c.make_room_for({});
  EXPECT_EQ(c.connections().count(), 0u);
  expect_no_news({&a, &b, &c, &d});
}

TEST(Disconnect, what_live_channels_use_stays_and_the_refusal_has_the_numbers) {
  End a(1), b(2), c(3);
  Operation one(a, b), other(a, c);
  const std::string refused = a.refusal({4});
  expect_words(refused, {"has 2 connections", "0 can be closed", "1 more", "at most 2",
                         "TUTTI_CONNECTIONS_MAX", "; destroy operations"});
  EXPECT_EQ(refused.find("another context"), std::string::npos) << refused;
  other.end_sender();
  EXPECT_NE(a.refusal({4, 5}), "");
  EXPECT_TRUE(a.has(c)) << "closed although there cannot be room";
  EXPECT_EQ(a.refusal({2, 3}), "");
  EXPECT_EQ(a.refusal({4}), "");
  EXPECT_FALSE(a.has(c));
  one.send(3, 7);
  EXPECT_TRUE(one.receive(3, 7));
}

TEST(Disconnect, what_peers_have_closed_or_left_takes_no_room) {
  End a(1), b(2, 1), c(3);
  {
    End gone(5);
    EXPECT_TRUE(run(a, b, 3, 1).right);
    EXPECT_TRUE(run(a, gone, 3, 1).right);
    EXPECT_TRUE(run(c, b, 3, 1).right);  // closes the connection to a
    gone.fabric.take_leave(gone.clock, 10s);
  }
  const std::uint64_t one[] = {6}, both[] = {6, 7}, three[] = {6, 7, 8}, again[] = {2, 6};
  const Connection& of_b = a.to(b);
  EXPECT_TRUE(a.connections().can_have_room_for(both)) << "both can be closed";
  while (a.fabric.poll() > 0) {
  }
  ASSERT_TRUE(of_b.peer_closed);
  EXPECT_EQ(a.connections().count(), 2u);
  EXPECT_TRUE(a.connections().can_have_room_for(one));
  EXPECT_TRUE(a.connections().can_have_room_for(both));
  EXPECT_TRUE(a.connections().can_have_room_for(again));
  EXPECT_FALSE(a.connections().can_have_room_for(three));
  EXPECT_EQ(a.refusal({6, 7}), "");
  EXPECT_EQ(a.connections().count(), 0u);
  expect_no_news({&a, &b, &c});
}

TEST(Disconnect, a_channel_that_ended_in_doubt_keeps_its_connection) {
  End a(1, 1), b(2);
  Operation operation(a, b);
  operation.sender_ended = true;
  a.fabric.detach(operation.sends, false);
  expect_words(a.refusal({3}),
               {"0 can be closed", "1 are lost", "have failed", "make another context"});
  EXPECT_TRUE(a.has(b));
}

/// Makes a connection of a to b fail whose last operation has ended.
Connection& failed_connection(End& a, End& b) {
  EXPECT_TRUE(run(a, b, 1, 1).right);
  Connection& lost = a.to(b);
  a.connections().fail(lost, {.process = b.key, .what = "fails by this test"});
  return lost;
}

TEST(Disconnect, what_has_failed_and_nobody_uses_goes_first) {
  End a(1), b(2), c(3), d(4);
  EXPECT_TRUE(run(a, c, 1, 1).right);
  ASSERT_TRUE(failed_connection(a, b).failed);
  EXPECT_TRUE(a.has(b)) << "a set-up with b is told of it as long as nobody needs its place";
  EXPECT_TRUE(run(a, d, 3, 40).right);
  EXPECT_EQ(a.connections().count(), 2u);
  EXPECT_TRUE(a.has(c) && a.has(d)) << "used less recently than what had failed";
  EXPECT_FALSE(a.has(b));
  ASSERT_TRUE(a.connections().has_news()) << "closing it does not hide that it had failed";
  EXPECT_EQ(a.connections().next_failure().process, b.key);
  // b knows nothing of it, and is told by the next offer, like of any other that was closed.
  EXPECT_EQ(run(a, b, 3, 50).superseded, 1);
  expect_no_news({&a, &b, &c, &d});
}

TEST(Disconnect, what_has_failed_keeps_its_place_while_a_channel_uses_it) {
  End a(1), b(2), c(3);
  Operation live(a, c);
  Operation over_lost(a, b);
  a.connections().fail(a.to(b), {.process = b.key, .what = "fails by this test"});
  (void)a.connections().next_failure();
  expect_words(a.refusal({4}),
               {"has 2 connections", "0 can be closed, and needs 1 more", "; destroy operations"});
  over_lost.sender_ended = true;
  a.fabric.detach(over_lost.sends, false);
  EXPECT_EQ(a.refusal({4}), "") << "failed, it is not in doubt any more";
  EXPECT_FALSE(a.has(b));
  EXPECT_TRUE(a.has(c));
  // Many in a row: the places of all of them are used again.
  for (int round = 0; round < 5; ++round) {
    (void)failed_connection(a, b);
    (void)a.connections().next_failure();
    EXPECT_EQ(a.refusal({4}), "");
    EXPECT_EQ(a.connections().count(), 1u);
  }
}

TEST(Disconnect, messages_that_were_sent_before_are_received_after) {
  End a(1, 1), b(2), c(3);
  Operation late(a, b);
  late.send(slots, 100);
  late.end_sender();
  EXPECT_TRUE(run(a, c, 1, 1).right);  // closes the connection to b, which has not polled
  ASSERT_FALSE(a.has(b));
  b.make_room_for({});  // may close its end, though an operation there is not done
  EXPECT_TRUE(late.receive(slots, 100));
  EXPECT_TRUE(b.fabric.drain(late.receives, b.clock, 1s, [](std::uint64_t) { return false; }));
  late.end_receiver();
  EXPECT_TRUE(run(b, a, 3, 5).right);
  expect_no_news({&a, &b, &c});
}

TEST(Disconnect, an_end_that_has_not_polled_is_told_by_the_next_offer) {
  End a(1, 1), b(2, 1), c(3);
  Operation late(a, b);
  late.send(slots, 100);
  late.end_sender();
  EXPECT_TRUE(run(a, c, 1, 1).right);
  Connection& old = b.to(a);
  VerbsChannel next(0, 1);
  (void)b.fabric.attach(next);
  b.fabric.use(next, old);
  next.reserve_receive(old);
  const std::uint32_t reserved = old.receives_reserved;
  b.fabric.supersede(next, old);
  EXPECT_EQ(old.receives_reserved, reserved - 2);
  EXPECT_FALSE(old.pair) << "all that came along it has been polled";
  EXPECT_NE(&b.to(a), &old);
  EXPECT_EQ(b.connections().count(), 1u) << "there is room for it";
  EXPECT_FALSE(b.to(a).connected);
  b.connections().abandon_from(b.to(a).serial);
  b.fabric.detach(next, true);
  EXPECT_TRUE(late.receive(slots, 100));
  late.end_receiver();
  EXPECT_TRUE(run(a, b, 3, 5).right);
  expect_no_news({&a, &b, &c});
}

TEST(Disconnect, what_may_still_come_keeps_an_end_that_is_superseded) {
  End a(1, 1), b(2), c(3);
  Operation late(a, b);
  late.send(slots, 100);
  late.end_sender();
  EXPECT_TRUE(run(a, c, 1, 1).right);
  // As if what a has sent last had not come yet.
  Connection& old = b.to(a);
  b.connections().supersede(old);
  EXPECT_TRUE(old.pair) << "a channel still receives along it";
  EXPECT_NE(&b.to(a), &old);
  b.connections().abandon_from(b.to(a).serial);
  EXPECT_TRUE(late.receive(slots, 100));
  late.end_receiver();
  EXPECT_TRUE(run(a, b, 3, 5).right);
  expect_no_news({&a, &b, &c});
}

TEST(Disconnect, a_set_up_that_hears_of_it_keeps_its_connection_until_it_replaces_it) {
  End a(1, 1), b(2, 1), c(3);
  EXPECT_TRUE(run(a, b, 3, 1).right);
  VerbsChannel next(0, 1);
  (void)b.fabric.attach(next);
  Connection& old = b.to(a);
  b.fabric.use(next, old);
  next.reserve_receive(old);
  EXPECT_TRUE(run(a, c, 1, 1).right);  // closes the connection to b
  while (b.fabric.poll() > 0) {
  }
  EXPECT_TRUE(old.peer_closed);
  EXPECT_FALSE(b.has(a));
  EXPECT_EQ(&b.connections().last_to(a.key), &old) << "the same one during a set-up";
  EXPECT_TRUE(old.connected) << "so that what was said to the peer, or will be, is the same";
  // The peer offers another one.
  b.fabric.supersede(next, old);
  EXPECT_EQ(old.users, 0u);
  b.fabric.use(next, b.to(a));  // there is room for it
  EXPECT_FALSE(b.connections().last_to(a.key).connected);
  EXPECT_EQ(b.connections().last_to(a.key).users, 1u);
  EXPECT_EQ(b.connections().count(), 1u);
  const std::uint64_t serial = b.to(a).serial;
  b.fabric.detach(next, true);
  b.connections().abandon_from(serial);
  EXPECT_TRUE(run(b, a, 3, 5).right);
  expect_no_news({&a, &b, &c});
}

TEST(Disconnect, one_that_a_peer_has_closed_makes_room_for_the_next_to_that_peer) {
  End a(1, 1), b(2, 1), c(3);
  EXPECT_TRUE(run(a, b, 3, 1).right);
  EXPECT_TRUE(run(a, c, 1, 1).right);
  while (b.fabric.poll() > 0) {
  }
  EXPECT_FALSE(b.has(a));
  EXPECT_FALSE(b.to(a).connected);
  EXPECT_EQ(b.connections().count(), 1u);
  b.connections().abandon_from(b.to(a).serial);
  EXPECT_TRUE(run(b, a, 3, 5).right);
  expect_no_news({&a, &b, &c});
}

TEST(Disconnect, both_ends_may_close_it_at_the_same_time) {
  for (int turn = 0; turn < 20; ++turn) {
    End a(1, 1), b(2, 1);
    EXPECT_TRUE(run(a, b, 3, 1).right);
    std::thread other([&] { b.make_room_for({9}); });
    a.make_room_for({8});
    other.join();
    EXPECT_EQ(a.connections().count() + b.connections().count(), 0u);
    expect_no_news({&a, &b});
    EXPECT_TRUE(run(b, a, 3, 1).right);
  }
}

TEST(Disconnect, a_peer_that_is_gone_holds_up_nobody) {
  End a(1, 1), c(3);
  {
    End gone(2);
    EXPECT_TRUE(run(a, gone, 3, 1).right);
  }
  const Timeout begin = a.clock.now();
  EXPECT_TRUE(run(a, c, 3, 1).right);
  EXPECT_LT(a.clock.now() - begin, 5s);
  expect_no_news({&a, &c});
}

TEST(Disconnect, who_sends_on_afterwards_has_called_too_often) {
  End a(1), b(2, 1), c(3);
  Operation operation(a, b);
  operation.end_receiver();
  EXPECT_TRUE(run(c, b, 3, 1).right);
  while (a.fabric.poll() > 0) {
  }
  EXPECT_EQ(a.fabric.put(operation.sends, 0, 0), Status::transport_failed);
  ASSERT_TRUE(a.connections().has_news());
  const TransportFailure failure = a.connections().next_failure();
  EXPECT_EQ(failure.process, 2u);
  EXPECT_NE(failure.what.find("has ended the operation"), std::string::npos);
  EXPECT_EQ(a.connections()[0].room(1), Status::transport_failed);
}

TEST(Disconnect, a_send_too_many_that_was_posted_before_it_was_heard_is_news_too) {
  End a(1), b(2, 1), c(3);
  Operation operation(a, b);
  operation.end_receiver();
  EXPECT_TRUE(run(c, b, 3, 1).right);
  ASSERT_EQ(a.fabric.put(operation.sends, 0, 0), Status::ok) << "nothing has been polled";
  const Deadline deadline = Deadline::after(20s, a.clock.now());
  while (!a.connections().has_news() && !deadline.passed(a.clock.now())) (void)a.fabric.poll();
  ASSERT_TRUE(a.connections().has_news());
  EXPECT_EQ(a.connections().next_failure().process, 2u);
}

/// The first completion queue has room for one connection of so many receives, so that what comes
/// by one connection may be polled before what came earlier by another.
TEST(Disconnect, connections_of_several_completion_queues_are_closed_and_made_anew) {
  const QueuePairLimits long_queues{.receives_max = 16384};
  End a(1, 2, long_queues), b(2, 2, long_queues), c(3, 2, long_queues), d(4, 2, long_queues);
  EXPECT_TRUE(run(a, b, 3, 1).right);
  EXPECT_TRUE(run(a, c, 3, 1).right);
  ASSERT_EQ(a.connections().completion_queues().all().size(), 2u);
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    Operation late(a, b);
    late.send(slots, 100 * turn);
    late.end_sender();
    EXPECT_TRUE(run(a, d, 3, turn).right);
    EXPECT_TRUE(run(a, c, 3, turn).right);
    ASSERT_FALSE(a.has(b));
    EXPECT_TRUE(run(b, a, 3, turn).right);  // though an operation there is not done
    EXPECT_TRUE(late.receive(slots, 100 * turn));
    late.end_receiver();
  }
  expect_no_news({&a, &b, &c, &d});
  EXPECT_EQ(a.connections().completion_queues().all().size(), 2u);
}

TEST(Disconnect, thousands_over_changing_partners_take_no_more_than_a_few) {
  constexpr std::uint32_t ends = 6;
  std::vector<std::unique_ptr<End>> all;
  for (std::uint32_t key = 1; key <= ends; ++key) all.push_back(std::make_unique<End>(key, 3));
  int made = 0, superseded = 0;
  std::uint32_t index_max = 0;
  std::uint32_t state = 1;
  const auto random = [&](std::uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % below;
  };
  for (std::uint64_t round = 0; round < 3000; ++round) {
    const std::uint32_t from = random(ends);
    const std::uint32_t to = (from + 1 + random(ends - 1)) % ends;
    const Outcome one = run(*all[from], *all[to], 1 + random(slots), round << 8);
    ASSERT_TRUE(one.right) << "in round " << round;
    made += one.is_new;
    superseded += one.superseded;
    index_max = std::max(index_max, all[from]->to(*all[to]).index);
    for (const auto& end : all) ASSERT_LE(end->connections().count(), 3u);
  }
  EXPECT_GT(made, 500);
  for (const auto& end : all) {
    expect_no_news({end.get()});
    EXPECT_EQ(end->connections().completion_queues().all().size(), 1u);
  }
  EXPECT_LE(index_max, 4u) << "indices are not used again";
  std::printf("%d connections made, %d superseded\n", made, superseded);
}

}  // namespace
}  // namespace tutti::verbs
