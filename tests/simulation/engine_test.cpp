// The real engine over a simulated fabric: ranks run at random speeds, messages are late, send
// queues are full now and then.  A failure prints the seed that replays it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>

#include "engine/advance.hpp"
#include "plan/allreduce/canonical_dissemination.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/blocks/blocks.hpp"
#include "plan/rooted/rooted.hpp"
#include "simulated_run.hpp"

namespace tutti {
namespace {

using simulation::SimulatedFabric;
using simulation::SimulatedRank;

/// x -> a x + b modulo 2^32, packed; composition is associative and does not commute.
std::uint64_t compose(std::uint64_t left, std::uint64_t right) {
  const auto a = static_cast<std::uint32_t>(left >> 32), b = static_cast<std::uint32_t>(left);
  const auto c = static_cast<std::uint32_t>(right >> 32), d = static_cast<std::uint32_t>(right);
  return std::uint64_t{a * c} << 32 | std::uint32_t{a * d + b};
}
std::uint64_t add(std::uint64_t left, std::uint64_t right) {
  return left + right;
}
std::uint64_t greater(std::uint64_t left, std::uint64_t right) {
  return left > right ? left : right;
}

/// Neither commutes nor is associative, as sums of floating-point numbers to the last bit: tells
/// every order and every association from all others.
std::uint64_t mix(std::uint64_t left, std::uint64_t right) {
  return left * 0x9e3779b97f4a7c15u + (right ^ right >> 29) * 0xbf58476d1ce4e5b9u;
}

std::uint64_t input(std::uint32_t rank, std::uint64_t call, std::size_t element) {
  std::uint64_t x = rank * 0x9e3779b97f4a7c15u + call * 0xbf58476d1ce4e5b9u + element;
  x ^= x >> 31;
  return (x * 0x94d049bb133111ebu) | 0x100000001u;  // both factors odd: nothing is lost
}

struct Job {
  std::function<plan::Plan(Rank, std::uint32_t)> plan;
  Reduction reduction = {};
  std::uint64_t (*reference)(std::uint64_t, std::uint64_t) = nullptr;
  std::uint32_t copies = 2;
  bool in_place = false;
  bool any_order = false;
  std::uint32_t* changed = nullptr;  // counts the ranks whose steps changed places
  bool along_tree = false;           // else the reference is folded from left to right
  std::size_t element_count = 3;
};

/// What the ranks from `first` on should have as element `i`.
std::uint64_t expected_of(const Job& job, std::uint32_t first, std::uint32_t count,
                          std::uint64_t call, std::size_t i) {
  if (count == 1) return input(first, call, i);
  std::uint32_t left = count - 1;
  for (std::uint32_t half = 1; job.along_tree && half < count; half *= 2) left = half;
  return job.reference(expected_of(job, first, left, call, i),
                       expected_of(job, first + left, count - left, call, i));
}

/// In the order in which they are awaited.
std::vector<std::uint16_t> slots_of(const plan::Plan& plan) {
  std::vector<std::uint16_t> slots;
  for (const plan::Step& step : plan.steps)
    if (step.action == plan::Action::await) slots.push_back(step.slot);
  return slots;
}

/// Runs `calls` consecutive calls on P ranks; true if every one completed, every result was right,
/// and no notification was lost in another.
bool run(const Job& job, std::uint32_t rank_count, std::uint64_t calls, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(job.plan(Rank{rank}, rank_count));
  std::vector<SimulatedRank> ranks(rank_count);
  const std::size_t element_count = job.element_count;
  const std::vector<std::uint64_t> elements(element_count);
  std::vector<std::vector<std::uint64_t>> sources(rank_count, elements), targets = sources;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    SimulatedRank& r = ranks[rank];
    const plan::Plan& plan = plans[rank];
    r.execution.parts = engine::parts_of(element_count, sizeof(std::uint64_t), plan.parts);
    const std::size_t payload = r.execution.parts[0].source.bytes;
    const std::size_t stride = plan.payloads * payload;
    auto& memory = r.execution.memory;
    memory.data_slot_count = std::uint32_t{plan.slot_count} - plan.line_slot_count;
    memory.long_slot_count = memory.data_slot_count - plan.short_slot_count;
    memory.short_slot_bytes = plan.short_payloads * payload;
    memory.register_bytes = stride;
    const std::size_t slots = memory.offset_of_slot(plan.slot_count);
    const std::size_t half = slots + plan.partial_count * stride;
    r.memory.resize(2 * half + 1);
    r.arrived.resize(2 * std::size_t{plan.slot_count});
    for (std::size_t parity = 0; parity < 2; ++parity) {
      memory.slots[parity] = r.memory.data() + (parity % job.copies) * half;
      memory.partials[parity] = memory.slots[parity] + slots;
    }
    memory.payload_bytes = payload;
    memory.target = reinterpret_cast<std::byte*>(targets[rank].data());
    memory.source =
        job.in_place ? memory.target : reinterpret_cast<std::byte*>(sources[rank].data());
    r.execution.steps = plans[rank].steps;
    r.execution.reduction = job.reduction;
    r.execution.any_order = job.any_order;
    if (seed % 2 == 0) r.execution.resolve();  // or by computing them each time
    for (const plan::Step& step : plan.steps)
      if (step.action == plan::Action::put) r.puts.push_back(&step);
    r.execution.references.resize(r.puts.size());
    r.execution.piece_elements = 3;  // several pieces
    r.execution.piece.resize(3 * sizeof(std::uint64_t));
  }
  SimulatedFabric fabric(ranks, job.copies, seed);
  std::uint32_t unfinished = rank_count;
  std::uint64_t idle_turns = 0;
  while (unfinished > 0) {
    if (++idle_turns > simulation::idle_turns_max(rank_count)) return false;  // nobody gets on
    if (!fabric.idle() && random() % 2 == 0) {
      fabric.deliver_one();
      idle_turns = 0;
      continue;
    }
    auto rank = static_cast<std::uint32_t>(random() % rank_count);
    engine::Execution& execution = ranks[rank].execution;
    if (!execution.in_flight) {
      if (execution.sequence == calls) continue;
      auto& own = job.in_place ? targets[rank] : sources[rank];
      for (std::size_t i = 0; i < element_count; ++i)
        own[i] = input(rank, execution.sequence + 1, i);
      execution.begin();
    }
    if (engine::advance(execution, fabric, rank) != Status::ok) continue;
    idle_turns = 0;
    for (std::size_t i = 0; job.reference != nullptr && i < element_count; ++i)
      if (targets[rank][i] != expected_of(job, 0, rank_count, execution.sequence, i)) return false;
    // A barrier has no result: nobody leaves call c before all have entered it.
    for (const SimulatedRank& other : ranks)
      if (other.execution.sequence < execution.sequence) return false;
    if (execution.sequence == calls) --unfinished;
  }
  for (std::uint32_t rank = 0; job.changed != nullptr && rank < rank_count; ++rank)
    if (slots_of(plans[rank]) != slots_of(job.plan(Rank{rank}, rank_count))) ++*job.changed;
  return !fabric.doubled();
}

Job sum_job(plan::PerRound vector) {
  return {.plan =
              [vector](Rank self, std::uint32_t count) {
                return plan::two_partial_allreduce(self, count, vector, plan::Order::commutative);
              },
          .reduction = elementwise<std::uint64_t, add>({.commutative = true}),
          .reference = add};
}

Job ordered_job(plan::PerRound vector) {
  return {.plan =
              [vector](Rank self, std::uint32_t count) {
                return plan::two_partial_allreduce(self, count, vector, plan::Order::rank_order);
              },
          .reduction = elementwise<std::uint64_t, compose>({}),
          .reference = compose};
}

Job max_job(plan::PerRound vector) {
  return {
      .plan =
          [vector](Rank self, std::uint32_t count) {
            return plan::dissemination_allreduce(self, count, vector);
          },
      .reduction = elementwise<std::uint64_t, greater>({.commutative = true, .idempotent = true}),
      .reference = greater};
}

Job barrier_job(plan::PerRound vector) {
  return {.plan = [vector](Rank self, std::uint32_t count) {
    return plan::dissemination_barrier(self, count, vector);
  }};
}

using TreeBuilder = plan::Plan (*)(Rank, std::uint32_t, const plan::PerRound&);

Job tree_job(TreeBuilder build, const plan::PerRound& vector) {
  return {.plan = [build, vector](Rank self,
                                  std::uint32_t count) { return build(self, count, vector); },
          .reduction = elementwise<std::uint64_t, mix>({}),
          .reference = mix,
          .along_tree = true};
}

plan::Plan chunked_fold(Rank self, std::uint32_t rank_count, const plan::PerRound&) {
  return plan::chunked_fold_allreduce(self, rank_count);
}

/// Every covering uniform vector n = 1 .. 4, a mixed one, and every P up to 13.
void for_each_shape(const std::function<void(std::uint32_t, const plan::PerRound&)>& visit) {
  for (std::uint32_t rank_count = 1; rank_count <= 13; ++rank_count) {
    for (std::uint32_t n = 1; n <= 4; ++n) visit(rank_count, plan::uniform(rank_count, n));
    if (plan::covers(rank_count, {3, 2, 1})) visit(rank_count, {3, 2, 1});
  }
}

void expect_right_for_all_shapes(const std::function<Job(plan::PerRound)>& make) {
  for_each_shape([&](std::uint32_t rank_count, const plan::PerRound& vector) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed)
      for (const bool in_place : {false, true}) {
        Job job = make(vector);
        job.in_place = in_place;
        EXPECT_TRUE(run(job, rank_count, 6, seed))
            << "P " << rank_count << " n_1 " << (vector.empty() ? 0 : vector[0]) << " seed "
            << seed;
      }
  });
}

