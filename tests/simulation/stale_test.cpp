// Promise: a stale-synchronous result holds exactly one whole contribution of every rank, from the
// last slack + 1 calls, and its staleness is the age of the oldest, however ranks and messages are
// delayed, also after ranks have given up calls together.  No rank waits for another that is less
// than slack calls behind.  With fewer copies results would be wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/stale.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/copies.hpp"
#include "plan/core/per_round.hpp"
#include "simulated_fabric.hpp"
#include "support/operators.hpp"

namespace tutti {
namespace {

using simulation::SimulatedFabric, simulation::SimulatedRank;

/// Element r of every group of P elements is what rank r contributes: the number of its call.
constexpr std::size_t groups = 3;

struct Case {
  std::uint32_t rank_count;
  plan::PerRound per_round;
  std::uint32_t slack;
  std::uint64_t calls;
  std::uint64_t seed;
  std::uint32_t copies;  // of the plan: slack + 1
};

struct Outcome {
  std::uint64_t results = 0;
  std::uint64_t wrong = 0;      // not one of every rank, or too old, or from the future
  std::uint64_t torn = 0;       // groups differ
  std::uint64_t misjudged = 0;  // staleness is not that of the oldest
  std::uint64_t stale = 0;      // results with anything older than their call
};

class World {
 public:
  explicit World(const Case& one) : case_(one), random_(one.seed), ranks_(one.rank_count) {
    const std::size_t elements = groups * one.rank_count;
    for (std::uint32_t rank = 0; rank < one.rank_count; ++rank)
      plans_.push_back(
          plan::in_copies(plan::two_partial_allreduce(Rank{rank}, one.rank_count, one.per_round,
                                                      plan::Order::commutative),
                          one.copies));
    for (std::uint32_t rank = 0; rank < one.rank_count; ++rank) {
      plan::Plan& plan = plans_[rank];
      SimulatedRank& r = ranks_[rank];
      engine::Execution& execution = r.execution;
      execution.reduction = test::sum_job().reduction;
      execution.parts = engine::parts_of(elements, sizeof(std::uint64_t), 1);
      engine::RegisterMemory& memory = execution.memory;
      memory.label_bytes = sizeof(std::uint64_t);
      memory.payload_bytes = (elements + 1) * sizeof(std::uint64_t);
      memory.register_bytes = memory.payload_bytes;
      memory.long_slot_count = memory.data_slot_count = plan.slot_count;
      const std::size_t slots = memory.offset_of_slot(plan.slot_count);
      r.memory.resize(2 * (slots + plan.partial_count * memory.register_bytes));
      r.arrived.resize(2 * std::size_t{plan.slot_count});
      for (std::size_t parity = 0; parity < 2; ++parity) {
        memory.slots[parity] = r.memory.data() + parity * (r.memory.size() / 2);
        memory.partials[parity] = memory.slots[parity] + slots;
      }
      sources_.emplace_back(elements);
      targets_.emplace_back(elements);
      memory.source = reinterpret_cast<std::byte*>(sources_.back().data());
      memory.target = reinterpret_cast<std::byte*>(targets_.back().data());
      execution.steps = plan.steps;
      for (const plan::Step& step : plan.steps)
        if (step.action == plan::Action::put) r.puts.push_back(&step);
      stale_.emplace_back(plan.steps, plan.slot_count, one.copies, one.slack);
    }
  }

  /// `delays_one`: rank 0 moves rarely.  The ranks give up what they have begun after so many
  /// turns, if these are not 0, and make all calls after that.
  Outcome run(bool delays_one, std::uint64_t cancelled_after = 0) {
    SimulatedFabric fabric(ranks_, 2, case_.seed);
    Outcome outcome;
    std::uint32_t unfinished = case_.rank_count;
    for (std::uint64_t turns = 0; unfinished > 0; ++turns) {
      if (turns > 4000 * case_.calls * case_.rank_count) return {};  // waits for ever
      if (cancelled_after > 0 && turns == cancelled_after) {
        cancel(fabric);
        outcome = {};
        unfinished = case_.rank_count;
      }
      if (!fabric.idle() && random_() % 2 == 0) {
        fabric.deliver_one();
        continue;
      }
      auto rank = static_cast<std::uint32_t>(random_() % case_.rank_count);
      if (delays_one && rank == 0 && random_() % 16 != 0) continue;
      engine::Execution& execution = ranks_[rank].execution;
      if (!execution.in_flight) {
        if (execution.sequence == case_.calls) continue;
        start(rank);
      }
      if (stale_[rank].advance(execution, fabric, rank) != Status::ok) continue;
      judge(rank, outcome);
      if (execution.sequence == case_.calls) --unfinished;
      ahead_ = std::max(ahead_, execution.sequence - least());
    }
    while (!fabric.idle()) fabric.deliver_one();
    if (fabric.doubled()) ++outcome.wrong;  // which ends a connection
    for (std::uint32_t rank = 0; rank < case_.rank_count; ++rank)
      if (!stale_[rank].collect(ranks_[rank].execution, fabric, rank)) ++outcome.wrong;
    return outcome;
  }

  /// Calls that some rank was ahead of another at most.
  std::uint64_t ahead() const { return ahead_; }

