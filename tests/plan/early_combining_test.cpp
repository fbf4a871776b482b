// Question: does it pay to combine while messages still arrive, and to take them as they come?
// Answered by the recurrence for two-partial dissemination of 2 .. 96 ranks that start at random
// times, on a network like FDR; printed as a table.
//
//   planned   each message is awaited in the order of slots and combined at once
//   b         all messages of a round are awaited before the first is combined
//   c         messages are combined in the order in which they are seen
//
// Times are from the last start to the last end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "networks.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/verify.hpp"
#include "plan/cost/cost_model.hpp"
#include "plan/cost/makespan.hpp"

namespace tutti::plan {
namespace {

using test::fdr;
using test::Random;

/// In each round the awaits come right after the puts.
Plan awaiting_all_first(Plan plan) {
  auto begin = plan.steps.begin();
  while (begin != plan.steps.end()) {
    const auto end = std::find_if(begin, plan.steps.end(),
                                  [&](const Step& step) { return step.round != begin->round; });
    const auto first_await =
        std::find_if(begin, end, [](const Step& step) { return step.action == Action::await; });
    std::stable_partition(first_await, end,
                          [](const Step& step) { return step.action == Action::await; });
    begin = end;
  }
  return plan;
}

std::vector<Plan> plans_of(std::uint32_t ranks, const PerRound& vector, bool awaits_first) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Plan plan = two_partial_allreduce(Rank{rank}, ranks, vector, Order::commutative);
    plans.push_back(awaits_first ? awaiting_all_first(std::move(plan)) : std::move(plan));
  }
  return plans;
}

TEST(AwaitingAllFirst, keeps_the_promise_of_the_plan) {
  for (std::uint32_t ranks = 1; ranks <= 48; ++ranks)
    for (std::uint32_t n = 1; n <= 7; ++n) {
      const std::vector<Plan> plans = plans_of(ranks, uniform(ranks, n), true);
      ASSERT_EQ(first_violation(
                    ranks, [&](Rank rank) { return plans[index_of(rank)]; }, Promise::each_once),
                std::nullopt);
    }
}

struct Samples {
  std::vector<double> planned, b, c, b_over_planned, c_over_planned;

  void add(double planned_us, double b_us, double c_us) {
    planned.push_back(planned_us);
    b.push_back(b_us);
    c.push_back(c_us);
    b_over_planned.push_back(b_us / planned_us);
    c_over_planned.push_back(c_us / planned_us);
  }
};

double quantile(std::vector<double> values, double part) {
  const auto place =
      values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

struct Setting {
  std::uint64_t payload_bytes;
  Picoseconds longest_delay;  // of a start; uniform
  Combining rule;             // by which the vector was chosen
};

Samples sampled(const Setting& setting) {
  constexpr int seeds = 11;
  Random random(1);
  Samples samples;
  std::vector<Picoseconds> starts;
  for (std::uint32_t ranks = 2; ranks <= 96; ++ranks) {
    const PerRound vector = best_per_round(ranks, setting.payload_bytes, fdr(), 7, setting.rule);
    const std::vector<Plan> planned = plans_of(ranks, vector, false);
    const std::vector<Plan> b = plans_of(ranks, vector, true);
    for (int seed = 0; seed < (setting.longest_delay == 0 ? 1 : seeds); ++seed) {
      starts.clear();
      for (std::uint32_t rank = 0; rank < ranks; ++rank)
        starts.push_back(random.below(static_cast<std::uint32_t>(setting.longest_delay) + 1));
      const Picoseconds last_start = *std::max_element(starts.begin(), starts.end());
      const auto us = [&](const std::vector<Plan>& plans, CombineOrder order) {
        const Call call{.payload_bytes = setting.payload_bytes, .starts = starts, .order = order};
        return static_cast<double>(makespan(plans, fdr(), call) - last_start) / 1e6;
      };
      samples.add(us(planned, CombineOrder::as_planned), us(b, CombineOrder::as_planned),
                  us(planned, CombineOrder::as_seen));
    }
  }
  return samples;
}

void print(const Setting& setting, const Samples& samples) {
  std::printf(
      "%6u %8.1f %-14s %8.2f %8.2f %8.2f   %5.3f (%5.3f .. %5.3f)   %5.3f (%5.3f .. %5.3f)\n",
      static_cast<unsigned>(setting.payload_bytes),
      static_cast<double>(setting.longest_delay) / 1e6,
      setting.rule == Combining::after_all ? "after_all" : "while_arriving",
      quantile(samples.planned, 0.5), quantile(samples.b, 0.5), quantile(samples.c, 0.5),
      quantile(samples.b_over_planned, 0.5), quantile(samples.b_over_planned, 0),
      quantile(samples.b_over_planned, 1), quantile(samples.c_over_planned, 0.5),
      quantile(samples.c_over_planned, 0), quantile(samples.c_over_planned, 1));
}

/// Early combining pays: little for small payloads, up to a third and more for large ones.  The
/// order of arrival gains something only for large payloads and ranks that start a little apart,
/// and can lose: what is combined first may be what nobody waits for.
void expect_answer(const Setting& setting, const Samples& samples) {
  const double b = quantile(samples.b_over_planned, 0.5);
  const double c = quantile(samples.c_over_planned, 0.5);
  EXPECT_GT(b, setting.payload_bytes == 8 ? 1.02 : 1.05);
  EXPECT_LT(b, setting.payload_bytes == 8 ? 1.03 : 1.30);
  EXPECT_LE(c, 1.0005);
  EXPECT_GT(c, setting.payload_bytes == 8 ? 0.999 : 0.90);
  if (setting.longest_delay > 0) return;
  EXPECT_GE(quantile(samples.b_over_planned, 0), 1.0);
  EXPECT_EQ(samples.c, samples.planned);  // messages come in the order of slots
}

TEST(EarlyCombining, pays) {
  std::printf(
      " bytes delay/us vectors by     planned        b        c   b/planned: median (all)   "
      "c/planned: median (all)\n");
  for (const std::uint64_t bytes : {8u, 2048u})
    for (const Combining rule : {Combining::after_all, Combining::while_arriving})
      for (const Picoseconds delay : {0, 500'000, 2'000'000, 10'000'000}) {
        const Setting setting{bytes, delay, rule};
        const Samples samples = sampled(setting);
        print(setting, samples);
        expect_answer(setting, samples);
      }
}

}  // namespace
}  // namespace tutti::plan
