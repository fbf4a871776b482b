// Promise: a race inside a single node has all schedules that can run there, among them what is
// taken untuned.  Each can be asked for by its name.  What races have found decides there, also
// between the raced sizes, and nothing changes without a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

#include "microbench/tune_racers.hpp"
#include "plan/core/verify.hpp"
#include "tune/candidates.hpp"
#include "tune/choose.hpp"

namespace tutti::tune {
namespace {

CollectiveRequest request_of(Collective collective, std::size_t bytes,
                             Agreement agreement = Agreement::identical) {
  CollectiveRequest request{.collective = collective,
                            .element_count = bytes / 8,
                            .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
                            .agreement = agreement};
  if (collective == Collective::broadcast)
    request.reduction = {.element_bytes = 1}, request.element_count = bytes;
  if (collective == Collective::barrier) request.reduction = {}, request.element_count = 0;
  if (collective == Collective::broadcast || collective == Collective::reduce)
    request.root = Rank{0};
  return request;
}

Topology node_of(std::uint32_t ranks) {
  return {.rank_count = ranks, .node_of = std::vector<Node>(ranks, Node{0})};
}

/// A finding of a race of this call inside a node.  The first of `times` is the fastest.
Finding finding_of(const CollectiveRequest& request, std::uint32_t ranks,
                   std::vector<std::pair<std::string, plan::Picoseconds>> times) {
  Finding finding{.collective = request.collective,
                  .bytes = request.bytes(),
                  .ranks_per_node = ranks,
                  .agreement = request.agreement,
                  .operators = operator_class_of(request)};
  for (auto& [choice, time] : times) {
    Timing timing{.choice = std::move(choice), .measured = time, .predicted = time};
    if (finding.winner.choice.empty())
      finding.winner = std::move(timing);
    else
      finding.others.push_back(std::move(timing));
  }
  return finding;
}

Knowledge known(std::vector<Finding> findings, TuningBits bits = TuningBits::free) {
  return tuned(machine_preset("fdr"),
               {.machine = machine_preset("fdr"), .findings = std::move(findings)}, bits);
}

std::set<std::string> families_of(const std::vector<Choice>& choices) {
  std::set<std::string> families;
  for (const Choice& choice : choices) families.insert(family_of(choice.name()));
  return families;
}

plan::Promise promise_of(Collective collective) {
  return collective == Collective::barrier     ? plan::Promise::barrier
         : collective == Collective::broadcast ? plan::Promise::broadcast
                                               : plan::Promise::each_once;
}

TEST(NodeRaces, have_what_is_taken_untuned_and_others_that_are_different_and_can_be_asked_for) {
  const Knowledge untuned_knowledge = untuned(machine_preset("fdr"));
  // The measured network may be another one, whose latencies are then in names of trees.
  for (const char* const preset : {"fdr", "roce10"})
    for (const std::uint32_t ranks : {2u, 3u, 4u, 8u, 17u})
      for (const Collective collective :
           {Collective::barrier, Collective::allreduce, Collective::broadcast, Collective::reduce})
        for (const std::size_t bytes : {8u, 256u, 1u << 10, 4u << 10, 32u << 10, 1u << 20})
          for (const Agreement agreement :
               {Agreement::relaxed, Agreement::identical, Agreement::reproducible}) {
            const CollectiveRequest request = request_of(collective, bytes, agreement);
            const Topology topology = node_of(ranks);
            const Knowledge machine = untuned(machine_preset(preset));
            const bench::Racers racers =
                bench::racers_of(request, topology, machine, untuned_knowledge);
            const std::string of = std::string(name_of(collective)) + " " + std::to_string(bytes) +
                                   " " + std::to_string(ranks);
            ASSERT_FALSE(racers.choices.empty()) << of;
            EXPECT_LE(racers.choices.size(), bench::racers_in_node_max) << of;
            EXPECT_EQ(racers.choices.front().name(), racers.untuned) << of;
            EXPECT_TRUE(have_same_plans(racers.choices.front(),
                                        choose(request, topology, untuned_knowledge)))
                << of << ": " << racers.untuned;
            for (std::size_t i = 0; i < racers.choices.size(); ++i) {
              const Choice& choice = racers.choices[i];
              for (std::size_t j = 0; j < i; ++j)
                EXPECT_FALSE(have_same_plans(choice, racers.choices[j]))
                    << of << ": " << choice.name() << " is " << racers.choices[j].name();
              CollectiveRequest asked = request;
              asked.only = choice.name();
              // The choice can be asked for by name on an untuned machine, too.
              const Choice again = choose(asked, topology, untuned_knowledge);
              EXPECT_TRUE(have_same_plans(again, choice)) << of << ": " << choice.name();
              const bool sends_once = agreement != Agreement::reproducible;
              if (!sends_once) continue;
              EXPECT_EQ(plan::first_violation(
                            ranks, [&](Rank self) { return again.plan(self); },
                            promise_of(collective), request.root),
                        std::nullopt)
                  << of << ": " << choice.name();
            }
          }
}

TEST(NodeRaces, have_flat_schedules_lanes_leaders_trees_and_chains) {
  const Knowledge knowledge = untuned(machine_preset("fdr"));
  const auto families = [&](Collective collective, std::size_t bytes, std::uint32_t ranks) {
    return families_of(candidates(request_of(collective, bytes), node_of(ranks), knowledge,
                                  bench::racers_in_node_max));
  };
  const auto has = [](const std::set<std::string>& all, const char* family) {
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string& one) { return one.starts_with(family); });
  };
  for (const std::size_t bytes : {1u << 10, 4u << 10, 32u << 10, 1u << 20}) {
    const auto all = families(Collective::allreduce, bytes, 2);
    EXPECT_TRUE(has(all, "lanes")) << bytes << testing::PrintToString(all);
    EXPECT_TRUE(has(all, "recursive_multiplying")) << bytes << testing::PrintToString(all);
  }
  EXPECT_FALSE(has(families(Collective::allreduce, 64, 2), "lanes"));
  EXPECT_TRUE(has(families(Collective::barrier, 0, 4), "leader"));
  EXPECT_TRUE(has(families(Collective::allreduce, 64, 4), "leader"));
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    const auto all = families(collective, 64u << 10, 4);
    for (const char* const family : {"lanes", "knomial_tree", "binomial_tree", "pipelined_chain"})
      EXPECT_TRUE(has(all, family)) << name_of(collective) << testing::PrintToString(all);
    // The Fibonacci tree of four ranks is the same as one of these trees.
    const auto of_sixteen = families(collective, 1u << 10, 16);
    EXPECT_TRUE(has(of_sixteen, "fibonacci_tree")) << testing::PrintToString(of_sixteen);
  }
  EXPECT_TRUE(has(families(Collective::reduce, 4u << 10, 2), "lanes"));
  // Where the call says how nodes enter, or ranks share CPUs, no further schedules race.
  CollectiveRequest asked = request_of(Collective::allreduce, 32u << 10);
  asked.across = Across::flat;
  EXPECT_EQ(candidates(asked, node_of(2), knowledge, 6).size(), 1u);
  Topology by_turns = node_of(2);
  by_turns.shares_cpus = true;
  EXPECT_FALSE(
      has(families_of(candidates(request_of(Collective::allreduce, 1024), by_turns, knowledge, 6)),
          "lanes"));
}

