// Promise: a member of a crowd that has something new is looked at, whoever else is; one that has
// nothing is not, unless it shares its mark; they take turns; and no mark is lost, however marks
// and polls meet.
#include "verbs/soft/crowd.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace tutti::verbs::soft {
namespace {

constexpr std::uint32_t groups = CrowdEntry::groups_count;

/// A crowd never looks into its members.
QueuePair& member(std::size_t number) {
  static std::array<std::max_align_t, 4096> places;
  return *reinterpret_cast<QueuePair*>(&places.at(number));
}

struct Gathering {
  explicit Gathering(std::uint32_t count) {
    watches.reserve();
    crowd.open(*entry, 4096, watches.take());
    for (std::uint32_t number = 0; number < count; ++number) {
      crowd.reserve();
      EXPECT_EQ(crowd.add(member(number)), number);
    }
  }
  /// Looks at those that are expected, and finds nothing.
  std::vector<std::uint32_t> looked_at() {
    std::vector<std::uint32_t> seats;
    crowd.collect();
    while (crowd.expected_count() > 0) {
      seats.push_back(crowd.next());
      crowd.settle(seats.back());
    }
    crowd.keep_expected();
    return seats;
  }
  using Seats = std::vector<std::uint32_t>;

  std::unique_ptr<CrowdEntry> entry = std::make_unique<CrowdEntry>();
  Watches watches;
  Crowd crowd;
};

TEST(Crowd, looks_at_those_that_are_marked_once) {
  Gathering all(200);
  EXPECT_FALSE(all.watches.any_ready());
  for (const std::uint32_t seat : {3u, 63u, 64u, 199u}) mark(*all.entry, Crowd::group_of(seat));
  mark(*all.entry, Crowd::group_of(3));
  EXPECT_TRUE(all.watches.any_ready());
  EXPECT_EQ(all.looked_at(), (Gathering::Seats{3, 63, 64, 199}));
  EXPECT_FALSE(all.watches.any_ready());
  EXPECT_EQ(all.looked_at(), Gathering::Seats{});
}

TEST(Crowd, looks_at_all_that_share_a_mark) {
  Gathering all(2 * groups + 10);
  mark(*all.entry, Crowd::group_of(groups + 5));
  EXPECT_EQ(all.looked_at(), (Gathering::Seats{5, groups + 5, 2 * groups + 5}));
  mark(*all.entry, Crowd::group_of(10));
  EXPECT_EQ(all.looked_at(), (Gathering::Seats{10, groups + 10}));
  // In turn: the one behind the last comes first.
  all.crowd.mark_seat(groups - 1);
  EXPECT_EQ(all.looked_at(), (Gathering::Seats{2 * groups - 1, groups - 1}));
}

TEST(Crowd, asks_for_another_poll_while_somebody_is_expected) {
  Gathering all(5);
  mark(*all.entry, 1);
  mark(*all.entry, 4);
  all.crowd.collect();
  ASSERT_EQ(all.crowd.expected_count(), 2u);
  all.crowd.settle(all.crowd.next());
  all.crowd.keep_expected();
  EXPECT_TRUE(all.watches.any_ready());
  EXPECT_EQ(all.looked_at(), Gathering::Seats{4});
  EXPECT_FALSE(all.watches.any_ready());
}

TEST(Crowd, takes_turns) {
  Gathering all(300);
  const std::set<std::uint32_t> busy{0, 1, 100, 299};
  for (int round = 0; round < 3; ++round) {
    std::set<std::uint32_t> seen;
    for (const std::uint32_t seat : busy) mark(*all.entry, Crowd::group_of(seat));
    for (std::size_t polls = 0; polls < busy.size(); ++polls) {
      all.crowd.collect();
      seen.insert(all.crowd.next());
    }
    EXPECT_EQ(seen, busy);
  }
}

TEST(Crowd, gives_the_seats_of_those_who_leave_to_others) {
  Gathering all(70);
  for (const std::uint32_t seat : {7u, 69u}) mark(*all.entry, Crowd::group_of(seat));
  all.crowd.collect();
  all.crowd.remove(7);
  mark(*all.entry, Crowd::group_of(20));
  all.crowd.remove(20);
  EXPECT_EQ(all.looked_at(), Gathering::Seats{69});
  all.crowd.reserve();
  EXPECT_EQ(all.crowd.add(member(7)), 7u);
  EXPECT_EQ(all.crowd.members()[7], &member(7));
  EXPECT_EQ(all.looked_at(), Gathering::Seats{}) << "of the former one";
  mark(*all.entry, Crowd::group_of(7));
  EXPECT_EQ(all.looked_at(), Gathering::Seats{7});
}

/// Senders of the same word, of one group and of several: each counts up, marks, and waits until
/// it is seen.  A lost mark would leave it waiting.
TEST(Crowd, loses_no_mark) {
  constexpr std::uint32_t rounds = 20'000;
  const std::array<std::uint32_t, 3> seats{5, 6, groups + 5};
  Gathering all(groups + 10);
  struct alignas(64) Count {
    std::atomic<std::uint32_t> stored{0}, seen{0};
  };
  std::array<Count, seats.size()> counts;
  std::atomic<bool> stuck{false};
  std::vector<std::thread> senders;
  for (std::size_t sender = 0; sender < seats.size(); ++sender)
    senders.emplace_back([&, sender] {
      Count& count = counts[sender];
      for (std::uint32_t round = 1; round <= rounds; ++round) {
        count.stored.store(round, std::memory_order_release);
        mark(*all.entry, Crowd::group_of(seats[sender]));
        const bool waits = round % 3 != 0;  // else the next one comes at once
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (waits && count.seen.load(std::memory_order_relaxed) < round) {
          std::this_thread::yield();
          if (stuck.load() || std::chrono::steady_clock::now() > deadline) return stuck.store(true);
        }
      }
    });
  const auto is_done = [&] {
    for (const Count& count : counts)
      if (count.seen.load(std::memory_order_relaxed) != rounds) return false;
    return true;
  };
  while (!is_done() && !stuck.load()) {
    if (!all.watches.any_ready()) {
      std::this_thread::yield();
      continue;
    }
    all.crowd.collect();
    while (all.crowd.expected_count() > 0) {
      const std::uint32_t seat = all.crowd.next();
      for (std::size_t sender = 0; sender < seats.size(); ++sender)
        if (seats[sender] == seat)
          counts[sender].seen.store(counts[sender].stored.load(std::memory_order_acquire),
                                    std::memory_order_relaxed);
      all.crowd.settle(seat);
    }
    all.crowd.keep_expected();
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_FALSE(stuck.load());
  EXPECT_TRUE(is_done());
}

}  // namespace
}  // namespace tutti::verbs::soft
