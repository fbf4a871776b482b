// Promise: where arrivals are combined as they come, every schedule of the catalogue is right in
// whatever order they come.
#include <gtest/gtest.h>

#include <map>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>

#include "plan/rooted/zero_copy_reduce.hpp"
#include "simulated_run.hpp"
#include "support/node_shapes.hpp"
#include "support/operators.hpp"
#include "tune/choose.hpp"

namespace tutti {
namespace {

using simulation::Bytes;

constexpr std::size_t element_count = 5;

Bytes bytes_of(const std::vector<std::uint64_t>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<Bytes> inputs(std::uint32_t rank_count) {
  std::vector<Bytes> all;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    std::vector<std::uint64_t> values;
    for (std::size_t i = 0; i < element_count; ++i) values.push_back(test::input(rank, 1, i));
    all.push_back(bytes_of(values));
  }
  return all;
}

/// Empty if the schedule does not serve `rank_count` ranks with the n of the request.
std::vector<plan::Plan> plans_of(std::uint32_t rank_count, const tune::CollectiveRequest& request) {
  std::vector<plan::Plan> plans;
  try {
    const tune::Choice choice =
        tune::choose(request, {.rank_count = rank_count}, tune::Knowledge());
    for (std::uint32_t rank = 0; rank < rank_count; ++rank)
      plans.push_back(choice.plan(Rank{rank}));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    return {};
  }
  return plans;
}

/// In the order in which they are awaited.
std::vector<std::uint16_t> slots_of(const std::vector<plan::Plan>& plans) {
  std::vector<std::uint16_t> slots;
  for (const plan::Plan& plan : plans)
    for (const plan::Step& step : plan.steps)
      if (step.action == plan::Action::await) slots.push_back(step.slot);
  return slots;
}

TEST(AnyOrder, is_right_for_every_schedule) {
  std::uint32_t runs = 0;
  std::map<Algorithm, std::uint32_t> swaps;  // plans whose arrivals changed places
  for (const tune::Row& schedule : tune::named_schedules()) {
    const test::Job job = schedule.needs_idempotent ? test::max_job() : test::sum_job();
    for (std::uint32_t rank_count = 1; rank_count <= 24; ++rank_count) {
      std::vector<std::uint64_t> right;
      for (std::size_t i = 0; i < element_count; ++i)
        right.push_back(job.expected(rank_count, 1, i));
      for (const std::uint32_t n : {0u, 1u, 2u, 3u, 5u}) {
        tune::CollectiveRequest request{.element_count = element_count,
                                        .reduction = job.reduction,
                                        .algorithm = schedule.algorithm};
        if (n > 0) request.per_round = plan::uniform(rank_count, n);
        ASSERT_TRUE(tune::takes_any_order(request));
        std::vector<plan::Plan> plans = plans_of(rank_count, request);
        if (plans.empty()) continue;
        const auto planned = slots_of(plans);
        for (std::uint64_t seed = 1; seed <= 5; ++seed, ++runs) {
          const auto results = simulation::simulate(plans,
                                                    {.reduction = job.reduction,
                                                     .element_count = element_count,
                                                     .any_order = plans[0].payloads == 1,
                                                     .seed = seed},
                                                    inputs(rank_count));
          if (slots_of(plans) != planned) ++swaps[schedule.algorithm];
          for (const Bytes& result : results)
            ASSERT_EQ(result, bytes_of(right))
                << name_of(schedule.algorithm) << ", " << rank_count << " ranks, n " << n;
        }
      }
    }
  }
  EXPECT_GT(runs, 4000u);
  for (const Algorithm algorithm :
       {Algorithm::dissemination, Algorithm::two_partial, Algorithm::recursive_multiplying,
        Algorithm::nway, Algorithm::nway_inverse, Algorithm::decomposition_digits})
    EXPECT_GT(swaps[algorithm], 0u) << name_of(algorithm);
}

/// The ranks by which a plan knows whose payload a slot refers to, as its steps that wait or
/// combine say.
using Givers = std::map<std::uint16_t, Rank>;
Givers givers_of(const plan::Plan& plan, plan::Action action) {
  Givers givers;
  for (const plan::Step& step : plan.steps)
    if (step.action == action && step.by_reference)
      givers[action == plan::Action::await ? step.slot : step.from.index] = step.peer;
  return givers;
}

// The rank whose memory cannot be read is named.
TEST(AnyOrder, a_step_that_reads_knows_whom_it_reads_from) {
  const test::Job job = test::sum_job();
  const test::NodeOf node_of = test::in_blocks({5});
  std::uint32_t swaps = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<plan::Plan> plans;
    for (std::uint32_t rank = 0; rank < 5; ++rank)
      plans.push_back(
          plan::zero_copy_reduce(Rank{rank}, {.rank_count = 5, .node_of = node_of, .pieces = 1}));
    const auto planned = slots_of(plans);
    simulation::simulate(plans,
                         {.reduction = job.reduction,
                          .element_count = element_count,
                          .any_order = true,
                          .seed = seed},
                         inputs(5));
    if (slots_of(plans) != planned) ++swaps;
    for (const plan::Plan& plan : plans) {
      const Givers awaited = givers_of(plan, plan::Action::await);
      for (const auto& [slot, giver] : givers_of(plan, plan::Action::combine))
        EXPECT_EQ(giver, awaited.at(slot)) << "seed " << seed << ", slot " << slot;
    }
  }
  EXPECT_GT(swaps, 0u);
}

}  // namespace
}  // namespace tutti