TEST(NodeRaces, decide_about_their_own_call) {
  const CollectiveRequest request = request_of(Collective::allreduce, 32u << 10);
  const Topology topology = node_of(2);
  const std::string lanes = choose(request, topology, Knowledge()).name();
  ASSERT_TRUE(lanes.starts_with("2 lanes")) << lanes;
  const std::string flat = "recursive_multiplying with 1 a round";
  const Choice choice = choose(
      request, topology, known({finding_of(request, 2, {{flat, 5'000'000}, {lanes, 10'000'000}})}));
  EXPECT_EQ(choice.name(), flat);
  EXPECT_NE(choice.explanation().find("measured to be the fastest, 5.000 us"), std::string::npos)
      << choice.explanation();
  // For a small payload, where the rule takes a flat schedule, lanes can win as well.
  const CollectiveRequest small = request_of(Collective::allreduce, 2u << 10);
  EXPECT_EQ(choose(small, topology, Knowledge()).name(), flat);
  EXPECT_EQ(choose(small, topology, known({finding_of(small, 2, {{lanes, 1'000'000}})})).name(),
            lanes);
  // For other ranks, and for ranks that share CPUs, the choice is as without a file.
  EXPECT_EQ(choose(small, node_of(3), known({finding_of(small, 2, {{lanes, 1'000'000}})})).name(),
            choose(small, node_of(3), Knowledge()).name());
  Topology by_turns = topology;
  by_turns.shares_cpus = true;
  EXPECT_EQ(choose(small, by_turns, known({finding_of(small, 2, {{lanes, 1'000'000}})})).name(),
            choose(small, by_turns, Knowledge()).name());
  // A name that does not exist is refused, and the explanation says so.
  const Choice other =
      choose(small, topology, known({finding_of(small, 2, {{"9 lanes", 1'000'000}})}));
  EXPECT_EQ(other.name(), flat);
  EXPECT_NE(
      other.explanation().find("a finding is passed over: allreduce: there is no \"9 lanes\""),
      std::string::npos)
      << other.explanation();
}

