// Promise: two ranks of a node get figures of reading and copying from each other; one whose peer
// does not come, has died or has another probe in mind has waited as long as it was told to, no
// longer, and has no figures.
#include "shm/copy_costs.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <thread>
#include <tutti/detail/cpu_set.hpp>
#include <utility>
#include <vector>

#include "shm/copy_side.hpp"

namespace tutti::shm {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t id = 7u << 16;

/// Two mappings of one process, and the memory of each that may be read.
struct Pair {
  explicit Pair(std::size_t block_count = 1) : blocks_bytes(block_count * costs_chunk_bytes) {}

  std::size_t blocks_bytes;
  struct alignas(4096) Page {
    std::byte bytes[costs_page_bytes];
  };
  std::vector<Page> mappings = std::vector<Page>(2);
  std::vector<std::byte> blocks[2] = {std::vector<std::byte>(blocks_bytes),
                                      std::vector<std::byte>(blocks_bytes)};

  CopyProbe probe(std::size_t self, std::chrono::nanoseconds patience, std::uint64_t name = id) {
    return {.id = name,
            .mine = board_of(mappings[self].bytes),
            .theirs = board_of(mappings[1 - self].bytes),
            .blocks = blocks[self],
            .their_block_at =
                [](std::uint64_t address) { return reinterpret_cast<const std::byte*>(address); },
            .their_process = ::getpid(),
            .patience = patience,
            // So that all tries agree on a busy machine, too, except in tests about that.
            .word_max = 20s,
            .spread_max = 1e12};
  }
  CopyOutcome lead(std::chrono::nanoseconds patience) {
    return measure_copies_as_leader(probe(0, patience));
  }
  CopyOutcome follow(std::chrono::nanoseconds patience, std::uint64_t name = id) {
    return measure_copies_as_partner(probe(1, patience, name));
  }
};

/// Binds the calling thread to one of the CPUs it may use; without another one nothing counts.
bool bind_to(std::size_t number) {
  const std::vector<unsigned> cpus = detail::allowed_cpus().list();
  if (cpus.size() < 2) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpus[number % cpus.size()], &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

/// Runs both sides, each on a CPU of its own; `change` may change the leader's probe.
template <class Change>
std::pair<CopyOutcome, CopyOutcome> on_two_cpus(Pair& pair, const Change& change) {
  CopyOutcome outcome, followed;
  std::thread leader([&] {
    EXPECT_TRUE(bind_to(0));
    CopyProbe probe = pair.probe(0, 20s);
    change(probe);
    outcome = measure_copies_as_leader(probe);
  });
  std::thread partner([&] {
    EXPECT_TRUE(bind_to(1));
    followed = pair.follow(20s);
  });
  leader.join();
  partner.join();
  return {outcome, followed};
}

void expect_figures(std::size_t block_count, std::size_t partners_block_count) {
  Pair pair(block_count);
  pair.blocks[1].resize(partners_block_count * costs_chunk_bytes);
  const auto [outcome, followed] = on_two_cpus(pair, [](CopyProbe&) {});
  ASSERT_TRUE(outcome.costs);
  EXPECT_TRUE(outcome.blocks_are_free);
  EXPECT_FALSE(followed.costs);
  EXPECT_TRUE(followed.blocks_are_free);
  const CopyCosts& costs = *outcome.costs;
  for (const double figure : {costs.word, costs.read_call, costs.read_page, costs.read_chunk,
                              costs.put_page, costs.put_chunk, costs.get_page, costs.get_chunk,
                              costs.own_chunk, costs.exchange_chunk, costs.read_chunk_at_once}) {
    EXPECT_TRUE(std::isfinite(figure)) << figure;
    EXPECT_GT(figure, 0);
    EXPECT_LT(figure, 20e9);
  }
  EXPECT_LT(costs.put_page, costs.put_chunk);
  EXPECT_LT(costs.get_page, costs.get_chunk);
  EXPECT_FALSE(costs.is_word_alone);
  // Room for two large payloads, the source and the target, and places for as much again.
  constexpr std::size_t large_blocks = 4 * costs_large_bytes / costs_chunk_bytes;
  EXPECT_EQ(costs.has_large(), std::min(block_count, partners_block_count) >= large_blocks);
}

TEST(CopyCosts, two_ranks_get_figures) {
  if (detail::allowed_cpus().count() < 2) GTEST_SKIP() << "needs two CPUs";
  for (const std::size_t block_count :
       {std::size_t{1}, std::size_t{2}, std::size_t{16}, std::size_t{32}}) {
    expect_figures(block_count, block_count);
    expect_figures(block_count, 1);
    expect_figures(1, block_count);
  }
}

TEST(CopyCosts, a_ring_is_gone_round_twice_by_both_ranks) {
  if (detail::allowed_cpus().count() < 2) GTEST_SKIP() << "needs two CPUs";
  constexpr std::size_t block_count = 32;
  Pair pair(block_count);
  std::map<std::uint64_t, unsigned> gets[2];  // of each block, by either rank
  const auto counted = [&](std::size_t self) {
    CopyProbe probe = pair.probe(self, 20s);
    probe.their_block_at = [&gets, self](std::uint64_t address) {
      ++gets[self][address];
      return reinterpret_cast<const std::byte*>(address);
    };
    return probe;
  };
  std::thread leader([&] {
    EXPECT_TRUE(bind_to(0));
    measure_copies_as_leader(counted(0));
  });
  std::thread partner([&] {
    EXPECT_TRUE(bind_to(1));
    measure_copies_as_partner(counted(1));
  });
  leader.join();
  partner.join();
  for (std::size_t self = 0; self < 2; ++self)
    for (std::size_t block = 0; block < block_count; ++block) {
      const std::byte* const theirs = pair.blocks[1 - self].data() + block * costs_chunk_bytes;
      EXPECT_GE(gets[self][reinterpret_cast<std::uint64_t>(theirs)], 2u)
          << "rank " << self << ", block " << block;
    }
}

TEST(CopyCosts, on_one_cpu_nothing_counts) {
  Pair pair;
  CopyOutcome outcome;
  const auto on_one = [&](auto&& side) {
    return std::thread([&, side] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(detail::allowed_cpus().list().front(), &set);
      EXPECT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
      side();
    });
  };
  std::thread leader = on_one([&] { outcome = pair.lead(30ms); });
  std::thread partner = on_one([&] { pair.follow(30ms); });
  leader.join();
  partner.join();
  EXPECT_FALSE(outcome.costs);
}

TEST(CopyCosts, who_waits_for_nobody_gives_up) {
  for (const bool leads : {true, false}) {
    Pair pair;
    const auto begin = std::chrono::steady_clock::now();
    if (leads) {
      const CopyOutcome outcome = pair.lead(20ms);
      EXPECT_FALSE(outcome.costs);
      EXPECT_FALSE(outcome.blocks_are_free);  // one who comes late may read it
    } else {
      EXPECT_FALSE(pair.follow(20ms).blocks_are_free);
    }
    const auto taken = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(taken, 20ms);
    EXPECT_LT(taken, 10s);
  }
}

TEST(CopyCosts, another_probe_is_not_taken_for_this_one) {
  Pair pair;
  CopyOutcome outcome;
  std::thread leader([&] { outcome = pair.lead(50ms); });
  pair.follow(50ms, id + (1u << 16));
  leader.join();
  EXPECT_FALSE(outcome.costs);
}

TEST(CopyCosts, without_room_the_other_rank_hears_so) {
  for (const std::size_t without : {std::size_t{0}, std::size_t{1}}) {
    Pair pair;
    CopyProbe probe = pair.probe(without, 60s);
    probe.blocks = {};
    const CopyOutcome outcome =
        without == 0 ? measure_copies_as_leader(probe) : measure_copies_as_partner(probe);
    EXPECT_FALSE(outcome.costs);
    EXPECT_TRUE(outcome.blocks_are_free);
    const auto begin = std::chrono::steady_clock::now();
    const CopyOutcome other = without == 0 ? pair.follow(60s) : pair.lead(60s);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
    EXPECT_FALSE(other.costs);
    EXPECT_TRUE(other.blocks_are_free);
  }
}

/// Protects: a partner need not take memory before it knows that there is something to measure.
TEST(CopyCosts, a_partner_hears_whether_the_leader_begins) {
  for (const bool begins : {true, false}) {
    Pair pair;
    CopyProbe leading = pair.probe(0, 20s);
    if (!begins) leading.blocks = {};
    std::thread leader([&] { measure_copies_as_leader(leading); });
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(leader_begins(pair.probe(1, 60s)), begins);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
    CopyProbe following = pair.probe(1, 60s);
    following.blocks = {};  // which ends what has begun
    EXPECT_TRUE(measure_copies_as_partner(following).blocks_are_free);
    leader.join();
  }
  Pair pair;
  EXPECT_FALSE(leader_begins(pair.probe(1, 1ms))) << "there is no leader";
}

/// The leader's outcome where the ranks have these CPUs, by number.
CopyOutcome measure_words(Pair& pair, std::size_t leaders_cpu, std::size_t partners_cpu) {
  CopyOutcome outcome;
  std::thread leader([&] {
    EXPECT_TRUE(bind_to(leaders_cpu));
    CopyProbe probe = pair.probe(0, 20s);
    probe.copies = false;
    probe.their_process = 0;  // there is no such process
    outcome = measure_copies_as_leader(probe);
  });
  std::thread partner([&] {
    EXPECT_TRUE(bind_to(partners_cpu));
    EXPECT_TRUE(pair.follow(20s).blocks_are_free);
  });
  leader.join();
  partner.join();
  EXPECT_TRUE(outcome.blocks_are_free);
  return outcome;
}

TEST(CopyCosts, a_word_is_measured_without_copies) {
  if (detail::allowed_cpus().count() < 2) GTEST_SKIP() << "needs two CPUs";
  Pair pair;
  const CopyOutcome outcome = measure_words(pair, 0, 1);
  ASSERT_TRUE(outcome.costs);
  EXPECT_TRUE(outcome.costs->is_word_alone);
  EXPECT_GT(outcome.costs->word, 0);
  EXPECT_LT(outcome.costs->word, 20e9);
  for (std::size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(pair.blocks[rank], std::vector<std::byte>(pair.blocks_bytes)) << "copied into";
}

// Two ranks of one CPU are not asked again and again until their patience ends.
TEST(CopyCosts, a_word_on_one_cpu_is_given_up_at_once) {
  if (detail::allowed_cpus().count() < 2) GTEST_SKIP() << "needs two CPUs to be bound";
  Pair pair;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(measure_words(pair, 0, 0).costs);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

/// Protects: a leader does not wait for a partner whose patience has ended, and has its block
/// again.
TEST(CopyCosts, a_partner_that_gives_up_says_so) {
  Pair pair;
  EXPECT_FALSE(pair.follow(1ms).blocks_are_free);
  const auto begin = std::chrono::steady_clock::now();
  const CopyOutcome outcome = pair.lead(60s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  EXPECT_FALSE(outcome.costs);
  EXPECT_TRUE(outcome.blocks_are_free);
}

TEST(CopyCosts, memory_of_the_dead_is_not_read) {
  if (detail::allowed_cpus().count() < 2) GTEST_SKIP() << "needs two CPUs";
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_GT(child, 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  for (const bool leader_is_dead : {true, false}) {
    Pair pair;
    CopyOutcome outcome;
    std::thread leader([&] {
      EXPECT_TRUE(bind_to(0));
      CopyProbe probe = pair.probe(0, 20s);
      if (!leader_is_dead) probe.their_process = child;
      outcome = measure_copies_as_leader(probe);
    });
    std::thread partner([&] {
      EXPECT_TRUE(bind_to(1));
      CopyProbe probe = pair.probe(1, 20s);
      if (leader_is_dead) probe.their_process = child;
      EXPECT_TRUE(measure_copies_as_partner(probe).blocks_are_free);
    });
    partner.join();
    leader.join();
    ASSERT_TRUE(outcome.costs);
    EXPECT_TRUE(outcome.costs->is_word_alone);
    EXPECT_GT(outcome.costs->word, 0);
    EXPECT_TRUE(outcome.blocks_are_free);
  }
}

/// Protects: whether caches are apart is known also where there is no time for a round of copies.
TEST(CopyCosts, a_word_is_measured_before_copies) {
  if (detail::allowed_cpus().count() < 2) GTEST_SKIP() << "needs two CPUs";
  Pair pair;
  std::vector<probing::Way> ways;  // of the partner's first steps
  std::thread leader([&] {
    EXPECT_TRUE(bind_to(0));
    EXPECT_TRUE(pair.lead(20s).costs);
  });
  std::thread partner([&] {
    EXPECT_TRUE(bind_to(1));
    CopyProbe probe = pair.probe(1, 20s);
    probe.their_block_at = [&](std::uint64_t address) {
      ways.push_back(static_cast<probing::Way>(probing::load(probe.theirs->way)));
      return reinterpret_cast<const std::byte*>(address);
    };
    measure_copies_as_partner(probe);
  });
  leader.join();
  partner.join();
  ASSERT_GT(ways.size(), 3u);
  for (std::size_t step = 0; step < 3; ++step) EXPECT_EQ(ways[step], probing::Way::words) << step;
}

/// Protects: where other programs disturb a measurement, nothing is decided by it, and it ends.
TEST(CopyCosts, tries_that_do_not_agree_leave_a_word_alone) {
  if (detail::allowed_cpus().count() < 2) GTEST_SKIP() << "needs two CPUs";
  Pair pair(32);
  const auto [outcome, followed] =
      on_two_cpus(pair, [](CopyProbe& probe) { probe.spread_max = 0; });
  ASSERT_TRUE(outcome.costs);
  EXPECT_TRUE(outcome.costs->is_word_alone);
  EXPECT_GT(outcome.costs->word, 0);
  EXPECT_TRUE(outcome.blocks_are_free);
  EXPECT_TRUE(followed.blocks_are_free);
}

TEST(CopyCosts, rounds_with_a_word_that_took_too_long_do_not_count) {
  if (detail::allowed_cpus().count() < 2) GTEST_SKIP() << "needs two CPUs";
  Pair pair;
  const auto [outcome, followed] =
      on_two_cpus(pair, [](CopyProbe& probe) { probe.word_max = 0ns; });
  EXPECT_FALSE(outcome.costs);
  EXPECT_TRUE(outcome.blocks_are_free);
  EXPECT_TRUE(followed.blocks_are_free);
}

TEST(LeastTime, is_agreed_once_three_tries_are_close_whatever_the_least_is) {
  LeastTime time;
  EXPECT_FALSE(time.is_agreed(1.25));
  for (const double taken_ns : {42804.0, 4400.0, 9000.0, 2200.0, 4327.0}) {
    time.add(taken_ns);
    EXPECT_FALSE(time.is_agreed(1.25)) << taken_ns;
  }
  time.add(4900);
  EXPECT_TRUE(time.is_agreed(1.25));
  EXPECT_EQ(time.figure(), 4400);
  time.add(3000);  // the ones before were disturbed, after all
  EXPECT_FALSE(time.is_agreed(1.25));
  EXPECT_EQ(time.figure(), 4327);
}

}  // namespace
}  // namespace tutti::shm
