// Promise: the probes of a hub take few descriptors at a time, whoever is late, and yet every rank
// that is gone is found; a host that has vanished is found once.
#include "bootstrap/probes.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "bootstrap/socket.hpp"
#include "silent_hosts.hpp"
#include "tutti/detail/clock.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

/// The probes of rank 0, which is on this host.  The test sets the time.
class Probing {
 public:
  explicit Probing(const std::vector<Address>& others) {
    std::vector<Address> places{at_host(here)};
    places.insert(places.end(), others.begin(), others.end());
    probes = Probes(places, 0);
    for (std::uint32_t rank = 1; rank < places.size(); ++rank) probes.look_for(rank, true);
  }

  /// Begins, and takes the answers that have come.  Then lets the time pass until something is due,
  /// but at most `at_most`.
  void turn(Timeout at_most) {
    take(probes.begin(now));
    std::vector<pollfd> polled;
    probes.await(polled);
    most = std::max(most, polled.size());
    const int ready = ::poll(polled.data(), polled.size(), 0);
    if (ready == 0) now += std::min(at_most, probes.sleep_max(now));
    take(probes.look(polled, now));
  }
  void take(const std::vector<std::uint32_t>& ranks) {
    gone.insert(gone.end(), ranks.begin(), ranks.end());
  }

  Probes probes;
  Timeout now = detail::now();
  std::vector<std::uint32_t> gone;
  std::size_t most = 0;  // connections at a time
};

Address freed_place(std::uint32_t host) {
  return Port(host).place();
}

/// Ranks that are late keep their probes waiting; the one that is gone comes last.
TEST(Probes, find_one_that_is_gone_among_many_that_are_late) {
  std::vector<std::unique_ptr<Port>> late;
  std::vector<Address> places;
  for (int rank = 0; rank < 150; ++rank)
    places.push_back(late.emplace_back(std::make_unique<Port>(here))->place());
  places.push_back(freed_place(here));
  Probing probing(places);
  const Timeout begun = probing.now;
  while (probing.gone.empty() && probing.now < begun + 10s) probing.turn(10s);
  EXPECT_EQ(probing.gone, std::vector<std::uint32_t>{151});
  EXPECT_EQ(probing.most, probes_open_max);
  EXPECT_LE(probing.now - begun, 3 * probe_turn);
}

/// However many ranks are late, each is probed again and again.
TEST(Probes, find_each_that_goes_later) {
  std::vector<std::unique_ptr<Port>> late;
  std::vector<Address> places;
  for (int rank = 0; rank < 150; ++rank)
    places.push_back(late.emplace_back(std::make_unique<Port>(here))->place());
  Probing probing(places);
  for (int turns = 0; turns < 20; ++turns) probing.turn(10s);
  EXPECT_TRUE(probing.gone.empty());
  for (const std::uint32_t rank : {3u, 70u, 149u}) {
    late[rank].reset();
    probing.gone.clear();
    const Timeout begun = probing.now;
    for (int turns = 0; turns < 10'000 && probing.gone.empty(); ++turns) probing.turn(10s);
    EXPECT_EQ(probing.gone, std::vector<std::uint32_t>{rank + 1});
    EXPECT_LE(probing.now - begun, 4 * probe_turn);
  }
}

/// After one period of silence, all ranks of that host are found to be gone at once; those of other
/// hosts are not.
TEST(Probes, find_a_host_that_has_vanished_once) {
  const Port late(here);
  std::vector<Address> places;
  for (std::uint16_t port = 5000; port < 5100; ++port) places.push_back(at_no_host(port));
  places.push_back(late.place());
  Probing probing(places);
  const Timeout begun = probing.now;
  while (probing.gone.empty() && probing.now < begun + 1h) probing.turn(1h);
  EXPECT_EQ(probing.gone.size(), 100u);
  EXPECT_EQ(std::count(probing.gone.begin(), probing.gone.end(), 101u), 0);
  EXPECT_GE(probing.now - begun, vanished_after);
  EXPECT_LE(probing.now - begun, vanished_after + 2 * probe_pause_last);
}

/// A rank was here until its connection ended in silence: only its host is still asked.
TEST(Probes, find_that_the_host_of_a_rank_that_was_here_has_vanished) {
  Probing probing({at_no_host(), at_no_host(5001)});
  probing.probes.suspect(2, probing.now);
  const Timeout begun = probing.now;
  while (probing.gone.empty() && probing.now < begun + 1h) probing.turn(1h);
  EXPECT_EQ(probing.gone, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(probing.probes.vanished(), (std::vector<bool>{false, true, true}));
  EXPECT_GE(probing.now - begun, host_answers_within);
  EXPECT_LE(probing.now - begun, host_answers_within + 2 * probe_pause_last);
}

/// One host that does not answer holds up the probes of no other one.
TEST(Probes, leave_room_for_other_hosts) {
  Port silent(elsewhere);
  silent.fill_queue();
  std::vector<Address> places(100, silent.place());
  places.push_back(freed_place(here));
  Probing probing(places);
  probing.turn(0s);
  EXPECT_EQ(probing.gone, std::vector<std::uint32_t>{101});
  EXPECT_LE(probing.most, probes_unanswered_max + 1);
}

TEST(Probes, give_back_their_descriptors_for_a_while) {
  const Port late(here);
  Probing probing(std::vector<Address>(10, late.place()));
  for (int turns = 0; turns < 5; ++turns) probing.turn(0s);
  EXPECT_EQ(probing.probes.give_back(3, probing.now), 3u);
  EXPECT_EQ(probing.probes.give_back(100, probing.now), 7u);
  EXPECT_EQ(probing.probes.give_back(100, probing.now), 0u);
  probing.most = 0;
  probing.turn(probes_pause - 1ns);
  EXPECT_EQ(probing.most, 0u);
  EXPECT_EQ(probing.probes.sleep_max(probing.now), 1ns);
  for (int turns = 0; turns < 5; ++turns) probing.turn(1ns);
  EXPECT_EQ(probing.most, 10u);
}

TEST(Probes, say_that_there_are_no_descriptors_for_them) {
  const Port late(here);
  Probing probing({late.place()});
  EXPECT_EQ(probing.probes.shortage(), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  probing.turn(probes_pause);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(probing.probes.shortage(), EMFILE);
  probing.turn(0s);
  EXPECT_EQ(probing.probes.shortage(), 0);
}

}  // namespace
}  // namespace tutti::bootstrap
