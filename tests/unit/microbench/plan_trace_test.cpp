// Promise: what a message is said to bring is what it brings, as the fewest cyclic intervals; and
// the texts of a plan say what the trace says.
#include "microbench/plan_trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <tutti/detail/names.hpp>

#include "microbench/plan_print.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/steps.hpp"
#include "tune/choose.hpp"

namespace tutti::bench {
namespace {

using plan::Plan;
using plan::StepWriter;

Cover cover_of_times(const std::vector<std::uint32_t>& times) {
  std::vector<Change> changes;
  std::uint32_t before = 0;
  for (std::uint32_t rank = 0; rank < times.size(); ++rank) {
    if (times[rank] != before) changes.push_back({rank, times[rank]});
    before = times[rank];
  }
  if (before != 0) changes.push_back({static_cast<std::uint32_t>(times.size()), 0});
  return cover_of(changes, static_cast<std::uint32_t>(times.size()));
}

TEST(Cover, is_the_multiset_in_the_fewest_intervals) {
  // Every interval holds a rank at most once, and begins where the height rises or is a circle.
  for (std::uint32_t ranks = 1; ranks <= 6; ++ranks) {
    std::vector<std::uint32_t> times(ranks);
    for (std::uint32_t code = 0; code < 1u << (2 * ranks); ++code) {
      std::uint32_t rises = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) times[rank] = code >> (2 * rank) & 3u;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const std::uint32_t before = times[(rank + ranks - 1) % ranks];
        rises += times[rank] > before ? times[rank] - before : 0;
      }
      std::vector<std::uint32_t> covered(ranks);
      const Cover cover = cover_of_times(times);
      for (const auto& [first, count] : cover) {
        ASSERT_LT(first, ranks);
        ASSERT_GE(count, 1u);
        ASSERT_LE(count, ranks);
        for (std::uint32_t i = 0; i < count; ++i) ++covered[(first + i) % ranks];
      }
      ASSERT_EQ(covered, times);
      ASSERT_EQ(cover.size(), std::max(rises, *std::max_element(times.begin(), times.end())));
    }
  }
}

TEST(Cover, wraps_at_the_last_rank) {
  EXPECT_EQ(cover_of_times({1, 1, 0, 0, 1}), (Cover{{4, 3}}));
  EXPECT_EQ(text_of(Cover{{4, 3}}, 5), "4..1");
  EXPECT_EQ(text_of(Cover{{3, 1}, {0, 5}}, 5), "3, 0..4");
  EXPECT_EQ(text_of(Cover{}, 5), "nothing");
}

/// Executed rounds 1,2 for P = 5: rank 4 hears 3, then 1..2 and 0 (the picture in two_partial.hpp).
TEST(PlanTrace, shows_the_picture_of_two_partial_dissemination) {
  for (const plan::Order order : {plan::Order::commutative, plan::Order::rank_order}) {
    const auto trace = PlanTrace::of(5, [&](Rank self) {
      return plan::two_partial_allreduce(self, 5, {2, 2}, order);
    });
    ASSERT_TRUE(trace);
    EXPECT_EQ(trace->brought(Rank{4}, 0), (Cover{{3, 1}}));
    EXPECT_EQ(trace->brought(Rank{4}, 1), (Cover{{1, 2}}));
    EXPECT_EQ(trace->brought(Rank{4}, 2), (Cover{{0, 1}}));
    EXPECT_EQ(trace->brought(Rank{1}, 1), (Cover{{3, 2}}));
    EXPECT_EQ(trace->brought(Rank{2}, 1),
              (Cover{{4, 2}}));  // two payloads in rank order: one cover
  }
}

/// How often each rank is in the cover.
std::vector<std::uint32_t> times_of(const Cover& cover, std::uint32_t ranks) {
  std::vector<std::uint32_t> times(ranks);
  for (const auto& [first, count] : cover)
    for (std::uint32_t i = 0; i < count; ++i) ++times[(first + i) % ranks];
  return times;
}

TEST(PlanTrace, results_are_the_sum_of_what_was_heard) {
  for (std::uint32_t ranks = 1; ranks <= 40; ++ranks) {
    const plan::PerRound vector = plan::uniform(ranks, 2);
    const auto exactly = PlanTrace::of(ranks, [&](Rank self) {
      return plan::two_partial_allreduce(self, ranks, vector, plan::Order::commutative);
    });
    const auto at_least = PlanTrace::of(
        ranks, [&](Rank self) { return plan::dissemination_allreduce(self, ranks, vector); });
    const auto barrier = PlanTrace::of(
        ranks, [&](Rank self) { return plan::dissemination_barrier(self, ranks, vector); });
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(exactly->result(Rank{rank}), (Cover{{0, ranks}}));
      ASSERT_EQ(barrier->result(Rank{rank}), (Cover{{0, ranks}}));
      std::vector<std::uint32_t> sum(ranks);
      ++sum[rank];
      for (std::uint16_t slot = 0; slot < at_least->plan(Rank{rank}).slot_count; ++slot) {
        const auto brought = times_of(at_least->brought(Rank{rank}, slot), ranks);
        for (std::uint32_t i = 0; i < ranks; ++i) sum[i] += brought[i];
      }
      ASSERT_EQ(times_of(at_least->result(Rank{rank}), ranks), sum);
      ASSERT_TRUE(std::find(sum.begin(), sum.end(), 0u) == sum.end());
    }
  }
}

