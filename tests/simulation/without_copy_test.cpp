// Promise: where a fabric combines into a third place, a copy of the source that is then combined
// with a message that is there already is left out, and the result is what copy and combine would
// have given, also for an operator that keeps the order; and in no other case anything changes.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "engine/advance.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/lanes.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/steps.hpp"
#include "simulated_run.hpp"
#include "support/operators.hpp"

namespace tutti {
namespace {

using simulation::Bytes, simulation::SimulatedCall, simulation::SimulatedFabric,
    simulation::SimulatedRank;

using CombineApart = void (*)(const void* incoming, const void* own, void* result,
                              std::size_t element_count) noexcept;

struct Counts {
  std::size_t together = 0, apart = 0;
};
Counts counts;

// The left operand is what comes in.
void compose_into(const void* incoming, void* partial, std::size_t element_count, void*) noexcept {
  ++counts.together;
  const auto* const left = static_cast<const std::uint64_t*>(incoming);
  auto* const right = static_cast<std::uint64_t*>(partial);
  for (std::size_t i = 0; i < element_count; ++i) right[i] = test::compose(left[i], right[i]);
}
void compose_apart(const void* incoming, const void* own, void* result,
                   std::size_t element_count) noexcept {
  ++counts.apart;
  const auto* const left = static_cast<const std::uint64_t*>(incoming);
  const auto* const right = static_cast<const std::uint64_t*>(own);
  for (std::size_t i = 0; i < element_count; ++i)
    static_cast<std::uint64_t*>(result)[i] = test::compose(left[i], right[i]);
}

constexpr Reduction composition = {.combine = compose_into, .element_bytes = 8};
constexpr std::size_t elements_min = engine::streamed_bytes_min / 8;

class CombiningFabric : public SimulatedFabric {
 public:
  using SimulatedFabric::SimulatedFabric;
  CombineApart combine_apart() const noexcept { return function; }

  CombineApart function = compose_apart;
};

// ---- One rank, which awaits one message ---------------------------------------------------------

/// Copies the source into partial 0, awaits slot 0, combines slot 0 with partial 0.
struct Waiting {
  explicit Waiting(std::size_t element_count = elements_min)
      : source(element_count), target(element_count) {
    plan.rank_count = 2;
    plan.partial_count = 2;
    plan.slot_count = 2;
    plan.parts = 2;  // of which the second is empty or an element shorter
    plan::StepWriter steps(plan);
    steps.begin_round(1);
    steps.copy(plan::source_register, plan::partial_register(0));
    steps.await(Rank{1}, 0, 1);
    steps.combine(plan::slot_register(0), plan::partial_register(0));
    for (std::size_t i = 0; i < element_count; ++i) source[i] = test::input(0, 1, i);
  }

  void set_up(CombineApart function) {
    const SimulatedCall call{.reduction = composition, .element_count = 2 * source.size()};
    simulation::set_up(ranks[0], plan, call);
    source.resize(2 * source.size());
    target.resize(source.size());
    execution().memory.source = reinterpret_cast<const std::byte*>(source.data());
    execution().memory.target = reinterpret_cast<std::byte*>(target.data());
    fabric.function = function;
    execution().begin();
    counts = {};
  }
  /// The message comes, and the rank goes on to the end.
  void arrive() {
    const std::size_t parity = execution().parity();
    const std::size_t flag = parity * (ranks[0].arrived.size() / 2);
    auto* const slot = reinterpret_cast<std::uint64_t*>(execution().memory.slots[parity]);
    for (std::size_t i = 0; i < execution().parts[0].element_count; ++i)
      slot[i] = test::input(1, 1, i);
    ++ranks[0].arrived[flag];
  }
  Status go_on() { return engine::advance(execution(), fabric, self); }
  engine::Execution& execution() { return ranks[0].execution; }
  const std::uint64_t* partial(std::uint16_t index = 0) {
    return reinterpret_cast<const std::uint64_t*>(
        execution().address(plan::partial_register(index), execution().parts[0]));
  }
  bool is_right() {
    for (std::size_t i = 0; i < execution().parts[0].element_count; ++i)
      if (partial()[i] != test::compose(test::input(1, 1, i), test::input(0, 1, i))) return false;
    return true;
  }