TEST(Engine, sums_are_right_under_any_interleaving) {
  expect_right_for_all_shapes(sum_job);
}

TEST(Engine, operands_keep_the_order_of_ranks_under_any_interleaving) {
  expect_right_for_all_shapes(ordered_job);
}

TEST(Engine, idempotent_operators_may_meet_a_contribution_twice) {
  expect_right_for_all_shapes(max_job);
}

TEST(Engine, nobody_leaves_a_barrier_before_all_have_entered) {
  expect_right_for_all_shapes(barrier_job);
}

TEST(Engine, arrivals_are_combined_as_they_come_where_the_order_does_not_matter) {
  std::uint32_t changed = 0;
  const auto any_order = [&](Job job) {
    job.any_order = true;
    job.changed = &changed;
    return job;
  };
  expect_right_for_all_shapes([&](const plan::PerRound& v) { return any_order(sum_job(v)); });
  EXPECT_GT(changed, 100u);
  changed = 0;
  expect_right_for_all_shapes([&](const plan::PerRound& v) { return any_order(max_job(v)); });
  EXPECT_GT(changed, 100u);
}

TEST(Engine, canonical_dissemination_follows_the_tree_under_any_interleaving) {
  expect_right_for_all_shapes([](const plan::PerRound& vector) {
    return tree_job(plan::canonical_dissemination_allreduce, vector);
  });
}