/// Three ranks; the last round brings the own contribution again and takes it out.
Plan taking_out(Rank self) {
  Plan plan;
  plan.self = self;
  plan.rank_count = 3;
  plan.algorithm = "made_up";
  plan.takes_out = 1;
  plan.partial_count = 2;
  plan.slot_count = 2;
  StepWriter steps(plan);
  const plan::Register first = plan::partial_register(0);
  const plan::Register grown = plan::partial_register(1);
  for (std::uint16_t round = 0; round < 2; ++round) {
    steps.begin_round(1);
    if (round == 0) steps.copy(plan::source_register, first);
    steps.put(plan::rank_ahead(self, round + 1u, 3), round, 1, round == 0 ? first : grown);
    if (round == 0) steps.copy(first, grown);
    if (round == 1) steps.copy(grown, plan::target_register);
    steps.await(plan::rank_behind(self, round + 1u, 3), round, 1);
    steps.combine(plan::slot_register(round), round == 0 ? grown : plan::target_register);
  }
  steps.take_out(first, plan::target_register);
  return plan;
}

TEST(PlanTrace, takes_out_what_came_twice) {
  const auto trace = PlanTrace::of(3, taking_out);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->brought(Rank{0}, 1), (Cover{{0, 2}}));
  EXPECT_EQ(trace->result(Rank{0}), (Cover{{0, 3}}));
  EXPECT_EQ(taken_out(taking_out(Rank{0})), (Cover{{0, 1}}));
  Plan two = taking_out(Rank{0});
  two.takes_out = 2;
  EXPECT_EQ(taken_out(two), (Cover{{2, 2}}));
  EXPECT_EQ(json_of(trace->plan(Rank{0}), *trace),
            R"({"ranks":3,"rank":0,"algorithm":"made_up","per_round":[1,1],"rounds":[)"
            R"({"puts":[{"peer":1,"slot":0,"covers":[[0,1]]}],)"
            R"("awaits":[{"peer":2,"slot":0,"covers":[[2,1]]}]},)"
            R"({"puts":[{"peer":2,"slot":1,"covers":[[2,2]]}],)"
            R"("awaits":[{"peer":1,"slot":1,"covers":[[0,2]]}]}],"takes_out":[[0,1]]})");
  const std::string table =
      table_of({.topology = {.rank_count = 3}}, trace->plan(Rank{0}), &*trace);
  EXPECT_NE(table.find("takes out     0, which came twice"), std::string::npos) << table;
}

/// Two ranks; each sends the other what it has of one half, and then the whole of the other half.
Plan halves(Rank self) {
  Plan plan;
  plan.self = self;
  plan.rank_count = 2;
  plan.algorithm = "halves";
  plan.parts = 2;
  plan.partial_count = 2;
  plan.slot_count = 2;
  StepWriter steps(plan);
  const Rank other{1 - index_of(self)};
  const auto kept = static_cast<std::uint16_t>(index_of(self));
  const auto given = static_cast<std::uint16_t>(index_of(other));
  steps.begin_round(1);
  steps.begin_part(given);
  steps.copy(plan::source_register, plan::partial_register(0));
  steps.put(other, 0, 1, plan::partial_register(0));
  steps.begin_part(kept);
  steps.copy(plan::source_register, plan::partial_register(1));
  steps.await(other, 0, 1);
  steps.combine(plan::slot_register(0), plan::partial_register(1));
  steps.begin_round(1);
  steps.put(other, 1, 1, plan::partial_register(1));
  steps.copy(plan::partial_register(1), plan::target_register);
  steps.begin_part(given);
  steps.await(other, 1, 1);
  steps.copy(plan::slot_register(1), plan::target_register);
  return plan;
}

TEST(PlanTrace, parts_are_told_apart) {
  const auto trace = PlanTrace::of(2, halves);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->result(Rank{1}, 0), (Cover{{0, 2}}));
  EXPECT_EQ(trace->result(Rank{1}, 1), (Cover{{0, 2}}));
  const std::string json = json_of(trace->plan(Rank{0}), *trace);
  EXPECT_NE(json.find(R"("parts":2)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("puts":[{"peer":1,"slot":0,"covers":[[0,1]],"part":1}])"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"("awaits":[{"peer":1,"slot":1,"covers":[[0,2]],"part":1}])"),
            std::string::npos)
      << json;
}

