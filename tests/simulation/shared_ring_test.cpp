// Promise: whoever finds a chunk of the ring takes it, and all results are right, however ranks and
// chunks are delayed, for every shape of nodes and every count; a rank that stops once it has
// contributed holds up nobody, and finds its own result whenever it goes on; with one parity
// instead of two, or with words that overtake their chunks, results would be wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/ring_of_nodes.hpp"

namespace tutti {
namespace {

using test::RingCase, test::RingOfNodes;
using Member = RingOfNodes::Member;

struct Weather {
  std::uint64_t seed = 1;
  bool one_parity = false;      // every call has the same one
  bool words_overtake = false;  // the device places words before their chunks
};

/// Each rank has a connection, along which chunks and words wait until they are delivered; a chunk
/// is read only then.
class World {
 public:
  World(const RingCase& one, const Weather& weather)
      : ring_(one), weather_(weather), random_(weather.seed), queues_(ring_.members.size()) {}

  std::uint64_t wrong() const { return wrong_; }
  std::deque<Member>& members() { return ring_.members; }

  void start(Member& member) {
    // Calls 2, 4, 6, ... have one parity.
    if (weather_.one_parity) ++member.execution.sequence;
    ring_.start(member);
  }
  std::uint64_t calls_of(const Member& member) const {
    return member.execution.sequence / (weather_.one_parity ? 2 : 1);
  }

  /// Moves ranks that are in a call, and chunks, until `stopped` alone are; false: never.  Those
  /// that are not in a call begin one until they have had `calls`.
  bool run(std::uint64_t calls, const std::vector<std::uint32_t>& stopped = {}) {
    const auto is_stopped = [&](const Member& member) {
      return std::find(stopped.begin(), stopped.end(), member.rank) != stopped.end();
    };
    for (std::uint64_t turn = 0;; ++turn) {
      const bool over = std::all_of(members().begin(), members().end(), [&](const Member& one) {
        return is_stopped(one) || (!one.execution.in_flight && calls_of(one) >= calls);
      });
      if (over) return true;
      if (turn > 40'000 * calls) return false;
      if (random_() % 2 == 0) {
        deliver(queues_[random_() % queues_.size()]);
        continue;
      }
      Member& member = members()[random_() % members().size()];
      if (is_stopped(member) || (is_slow(member) && random_() % 128 != 0)) continue;
      if (!member.execution.in_flight) {
        if (calls_of(member) < calls) start(member);
        continue;
      }
      Connection connection{*this, member};
      if (member.ring->advance(member.execution, connection) != Status::ok) continue;
      wrong_ += ring_.is_right(member) ? 0 : 1;
    }
  }

 private:
  struct Write {
    const std::byte* from;
    std::byte* into;
    std::size_t bytes;
    std::uint64_t value;  // of a word
  };
  /// Has room now and then.
  struct Connection {
    World& world;
    Member& member;
    Status room() noexcept { return world.random_() % 4 == 0 ? Status::in_progress : Status::ok; }
    Status forward(const engine::Forwarding& chunk) noexcept {
      std::byte* const there = world.ring_.block(member.next);
      std::deque<Write>& queue = world.queues_[member.rank];
      const Write word{nullptr, there + chunk.word, sizeof chunk.sequence, chunk.sequence};
      if (world.weather_.words_overtake) queue.push_back(word);
      queue.push_back(
          {world.ring_.block(member.node) + chunk.from, there + chunk.into, chunk.bytes, 0});
      if (!world.weather_.words_overtake) queue.push_back(word);
      return Status::ok;
    }
  };

  /// One rank, of every other seed.
  bool is_slow(const Member& member) const {
    return weather_.seed % 2 == 0 && member.rank == weather_.seed / 2 % ring_.members.size();
  }

  void deliver(std::deque<Write>& queue) {
    if (queue.empty()) return;
    const Write& write = queue.front();
    if (write.bytes > 0)
      std::memcpy(
          write.into,
          write.from != nullptr ? write.from : reinterpret_cast<const std::byte*>(&write.value),
          write.bytes);
    queue.pop_front();
  }

  RingOfNodes ring_;
  Weather weather_;
  std::mt19937_64 random_;
  std::vector<std::deque<Write>> queues_;  // by the rank that sends
  std::uint64_t wrong_ = 0;
};

const std::vector<std::vector<std::uint32_t>> shapes = {
    {1}, {4}, {1, 1}, {1, 1, 1}, {2, 2}, {3, 3}, {2, 2, 2}, {3, 1, 2}, {1, 4}, {1, 1, 1, 1, 1}};

std::string text_of(const std::vector<std::uint32_t>& shape) {
  std::string text;
  for (const std::uint32_t ranks : shape) text += std::to_string(ranks) + " ";
  return text;
}

TEST(SharedRing, GivesRightResultsHoweverLateAnythingIs) {
  for (const auto& shape : shapes)
    for (const std::uint32_t sub_blocks : {0u, 5u})
      for (const std::size_t elements : {0u, 1u, 7u, 33u})
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
          World world({shape, elements, sub_blocks}, {.seed = seed});
          EXPECT_TRUE(world.run(20)) << "stuck: " << text_of(shape) << elements << " seed " << seed;
          EXPECT_EQ(world.wrong(), 0u) << text_of(shape) << elements << " seed " << seed;
        }
}

TEST(SharedRing, ARankThatStopsAfterItHasContributedHoldsUpNobody) {
  for (const auto& shape : shapes)
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      World world({shape, 33, 0}, {.seed = seed});
      ASSERT_TRUE(world.run(3));
      const auto ranks = static_cast<std::uint32_t>(world.members().size());
      std::vector<std::uint32_t> stopped;  // all but one rank of each node
      for (const Member& member : world.members())
        if (member.local != seed % shape[member.node]) stopped.push_back(member.rank);
      for (const std::uint32_t rank : stopped) world.start(world.members()[rank]);
      EXPECT_TRUE(world.run(4, stopped)) << text_of(shape);
      // One call more is begun, and does not end without those that stopped.
      if (!stopped.empty() && stopped.size() < ranks) {
        for (Member& member : world.members())
          if (!member.execution.in_flight) world.start(member);
        EXPECT_FALSE(world.run(5, stopped));
      }
      EXPECT_TRUE(world.run(8)) << text_of(shape);
      EXPECT_EQ(world.wrong(), 0u) << text_of(shape);
    }
}

TEST(SharedRing, WithOneParityResultsWouldBeWrong) {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({{2, 2, 2}, 33, 0}, {.seed = seed, .one_parity = true});
    const bool ended = world.run(20);
    wrong += world.wrong() + (ended ? 0 : 1);
  }
  EXPECT_GT(wrong, 0u);
}