// No elements, fewer than parts, parts of different lengths.
TEST(Engine, chunked_fold_follows_the_tree_under_any_interleaving) {
  for (std::uint32_t rank_count = 1; rank_count <= 13; ++rank_count)
    for (const std::size_t element_count : {0u, 1u, 3u, 29u})
      for (std::uint64_t seed = 1; seed <= 4; ++seed)
        for (const bool in_place : {false, true}) {
          Job job = tree_job(chunked_fold, {});
          job.in_place = in_place;
          job.element_count = element_count;
          EXPECT_TRUE(run(job, rank_count, 6, seed))
              << "P " << rank_count << " elements " << element_count << " seed " << seed;
        }
}

// Messages of different parts go to different places, even if both go to the target.
TEST(Engine, arrivals_of_different_parts_do_not_change_places) {
  for (const TreeBuilder build :
       {TreeBuilder{plan::canonical_dissemination_allreduce}, TreeBuilder{chunked_fold}})
    for_each_shape([&](std::uint32_t rank_count, const plan::PerRound& vector) {
      Job job = tree_job(build, vector);
      job.reduction = elementwise<std::uint64_t, add>({.commutative = true});
      job.reference = add;
      job.any_order = true;
      job.element_count = 17;
      EXPECT_TRUE(run(job, rank_count, 6, 1)) << "P " << rank_count;
    });
}

/// The promise "two parities suffice" is only worth something if one does not.
TEST(Engine, one_copy_of_the_registers_would_not_suffice) {
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Job job = sum_job({1, 1, 1});
    job.copies = 1;
    wrong += run(job, 7, 20, seed) ? 0 : 1;
  }
  EXPECT_GT(wrong, 0);
}

TEST(EngineDeathTest, starting_twice_is_a_programmers_error) {
  engine::Execution execution;
  execution.begin();
  EXPECT_DEATH(execution.begin(), "not in flight");
}

