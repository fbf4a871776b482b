// Promise: any rank of a node takes the chunks of the ring that it finds, and all results are
// right, however ranks and chunks are delayed, for every shape of nodes and every count, of an
// allreduce, an allgather and a reduce_scatter, whose blocks may differ.  A rank
// that stops once it has contributed holds up no other rank, and finds its own result whenever it
// goes on, also where a payload has many laps and there is room for its contributions to all.  A
// payload of many laps needs memory for a few, and no lap overwrites what is still read: with ranks
// that say too early that they have consumed a lap, or with words that overtake their chunks,
// results would be wrong.  Where words are republished, all of this holds, but chunks that are
// notified to a rank wait for it, and never more of them than receives are reserved for.  All of it
// holds after calls that the ranks have given up together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/ring_of_nodes.hpp"

namespace tutti {
namespace {

using test::RingCase, test::RingOfNodes;
using Member = RingOfNodes::Member;

struct Weather {
  std::uint64_t seed = 1;
  bool consumed_early = false;  // ranks say so of laps whose results they have not copied
  bool words_overtake = false;  // the device places words before their chunks
  // The device places writes in any order and notifies them, and who polls republishes.
  bool republished = false;
  bool notified_early = false;  // and does not wait for what it notifies
  bool interrupted = false;     // others of its node get on before a rank stores a word for them
};

/// Each rank has a connection, along which chunks and words wait until they are delivered; a chunk
/// is read only then.  A rank polls when it gets on in a call, and at no other time.
class World {
 public:
  World(const RingCase& one, const Weather& weather)
      : ring_(one),
        weather_(weather),
        random_(weather.seed),
        queues_(ring_.members.size()),
        notified_(ring_.members.size()),
        notifications_(ring_.members.size()),
        looks_in_vain_(ring_.members.size()) {}

  /// The most messages of a connection that were sent and not polled; some came twice, or were
  /// nobody's.
  std::uint64_t waiting_max() const { return waiting_max_; }
  std::uint64_t refused() const { return refused_; }
  /// Whether connections lead to it.
  bool is_owner(const Member& member) const {
    return std::any_of(ring_.members.begin(), ring_.members.end(), [&](const Member& sender) {
      return sender.next == member.node && owner_of(sender) == member.rank;
    });
  }

  std::uint64_t wrong() const { return wrong_; }
  std::deque<Member>& members() { return ring_.members; }

  void start(Member& member) { ring_.start(member); }
  void change_sources(std::function<void(Member&)> change) {
    ring_.change_source = std::move(change);
  }
  static std::uint64_t calls_of(const Member& member) { return member.execution.sequence; }