 private:
  void cancel(SimulatedFabric& fabric) {
    while (!fabric.idle()) fabric.deliver_one();
    for (std::uint32_t rank = 0; rank < case_.rank_count; ++rank) {
      std::fill(ranks_[rank].arrived.begin(), ranks_[rank].arrived.end(), std::uint8_t{0});
      ranks_[rank].execution.forget_calls();
      stale_[rank].forget_calls();
    }
  }

  void start(std::uint32_t rank) {
    engine::Execution& execution = ranks_[rank].execution;
    execution.begin();
    stale_[rank].begin(execution);
    for (std::size_t i = 0; i < sources_[rank].size(); ++i)
      sources_[rank][i] = i % case_.rank_count == rank ? execution.sequence : 0;
  }

  void judge(std::uint32_t rank, Outcome& outcome) const {
    const std::uint64_t call = ranks_[rank].execution.sequence;
    const std::vector<std::uint64_t>& result = targets_[rank];
    std::uint64_t oldest = call;
    bool wrong = result[rank] != call;
    for (std::uint32_t from = 0; from < case_.rank_count; ++from) {
      wrong =
          wrong || result[from] > call || result[from] + case_.slack < call || result[from] == 0;
      oldest = std::min(oldest, result[from]);
    }
    bool torn = false;
    for (std::size_t i = case_.rank_count; i < result.size(); ++i)
      torn = torn || result[i] != result[i - case_.rank_count];
    ++outcome.results;
    outcome.wrong += wrong ? 1 : 0;
    outcome.torn += torn ? 1 : 0;
    outcome.misjudged += !wrong && stale_[rank].staleness() != call - oldest ? 1 : 0;
    outcome.stale += oldest < call ? 1 : 0;
  }

  std::uint64_t least() const {
    std::uint64_t least = UINT64_MAX;
    for (const SimulatedRank& rank : ranks_)
      least = std::min(least, rank.execution.sequence - (rank.execution.in_flight ? 1 : 0));
    return least;
  }

  Case case_;
  std::mt19937_64 random_;
  std::vector<SimulatedRank> ranks_;
  std::vector<plan::Plan> plans_;
  std::vector<std::vector<std::uint64_t>> sources_, targets_;
  std::vector<engine::StaleCalls> stale_;
  std::uint64_t ahead_ = 0;
};

void add(Outcome& sum, const Outcome& one) {
  sum.results += one.results;
  sum.wrong += one.wrong;
  sum.torn += one.torn;
  sum.misjudged += one.misjudged;
  sum.stale += one.stale;
}

TEST(Stale, results_are_whole_and_no_older_than_slack) {
#if defined(__SANITIZE_ADDRESS__) || !defined(NDEBUG)
  constexpr std::uint64_t calls = 400;
#else
  constexpr std::uint64_t calls = 4000;
#endif
  Outcome sum;
  for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
    for (std::uint32_t slack = 0; slack <= 4; slack += slack < 2 ? 1 : 2)
      for (const bool delays_one : {false, true})
        for (const plan::PerRound& vector : {plan::PerRound{1, 1, 1, 1}, plan::PerRound{2, 3}}) {
          if (!plan::covers(ranks, vector)) continue;
          World world({ranks, vector, slack, calls, ranks * 10 + slack, slack + 1});
          const Outcome one = world.run(delays_one);
          const std::string text = std::to_string(ranks) + " ranks, slack " + std::to_string(slack);
          EXPECT_EQ(one.results, calls * ranks) << text;
          EXPECT_EQ(one.wrong, 0u) << text;
          EXPECT_EQ(one.torn, 0u) << text;
          EXPECT_EQ(one.misjudged, 0u) << text;
          if (slack == 0 || ranks == 1) {
            EXPECT_EQ(one.stale, 0u) << text;
          }
          if (slack > 0 && ranks > 1) {
            EXPECT_GT(one.stale, 0u) << text;
          }
          EXPECT_LE(world.ahead(), slack + 1) << text;
          if (ranks > 1 && delays_one) {
            EXPECT_GE(world.ahead(), slack) << text << ": others wait for the late rank";
          }
          add(sum, one);
        }
  if (calls == 4000) {
    EXPECT_GE(sum.results, 1'000'000u);
  }
}

TEST(Stale, results_are_whole_after_calls_that_were_given_up) {
  for (const std::uint32_t slack : {0u, 1u, 3u})
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      World world({4, {1, 1}, slack, 50, seed, slack + 1});
      const Outcome one = world.run(seed % 2 == 0, 1 + seed * 7);
      EXPECT_EQ(one.results, 200u) << "slack " << slack << ", seed " << seed;
      EXPECT_EQ(one.wrong + one.torn + one.misjudged, 0u) << "slack " << slack << ", seed " << seed;
    }
}

TEST(Stale, with_two_slots_whatever_the_slack_results_are_mixed) {
  for (const std::uint32_t slack : {1u, 2u, 3u}) {
    Outcome sum;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      World world({4, {1, 1}, slack, 2000, seed, 1});
      add(sum, world.run(true));
    }
    EXPECT_GT(sum.wrong + sum.torn + sum.misjudged, 0u) << "slack " << slack;
  }
}

}  // namespace
}  // namespace tutti