/// Whether one of four calls copies a block of `bytes` into the target in pieces.
bool tries_pieces(std::size_t bytes, bool in_place) {
  plan::Plan plan = plan::direct_allgather(Rank{0}, 1, plan::Transport::copied);
  std::vector<SimulatedRank> ranks(1);
  const engine::Part block{.source = {0, bytes}, .target = {0, bytes}, .element_count = bytes};
  simulation::set_up(
      ranks[0], plan,
      {.reduction = {.element_bytes = 1}, .blocks = {{block}}, .longest_block = bytes});
  simulation::Bytes source(bytes), target(bytes);
  engine::Execution& execution = ranks[0].execution;
  execution.memory.source = in_place ? target.data() : source.data();
  execution.memory.target = target.data();
  SimulatedFabric fabric(ranks, 2, 1);
  std::uint32_t self = 0;
  for (std::uint8_t call = 1; call <= 4; ++call) {
    std::fill(source.begin(), source.end(), std::byte{call});
    execution.begin();
    EXPECT_EQ(engine::advance(execution, fabric, self), Status::ok);
    EXPECT_TRUE(in_place || target == source);
  }
  return execution.into_target.cost_of_pieces() > 0;
}

TEST(Engine, pieces_are_tried_for_long_blocks) {
#if defined(TUTTI_HAS_STREAMING)  // otherwise no way of copying is tried
  EXPECT_TRUE(tries_pieces(detail::LongCopy::bytes_min, false));
#endif
  EXPECT_FALSE(tries_pieces(detail::LongCopy::bytes_min - 1, false));
  EXPECT_FALSE(tries_pieces(detail::LongCopy::bytes_min, true));  // in place: nothing to copy
}

/// A fabric on which everything has arrived.  It notes which slots it is told to expect.
struct ReadyFabric {
  struct Asked {
    std::uint32_t parity, slot;
    friend bool operator==(const Asked&, const Asked&) = default;
  };
  std::vector<Asked> expected = {};

  Status put(std::uint32_t&, std::uint32_t, std::size_t) noexcept { return Status::ok; }
  bool take(std::uint32_t&, std::uint32_t, std::uint32_t) noexcept { return true; }
  bool sent(std::uint32_t&) const noexcept { return true; }
  Status read(std::uint32_t&, std::uint32_t, std::uint64_t, std::byte*, std::size_t) noexcept {
    return Status::ok;
  }
  void expect(const std::uint32_t&, std::uint32_t parity, std::uint32_t slot) noexcept {
    expected.push_back({parity, slot});
  }
};

/// A rank that waits for credits fetches those of its next call at the end of this one.
TEST(Engine, credits_of_the_next_call_are_fetched_at_the_end_of_a_call) {
  const plan::RootedShape shape{.rank_count = 3, .fans = {.in_node = {}, .across = {2}}};
  for (const std::uint32_t rank : {0u, 1u}) {
    std::vector<plan::Plan> plans{plan::tree_broadcast(Rank{rank}, shape)};
    SimulatedRank one;
    simulation::set_up(one, plans[0], {.reduction = {.element_bytes = 8}, .element_count = 3});
    std::vector<std::uint64_t> source(3), target(3);
    one.execution.memory.source = reinterpret_cast<std::byte*>(source.data());
    one.execution.memory.target = reinterpret_cast<std::byte*>(target.data());
    ReadyFabric fabric;
    for (std::uint32_t call = 1; call <= 3; ++call) {
      fabric.expected.clear();
      one.execution.begin();
      ASSERT_EQ(engine::advance(one.execution, fabric, call), Status::ok);
      const std::uint32_t next = (call + 1) & 1;
      const std::vector<ReadyFabric::Asked> credits{{next, 1}, {next, 2}};
      EXPECT_EQ(fabric.expected, rank == 0 ? credits : std::vector<ReadyFabric::Asked>{});
    }
  }
}

/// A rank that waits for a message fetches its first line, unless the sender writes that line.
TEST(Engine, the_line_of_a_message_that_stays_with_its_sender_is_left_alone) {
  engine::Execution execution;
  std::vector<std::byte> slots(4 * 64), partial(64);
  engine::RegisterMemory& memory = execution.memory;
  memory.data_slot_count = memory.long_slot_count = 2;
  memory.register_bytes = 64;
  memory.slots = {slots.data(), slots.data() + 128};
  EXPECT_EQ(execution.incoming_line(1), nullptr) << "no payload";
  memory.payload_bytes = 8;
  for (const std::uint64_t call : {1u, 2u}) {
    execution.sequence = call;
    EXPECT_EQ(execution.incoming_line(1), slots.data() + (call & 1) * 128 + 64);
  }
  memory.in_place[0] = {nullptr, partial.data()};
  EXPECT_EQ(execution.incoming_line(0), slots.data());
  EXPECT_EQ(execution.incoming_line(1), nullptr);
  execution.sequence = 1;
  EXPECT_EQ(execution.incoming_line(1), slots.data() + 128 + 64) << "in calls of another parity";
}

}  // namespace
}  // namespace tutti