  /// Moves ranks that are in a call, and chunks, until `stopped` alone are; false: never.  Those
  /// that are not in a call begin one until they have had `calls`.
  /// Or until so many turns have passed, in which case it returns false, too.
  bool run(std::uint64_t calls, const std::vector<std::uint32_t>& stopped = {},
           std::uint64_t turns_max = UINT64_MAX) {
    const auto is_stopped = [&](const Member& member) {
      return std::find(stopped.begin(), stopped.end(), member.rank) != stopped.end();
    };
    const auto has_ended = [&](const Member& member) {
      return is_stopped(member) || (!member.execution.in_flight && calls_of(member) >= calls);
    };
    const auto have_all_ended = [&] {
      return std::all_of(members().begin(), members().end(), has_ended);
    };
    /// Whether the world stays as it is as long as `but` does not move.
    const auto is_at_rest = [&](const Member* but) {
      return is_nothing_on_its_way() &&
             std::all_of(members().begin(), members().end(), [&](const Member& one) {
               return &one == but || has_ended(one) || looks_in_vain_[one.rank] >= looks_max;
             });
    };
    something_has_happened();  // those that were stopped go on
    if (have_all_ended()) return true;
    for (std::uint64_t turn = 0;; ++turn) {
      if (turn >= turns_max || turn > 40'000 * calls * members()[0].ring->layout().laps.count)
        return false;
      if (random_() % 2 == 0) {
        const auto sender = static_cast<std::uint32_t>(random_() % queues_.size());
        if (weather_.republished)
          place_or_notify(sender);
        else
          deliver(queues_[sender]);
        continue;
      }
      Member& member = members()[random_() % members().size()];
      if (has_ended(member)) continue;
      if (is_slow(member) && random_() % 128 != 0 && !is_at_rest(&member)) continue;
      if (!member.execution.in_flight) {
        start(member);
        something_has_happened();
        continue;
      }
      poll(member);
      if (weather_.consumed_early) say_consumed(member);
      const std::uint64_t position = member.ring->position();
      Connection connection(*this, member);
      if (member.ring->advance(member.execution, connection) == Status::ok) {
        wrong_ += ring_.is_right(member) ? 0 : 1;
        something_has_happened();
        if (have_all_ended()) return true;
      } else if (connection.has_moved || member.ring->position() != position) {
        something_has_happened();
      } else if (++looks_in_vain_[member.rank] % looks_max == 0 && is_at_rest(nullptr)) {
        return false;
      }
    }
  }

  /// Whatever is on its way arrives and is polled; then all ranks are as they were at first.
  void cancel() {
    for (std::deque<Write>& queue : queues_)
      while (!queue.empty()) deliver(queue);
    for (std::uint32_t sender = 0; sender < notified_.size(); ++sender)
      while (!notified_[sender].empty()) place_or_notify(sender);
    while (!late_.empty()) deliver(late_);
    for (Member& member : members())
      while (!notifications_[member.rank].empty()) poll(member);
    for (Member& member : members()) {
      member.execution.forget_calls();
      member.ring->forget_calls(member.local == 0);
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
  struct Connection : engine::WordsOfNode {
    Connection(World& of, Member& by) : world(of), member(by) {}
    World& world;
    Member& member;
    bool has_moved = false;  // which it says with whatever it has read or written
    void saw() noexcept { has_moved = true; }
    void publish(std::uint64_t* word, std::uint64_t value, std::size_t bytes) noexcept {
      has_moved = true;
      world.interrupt(member);
      WordsOfNode::publish(word, value, bytes);
    }
    Status room() noexcept { return world.random_() % 4 == 0 ? Status::in_progress : Status::ok; }
    Status forward(const engine::Forwarding& chunk) noexcept {
      std::byte* const there = world.ring_.block(member.next);
      if (world.weather_.republished) {
        world.notified_[member.rank].push_back({world.ring_.block(member.node) + chunk.from,
                                                there + chunk.into, chunk.bytes, chunk.parity,
                                                chunk.number});
        world.count_waiting(member.rank);
        return Status::ok;
      }
      std::deque<Write>& queue = world.queues_[member.rank];
      const Write word{nullptr, there + chunk.word, sizeof chunk.lap, chunk.lap};
      if (world.weather_.words_overtake) queue.push_back(word);
      queue.push_back(
          {world.ring_.block(member.node) + chunk.from, there + chunk.into, chunk.bytes, 0});
      if (!world.weather_.words_overtake) queue.push_back(word);
      return Status::ok;
    }
  };

  /// One rank in eight that stores a word is interrupted until the others of its node have got on
  /// for a while.  No rank is interrupted while another one is.
  void interrupt(const Member& member) noexcept {
    if (!weather_.interrupted || is_interrupted_ || random_() % 8 != 0) return;
    is_interrupted_ = true;
    for (std::uint64_t turns = random_() % 512; turns > 0; --turns) {
      Member& other = members()[random_() % members().size()];
      if (other.node != member.node || &other == &member || !other.execution.in_flight) continue;
      Connection connection(*this, other);
      if (other.ring->advance(other.execution, connection) == Status::ok)
        wrong_ += ring_.is_right(other) ? 0 : 1;
    }
    is_interrupted_ = false;
  }

  struct Notified {
    const std::byte* from;
    std::byte* into;
    std::size_t bytes;
    std::uint32_t parity, number;
    bool is_placed = false;
  };
  struct Notification {
    std::uint32_t sender, parity, number;
  };

  /// So often that it is beyond the ring's patience, and that there was room once.
  static constexpr std::uint32_t looks_max = 32;
  void something_has_happened() { std::fill(looks_in_vain_.begin(), looks_in_vain_.end(), 0); }
  /// Notifications that a rank has not polled are its own business.
  bool is_nothing_on_its_way() const {
    const auto is_empty = [](const auto& queue) { return queue.empty(); };
    return late_.empty() && std::all_of(queues_.begin(), queues_.end(), is_empty) &&
           std::all_of(notified_.begin(), notified_.end(), is_empty);
  }

  std::uint32_t owner_of(const Member& sender) const {
    std::vector<std::uint32_t> there;
    for (const Member& member : ring_.members)
      if (member.node == sender.next) there.push_back(member.rank);
    return there[sender.local % there.size()];
  }

  void count_waiting(std::uint32_t sender) {
    std::uint64_t waiting = notified_[sender].size();
    for (const std::deque<Notification>& queue : notifications_)
      waiting += static_cast<std::uint64_t>(
          std::count_if(queue.begin(), queue.end(),
                        [&](const Notification& one) { return one.sender == sender; }));
    waiting_max_ = std::max(waiting_max_, waiting);
  }

  /// Chunks are placed in any order, and notified in the order in which they were sent.
  void place_or_notify(std::uint32_t sender) {
    std::deque<Notified>& queue = notified_[sender];
    if (queue.empty()) return;
    something_has_happened();
    Notified& any = queue[random_() % queue.size()];
    if (!any.is_placed && random_() % 2 == 0) {
      if (any.bytes > 0) std::memcpy(any.into, any.from, any.bytes);
      any.is_placed = true;
    }
    const Notified& first = queue.front();
    if (!first.is_placed && !weather_.notified_early) return;
    notifications_[owner_of(ring_.members[sender])].push_back({sender, first.parity, first.number});
    if (!first.is_placed) late_.push_back({first.from, first.into, first.bytes, 0});  // unnoticed
    queue.pop_front();
  }

  void poll(Member& member) {
    if (!late_.empty() && random_() % 64 == 0) deliver(late_);
    std::deque<Notification>& queue = notifications_[member.rank];
    for (std::uint64_t batch = random_() % 4; batch > 0 && !queue.empty(); --batch) {
      const detail::RepublishedWords words = member.ring->republished();
      if (!words.republish(queue.front().parity, queue.front().number)) ++refused_;
      queue.pop_front();
      something_has_happened();
    }
  }

  void say_consumed(const Member& member) {
    const engine::SharedRingLayout& layout = member.ring->layout();
    const std::uint64_t lap = member.ring->lap() - 1 + layout.laps.in_flight;
    std::memcpy(ring_.block(member.node) + layout.consumed(member.local), &lap, sizeof lap);
  }

  /// One rank, of every other seed.
  bool is_slow(const Member& member) const {
    return weather_.seed % 2 == 0 && member.rank == weather_.seed / 2 % ring_.members.size();
  }

  void deliver(std::deque<Write>& queue) {
    if (queue.empty()) return;
    something_has_happened();
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
  std::vector<std::deque<Write>> queues_;                // by the rank that sends
  std::vector<std::deque<Notified>> notified_;           // likewise
  std::vector<std::deque<Notification>> notifications_;  // by the rank that polls
  std::deque<Write> late_;
  /// By rank: how often it has looked, since something has happened, and found nothing to do.
  std::vector<std::uint32_t> looks_in_vain_;
  bool is_interrupted_ = false;
  std::uint64_t wrong_ = 0, waiting_max_ = 0, refused_ = 0;
};

const std::vector<std::vector<std::uint32_t>> shapes = {
    {1}, {4}, {1, 1}, {1, 1, 1}, {2, 2}, {3, 3}, {2, 2, 2}, {3, 1, 2}, {1, 4}, {1, 1, 1, 1, 1}};

std::string text_of(const std::vector<std::uint32_t>& shape) {
  std::string text;
  for (const std::uint32_t ranks : shape) text += std::to_string(ranks) + " ";
  return text;
}

/// A quarter under a sanitizer, which looks for what shows whatever the order of events is.
std::uint64_t seeds(std::uint64_t all) {
#ifdef __SANITIZE_ADDRESS__
  return (all + 3) / 4;
#else
  return all;
#endif
}

TEST(SharedRing, gives_right_results_however_late_anything_is) {
  for (const auto& shape : shapes)
    for (const std::uint32_t sub_blocks : {0u, 5u})
      for (const std::size_t elements : {0u, 1u, 7u, 33u})
        for (std::uint64_t seed = 1; seed <= seeds(8); ++seed) {
          World world({shape, elements, sub_blocks}, {.seed = seed});
          EXPECT_TRUE(world.run(20)) << "stuck: " << text_of(shape) << elements << " seed " << seed;
          EXPECT_EQ(world.wrong(), 0u) << text_of(shape) << elements << " seed " << seed;
        }
}

/// Laps of a call, of which some are in flight, and more are contributed ahead.
struct LongWay {
  plan::RingLaps laps;
  std::uint32_t ahead;
};
const std::vector<LongWay> long_ways = {
    {{.count = 2, .in_flight = 1}, 1}, {{.count = 2, .in_flight = 2}, 2},
    {{.count = 5, .in_flight = 2}, 2}, {{.count = 5, .in_flight = 2}, 5},
    {{.count = 7, .in_flight = 3}, 4}, {{.count = 9, .in_flight = 4}, 4},
    {{.count = 6, .in_flight = 1}, 6}};

std::string text_of(const LongWay& way) {
  return std::to_string(way.laps.count) + " laps, " + std::to_string(way.laps.in_flight) +
         " in flight, " + std::to_string(way.ahead) + " ahead ";
}

TEST(SharedRing, gives_right_results_for_payloads_of_many_laps) {
  for (const auto& shape : shapes)
    for (const LongWay& way : long_ways)
      for (const std::size_t elements : {3u, 33u, 70u})
        for (std::uint64_t seed = 1; seed <= seeds(4); ++seed) {
          World world({shape, elements, 0, way.laps, way.ahead}, {.seed = seed});
          EXPECT_TRUE(world.run(6)) << "stuck: " << text_of(shape) << text_of(way) << seed;
          EXPECT_EQ(world.wrong(), 0u) << text_of(shape) << text_of(way) << seed;
        }
}

/// Others take the results of a rank that is interrupted, and it takes them again when it goes on.
TEST(SharedRing, gives_right_results_although_ranks_are_interrupted_at_any_store) {
  for (const auto& shape : {std::vector<std::uint32_t>{3}, {4}, {2, 2}, {3, 1, 2}})
    for (const LongWay& way : long_ways)
      for (std::uint64_t seed = 1; seed <= seeds(16); ++seed) {
        World world({shape, 70, 0, way.laps, way.ahead}, {.seed = seed, .interrupted = true});
        EXPECT_TRUE(world.run(6)) << "stuck: " << text_of(shape) << text_of(way) << seed;
        EXPECT_EQ(world.wrong(), 0u) << text_of(shape) << text_of(way) << seed;
      }
}

/// At any moment, and again at once.
void expect_right_results_after_cancelling(const RingCase& one, const Weather& weather) {
  World world(one, weather);
  for (std::uint64_t round = 0; round < 3; ++round) {
    (void)world.run(4, {}, weather.seed * 97 * (round + 1) % 1500);
    world.cancel();
  }
  EXPECT_TRUE(world.run(6)) << "stuck: seed " << weather.seed;
  EXPECT_EQ(world.wrong() + world.refused(), 0u) << "seed " << weather.seed;
}

TEST(SharedRing, gives_right_results_after_calls_that_were_given_up) {
  for (const auto& shape : {std::vector<std::uint32_t>{1, 1, 1}, {2, 2}, {3, 1, 2}, {4}})
    for (const LongWay& way : long_ways)
      for (const bool republished : {false, true})
        for (std::uint64_t seed = 1; seed <= seeds(4); ++seed) {
          SCOPED_TRACE(text_of(shape) + text_of(way) + (republished ? "republished" : "words"));
          for (const plan::RingPhases phases :
               {plan::RingPhases::both, plan::RingPhases::reduce_scatter,
                plan::RingPhases::allgather})
            expect_right_results_after_cancelling({shape, 33, 0, way.laps, way.ahead, phases},
                                                  {.seed = seed, .republished = republished});
        }
}

constexpr plan::RingPhases halves[] = {plan::RingPhases::reduce_scatter,
                                       plan::RingPhases::allgather};

/// Blocks of one length, and of different ones, some of them empty.
std::vector<std::vector<std::size_t>> blocks_of(const std::vector<std::uint32_t>& shape) {
  std::size_t ranks = 0;
  for (const std::uint32_t members : shape) ranks += members;
  std::vector<std::size_t> differing(ranks, 3);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    differing[rank] = rank % 3 == 1 ? 0 : rank * rank + 1;
  return {std::vector<std::size_t>(ranks, 9), differing};
}

TEST(Halves, give_right_results_however_late_anything_is) {
  for (const plan::RingPhases phases : halves)
    for (const auto& shape : shapes)
      for (const auto& of_rank : blocks_of(shape))
        for (const std::uint32_t sub_blocks : {0u, 5u})
          for (const bool republished : {false, true})
            for (std::uint64_t seed = 1; seed <= seeds(4); ++seed) {
              World world({shape, 0, sub_blocks, {}, 0, phases, of_rank},
                          {.seed = seed, .republished = republished});
              EXPECT_TRUE(world.run(12)) << "stuck: " << text_of(shape) << " seed " << seed;
              EXPECT_EQ(world.wrong() + world.refused(), 0u) << text_of(shape) << seed;
            }
}

TEST(Halves, give_right_results_for_payloads_of_many_laps) {
  for (const plan::RingPhases phases : halves)
    for (const auto& shape : shapes)
      for (const LongWay& way : long_ways)
        for (const auto& of_rank : blocks_of(shape))
          for (const bool republished : {false, true})
            for (std::uint64_t seed = 1; seed <= seeds(2); ++seed) {
              World world({shape, 0, 0, way.laps, way.ahead, phases, of_rank},
                          {.seed = seed, .republished = republished, .interrupted = seed % 2 == 0});
              EXPECT_TRUE(world.run(5)) << "stuck: " << text_of(shape) << text_of(way) << seed;
              EXPECT_EQ(world.wrong() + world.refused(), 0u)
                  << text_of(shape) << text_of(way) << seed;
              const plan::NodeRing& ring = world.members()[0].ring->layout().ring;
              EXPECT_LE(world.waiting_max(), way.laps.in_flight * plan::shared_ring_waiting_max(
                                                                      ring.nodes, ring.sub_blocks))
                  << text_of(shape) << text_of(way);
            }
}

/// All but one rank of each node, which `seed` picks, contribute to a call and stop; the others end
/// it, and later everybody goes on.
void expect_that_the_others_get_on(World& world, const std::vector<std::uint32_t>& shape,
                                   const LongWay& way, std::uint64_t seed) {
  ASSERT_TRUE(world.run(2));
  std::vector<std::uint32_t> stopped;
  for (const Member& member : world.members())
    if (member.local != seed % shape[member.node]) stopped.push_back(member.rank);
  for (const std::uint32_t rank : stopped) world.start(world.members()[rank]);
  EXPECT_TRUE(world.run(3, stopped)) << text_of(shape) << text_of(way);
  EXPECT_TRUE(world.run(6)) << text_of(shape) << text_of(way);
  EXPECT_EQ(world.wrong(), 0u) << text_of(shape) << text_of(way) << seed;
}

/// All but one rank of each node contribute to a whole payload, and stop.
TEST(Halves, a_rank_that_has_contributed_everything_holds_up_nobody) {
  for (const plan::RingPhases phases : halves)
    for (const auto& shape : shapes)
      for (const LongWay& way : long_ways)
        for (const auto& of_rank : blocks_of(shape)) {
          const std::uint64_t seed = 1 + shape.size() + way.laps.count;
          World world({shape, 0, 0, way.laps, way.laps.count, phases, of_rank}, {.seed = seed});
          expect_that_the_others_get_on(world, shape, way, seed);
        }
}

TEST(Halves, ranks_that_say_too_early_that_they_have_consumed_a_lap_would_spoil_it) {
  for (const plan::RingPhases phases : halves) {
    std::uint64_t wrong = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      World world({{2, 2, 2}, 33, 0, {.count = 6, .in_flight = 1}, 3, phases},
                  {.seed = seed, .consumed_early = true});
      const bool ended = world.run(4);
      wrong += world.wrong() + (ended ? 0 : 1);
    }
    EXPECT_GT(wrong, 0u);
  }
}

TEST(SharedRing, a_rank_that_stops_after_it_has_contributed_holds_up_nobody) {
  for (const auto& shape : shapes)
    for (std::uint64_t seed = 1; seed <= seeds(4); ++seed) {
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

TEST(SharedRing, ranks_that_say_too_early_that_they_have_consumed_a_lap_would_spoil_it) {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    World world({{2, 2, 2}, 33, 0, {.count = 6, .in_flight = 1}, 3},
                {.seed = seed, .consumed_early = true});
    const bool ended = world.run(4);
    wrong += world.wrong() + (ended ? 0 : 1);
  }
  EXPECT_GT(wrong, 0u);
}

/// All but one rank of each node contribute to a whole payload of many laps, and stop.
TEST(SharedRing, a_rank_that_has_contributed_everything_holds_up_nobody) {
  for (const auto& shape : shapes)
    for (const LongWay& way : long_ways)
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        World world({shape, 70, 0, way.laps, way.laps.count}, {.seed = seed});
        expect_that_the_others_get_on(world, shape, way, seed);
      }
}

/// The control: it waits where there is no room for everything.
TEST(SharedRing, a_rank_that_has_contributed_to_some_laps_holds_up_the_others_after_these) {
  World world({{2, 2}, 70, 0, {.count = 5, .in_flight = 2}, 2}, {});
  ASSERT_TRUE(world.run(2));
  world.start(world.members()[1]);
  EXPECT_FALSE(world.run(3, {1}));
  EXPECT_TRUE(world.run(6));
  EXPECT_EQ(world.wrong(), 0u);
}

TEST(SharedRing, with_words_that_overtake_their_chunks_results_would_be_wrong) {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({{2, 2, 2}, 33, 0}, {.seed = seed, .words_overtake = true});
    EXPECT_TRUE(world.run(20));
    wrong += world.wrong();
  }
  EXPECT_GT(wrong, 0u);
}

/// A rank stops at any moment of a payload of many laps, and all end the call when it goes on.
TEST(SharedRing, all_go_on_with_a_rank_that_has_stopped_between_laps) {
  for (const auto& shape : {std::vector<std::uint32_t>{2, 2}, {3, 1, 2}, {1, 1, 1}, {4}})
    for (const LongWay& way : long_ways)
      for (const bool republished : {false, true})
        for (std::uint64_t seed = 1; seed <= seeds(2); ++seed) {
          World world({shape, 70, 0, way.laps, way.ahead},
                      {.seed = seed, .republished = republished});
          ASSERT_TRUE(world.run(2));
          const auto victim = static_cast<std::uint32_t>(seed % world.members().size());
          world.start(world.members()[victim]);
          (void)world.run(3, {victim});
          EXPECT_TRUE(world.run(6)) << text_of(shape) << text_of(way);
          EXPECT_EQ(world.wrong() + world.refused(), 0u) << text_of(shape) << text_of(way);
        }
}

/// And no connection has more messages on their way than receives are reserved for.
TEST(SharedRing, republished_gives_right_results_however_late_anything_is) {
  bool was_full = false;
  for (const auto& shape : shapes)
    for (const std::uint32_t sub_blocks : {0u, 1u, 5u})
      for (const std::size_t elements : {0u, 1u, 33u})
        for (std::uint64_t seed = 1; seed <= seeds(8); ++seed) {
          World world({shape, elements, sub_blocks}, {.seed = seed, .republished = true});
          EXPECT_TRUE(world.run(20)) << "stuck: " << text_of(shape) << elements << " seed " << seed;
          EXPECT_EQ(world.wrong(), 0u) << text_of(shape) << elements << " seed " << seed;
          EXPECT_EQ(world.refused(), 0u) << text_of(shape) << elements << " seed " << seed;
          const plan::NodeRing& ring = world.members()[0].ring->layout().ring;
          const std::uint64_t reserved = plan::shared_ring_waiting_max(ring.nodes, ring.sub_blocks);
          EXPECT_LE(world.waiting_max(), reserved) << text_of(shape);
          was_full = was_full || (reserved > 0 && world.waiting_max() == reserved);
        }
  EXPECT_TRUE(was_full) << "fewer would do";
}

TEST(SharedRing, republished_gives_right_results_for_payloads_of_many_laps) {
  bool was_full = false;
  for (const auto& shape : shapes)
    for (const LongWay& way : long_ways)
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        World world({shape, 70, 0, way.laps, way.ahead}, {.seed = seed, .republished = true});
        EXPECT_TRUE(world.run(6)) << "stuck: " << text_of(shape) << text_of(way) << seed;
        EXPECT_EQ(world.wrong(), 0u) << text_of(shape) << text_of(way) << seed;
        EXPECT_EQ(world.refused(), 0u) << text_of(shape) << text_of(way) << seed;
        const plan::NodeRing& ring = world.members()[0].ring->layout().ring;
        const std::uint64_t reserved =
            way.laps.in_flight * plan::shared_ring_waiting_max(ring.nodes, ring.sub_blocks);
        EXPECT_LE(world.waiting_max(), reserved) << text_of(shape) << text_of(way);
        was_full =
            was_full || (way.laps.in_flight > 1 && reserved > 0 && world.waiting_max() == reserved);
      }
  EXPECT_TRUE(was_full) << "fewer would do";
}

TEST(SharedRing, republished_a_rank_to_which_no_connection_leads_holds_up_nobody) {
  for (const auto& shape : {std::vector<std::uint32_t>{1, 4}, {2, 1, 2}, {3, 1, 2}, {1, 2, 3}})
    for (std::uint64_t seed = 1; seed <= seeds(8); ++seed) {
      World world({shape, 33, 0}, {.seed = seed, .republished = true});
      ASSERT_TRUE(world.run(3));
      std::vector<std::uint32_t> stopped;
      for (const Member& member : world.members())
        if (!world.is_owner(member)) stopped.push_back(member.rank);
      ASSERT_FALSE(stopped.empty());
      for (const std::uint32_t rank : stopped) world.start(world.members()[rank]);
      EXPECT_TRUE(world.run(4, stopped)) << text_of(shape);
      EXPECT_TRUE(world.run(8)) << text_of(shape);
      EXPECT_EQ(world.wrong() + world.refused(), 0u) << text_of(shape);
    }
}

TEST(SharedRing, republished_what_comes_to_a_stopped_rank_waits_for_it) {
  for (std::uint64_t seed = 1; seed <= seeds(8); ++seed) {
    World world({{1, 2, 1}, 33, 0}, {.seed = seed, .republished = true});
    ASSERT_TRUE(world.run(3));
    world.start(world.members()[1]);  // all that comes to its node comes to it
    EXPECT_FALSE(world.run(4, {1}));
    EXPECT_TRUE(world.run(8));
    EXPECT_EQ(world.wrong() + world.refused(), 0u);
  }
}

TEST(SharedRing, republished_before_a_chunk_is_placed_results_would_be_wrong) {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({{2, 2, 2}, 33, 0}, {.seed = seed, .republished = true, .notified_early = true});
    EXPECT_TRUE(world.run(20));
    wrong += world.wrong();
  }
  EXPECT_GT(wrong, 0u);
}

/// Sums of floating-point numbers, which show in which order they were added.
TEST(SharedRing, all_ranks_get_the_same_bits_whoever_does_the_work) {
  std::vector<std::vector<std::uint64_t>> of_first;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    World world({{3, 2, 3}, 40, 0}, {.seed = seed});
    for (Member& member : world.members())
      member.execution.reduction = built_in_reduction(BuiltIn::sum, ElementType::float64);
    world.change_sources([](Member& member) {
      std::vector<double> values(member.source.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = 1.0 / static_cast<double>(member.source[i] % 1000 + 1) + 1e9 * (i % 2 == 0);
      std::memcpy(member.source.data(), values.data(), values.size() * sizeof(double));
    });
    for (std::uint64_t call = 1; call <= 3; ++call) {
      for (Member& member : world.members()) world.start(member);
      ASSERT_TRUE(world.run(call));
      if (seed == 1) of_first.push_back(world.members()[0].target);
      for (const Member& member : world.members())
        EXPECT_EQ(member.target, of_first[call - 1]) << "call " << call << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tutti