TEST(NodeRaces, decide_between_the_sizes_that_were_raced_by_times_in_between) {
  const std::string lanes =
      choose(request_of(Collective::allreduce, 32u << 10), node_of(2), Knowledge()).name();
  const std::string flat = "recursive_multiplying with 1 a round";
  const CollectiveRequest below = request_of(Collective::allreduce, 16u << 10);
  const CollectiveRequest above = request_of(Collective::allreduce, 64u << 10);
  const Finding faster_below = finding_of(below, 2, {{flat, 2'000'000}, {lanes, 4'000'000}});
  const Finding faster_above = finding_of(above, 2, {{flat, 8'000'000}, {lanes, 16'000'000}});
  const Finding slower_above = finding_of(above, 2, {{lanes, 8'000'000}, {flat, 32'000'000}});
  const auto taken = [&](std::size_t bytes, const Knowledge& knowledge, std::uint32_t ranks = 2) {
    return choose(request_of(Collective::allreduce, bytes), node_of(ranks), knowledge);
  };
  const Knowledge both = known({faster_below, faster_above});
  const Choice choice = taken(32u << 10, both);
  EXPECT_EQ(choice.name(), flat);
  EXPECT_NE(choice.explanation().find("as measured for 16384 and 65536 bytes, between which " +
                                      lanes + " takes 7.996 us, and this 3.998 us"),
            std::string::npos)
      << choice.explanation();
  // Beyond the two sizes nothing is known, nor for other ranks.
  EXPECT_EQ(taken(128u << 10, both).name(), lanes);
  EXPECT_EQ(taken(8u << 10, both).name(), lanes);
  EXPECT_EQ(taken(32u << 10, both, 3).name(), taken(32u << 10, Knowledge(), 3).name());
  // At 24 KiB lanes are faster; the lines of both schedules cross below.
  const Knowledge crossing = known({faster_below, slower_above});
  EXPECT_EQ(taken(18u << 10, crossing).name(), flat);
  EXPECT_EQ(taken(24u << 10, crossing).name(), lanes);
  EXPECT_EQ(taken(48u << 10, crossing).name(), lanes);
  // These decide nothing: a noisy race, a race without lanes, and one that is far away.
  Finding noisy = faster_above;
  noisy.is_noisy = true;
  EXPECT_EQ(taken(32u << 10, known({faster_below, noisy})).name(), lanes);
  EXPECT_EQ(
      taken(32u << 10, known({faster_below, finding_of(above, 2, {{flat, 8'000'000}})})).name(),
      lanes)
      << "lanes were not raced there";
  const Finding far = finding_of(request_of(Collective::allreduce, 1u << 20), 2,
                                 {{flat, 100'000'000}, {lanes, 200'000'000}});
  EXPECT_EQ(taken(32u << 10, known({faster_below, far})).name(), lanes);
  // A gain of less than a fiftieth changes nothing.
  EXPECT_EQ(
      taken(32u << 10, known({finding_of(below, 2, {{flat, 3'960'000}, {lanes, 4'000'000}}),
                              finding_of(above, 2, {{flat, 15'840'000}, {lanes, 16'000'000}})}))
          .name(),
      lanes);
  EXPECT_EQ(taken(32u << 10, known({faster_below, faster_above}, TuningBits::keep)).name(), lanes);
}

}  // namespace
}  // namespace tutti::tune
