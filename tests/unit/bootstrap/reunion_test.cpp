// Promise: the ranks that are still there meet, all the same ones, whichever are gone; a rank that
// does not come is named, and met when it comes.
#include "bootstrap/reunion.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "bootstrap/socket.hpp"
#include "bootstrap/tcp_exchange.hpp"
#include "tutti/detail/clock.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;
using Places = std::vector<std::unique_ptr<MeetingPlace>>;

std::vector<Rank> ranks_of(std::initializer_list<std::uint32_t> numbers) {
  std::vector<Rank> ranks;
  for (const std::uint32_t number : numbers) ranks.push_back(Rank{number});
  return ranks;
}

/// Places of so many ranks, which know each other.
Places places_of(std::size_t count, std::vector<MeetingCard>* known = nullptr) {
  Places places;
  std::vector<MeetingCard> cards;
  for (std::size_t rank = 0; rank < count; ++rank) {
    places.push_back(std::make_unique<MeetingPlace>(true));
    cards.push_back(places.back()->card());
  }
  for (std::size_t rank = 0; rank < count; ++rank)
    places[rank]->know(cards, Rank{static_cast<std::uint32_t>(rank)});
  if (known != nullptr) *known = cards;
  return places;
}

struct Ending {
  std::vector<Rank> ranks;
  bool has_met = false;
  std::vector<std::uint32_t> gathered;  // over the exchange: which rank each was before
};

Ending meet(MeetingPlace& place, std::uint32_t rank, Timeout timeout) {
  MeetingPlace::Met met = place.meet(Deadline::after(timeout, detail::MonotonicClock::read()), 10s);
  Ending ending{.ranks = met.ranks, .has_met = met.exchange != nullptr, .gathered = {}};
  if (!met.exchange) return ending;
  ending.gathered.resize(met.exchange->rank_count());
  met.exchange->allgather(std::as_bytes(std::span(&rank, 1)),
                          std::as_writable_bytes(std::span(ending.gathered)), 10s);
  return ending;
}

/// The ranks that have a place meet, each in a thread, one 20 ms after another.
std::vector<Ending> meet_all(Places& places, Timeout timeout, bool lowest_is_last = false) {
  std::vector<Ending> endings(places.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t rank = lowest_is_last ? places.size() - 1 - i : i;
    if (!places[rank]) continue;
    threads.emplace_back([&, rank] {
      endings[rank] = meet(*places[rank], static_cast<std::uint32_t>(rank), timeout);
    });
    std::this_thread::sleep_for(20ms);
  }
  for (std::thread& thread : threads) thread.join();
  return endings;
}

void expect_met(const std::vector<Ending>& endings, std::initializer_list<std::uint32_t> numbers) {
  for (const std::uint32_t rank : numbers) {
    EXPECT_TRUE(endings[rank].has_met) << "rank " << rank;
    EXPECT_EQ(endings[rank].ranks, ranks_of(numbers)) << "rank " << rank;
    EXPECT_EQ(endings[rank].gathered, std::vector<std::uint32_t>(numbers)) << "rank " << rank;
  }
}

TEST(Reunion, all_meet_as_often_as_they_like) {
  Places places = places_of(4);
  for (int time = 0; time < 3; ++time)
    expect_met(meet_all(places, 10s, time % 2 == 1), {0, 1, 2, 3});
}

TEST(Reunion, one_that_is_alone_meets_itself) {
  Places places = places_of(3);
  places[0].reset();
  places[2].reset();
  expect_met(meet_all(places, 10s), {1});
}

TEST(Reunion, those_that_are_gone_are_left_out) {
  for (const bool lowest_is_last : {false, true}) {
    Places places = places_of(6);
    for (const std::size_t gone : {0u, 1u, 4u}) places[gone].reset();
    expect_met(meet_all(places, 10s, lowest_is_last), {2, 3, 5});
    places[2].reset();
    expect_met(meet_all(places, 10s, lowest_is_last), {3, 5});
  }
}