TEST(PlanTrace, ranks_of_a_node_read_what_one_of_them_has_written_into_their_target) {
  for (const std::size_t elements : {std::size_t{1}, std::size_t{8192}}) {
    const std::vector<Node> node_of(6, Node{0});
    std::vector<Node> apart = node_of;
    for (std::size_t rank = 3; rank < 6; ++rank) apart[rank] = Node{1};
    for (const std::vector<Node>& nodes : {node_of, apart}) {
      const tune::CollectiveRequest request{
          .element_count = elements,
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::int64),
          .shares_target = true};
      const tune::Choice choice =
          tune::choose(request, {.rank_count = 6, .node_of = nodes}, tune::Knowledge());
      const auto trace = PlanTrace::of(
          6, [&](Rank self) { return choice.plan(self); }, nodes);
      ASSERT_TRUE(trace);
      ASSERT_TRUE(trace->plan(Rank{0}).shares_target);
      for (std::uint32_t rank = 0; rank < 6; ++rank)
        for (std::uint16_t part = 0; part < trace->plan(Rank{0}).parts; ++part)
          EXPECT_EQ(trace->result(Rank{rank}, part), (Cover{{0, 6}})) << rank;
    }
  }
}

TEST(PlanTrace, a_plan_that_waits_for_ever_is_none) {
  const auto deaf = [](Rank self) {
    Plan plan = taking_out(self);
    std::erase_if(plan.steps,
                  [](const plan::Step& step) { return step.action == plan::Action::put; });
    return plan;
  };
  EXPECT_THROW(PlanTrace::of(3, deaf), std::logic_error);
}

TEST(PlanTrace, too_many_ranks_are_not_tried) {
  const auto plan_of = [](Rank self) {
    return plan::dissemination_allreduce(self, 1'000'000, plan::uniform(1'000'000, 1));
  };
  EXPECT_FALSE(is_traceable(plan_of(Rank{0})));
  EXPECT_FALSE(PlanTrace::of(1'000'000, plan_of));
}

PlanRequest understood(PlanWords words) {
  if (!words.ranks) words.ranks = "5";
  return understand(words);
}

TEST(PlanRequest, defaults_are_one_ranks_table_and_all_of_json) {
  EXPECT_EQ(understood({}).rank, Rank{0});
  EXPECT_EQ(understood({.format = "dot"}).rank, Rank{0});
  EXPECT_EQ(understood({.format = "json"}).rank, std::nullopt);
  EXPECT_EQ(understood({.rank = "4", .format = "json"}).rank, Rank{4});
  EXPECT_EQ(understood({.rank = "all"}).rank, std::nullopt);
}

TEST(PlanRequest, agreement_is_what_the_named_schedule_gives) {
  EXPECT_EQ(understood({}).asked.agreement, Agreement::identical);
  for (const tune::Row& schedule : tune::named_schedules()) {
    const std::string name = name_of(schedule.algorithm);
    EXPECT_EQ(understood({.algorithm = name, .dtype = "double"}).asked.agreement,
              tune::agreement_of(schedule))
        << name;
  }
  EXPECT_EQ(understood({.algorithm = "two_partial_dissemination", .agreement = "identical"})
                .asked.agreement,
            Agreement::identical);
}

TEST(PlanRequest, a_target_of_the_node_needs_ranks_that_share_one) {
  EXPECT_FALSE(understood({.ranks_per_node = "5"}).asked.shares_target);
  EXPECT_TRUE(understood({.ranks_per_node = "5", .in_node_memory = true}).asked.shares_target);
  EXPECT_FALSE(understood({.ranks_per_node = "1", .in_node_memory = true}).asked.shares_target);
  EXPECT_THROW(understood({.in_node_memory = true}), Error);
}

TEST(PlanPrint, a_drawing_has_an_edge_for_each_message) {
  const auto trace = PlanTrace::of(7, [](Rank self) {
    return plan::recursive_multiplying_allreduce(self, 7, {2, 1});
  });
  const auto edges = [](const std::string& drawing) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = drawing.find("taillabel=", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  EXPECT_EQ(edges(drawing_of(*trace, 7, std::nullopt)), 6 * 3 + 2u);
  EXPECT_EQ(edges(drawing_of(*trace, 7, Rank{0})), 2 * 3 + 2u);
  EXPECT_EQ(edges(drawing_of(*trace, 7, Rank{1})), 2u);
  EXPECT_NE(drawing_of(*trace, 7, Rank{1}).find("r0_3 -> r1_4 [taillabel=\"0..6\"]"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::bench
