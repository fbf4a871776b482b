// Promise: the ranks that are still there meet, all the same ones, whichever are gone; a rank that
// does not come is named, and met when it comes.
#include "bootstrap/reunion.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/frame.hpp"
#include "bootstrap/socket.hpp"
#include "bootstrap/tcp_exchange.hpp"
#include "bootstrap/wire.hpp"
#include "silent_hosts.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/status.hpp"

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
    cards.push_back(places.back()->card(Rank{static_cast<std::uint32_t>(rank)}));
  }
  for (std::size_t rank = 0; rank < count; ++rank)
    places[rank]->know(cards, Rank{static_cast<std::uint32_t>(rank)});
  if (known != nullptr) *known = cards;
  return places;
}

Deadline in(Timeout timeout) {
  return Deadline::after(timeout, detail::MonotonicClock::read());
}

Address place_of(const MeetingCard& card) {
  Address place;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = card.port;
  std::memcpy(&address.sin_addr, card.address.data(), sizeof address.sin_addr);
  std::memcpy(&place.storage, &address, sizeof address);
  place.bytes = sizeof address;
  return place;
}

/// Another program that has got the port of a rank that is gone.  It accepts connections, as its
/// kernel does, and says `words` on each of them.
class Stranger {
 public:
  explicit Stranger(const MeetingCard& card, std::string words = "")
      : listener_(listen_at(std::vector{place_of(card)}, "the test's port")),
        words_(std::move(words)) {
    if (words_.empty()) return;
    thread_ = std::thread([this] {
      std::vector<UnsharedDescriptor> clients;
      while (!ends_) {
        if (UnsharedDescriptor client = UnsharedDescriptor::made_by([&] {
              return ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            })) {
          std::size_t sent = 0;
          (void)send_some(client.get(), std::as_bytes(std::span(words_)), sent);
          clients.push_back(std::move(client));
        }
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  UnsharedDescriptor listener_;
  std::string words_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

struct Ending {
  std::vector<Rank> ranks;  // who has come, or who is missing
  bool has_met = false;
  std::vector<std::uint32_t> gathered;  // over the exchange: which rank each was before
};

Ending meet(MeetingPlace& place, std::uint32_t rank, Timeout timeout,
            std::span<const Rank> ended = {}) {
  MeetingPlace::Met met = place.meet(in(timeout), 10s, ended);
  EXPECT_NE(met.present.empty(), met.missing.empty());
  EXPECT_EQ(met.present.empty(), met.exchange == nullptr);
  Ending ending{.ranks = met.exchange ? met.present : met.missing,
                .has_met = met.exchange != nullptr,
                .gathered = {}};
  if (!met.exchange) return ending;
  ending.gathered.resize(met.exchange->rank_count());
  met.exchange->allgather(std::as_bytes(std::span(&rank, 1)),
                          std::as_writable_bytes(std::span(ending.gathered)), 10s);
  return ending;
}

/// The ranks that have a place meet, each in a thread, one 20 ms after another.
std::vector<Ending> meet_all(Places& places, Timeout timeout, bool lowest_is_last = false,
                             const std::vector<Rank>& ended = {}) {
  std::vector<Ending> endings(places.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t rank = lowest_is_last ? places.size() - 1 - i : i;
    if (!places[rank]) continue;
    threads.emplace_back([&, rank] {
      endings[rank] = meet(*places[rank], static_cast<std::uint32_t>(rank), timeout, ended);
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
      const Address place = place_of(card);
      strangers.push_back(connect_to({&place, 1}, in(5s)));
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

/// A leader whose own time is up ends nobody else's call: who has more time meets it when it comes
/// again.
TEST(Reunion, a_leader_that_gives_up_earlier_is_waited_for) {
  Places places = places_of(3);
  std::vector<Ending> endings(3);
  std::thread patient([&] { endings[1] = meet(*places[1], 1, 10s); });
  const Ending first = meet(*places[0], 0, 100ms);
  EXPECT_FALSE(first.has_met);
  EXPECT_EQ(first.ranks, ranks_of({2}));
  std::this_thread::sleep_for(50ms);
  std::thread late([&] { endings[2] = meet(*places[2], 2, 10s); });
  endings[0] = meet(*places[0], 0, 10s);
  patient.join();
  late.join();
  expect_met(endings, {0, 1, 2});
}

/// A listener that gets the port of a rank which was left out is not taken for that rank.
TEST(Reunion, a_port_that_changes_hands_after_a_meeting_holds_up_nobody) {
  for (const std::uint32_t gone : {0u, 2u}) {
    std::vector<MeetingCard> cards;
    Places places = places_of(3, &cards);
    places[gone].reset();
    const std::initializer_list<std::uint32_t> left = {gone == 0 ? 1u : 0u, gone == 0 ? 2u : 1u};
    expect_met(meet_all(places, 10s), left);
    const Stranger stranger(cards[gone]);
    expect_met(meet_all(places, 10s), left);
  }
}

/// Before the first meeting only what is known of its process tells that a rank is gone whose port
/// another program has, unless that program says something.
TEST(Reunion, a_port_that_changes_hands_before_is_that_of_a_rank_that_is_stopped) {
  for (const std::uint32_t gone : {0u, 2u}) {
    std::vector<MeetingCard> cards;
    Places places = places_of(3, &cards);
    places[gone].reset();
    const std::uint32_t first = gone == 0 ? 1 : 0, second = gone == 0 ? 2 : 1;
    {
      const Stranger stranger(cards[gone]);
      const std::vector<Ending> endings = meet_all(places, 200ms);
      for (const std::uint32_t rank : {first, second}) {
        EXPECT_FALSE(endings[rank].has_met);
        EXPECT_EQ(endings[rank].ranks, ranks_of({gone}));
      }
      expect_met(meet_all(places, 10s, false, ranks_of({gone})), {first, second});
    }
    const Stranger stranger(cards[gone], "220 ready\r\n");
    for (std::size_t rank = 0; rank < 3; ++rank)  // what they have found out is forgotten
      if (places[rank]) places[rank]->know(cards, Rank{static_cast<std::uint32_t>(rank)});
    expect_met(meet_all(places, 10s), {first, second});
  }
}

/// A program that does not know the secret decides nothing, whatever it answers.
TEST(Reunion, a_stranger_that_refuses_is_no_leader) {
  for (const wire::Reason reason : {wire::Reason::left_out, wire::Reason::rank_taken}) {
    std::vector<MeetingCard> cards;
    Places places = places_of(3, &cards);
    places[0].reset();
    std::vector<std::byte> frame;
    const wire::Refusal refusal{reason, 0};
    append_frame(frame, wire::FrameType::refusal, bytes_of(refusal));
    const Stranger stranger(cards[0],
                            std::string(reinterpret_cast<const char*>(frame.data()), frame.size()));
    expect_met(meet_all(places, 10s), {1, 2});
  }
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
  endings[1] = meet(*places[1], 1, 10s);
  other.join();
  EXPECT_TRUE(endings[1].has_met);
  EXPECT_EQ(endings[1].ranks, ranks_of({1}));
}

/// Only rank 0's secret is used, so only that one is sent.
TEST(Reunion, one_secret_is_sent) {
  const MeetingPlace place(true);
  EXPECT_NE(place.card(Rank{0}).secret, MeetingCard{}.secret);
  EXPECT_EQ(place.card(Rank{1}).secret, MeetingCard{}.secret);
}

/// Ranks of two networks, such as containers of two hosts, may have one address: then each would
/// connect to itself.
TEST(Reunion, one_address_in_two_networks_is_refused) {
  MeetingPlace place(true);
  std::vector<MeetingCard> cards(3, place.card(Rank{0}));
  EXPECT_NE(cards[0].network, 0u);
  EXPECT_NO_THROW(place.know(cards, Rank{0}));
  cards[1].network = 0;  // not known
  EXPECT_NO_THROW(place.know(cards, Rank{0}));
  cards[2].network ^= 2;
  try {
    place.know(cards, Rank{0});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_TRUE(std::string(error.what())
                    .starts_with("ranks 0 and 2 are in different networks, and both have the "
                                 "address 127.0.0.1, "))
        << error.what();
  }
  cards[2].address = {127, 0, 0, 2};
  EXPECT_NO_THROW(place.know(cards, Rank{0}));
}

/// A rank that cannot open a socket says that, and does not blame the leader.
TEST(Reunion, a_rank_without_descriptors_says_so) {
  Places places = places_of(2);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string text;
  try {
    (void)places[1]->meet(in(50ms), 10s);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_EQ(error.system_errno(), EMFILE);
    text = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(text.starts_with("this rank cannot connect to rank 0: ")) << text;
}

/// The number of connections that wait in the queue of a port.
std::size_t queue_at(const MeetingCard& card) {
  std::ifstream sockets("/proc/net/tcp");
  char wanted[16];
  std::snprintf(wanted, sizeof wanted, ":%04X", static_cast<unsigned>(ntohs(card.port)));
  for (std::string line; std::getline(sockets, line);) {
    // sl local remote state tx:rx, where rx is the queue of a socket that listens (state 0A)
    std::istringstream words(line);
    std::string number, local, remote, state, queues;
    words >> number >> local >> remote >> state >> queues;
    if (state == "0A" && local.ends_with(wanted))
      return std::stoul(queues.substr(queues.find(':') + 1), nullptr, 16);
  }
  ADD_FAILURE() << "nobody listens at the port";
  return 0;
}

/// Connections that only looked whether a rank is there do not stay in its queue, which has an end.
TEST(Reunion, a_queue_can_be_emptied_between_meetings) {
  std::vector<MeetingCard> cards;
  Places places = places_of(2, &cards);
  const Address place = place_of(cards[1]);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(connect_to({&place, 1}, in(5s)));
  EXPECT_EQ(queue_at(cards[1]), 3u);
  places[1]->empty_queue();
  EXPECT_EQ(queue_at(cards[1]), 0u);
  expect_met(meet_all(places, 10s), {0, 1});
}

/// Protects: while others wait for this rank, its set-up calls do not make them connect again,
/// unless its queue is half full.
TEST(Reunion, who_waits_for_a_rank_stays_in_its_queue_until_that_is_half_full) {
  std::vector<MeetingCard> cards;
  Places places = places_of(2, &cards);
  std::size_t limit = 0;
  std::ifstream("/proc/sys/net/core/somaxconn") >> limit;
  ASSERT_GT(limit, 3u);
  limit = std::min<std::size_t>(limit, 4096);  // the library's own
  std::vector<Ending> endings(2);
  std::thread waiting([&] { endings[1] = meet(*places[1], 1, 20s); });
  while (queue_at(cards[0]) == 0) std::this_thread::sleep_for(1ms);
  const Address place = place_of(cards[0]);
  for (std::size_t count = 1; count < limit / 2; ++count) {
    places[0]->make_room_in_queue();
    ASSERT_TRUE(connect_to({&place, 1}, in(5s)));
  }
  EXPECT_EQ(queue_at(cards[0]), limit / 2);
  places[0]->make_room_in_queue();
  EXPECT_LE(queue_at(cards[0]), 1u);  // who waits may have come again
  endings[0] = meet(*places[0], 0, 20s);
  waiting.join();
  expect_met(endings, {0, 1});
}

/// Protects: a rank whose time is up leaves those in its queue that have more time.
TEST(Reunion, who_waits_for_a_rank_stays_in_its_queue_when_its_time_is_up) {
  std::vector<MeetingCard> cards;
  Places places = places_of(3, &cards);
  const Address place = place_of(cards[1]);
  const UnsharedDescriptor waiting = connect_to({&place, 1}, in(5s));
  ASSERT_TRUE(waiting);
  const Ending ending = meet(*places[1], 1, 50ms);
  EXPECT_FALSE(ending.has_met);
  EXPECT_EQ(queue_at(cards[1]), 1u);
}

MeetingCard card_at(const Address& place) {
  sockaddr_in address{};
  std::memcpy(&address, &place.storage, sizeof address);
  MeetingCard card;
  std::memcpy(card.address.data(), &address.sin_addr, sizeof address.sin_addr);
  card.port = address.sin_port;
  return card;
}

/// The hosts of these tests are silent from the beginning, so a short time is enough.
constexpr Patience impatient{.with_port = 300ms, .with_host = 200ms};
/// A pause of the machine could make a call as long as a silence, for which it is to be too short,
/// so some tests require a longer silence.  Of that, only the time with the port adds up over
/// calls.
constexpr Patience patient{.with_port = 3s, .with_host = 1s};
constexpr Patience that_adds_up{.with_port = 3s, .with_host = 200ms};
constexpr Timeout too_short = 250ms;
/// For a host that has been silent for Patience::with_port before, and for no other one.
constexpr Timeout long_enough_for_host = 2s;
constexpr int calls_enough = 40;

/// `count` ranks of a host to which there is no route, and then this rank.
struct AfterVanished {
  explicit AfterVanished(std::uint16_t count, const Patience& patience = impatient)
      : self(count), place(true, patience) {
    std::vector<MeetingCard> cards;
    for (std::uint16_t rank = 0; rank < count; ++rank)
      cards.push_back(card_at(at_no_host(static_cast<std::uint16_t>(5000 + rank))));
    cards.push_back(place.card(Rank{1}));
    place.know(cards, Rank{count});
  }
  std::uint32_t self;
  MeetingPlace place;
};

/// If the lowest ranks are on one silent host, there is one period of silence, not one for each of
/// them.
TEST(Reunion, a_host_that_has_vanished_is_found_once) {
  AfterVanished one(20);
  const Ending ending = meet(one.place, one.self, 6s);
  EXPECT_TRUE(ending.has_met);
  EXPECT_EQ(ending.ranks, ranks_of({20}));
}

/// Hosts before and after this one have vanished: all of them are found in one period of silence.
TEST(Reunion, several_hosts_that_have_vanished_are_found_at_the_same_time) {
  constexpr Patience patience{.with_port = 1s, .with_host = 500ms};
  constexpr std::uint32_t before = 12, after = 4;
  MeetingPlace place(true, patience);
  std::vector<MeetingCard> cards;
  for (std::uint32_t host = 0; host < before; ++host)
    cards.push_back(card_at(at_no_host(5000, host)));
  cards.push_back(place.card(Rank{before}));
  for (std::uint32_t host = 0; host < after; ++host)
    cards.push_back(card_at(at_no_host(5000, before + host)));
  place.know(cards, Rank{before});
  const Timeout begun = detail::now();
  const Ending ending = meet(place, before, 60s);
  const Timeout took = detail::now() - begun;
  EXPECT_TRUE(ending.has_met);
  EXPECT_EQ(ending.ranks, ranks_of({before}));
  EXPECT_GE(took, patience.with_port + patience.with_host);
  // One after the other they would take 18 s.
  EXPECT_LT(took, 9s);
}

/// The lowest rank is silent, and the next one, of another host, is still there.
TEST(Reunion, a_host_that_is_still_there_leads_after_one_that_has_vanished) {
  Places places;
  std::vector<MeetingCard> cards{card_at(at_no_host())};
  for (std::uint32_t rank = 1; rank < 3; ++rank) {
    places.push_back(std::make_unique<MeetingPlace>(true, impatient));
    cards.push_back(places.back()->card(Rank{rank}));
  }
  for (std::uint32_t rank = 1; rank < 3; ++rank) places[rank - 1]->know(cards, Rank{rank});
  std::vector<Ending> endings(3);
  std::thread second([&] { endings[2] = meet(*places[1], 2, 20s); });
  endings[1] = meet(*places[0], 1, 20s);
  second.join();
  expect_met(endings, {1, 2});
}

/// The hosts of ranks 0 and 2 are silent at the same time, and rank 1 is to lead.  When it dies,
/// rank 2 is looked for anew: it may have come back meanwhile.
TEST(Reunion, a_host_above_the_leader_is_looked_for_anew_when_the_leader_dies) {
  MeetingPlace place(true, impatient);
  std::optional<MeetingPlace> leader(std::in_place, true);
  const std::vector cards{card_at(at_no_host()), leader->card(Rank{1}),
                          card_at(at_no_host(5000, 1)), place.card(Rank{3})};
  place.know(cards, Rank{3});
  Ending ending;
  std::atomic<bool> has_ended = false;
  std::thread waits([&] {
    ending = meet(place, 3, 60s);
    has_ended = true;
  });
  while (queue_at(cards[1]) == 0 && !has_ended) std::this_thread::sleep_for(1ms);
  const Timeout died = detail::now();
  leader.reset();
  waits.join();
  EXPECT_TRUE(ending.has_met);
  EXPECT_EQ(ending.ranks, ranks_of({3}));
  EXPECT_GE(detail::now() - died, impatient.with_port + impatient.with_host);
}

/// The next call uses what a call has found: that a host has vanished, or for how long it has been
/// silent.
TEST(Reunion, calls_that_are_too_short_for_a_silence_add_up) {
  AfterVanished one(2, that_adds_up);
  Ending ending;
  const Timeout begun = detail::now();
  for (int calls = 0; calls < calls_enough && !ending.has_met; ++calls) {
    ending = meet(one.place, one.self, too_short);
    EXPECT_EQ(ending.ranks, ranks_of({ending.has_met ? 2u : 0u}));
  }
  EXPECT_TRUE(ending.has_met);
  EXPECT_EQ(ending.ranks, ranks_of({2}));
  EXPECT_GE(detail::now() - begun, that_adds_up.with_port + that_adds_up.with_host);
}

/// They do not add up if there is much time between them, in which the host may have answered.
TEST(Reunion, a_silence_that_was_not_listened_to_does_not_count) {
  AfterVanished one(2, patient);
  for (int calls = 0; calls < 4; ++calls) {
    EXPECT_FALSE(meet(one.place, one.self, too_short).has_met);
    std::this_thread::sleep_for(patient.with_host + 50ms);
  }
  EXPECT_FALSE(meet(one.place, one.self, long_enough_for_host).has_met);
}

/// The period of silence begins with the first attempt, although that is not over yet.
TEST(Reunion, a_host_that_drops_everything_is_found_in_time) {
  const std::unique_ptr<Port> other_port = silent_port_1(elsewhere);
  if (!other_port) GTEST_SKIP() << "port 1 is not free for this process";
  Port silent(elsewhere);
  silent.fill_queue();
  // An attempt alone would take 3 s.  A machine that pauses may need more than the others.
  Ending ending;
  for (int tries = 0; tries < 5 && !ending.has_met; ++tries) {
    MeetingPlace place(true, impatient);
    place.know(std::vector{card_at(silent.place()), place.card(Rank{1})}, Rank{1});
    ending = meet(place, 1, 2500ms);
  }
  EXPECT_EQ(ending.ranks, ranks_of({1}));
}

/// A rank whose queue is full is waited for, because its host answers elsewhere.
TEST(Reunion, a_host_that_answers_elsewhere_is_waited_for) {
  Port full(elsewhere);
  full.fill_queue();
  MeetingPlace place(true, impatient);
  place.know(std::vector{card_at(full.place()), place.card(Rank{1})}, Rank{1});
  const Ending ending = meet(place, 1, 1500ms);
  EXPECT_FALSE(ending.has_met);
  EXPECT_EQ(ending.ranks, ranks_of({0}));
}

/// The leader's queue was so full that its kernel has lost this rank's connection.  The host
/// refuses connections at port 1, so it has not vanished.
TEST(Reunion, a_connection_that_ends_in_silence_is_no_vanished_host) {
  Port leader(elsewhere);
  leader.fall_silent();
  MeetingPlace place(true, impatient);
  place.know(std::vector{card_at(leader.place()), place.card(Rank{1})}, Rank{1});
  std::atomic<bool> has_connected = false;
  std::thread finds_connection([&] {
    const Deadline soon = in(1s);
    while (!has_connected && !soon.passed(detail::now())) {
      std::this_thread::sleep_for(1ms);
      for (int socket = 3; socket < 256; ++socket) {
        Address peer;
        peer.bytes = sizeof peer.storage;
        auto* const raw = reinterpret_cast<sockaddr*>(&peer.storage);
        if (::getpeername(socket, raw, &peer.bytes) != 0 ||
            std::memcmp(raw, &leader.place().storage, offsetof(sockaddr_in, sin_zero)) != 0)
          continue;
        expect_answers_soon(socket);
        has_connected = true;
      }
    }
  });
  const Ending ending = meet(place, 1, 3s);
  finds_connection.join();
  EXPECT_TRUE(has_connected);
  EXPECT_FALSE(ending.has_met);
  EXPECT_EQ(ending.ranks, ranks_of({0}));
}

/// The leader also waits once for a silent host, and then leaves out all of its ranks.
TEST(Reunion, a_leader_leaves_out_a_host_that_has_vanished) {
  MeetingPlace place(true, impatient);
  std::vector<MeetingCard> cards{place.card(Rank{0})};
  for (std::uint16_t port = 5000; port < 5020; ++port) cards.push_back(card_at(at_no_host(port)));
  place.know(cards, Rank{0});
  EXPECT_EQ(meet(place, 0, 6s).ranks, ranks_of({0}));
}

/// A leader's next call uses what its probes have found, too: for how long a host has been silent,
/// and that one has vanished, although the call ended because another rank was late.
TEST(Reunion, a_leader_whose_calls_are_too_short_for_a_silence_adds_them_up) {
  MeetingPlace place(true, that_adds_up);
  std::optional<Port> late(here);
  const std::vector cards{place.card(Rank{0}), card_at(at_no_host()), card_at(late->place())};
  place.know(cards, Rank{0});
  // On a busy machine this rank itself may be the one that is missing.
  const auto missing = [&](Timeout timeout) {
    for (;;) {
      const Ending ending = meet(place, 0, timeout);
      EXPECT_FALSE(ending.has_met);
      if (ending.ranks != ranks_of({0})) return ending.ranks;
    }
  };
  std::vector<Rank> ranks;
  const Timeout begun = detail::now();
  for (int calls = 0; calls < calls_enough; ++calls) {
    ranks = missing(too_short);
    if (ranks == ranks_of({2})) break;
    EXPECT_EQ(ranks, ranks_of({1, 2}));
  }
  EXPECT_EQ(ranks, ranks_of({2}));
  EXPECT_GE(detail::now() - begun, that_adds_up.with_port + that_adds_up.with_host);
  EXPECT_EQ(missing(too_short), ranks_of({2})) << "what was found is forgotten";
  late.reset();
  const Ending ending = meet(place, 0, 2s);
  EXPECT_TRUE(ending.has_met);
  EXPECT_EQ(ending.ranks, ranks_of({0}));
}

/// They do not add up if there is much time between them, in which the host may have answered.
TEST(Reunion, a_silence_that_no_leader_listened_to_does_not_count) {
  MeetingPlace place(true, patient);
  place.know(std::vector{place.card(Rank{0}), card_at(at_no_host())}, Rank{0});
  for (int calls = 0; calls < 4; ++calls) {
    EXPECT_FALSE(meet(place, 0, too_short).has_met);
    std::this_thread::sleep_for(patient.with_host + 50ms);
  }
  EXPECT_FALSE(meet(place, 0, long_enough_for_host).has_met);
}

/// The error names the leader's own address, and no other rank.
TEST(Reunion, a_leader_that_cannot_connect_to_itself_says_so) {
  for (const Address& own : {Port(elsewhere).place(), at_no_host()}) {
    MeetingPlace place(true);
    place.know(std::vector{card_at(own), place.card(Rank{1})}, Rank{0});
    try {
      (void)place.meet(in(200ms), 10s);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::system);
      EXPECT_NE(std::string(error.what()).find("cannot connect to itself"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(text_of(own)), std::string::npos) << error.what();
    }
  }
}

/// A rank that its leader takes for gone hears that the others go on without it.
TEST(Reunion, one_that_is_left_out_is_told_so) {
  Places places = places_of(3);
  std::vector<Ending> endings(3);
  std::thread leader([&] { endings[0] = meet(*places[0], 0, 20s, ranks_of({2})); });
  try {
    (void)places[2]->meet(in(20s), 10s);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_failed);
    EXPECT_TRUE(std::string(error.what()).starts_with("the others go on without this rank: "))
        << error.what();
  }
  endings[1] = meet(*places[1], 1, 20s);
  leader.join();
  expect_met(endings, {0, 1});
}

/// Ranks in another process, which has descriptors of its own.  The two processes exchange where
/// their ranks listen.
class OtherProcess {
 public:
  explicit OtherProcess(std::uint32_t count) : count_(count) {
    EXPECT_EQ(::pipe2(to_, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(from_, O_CLOEXEC), 0);
    child_ = ::fork();  // before this process has threads
    if (child_ != 0) return;
    ::close(to_[1]);
    std::vector<std::unique_ptr<MeetingPlace>> places;
    std::vector<MeetingCard> cards(1 + count);
    for (std::uint32_t rank = 1; rank <= count; ++rank) {
      places.push_back(std::make_unique<MeetingPlace>(true));
      cards[rank] = places.back()->card(Rank{rank});
    }
    const auto bytes = static_cast<ssize_t>(count * sizeof cards[0]);
    if (::write(from_[1], &cards[1], static_cast<std::size_t>(bytes)) != bytes) ::_exit(2);
    char begin = 0;
    if (::read(to_[0], &cards[0], sizeof cards[0]) != sizeof cards[0] ||
        ::read(to_[0], &begin, 1) != 1)
      ::_exit(3);
    std::atomic<std::uint32_t> met = 0;
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 1; rank <= count; ++rank)
      threads.emplace_back([&, rank] {
        places[rank - 1]->know(cards, Rank{rank});
        const MeetingPlace::Met ended = places[rank - 1]->meet(in(begin == 'l' ? 20s : 1s), 1s);
        if (ended.exchange) ++met;
      });
    for (std::thread& thread : threads) thread.join();
    ::_exit(met == count ? 0 : 1);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  ~OtherProcess() {
    for (const int end : {to_[0], to_[1], from_[0], from_[1]}) ::close(end);
  }

  std::vector<MeetingCard> meet_with(const MeetingPlace& place) {
    std::vector<MeetingCard> cards(1 + count_);
    cards[0] = place.card(Rank{0});
    const auto bytes = static_cast<ssize_t>(count_ * sizeof cards[0]);
    EXPECT_EQ(::read(from_[0], &cards[1], static_cast<std::size_t>(bytes)), bytes);
    EXPECT_EQ(::write(to_[1], &cards[0], sizeof cards[0]), ssize_t{sizeof cards[0]});
    return cards;
  }
  /// Its ranks meet from now on, for a long time or a short one.
  void come(bool have_time) { EXPECT_EQ(::write(to_[1], have_time ? "l" : "s", 1), 1); }
  /// Whether all of them have met the others.
  bool have_met() {
    int status = 0;
    EXPECT_EQ(::waitpid(child_, &status, 0), child_);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  std::uint32_t count_;
  int to_[2], from_[2];
  pid_t child_;
};

/// While it exists this process has no descriptor left.
class NoDescriptors {
 public:
  /// It has none but `free`.
  explicit NoDescriptors(std::size_t free = 0) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{.rlim_cur = std::min<rlim_t>(before_.rlim_cur, 256),
                     .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int taken = ::dup(0); taken >= 0; taken = ::dup(0)) taken_.push_back(taken);
    EXPECT_EQ(errno, EMFILE);
    for (; free != 0; --free) {
      ::close(taken_.back());
      taken_.pop_back();
    }
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() {
    for (const int taken : taken_) ::close(taken);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

/// The probes of a leader give descriptors back for ranks that want to connect.
TEST(Reunion, a_leader_whose_probes_have_all_descriptors_lets_others_in) {
  OtherProcess others(20);
  MeetingPlace place(true);
  place.know(others.meet_with(place), Rank{0});
  MeetingPlace::Met met;
  std::thread leader([&] { met = place.meet(in(20s), 10s); });
  std::this_thread::sleep_for(300ms);  // its probes wait
  std::optional<NoDescriptors> none(std::in_place);
  others.come(true);
  EXPECT_TRUE(others.have_met());
  none.reset();
  leader.join();
  EXPECT_NE(met.exchange, nullptr);
  EXPECT_EQ(met.present.size(), 21u);
}

TEST(Reunion, a_leader_that_can_let_nobody_in_says_why) {
  OtherProcess others(1);
  MeetingPlace place(true);
  place.know(others.meet_with(place), Rank{0});
  MeetingPlace::Met met;
  std::thread leader([&] { met = place.meet(in(1s), 10s); });
  std::this_thread::sleep_for(300ms);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  others.come(false);
  EXPECT_FALSE(others.have_met());
  leader.join();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(met.missing, ranks_of({1}));
  EXPECT_TRUE(met.remark.starts_with("the lowest rank, to which all connect, can let nobody in: "))
      << met.remark;
}

/// A firewall that refuses connections is noticed before any rank is taken for gone.
TEST(Reunion, a_host_that_refuses_connections_is_an_obstacle) {
  std::vector<MeetingCard> cards;
  Places places = places_of(3, &cards);
  const Deadline soon = in(5s);
  EXPECT_EQ(places[0]->obstacle(soon), "");  // all are of one host
  cards[2].address = {127, 0, 0, 2};         // where nobody listens
  places[0]->know(cards, Rank{0});
  const std::string obstacle = places[0]->obstacle(soon);
  EXPECT_TRUE(obstacle.starts_with(
      "this rank cannot connect to rank 2 of another host, as TUTTI_SHRINKABLE "))
      << obstacle;
}

/// A host to which connecting fails otherwise is an obstacle, too, once the time is up.
TEST(Reunion, a_host_to_which_there_is_no_way_is_an_obstacle) {
  MeetingPlace place(true);
  place.know(std::vector{place.card(Rank{0}), card_at(at_no_host())}, Rank{0});
  const Deadline deadline = in(200ms);
  EXPECT_NE(place.obstacle(deadline), "");
  EXPECT_TRUE(deadline.passed(detail::now()));
}

/// The ranks of a host look at different ranks of the next one, so that no queue becomes full.
TEST(Reunion, ranks_of_a_host_look_at_different_ranks_of_the_next) {
  std::vector<MeetingCard> cards;
  Places places = places_of(4, &cards);
  Port two[] = {Port(elsewhere), Port(elsewhere)};
  for (const Port& port : two) cards.push_back(card_at(port.place()));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    places[rank]->know(cards, Rank{rank});
    EXPECT_EQ(places[rank]->obstacle(in(5s)), "");
    EXPECT_EQ(close_waiting(two[rank % 2].listener(), backlog), 1u) << rank;
  }
}

/// A full queue on a host that answers is no firewall.  A rank that waits for another one's queue
/// empties its own meanwhile.
TEST(Reunion, a_full_queue_is_no_obstacle) {
  Port full(elsewhere);
  full.fill_queue();
  MeetingPlace place(true);
  const std::vector cards{place.card(Rank{0}), card_at(full.place())};
  place.know(cards, Rank{0});
  const Address own = place_of(cards[0]);
  const UnsharedDescriptor other = connect_to({&own, 1}, in(5s));
  ASSERT_TRUE(other);
  EXPECT_EQ(place.obstacle(in(300ms)), "");
  EXPECT_EQ(queue_at(cards[0]), 0u);
}

/// A rank that has no descriptor to empty its queue with sleeps while it waits for another one's.
TEST(Reunion, a_rank_without_descriptors_sleeps) {
  Port full(elsewhere);
  full.fill_queue();
  MeetingPlace place(true);
  const std::vector cards{place.card(Rank{0}), card_at(full.place())};
  place.know(cards, Rank{0});
  const Address own = place_of(cards[0]);
  const UnsharedDescriptor other = connect_to({&own, 1}, in(5s));
  ASSERT_TRUE(other);
  const auto cpu_time = [] {
    timespec time{};
    EXPECT_EQ(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const Timeout before = cpu_time();
  {
    const NoDescriptors none(1);
    EXPECT_EQ(place.obstacle(in(500ms)), "");
  }
  EXPECT_LE(cpu_time() - before, 15ms);
  EXPECT_EQ(queue_at(cards[0]), 1u);
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