TEST(SharedRing, WithWordsThatOvertakeTheirChunksResultsWouldBeWrong) {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({{2, 2, 2}, 33, 0}, {.seed = seed, .words_overtake = true});
    EXPECT_TRUE(world.run(20));
    wrong += world.wrong();
  }
  EXPECT_GT(wrong, 0u);
}

/// Sums of floating-point numbers, which show in which order they were added.
TEST(SharedRing, AllRanksGetTheSameBitsWhoeverDoesTheWork) {
  std::vector<std::vector<std::uint64_t>> of_first;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    World world({{3, 2, 3}, 40, 0}, {.seed = seed});
    for (Member& member : world.members())
      member.execution.reduction = built_in_reduction(BuiltIn::sum, ElementType::float64);
    for (std::uint64_t call = 1; call <= 3; ++call) {
      for (Member& member : world.members()) {
        world.start(member);
        std::vector<double> values(member.source.size());
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = 1.0 / static_cast<double>(member.source[i] % 1000 + 1) + 1e9 * (i % 2 == 0);
        std::memcpy(member.source.data(), values.data(), values.size() * sizeof(double));
        member.ring->contribute(member.execution);
      }
      ASSERT_TRUE(world.run(call));
      if (seed == 1) of_first.push_back(world.members()[0].target);
      for (const Member& member : world.members())
        EXPECT_EQ(member.target, of_first[call - 1]) << "call " << call << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tutti