/// Rank 0 leads, and goes when the others wait for it; so does rank 2, which they wait for.
TEST(Reunion, those_that_go_while_others_wait_are_left_out) {
  Places places = places_of(4);
  std::vector<Ending> endings(4);
  std::vector<std::thread> threads;
  for (const std::uint32_t rank : {1u, 3u})
    threads.emplace_back([&, rank] { endings[rank] = meet(*places[rank], rank, 10s); });
  std::this_thread::sleep_for(50ms);
  places[0].reset();
  std::this_thread::sleep_for(50ms);
  places[2].reset();
  for (std::thread& thread : threads) thread.join();
  expect_met(endings, {1, 3});
}

/// The leader gives up, and so do the others; then all meet.
TEST(Reunion, one_that_does_not_come_is_named_and_met_later) {
  for (const std::uint32_t late : {0u, 1u, 2u}) {
    Places places = places_of(3);
    std::unique_ptr<MeetingPlace> absent = std::move(places[late]);
    const std::vector<Ending> endings = meet_all(places, 200ms);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      if (rank == late) continue;
      EXPECT_FALSE(endings[rank].has_met);
      EXPECT_EQ(endings[rank].ranks, ranks_of({late})) << "rank " << rank;
    }
    places[late] = std::move(absent);
    expect_met(meet_all(places, 10s), {0, 1, 2});
  }
}

/// Nobody reads what waits in the queue of a rank's port until it meets others.
TEST(Reunion, strangers_in_the_queue_do_no_harm) {
  std::vector<MeetingCard> cards;
  Places places = places_of(3, &cards);
  std::vector<UnsharedDescriptor> strangers;
  for (const MeetingCard& card : cards)
    for (int i = 0; i < 40; ++i) {
      Address place;
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = card.port;
      std::memcpy(&address.sin_addr, card.address.data(), sizeof address.sin_addr);
      std::memcpy(&place.storage, &address, sizeof address);
      place.bytes = sizeof address;
      strangers.push_back(
          connect_to({&place, 1}, Deadline::after(5s, detail::MonotonicClock::read())));
      ASSERT_TRUE(strangers.back());
      std::size_t sent = 0;
      const char text[] = "GET / HTTP/1.1\r\n\r\n";
      EXPECT_TRUE(send_some(strangers.back().get(), std::as_bytes(std::span(text)), sent));
      if (i % 2 == 0) strangers.pop_back();
    }
  expect_met(meet_all(places, 10s), {0, 1, 2});
  places[0].reset();
  expect_met(meet_all(places, 10s), {1, 2});
}

/// A place that other ranks have is refused at the port of this one, as any other secret is.
TEST(Reunion, ranks_of_another_communicator_are_not_met) {
  std::vector<MeetingCard> cards, of_others;
  Places places = places_of(2, &cards), others = places_of(2, &of_others);
  // The port of rank 0 is that of another communicator now.
  places[0].reset();
  cards[0].port = of_others[0].port;
  places[1]->know(cards, Rank{1});
  std::vector<Ending> endings(2);
  std::thread other([&] { (void)meet(*others[0], 0, 500ms); });
  endings[1] = meet(*places[1], 1, 300ms);
  other.join();
  // It cannot tell whether its rank 0 is there until the port refuses connections.
  EXPECT_FALSE(endings[1].has_met);
  others[0].reset();
  endings[1] = meet(*places[1], 1, 10s);
  EXPECT_TRUE(endings[1].has_met);
  EXPECT_EQ(endings[1].ranks, ranks_of({1}));
}

/// A firewall that refuses connections is noticed before any rank is taken for gone.
TEST(Reunion, a_host_that_refuses_connections_is_an_obstacle) {
  std::vector<MeetingCard> cards;
  Places places = places_of(3, &cards);
  const Deadline soon = Deadline::after(5s, detail::MonotonicClock::read());
  EXPECT_EQ(places[0]->obstacle(soon), "");  // all are of one host
  cards[2].address = {127, 0, 0, 2};         // where nobody listens
  places[0]->know(cards, Rank{0});
  EXPECT_TRUE(places[0]->obstacle(soon).starts_with(
      "this rank cannot connect to rank 2 of another host, as TUTTI_SHRINKABLE "))
      << places[0]->obstacle(soon);
}

/// The port of a rank is gone when it dies, whatever children it has.
TEST(Reunion, a_forked_child_does_not_keep_the_port) {
  Places places = places_of(2);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(ends[1]);
    ::_exit(::read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(ends[0]);
  places[0].reset();
  expect_met(meet_all(places, 10s), {1});
  ::close(ends[1]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tutti::bootstrap