  std::vector<std::uint64_t> source, target;
  plan::Plan plan;
  std::vector<SimulatedRank> ranks{1};
  CombiningFabric fabric{ranks, 2, 1};
  std::uint32_t self = 0;
};

void expect_counts(std::size_t together, std::size_t apart) {
  EXPECT_EQ(counts.together, together);
  EXPECT_EQ(counts.apart, apart);
}

TEST(WithoutCopy, what_has_arrived_is_combined_with_the_source_itself) {
  Waiting rank;
  rank.set_up(compose_apart);
  rank.arrive();
  EXPECT_EQ(rank.go_on(), Status::ok);
  expect_counts(0, 1);
  EXPECT_TRUE(rank.is_right());
}

TEST(WithoutCopy, what_has_been_taken_before_is_too) {
  Waiting rank;
  std::swap(rank.plan.steps[0], rank.plan.steps[1]);
  rank.set_up(compose_apart);
  EXPECT_EQ(rank.go_on(), Status::in_progress);
  rank.arrive();
  EXPECT_EQ(rank.go_on(), Status::ok);
  expect_counts(0, 1);
  EXPECT_TRUE(rank.is_right());
}

TEST(WithoutCopy, the_copy_is_made_while_the_message_is_on_its_way) {
  Waiting rank;
  rank.set_up(compose_apart);
  EXPECT_EQ(rank.go_on(), Status::in_progress);
  EXPECT_EQ(rank.partial()[0], rank.source[0]);
  rank.arrive();
  EXPECT_EQ(rank.go_on(), Status::ok);
  expect_counts(1, 0);
  EXPECT_TRUE(rank.is_right());
}

TEST(WithoutCopy, short_payloads_and_fabrics_without_such_a_function_copy) {
  for (const bool is_short : {true, false}) {
    Waiting rank(is_short ? elements_min - 1 : elements_min);
    rank.set_up(is_short ? compose_apart : nullptr);
    rank.arrive();
    EXPECT_EQ(rank.go_on(), Status::ok);
    expect_counts(1, 0);
    EXPECT_TRUE(rank.is_right());
  }
}

/// The steps after the copy do not join the message with what was copied, or not only.
TEST(WithoutCopy, a_copy_that_is_needed_is_made) {
  const auto change = [](auto&& of_steps, bool stays = true) {
    Waiting rank;
    of_steps(rank.plan.steps);
    rank.set_up(compose_apart);
    rank.arrive();
    EXPECT_EQ(rank.go_on(), Status::ok);
    EXPECT_EQ(counts.apart, 0u);
    if (stays) EXPECT_EQ(rank.partial()[0], rank.source[0]);
  };
  using Steps = std::vector<plan::Step>;
  change([](Steps& steps) { steps[2].into = plan::partial_register(1); });
  change([](Steps& steps) { steps[2].part = 1; }, false);
  change([](Steps& steps) { steps.pop_back(); });
  change([](Steps& steps) { steps.resize(1); });
  change([](Steps& steps) { steps[2].from = plan::partial_register(1), steps[2].into.index = 1; });
}

TEST(WithoutCopy, a_call_in_place_combines_in_place) {
  Waiting rank;
  for (const std::size_t step : {0, 2}) rank.plan.steps[step].into = plan::target_register;
  rank.set_up(compose_apart);
  rank.execution().memory.source = rank.execution().memory.target;
  rank.target = rank.source;
  rank.arrive();
  EXPECT_EQ(rank.go_on(), Status::ok);
  expect_counts(1, 0);
  EXPECT_EQ(rank.target[0], test::compose(test::input(1, 1, 0), test::input(0, 1, 0)));
}

// ---- Whole collectives --------------------------------------------------------------------------

std::vector<Bytes> sources_of(std::uint32_t rank_count, std::size_t element_count) {
  std::vector<Bytes> sources(rank_count, Bytes(element_count * 8));
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    for (std::size_t i = 0; i < element_count; ++i) {
      const std::uint64_t value = test::input(rank, 1, i);
      std::memcpy(sources[rank].data() + 8 * i, &value, 8);
    }
  return sources;
}

std::vector<plan::Plan> plans_of(std::uint32_t rank_count, int schedule) {
  std::vector<plan::Plan> plans;
  const std::vector<Node> one_node(rank_count, Node{0});
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(
        schedule == 0 ? plan::chunked_fold_allreduce(Rank{rank}, rank_count)
        : schedule == 1
            ? plan::two_partial_allreduce(Rank{rank}, rank_count, plan::uniform(rank_count, 2),
                                          plan::Order::rank_order)
            : plan::lanes_allreduce(
                  Rank{rank}, {.rank_count = rank_count, .node_of = one_node, .lane_count = 2},
                  plan::Order::rank_order, [](Rank, std::uint32_t) {
                    return plan::two_partial_allreduce(Rank{0}, 1, {}, plan::Order::rank_order);
                  }));
  return plans;
}

TEST(WithoutCopy, results_are_those_of_copies_under_any_interleaving) {
  for (int schedule = 0; schedule < 3; ++schedule) {
    Counts all;
    for (const std::uint32_t rank_count : {2u, 3u, 5u})
      for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SimulatedCall call{.reduction = composition,
                           .element_count = 5 * elements_min,
                           .in_place = seed % 3 == 0,
                           .seed = seed};
        std::vector<plan::Plan> plans = plans_of(rank_count, schedule), same = plans;
        const std::vector<Bytes> sources = sources_of(rank_count, call.element_count);
        counts = {};
        const std::vector<Bytes> copied = simulation::simulate(plans, call, sources);
        const std::size_t combined = counts.together;
        counts = {};
        ASSERT_EQ(simulation::simulate<CombiningFabric>(same, call, sources), copied)
            << "schedule " << schedule << ", " << rank_count << " ranks, seed " << seed;
        EXPECT_EQ(counts.together + counts.apart, combined) << "seed " << seed;
        all.together += counts.together;
        all.apart += counts.apart;
      }
    EXPECT_GT(all.apart, 0u) << "schedule " << schedule;
    EXPECT_GT(all.together, 0u) << "schedule " << schedule;
  }
}

}  // namespace
}  // namespace tutti
