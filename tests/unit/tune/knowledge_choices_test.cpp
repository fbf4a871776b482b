// Promise: rules win over findings and findings over prices, unless the call says how it is done;
// what cannot serve is passed over and said; a tuning file changes no bit where bits are kept;
// names tell choices apart, and each is what CollectiveRequest::only asks for.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <set>
#include <sstream>
#include <string>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>
#include <vector>

#include "microbench/verify_figures.hpp"
#include "tune/beside.hpp"
#include "tune/candidates.hpp"
#include "tune/choose.hpp"
#include "tune/flips.hpp"
#include "tune/plan_time.hpp"
#include "tune/uncertainty.hpp"

namespace tutti::tune {
namespace {

CollectiveRequest allreduce_of(std::size_t bytes, Agreement agreement = Agreement::relaxed) {
  return {.element_count = bytes / 8,
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
          .agreement = agreement};
}

Topology nodes_of(std::uint32_t nodes, std::uint32_t ranks_per_node = 1) {
  Topology topology{.rank_count = nodes * ranks_per_node};
  for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
    topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

Finding finding_of(const CollectiveRequest& request, const Topology& topology, std::string winner) {
  return {.collective = request.collective,
          .bytes = request.bytes(),
          .nodes = topology.node_count(),
          .ranks_per_node = topology.largest_node(),
          .agreement = request.agreement,
          .operators = operator_class_of(request),
          .winner = {.choice = std::move(winner), .measured = 2'000'000, .predicted = 2'000'000}};
}

Knowledge known(std::vector<Rule> rules, std::vector<Finding> findings,
                TuningBits bits = TuningBits::free) {
  return tuned(machine_preset("fdr"),
               {.machine = machine_preset("fdr"),
                .rules = std::move(rules),
                .findings = std::move(findings)},
               bits);
}

std::vector<CollectiveRequest> some_requests() {
  std::vector<CollectiveRequest> requests;
  for (const Collective collective :
       {Collective::barrier, Collective::allreduce, Collective::broadcast, Collective::reduce,
        Collective::reduce_scatter, Collective::allgather, Collective::alltoall, Collective::gather,
        Collective::scatter, Collective::scan})
    for (const std::size_t bytes : {8u, 4096u, 1u << 20}) {
      CollectiveRequest request = allreduce_of(bytes, Agreement::identical);
      request.collective = collective;
      request.root = Rank{0};
      if (collective == Collective::barrier) request.element_count = 0;
      requests.push_back(request);
      if (collective != Collective::allreduce) continue;
      request.agreement = Agreement::relaxed;
      requests.push_back(request);
      request.agreement = Agreement::reproducible;
      requests.push_back(request);
    }
  return requests;
}

TEST(ChoiceByKnowledge, is_by_price_on_the_machine_at_hand) {
  const auto taken = [](const char* preset) {
    return choose(allreduce_of(8), nodes_of(96), untuned(machine_preset(preset)));
  };
  EXPECT_EQ(taken("fdr").name(), "two_partial_dissemination with 11,7 a round");
  EXPECT_NE(choose(allreduce_of(2048), nodes_of(96), untuned(machine_preset("ndr"))).name(),
            choose(allreduce_of(2048), nodes_of(96), untuned(machine_preset("roce10"))).name());
  const CollectiveRequest two_priced = allreduce_of(8, Agreement::identical);
  const std::string text =
      choose(two_priced, nodes_of(96), untuned(machine_preset("edr"))).explanation();
  EXPECT_NE(text.find(" us on edr"), std::string::npos) << text;
  Machine measured = machine_preset("fdr");
  measured.name = "mlx5_0";
  measured[Parameter::latency].origin = Origin::measured;
  const Choice choice = choose(two_priced, nodes_of(96), untuned(measured));
  EXPECT_NE(choice.explanation().find(" us as measured on mlx5_0"), std::string::npos)
      << choice.explanation();
}

TEST(ChoiceByKnowledge, is_what_a_finding_of_the_same_call_says_unless_it_is_noisy) {
  const CollectiveRequest request = allreduce_of(8);
  const Topology topology = nodes_of(12);
  const std::string slow = "two_partial_dissemination with 1,1,1,1 a round";
  Finding finding = finding_of(request, topology, slow);
  const Choice choice = choose(request, topology, known({}, {finding}));
  EXPECT_EQ(choice.name(), slow);
  EXPECT_TRUE(choice.explanation().starts_with("chosen: " + slow +
                                               ", measured to be the fastest, 2.000 us"))
      << choice.explanation();
  const std::string by_price = choose(request, topology, Knowledge()).name();
  EXPECT_EQ(choose(request, nodes_of(13), known({}, {finding})).name(),
            choose(request, nodes_of(13), Knowledge()).name());
  EXPECT_EQ(choose(allreduce_of(16), topology, known({}, {finding})).name(),
            choose(allreduce_of(16), topology, Knowledge()).name());
  CollectiveRequest asked = request;
  asked.per_round = {3, 2};
  EXPECT_EQ(choose(asked, topology, known({}, {finding})).name(),
            "two_partial_dissemination with 3,2 a round");
  Topology shared = nodes_of(6, 2);
  shared.shares_cpus = true;
  EXPECT_EQ(choose(request, shared, known({}, {finding_of(request, shared, slow)})).name(),
            choose(request, shared, Knowledge()).name())
      << "nothing was raced there";
  finding.is_noisy = true;
  EXPECT_EQ(choose(request, topology, known({}, {finding})).name(), by_price);
  finding.is_noisy = false;
  for (const char* const lost : {"two_partial_dissemination with 1,1 a round", "no_schedule",
                                 "two_partial_dissemination with x a round", "8 lanes"}) {
    finding.winner.choice = lost;
    const Choice other = choose(request, topology, known({}, {finding}));
    EXPECT_EQ(other.name(), by_price);
    EXPECT_NE(other.explanation().find("a finding is passed over: allreduce: there is no \"" +
                                       std::string(lost)),
              std::string::npos)
        << other.explanation();
  }
}

TEST(ChoiceByKnowledge, is_what_the_first_rule_says_that_serves) {
  const CollectiveRequest request = allreduce_of(8);
  const Topology topology = nodes_of(12);
  const Finding finding =
      finding_of(request, topology, "two_partial_dissemination with 1,1,1,1 a round");
  const Rule other_size{.bytes = {.from = 9}, .per_round = {1, 1, 1, 1}};
  const Rule cannot{.per_round = {2, 2}};  // does not cover 12 ranks
  const Rule can{.bytes = {.to = 64}, .per_round = {5, 1}};
  const Choice choice = choose(request, topology, known({other_size, cannot, can}, {finding}));
  EXPECT_EQ(choice.name(), "two_partial_dissemination with 5,1 a round");
  const std::string text = choice.explanation();
  EXPECT_NE(text.find("as the rule for allreduce of 0 to 64 bytes says"), std::string::npos)
      << text;
  EXPECT_NE(text.find("the rule for allreduce is passed over: "), std::string::npos) << text;
  CollectiveRequest asked = request;
  asked.per_round_by_default = {3, 2};  // the environment
  EXPECT_EQ(choose(asked, topology, known({can}, {})).name(),
            "two_partial_dissemination with 3,2 a round");
  const Rule tree{.collective = Collective::broadcast, .tree = Tree::binomial};
  const CollectiveRequest broadcast{.collective = Collective::broadcast,
                                    .element_count = 8,
                                    .reduction = {.element_bytes = 1},
                                    .root = Rank{0}};
  EXPECT_EQ(choose(broadcast, topology, known({tree}, {})).row().tree, Tree::binomial);
  const Rule ring{.algorithm = Algorithm::shared_ring};
  EXPECT_EQ(choose(request, topology, known({ring}, {})).name(),
            choose(request, topology, Knowledge()).name())
      << "nobody has told that there is room for it";
}

// A plan that writes into targets between ranks of a node gives wrong results.
TEST(ChoiceByKnowledge, rules_take_segments_only_as_calls_that_ask_for_the_same_do) {
  CollectiveRequest request = allreduce_of(4u << 20, Agreement::identical);
  request.zero_copy = true;
  for (const Algorithm algorithm :
       {Algorithm::chunked_fold, Algorithm::ring, Algorithm::recursive_multiplying})
    for (const Topology& topology : {nodes_of(1, 2), nodes_of(2, 2), nodes_of(1, 4)}) {
      ASSERT_EQ(choose(request, topology, known({}, {})).name(), "lanes_zero_copy");
      for (const Across across : {Across::automatic, Across::flat}) {
        const Rule rule{.algorithm = algorithm, .across = across};
        const Choice choice = choose(request, topology, known({rule}, {}));
        EXPECT_NE(choice.name(), "lanes_zero_copy");
        EXPECT_FALSE(choice.first_plan().zero_copy) << choice.name();
      }
    }
  // Each rank on a node of its own.
  const Choice fold =
      choose(request, nodes_of(4), known({{.algorithm = Algorithm::chunked_fold}}, {}));
  EXPECT_TRUE(fold.first_plan().zero_copy) << fold.name();
}

TEST(ChoiceByKnowledge, corrections_of_a_family_change_what_is_cheapest) {
  const CollectiveRequest request = allreduce_of(8, Agreement::identical);
  const Topology topology = nodes_of(13);
  const Choice before = choose(request, topology, Knowledge());
  Finding finding = finding_of(request, topology, before.name());
  finding.winner.measured = 2 * finding.winner.predicted;
  finding.others = {{"pairwise", 1'000'000, 1'000'000}};  // takes what the model says
  finding.bytes = 16;                                     // not the call itself
  const Choice after = choose(request, topology, known({}, {finding}));
  EXPECT_NE(after.row().name, before.row().name);
  EXPECT_NE(after.explanation().find(", by races nearby)"), std::string::npos)
      << after.explanation();
}

// If all parameters are too low, every raced family takes longer than predicted.  Families that
// were not raced must not win because of that.
TEST(ChoiceByKnowledge, does_not_go_to_a_family_because_it_was_not_raced) {
  std::size_t raced = 0;
  for (const CollectiveRequest& request : some_requests())
    for (const std::uint32_t ranks_per_node : {1u, 4u, 8u}) {
      const Topology topology = nodes_of(13, ranks_per_node);
      Finding finding = finding_of(request, topology, "");
      finding.bytes += 8;  // not the call itself
      for (const Choice& choice : candidates(request, topology, Knowledge(), 2)) {
        const plan::Picoseconds time = choice.expected(messages_followed_max);
        finding.others.push_back({choice.name(), 2 * time, time});
      }
      if (finding.others.size() < 2 ||
          family_of(finding.others[0].choice) == family_of(finding.others[1].choice))
        continue;
      ++raced;
      finding.winner = finding.others.front();
      finding.others.erase(finding.others.begin());
      const Choice choice = choose(request, topology, known({}, {finding}));
      EXPECT_EQ(choice.name(), choose(request, topology, Knowledge()).name())
          << choice.explanation();
    }
  EXPECT_GE(raced, 20u);
}

TEST(ChoiceByKnowledge, a_time_that_is_that_of_the_events_corrects_nothing) {
  std::size_t followed = 0;
  for (const Agreement agreement : {Agreement::identical, Agreement::relaxed})
    for (const std::uint32_t ranks_per_node : {1u, 4u}) {
      const CollectiveRequest request = allreduce_of(8, agreement);
      const Topology topology = nodes_of(13, ranks_per_node);
      const plan::Network network = machine_preset("fdr").network();
      const std::vector<Choice> before = candidates(request, topology, Knowledge(), 4);
      Finding finding = finding_of(request, topology, before.front().name());
      finding.bytes = 16;  // not the call itself
      for (const Choice& choice : before) {
        const plan::Picoseconds time =
            plan_time({request, topology, network}, [&](Rank self) { return choice.plan(self); });
        const plan::Picoseconds expected = choice.expected(messages_followed_max);
        if (expected == time && time != choice.cost()) ++followed;
        if (expected != time) continue;
        finding.others.push_back({choice.name(), time, expected});
      }
      ASSERT_FALSE(finding.others.empty());
      finding.winner = finding.others.front();
      EXPECT_EQ(finding.winner.choice, before.front().name()) << "it was followed";
      const std::vector<Choice> after = candidates(request, topology, known({}, {finding}), 4);
      ASSERT_EQ(after.size(), before.size());
      for (std::size_t i = 0; i < before.size(); ++i)
        EXPECT_EQ(after[i].name(), before[i].name()) << i;
    }
  EXPECT_GT(followed, 4u) << "or prices are the times";
}

TEST(ChoiceByKnowledge, times_are_of_no_larger_payload_than_prices_are) {
  const Topology topology = nodes_of(4);
  const plan::Network network = machine_preset("fdr").network();
  CollectiveRequest request = allreduce_of(64u << 20), priced = allreduce_of(4u << 20);
  for (const Collective collective : {Collective::allreduce, Collective::broadcast}) {
    request.collective = priced.collective = collective;
    request.root = priced.root = Rank{0};
    const Choice choice = choose(request, topology, Knowledge());
    const auto plan_of = [&](Rank self) { return choice.plan(self); };
    EXPECT_EQ(priced_plan_time({request, topology, network}, plan_of),
              plan_time({priced, topology, network}, plan_of));
    EXPECT_LT(4 * priced_plan_time({request, topology, network}, plan_of),
              plan_time({request, topology, network}, plan_of));
  }
}

TEST(ChoiceByKnowledge, a_tree_that_does_not_reach_all_nodes_is_passed_over) {
  const Topology topology = nodes_of(12);
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    CollectiveRequest request = allreduce_of(64);
    request.collective = collective;
    request.root = Rank{0};
    const std::string lost = "knomial_tree with 1,1 a round";
    const Choice choice =
        choose(request, topology, known({}, {finding_of(request, topology, lost)}));
    EXPECT_EQ(choice.name(), choose(request, topology, Knowledge()).name());
    EXPECT_NE(
        choice.explanation().find("a finding is passed over: " + std::string(name_of(collective)) +
                                  ": there is no \"" + lost + "\""),
        std::string::npos)
        << choice.explanation();
    const std::string wide = "knomial_tree with 5,1 a round";
    EXPECT_EQ(choose(request, topology, known({}, {finding_of(request, topology, wide)})).name(),
              wide);
  }
}

TEST(ChoiceByKnowledge, keeps_bits_where_that_is_asked_for) {
  const Topology topology = nodes_of(12);
  // Its untuned choice is no canonical one, so it stays; whatever was measured.
  const CollectiveRequest identical = allreduce_of(1024, Agreement::identical);
  const Choice untuned_choice = choose(identical, topology, Knowledge());
  ASSERT_EQ(untuned_choice.row().association, Association::expression) << untuned_choice.name();
  const Finding finding =
      finding_of(identical, topology, "canonical_dissemination with 3,2 a round");
  EXPECT_EQ(choose(identical, topology, known({}, {finding})).name(), finding.winner.choice);
  EXPECT_EQ(choose(identical, topology, known({}, {finding}, TuningBits::keep)).name(),
            untuned_choice.name());
  // Canonical ones give the same bits as each other.
  const CollectiveRequest reproducible = allreduce_of(8, Agreement::reproducible);
  const Finding canonical = finding_of(reproducible, topology, "chunked_fold");
  EXPECT_EQ(choose(reproducible, topology, known({}, {canonical}, TuningBits::keep)).name(),
            "chunked_fold");
  // Nothing is kept where order does not show.
  CollectiveRequest integers = identical;
  integers.reduction = built_in_reduction(BuiltIn::sum, ElementType::int64);
  const Finding free =
      finding_of(integers, topology, "two_partial_dissemination with 1,1,1,1 a round");
  EXPECT_EQ(choose(integers, topology, known({}, {free}, TuningBits::keep)).name(),
            free.winner.choice);
  // A rule does not get around it.
  const Rule rule{.algorithm = Algorithm::chunked_fold};
  EXPECT_EQ(choose(identical, topology, known({rule}, {}, TuningBits::keep)).name(),
            untuned_choice.name());
}

TEST(ChoiceNames, tell_choices_apart_and_are_what_is_asked_for_by_only) {
  std::size_t count = 0;
  for (const CollectiveRequest& request : some_requests())
    for (const auto& [nodes, ranks_per_node] :
         {std::pair{12u, 1u}, {33u, 1u}, {4u, 4u}, {5u, 8u}, {2u, 32u}}) {
      const Topology topology = nodes_of(nodes, ranks_per_node);
      std::set<std::string> names;
      const std::vector<Choice> all = rivals(request, topology, machine_preset("fdr").network());
      for (const Choice& choice : all) {
        const std::string name = choice.name();
        EXPECT_TRUE(names.insert(name).second) << name_of(request.collective) << ": " << name;
        CollectiveRequest asked = request;
        asked.only = name;
        const Choice again = choose(asked, topology, Knowledge());
        EXPECT_EQ(again.name(), name);
        EXPECT_EQ(again.plan(Rank{0}).per_round, choice.plan(Rank{0}).per_round);
        ++count;
      }
    }
  EXPECT_GT(count, 500u);
}

TEST(ChoiceNames, that_nothing_has_are_refused) {
  CollectiveRequest request = allreduce_of(8);
  request.only = "nothing";
  try {
    (void)choose(request, nodes_of(4), Knowledge());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("\"nothing\""), std::string::npos) << error.what();
  }
}

// By the model, `direct` is 4 % slower than the choice without a file.  By findings of other calls,
// it takes 8 % less than the model says, and so would be faster.
TEST(ChoiceByKnowledge, does_not_change_because_of_findings_of_other_calls_alone) {
  CollectiveRequest request = allreduce_of(8, Agreement::identical);
  request.collective = Collective::alltoall;
  const Topology topology = nodes_of(25);
  const Knowledge alone = untuned(machine_preset("roce10"));
  const Choice usual = choose(request, topology, alone);
  EXPECT_EQ(usual.name(), choose(request, topology, Knowledge()).name());
  const auto direct = choice_named("direct", request, topology, alone);
  ASSERT_TRUE(direct);
  const std::int64_t slower = relative_change(usual.known_time(), direct->expected(SIZE_MAX));
  EXPECT_GT(slower, 3 * million / 100);
  EXPECT_LT(slower, 4 * million / 100);
  const auto choice_where_direct_takes = [&](plan::Picoseconds measured) {
    Finding finding = finding_of(request, topology, "x");
    finding.others = {{"y", 4096, 4096},
                      {"z", 4096, 4096},
                      {"direct", measured, 4096},
                      {usual.name(), 4096, 4096}};
    Knowledge with_findings = alone;
    with_findings.untuned = machine_preset("fdr");
    with_findings.corrections = Corrections({finding});
    return choose(request, topology, with_findings);
  };
  const Choice choice = choice_where_direct_takes(4096 * 92 / 100);
  EXPECT_EQ(choice.name(), usual.name());
  EXPECT_NE(choice.explanation().find("too little to be certain"), std::string::npos)
      << choice.explanation();
  EXPECT_EQ(choice_where_direct_takes(4096 * 85 / 100).name(), "direct");
}

// The parameters of a file are off by a few percent, and its findings of other calls may mislead as
// well, so that a small predicted gain may be no gain at all.
TEST(ChoiceByKnowledge, stays_the_one_without_a_file_unless_another_is_clearly_faster) {
  std::size_t kept = 0, left = 0, kept_for_intervals = 0, left_within = 0, kept_for_findings = 0;
  for (const char* const preset : {"qdr", "edr", "hdr", "roce25"}) {
    const Knowledge alone = untuned(machine_preset(preset));
    Knowledge with_file = alone;
    with_file.untuned = machine_preset("fdr");
    Knowledge with_intervals = with_file;
    for (Figure& figure : with_intervals.machine.figures) {
      figure.low = figure.value * 97 / 100;
      figure.high = figure.value * 103 / 100;
    }
    for (const CollectiveRequest& request : some_requests())
      for (const std::uint32_t nodes : {6u, 9u, 12u, 15u, 16u, 20u, 24u, 31u, 32u, 48u}) {
        const Topology topology = nodes_of(nodes);
        const Choice fastest = choose(request, topology, alone);
        CollectiveRequest asked = request;
        asked.only = choose(request, topology, Knowledge()).name();
        const Choice usual = choose(asked, topology, alone);
        const Choice choice = choose(request, topology, with_file);
        const std::string of = std::string(preset) + " " + choice.explanation();
        if (fastest.name() == usual.name() || fastest.expected(0) == fastest.cost()) continue;
        const plan::Picoseconds least = fastest.expected(SIZE_MAX);
        const plan::Picoseconds of_usual = usual.expected(SIZE_MAX);
        const std::int64_t gain = relative_change(least, of_usual);
        // The parameters are known exactly.
        const bool is_close = gain <= million / 100;
        EXPECT_EQ(choice.name(), is_close ? usual.name() : fastest.name()) << of;
        (is_close ? kept : left) += 1;
        // The parameters are known to 3 %.
        const Uncertainty uncertainty = uncertainty_of(fastest, usual, with_intervals.machine);
        const bool is_near = is_close || !is_worth_it(gain, uncertainty, 0);
        EXPECT_EQ(choose(request, topology, with_intervals).name(),
                  is_near ? usual.name() : fastest.name())
            << of;
        kept_for_intervals += is_near && !is_close ? 1 : 0;
        left_within += !is_near && gain + uncertainty.inverse_sum <= million / 10 ? 1 : 0;
        // A finding says that the usual choice is 5 % faster than the model does.
        Finding finding = finding_of(request, topology, "x");
        finding.others = {{"y", 4096, 4096},
                          {"z", 4096, 4096},
                          {fastest.name(), 4096, 4096},
                          {usual.name(), 4096 * 95 / 100, 4096}};
        Knowledge with_findings = with_file;
        with_findings.corrections = Corrections({finding});
        const auto factor_of = [&](const Choice& one) {
          return with_findings.corrections.factor(family_of(one.name()), request.collective,
                                                  request.bytes(), nodes, 1);
        };
        const std::int64_t of_fastest = factor_of(fastest), of_other = factor_of(usual);
        const std::int64_t corrected_gain =
            relative_change(corrected(least, of_fastest), corrected(of_usual, of_other));
        const std::int64_t of_findings = relative_change(of_fastest, of_other);
        const bool is_uncertain =
            corrected_gain <= million / 100 || !is_worth_it(corrected_gain, {}, of_findings);
        const Choice by_findings = choose(request, topology, with_findings);
        if (by_findings.name() == usual.name() || by_findings.name() == fastest.name()) {
          EXPECT_EQ(by_findings.name(), is_uncertain ? usual.name() : fastest.name())
              << by_findings.explanation();
          kept_for_findings += is_uncertain && corrected_gain > million / 100 ? 1 : 0;
        }
        // A finding of another collective corrects neither.
        finding.collective = Collective::reduce_scatter;
        if (request.collective == finding.collective) continue;
        with_findings.corrections = Corrections({finding});
        EXPECT_EQ(choose(request, topology, with_findings).name(), choice.name()) << of;
        if (!is_close) continue;
        EXPECT_NE(of.find("as without a tuning file"), std::string::npos) << of;
        EXPECT_NE(of.find("where " + fastest.name() + " takes "), std::string::npos) << of;
        // Both are candidates of a race, which decides.
        const std::vector<Choice> racers = candidates(request, topology, with_file, 4);
        EXPECT_EQ(racers.front().name(), usual.name());
        EXPECT_TRUE(std::any_of(racers.begin(), racers.end(), [&](const Choice& one) {
          return one.expected(SIZE_MAX) <= least;
        })) << of;
      }
  }
  EXPECT_GE(kept, 5u);
  EXPECT_GE(left, 5u);
  EXPECT_GE(kept_for_intervals, 5u);
  EXPECT_GE(left_within, 2u) << "a gain of a few percent may be certain";
  EXPECT_GE(kept_for_findings, 2u);
}

// The file's choice can be simulated.  The one without a file has too many messages for that, so
// that the prices of both are compared.
TEST(ChoiceByKnowledge, stays_the_one_without_a_file_also_where_only_the_other_one_is_simulated) {
  CollectiveRequest request = allreduce_of(65536, Agreement::identical);
  request.collective = Collective::reduce;
  request.root = Rank{0};
  const Topology topology = nodes_of(31, 8);
  const std::string tree = "8 lanes of latency 1", chain = "8 lanes of latency 1 along a chain";
  const Choice usual = choose(request, topology, Knowledge());
  ASSERT_EQ(usual.name(), chain);
  Knowledge with_file = untuned(machine_preset("fdr"));
  with_file.machine.name = "of a file";
  with_file.untuned = machine_preset("fdr");
  const auto choice_where_chains_take = [&](plan::Picoseconds measured) {
    Finding finding = finding_of(request, topology, "x");
    finding.others = {{"y", 4096, 4096}, {"z", 4096, 4096}, {chain, measured, 4096}};
    with_file.corrections = Corrections({finding});
    return choose(request, topology, with_file);
  };
  const auto messages = [](const Choice& choice) {
    return messages_followed(choice.query(), choice.row(), choice.variant(), choice.first_plan());
  };
  const Choice much_slower = choice_where_chains_take(4096 * 115 / 100);
  EXPECT_EQ(much_slower.name(), tree);
  EXPECT_LE(messages(much_slower), messages_followed_max);
  EXPECT_GT(messages(usual), messages_followed_max);
  const Choice slightly_slower = choice_where_chains_take(4096 * 1035 / 1000);
  EXPECT_EQ(slightly_slower.name(), chain);
  EXPECT_NE(slightly_slower.explanation().find(" by price where " + tree + " takes "),
            std::string::npos)
      << slightly_slower.explanation();
}

// Vectors in which no round can do with a message less are tried, whatever the sums of their rounds
// say: on `hdr`, 3,3,2 takes 1.06 of the time of 3,3,1,1, and one message in each round 1.13.
TEST(ChoiceByKnowledge, tries_many_vectors_of_canonical_dissemination) {
  const CollectiveRequest request = allreduce_of(2048, Agreement::reproducible);
  const Knowledge hdr = untuned(machine_preset("hdr"));
  const auto time_of = [&](const Choice& choice) {
    return choice.expected(messages_of_finding_max);
  };
  const plan::Picoseconds taken = time_of(choose(request, nodes_of(11, 4), hdr));
  for (const char* const vector : {"3,3,1,1", "3,3,2", "2,3,3", "1,1,1,1,1,1"}) {
    const auto other =
        choice_named(std::string("canonical_dissemination with ") + vector + " a round", request,
                     nodes_of(11, 4), hdr);
    ASSERT_TRUE(other) << vector;
    EXPECT_LE(taken, time_of(*other)) << vector;
  }
}

// A file that does not contradict the network that is assumed without it changes no choice, also
// where its own figures would change one.
TEST(ChoiceByKnowledge, stays_the_one_without_a_file_where_intervals_hold_the_assumed_network) {
  std::size_t different = 0;
  for (const auto& [parameter, share] :
       {std::pair{Parameter::latency, 4}, std::pair{Parameter::gap, -4}}) {
    Knowledge with_file = untuned(machine_preset("fdr"));
    Figure& figure = with_file.machine[parameter];
    const std::int64_t assumed = figure.value;
    figure.value += figure.value / share;
    figure.low = std::min(assumed, figure.value);
    figure.high = std::max(assumed, figure.value);
    Knowledge sure = with_file;
    sure.machine[parameter].low = sure.machine[parameter].high = figure.value;
    for (const CollectiveRequest& request : some_requests())
      for (const std::uint32_t nodes : {12u, 24u, 48u}) {
        const Topology topology = nodes_of(nodes);
        const Choice choice = choose(request, topology, with_file);
        EXPECT_EQ(choice.name(), choose(request, topology, Knowledge()).name());
        different += choice.name() != choose(request, topology, sure).name() ? 1 : 0;
        if (request.collective != Collective::allreduce) continue;
        EXPECT_NE(choice.explanation().find("on fdr, which the tuning file does not contradict"),
                  std::string::npos)
            << choice.explanation();
      }
    // Schedules were measured, too, so prices are those of the file.
    Finding finding = finding_of(allreduce_of(8), nodes_of(4), "pairwise");
    finding.others = {{"chunked_fold", 3'000'000, 2'000'000}};
    with_file.corrections = Corrections({finding});
    EXPECT_EQ(with_file.priced(), with_file.machine);
  }
  EXPECT_GE(different, 3u);
}

// The second candidate has too many messages to be followed beside the first, and a candidate that
// is more expensive by its price takes the least time.
TEST(ChoiceByKnowledge, passes_over_candidates_whose_events_are_too_many) {
  const CollectiveRequest request = allreduce_of(16 << 10, Agreement::identical);
  const Topology topology = nodes_of(48, 2);
  const Knowledge fdr = untuned(machine_preset("fdr"));
  const std::vector<Choice> all = rivals(request, topology, fdr.machine.network());
  const Choice choice = choose(request, topology, fdr);
  EXPECT_LT(choice.expected(messages_followed_max),
            all.front().expected(messages_followed_max) * 95 / 100);
  EXPECT_GT(choice.cost(), all[1].cost());
}

TEST(Candidates, are_the_choice_other_families_and_the_cheapest_beside_it) {
  const CollectiveRequest request = allreduce_of(8);
  const Topology topology = nodes_of(24);
  const std::vector<Choice> found = candidates(request, topology, Knowledge(), 8);
  std::set<std::string> names;
  for (const Choice& choice : found) {
    EXPECT_TRUE(names.insert(choice.name()).second) << choice.name();
    CollectiveRequest asked = request;
    asked.only = choice.name();
    EXPECT_EQ(choose(asked, topology, Knowledge()).name(), choice.name());
  }
  EXPECT_EQ(found.front().name(), choose(request, topology, Knowledge()).name());
  // With one message more in the last round, 5,4 is 4,4 once it is trimmed.
  for (const char* const expected :
       {"two_partial_dissemination with 5,5 a round", "two_partial_dissemination with 4,4 a round"})
    EXPECT_TRUE(names.contains(expected)) << expected << " of " << testing::PrintToString(names);
  EXPECT_EQ(candidates(request, topology, Knowledge(), 1).size(), 1u);
  for (const CollectiveRequest& one : some_requests())
    for (const std::uint32_t ranks_per_node : {1u, 4u}) {
      const auto some = candidates(one, nodes_of(9, ranks_per_node), Knowledge(), 4);
      EXPECT_GE(some.size(), 1u);
      EXPECT_LE(some.size(), 4u);
    }
}

// Prices of trees with the next latencies are close, and the best one may be none of the variants.
TEST(Candidates, have_trees_of_the_next_latencies) {
  CollectiveRequest request = allreduce_of(1024, Agreement::identical);
  request.collective = Collective::reduce;
  request.root = Rank{0};
  const Knowledge roce = untuned(machine_preset("roce100"));
  for (const std::uint32_t ranks_per_node : {1u, 4u}) {
    const std::vector<Choice> found = candidates(request, nodes_of(17, ranks_per_node), roce, 5);
    const std::uint32_t latency = found.front().variant().fans.across_by.latency;
    ASSERT_GT(latency, 1u) << found.front().name();
    const auto is_next = [&](const Choice& other) {
      const std::uint32_t its = other.variant().fans.across_by.latency;
      return other.variant().lane_count == found.front().variant().lane_count &&
             (its == latency + 1 || its + 1 == latency);
    };
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), is_next)) << found.front().name();
  }
}

// The cheapest uniform vector may be the choice itself, or may stand for it; then others are
// compared with it.
TEST(Candidates, are_different_schedules_of_one_family) {
  const Knowledge hdr = untuned(machine_preset("hdr"));
  std::set<plan::PerRound> rounds;
  const std::vector<Choice> found =
      candidates(allreduce_of(4096, Agreement::identical), nodes_of(17, 8), hdr, 4);
  for (const Choice& choice : found) {
    ASSERT_NE(choice.variant().across, nullptr) << choice.name();
    EXPECT_EQ(choice.variant().across->row().name, std::string("recursive_multiplying"));
    EXPECT_TRUE(rounds.insert(choice.variant().across->first_plan().per_round).second)
        << choice.name();
  }
  EXPECT_EQ(rounds.size(), 4u);
}

bool has(const std::vector<Choice>& choices, const std::string& name) {
  return std::any_of(choices.begin(), choices.end(),
                     [&](const Choice& choice) { return choice.name() == name; });
}

// The price of 3,3 among these 17 nodes is a quarter more than it takes, and it is the fastest.
TEST(Candidates, beside_a_choice_are_those_of_the_least_times) {
  const Knowledge hdr = untuned(machine_preset("hdr"));
  const std::string fastest = "8 lanes, recursive_multiplying with 3,3 a round across";
  const std::vector<Choice> found = candidates(allreduce_of(4096, Agreement::identical),
                                               nodes_of(17, 8), hdr, 4, messages_of_race_max);
  EXPECT_TRUE(has(found, fastest)) << found.front().name();
}

// Shapes of lanes in turns have prices that are closer to each other than to what they take, and so
// have numbers of lanes.
TEST(Candidates, have_what_costs_nearly_as_little) {
  const auto count_of = [](const std::vector<Choice>& found, auto&& is_one) {
    return std::count_if(found.begin(), found.end(), is_one);
  };
  const Knowledge edr = untuned(machine_preset("edr"));
  EXPECT_GE(count_of(candidates(allreduce_of(65536, Agreement::identical), nodes_of(24, 8), edr, 5),
                     [](const Choice& choice) { return choice.variant().turns > 0; }),
            2);
  CollectiveRequest reduce = allreduce_of(2048, Agreement::relaxed);
  reduce.collective = Collective::reduce;
  reduce.root = Rank{0};
  const std::vector<Choice> found =
      candidates(reduce, nodes_of(17, 4), untuned(machine_preset("qdr")), 5);
  for (const std::uint32_t lanes : {2u, 4u})
    EXPECT_GE(
        count_of(found, [&](const Choice& choice) { return choice.variant().lane_count == lanes; }),
        1)
        << lanes;
}

// Trees of several latencies may take equally long on this machine, and not on one that is a few
// percent off, where the best one is on either side.
TEST(Candidates, have_trees_of_other_latencies_on_both_sides) {
  CollectiveRequest reduce = allreduce_of(8, Agreement::relaxed);
  reduce.collective = Collective::reduce;
  reduce.root = Rank{0};
  for (const char* const preset : {"edr", "roce100"}) {
    const Knowledge known = untuned(machine_preset(preset));
    const std::vector<Choice> found = candidates(reduce, nodes_of(48), known, 5);
    const auto latency_of = [](const Choice& choice) {
      return choice.variant().fans.across_by.latency;
    };
    const auto is_raced = [&](auto&& is_on_a_side) {
      return std::any_of(found.begin(), found.end(), [&](const Choice& other) {
        return other.row().name == std::string("fibonacci_tree") &&
               is_on_a_side(latency_of(other)) && !have_same_plans(other, found.front());
      });
    };
    const std::uint32_t usual = latency_of(found.front());
    EXPECT_TRUE(is_raced([&](std::uint32_t latency) { return latency < usual; })) << preset;
    EXPECT_TRUE(is_raced([&](std::uint32_t latency) { return latency > usual; })) << preset;
    for (std::size_t one = 0; one < found.size(); ++one)
      for (std::size_t other = 0; other < one; ++other)
        EXPECT_FALSE(have_same_plans(found[one], found[other])) << found[one].name();
  }
}

// Prices of such cores are up to a sixth above what they take, so the fastest one may be none of
// the variants.
TEST(Candidates, have_cores_of_two_rounds) {
  const std::vector<Choice> found = candidates(allreduce_of(4096, Agreement::identical),
                                               nodes_of(13, 4), untuned(machine_preset("edr")), 5);
  EXPECT_TRUE(has(found, "4 lanes, recursive_multiplying with 3,2 a round across"))
      << found.front().name();
}

// More than 15 messages in a round have to be asked for.
TEST(Candidates, have_no_core_with_more_messages_than_are_taken_unasked) {
  for (const Choice& choice : candidates(allreduce_of(8, Agreement::identical), nodes_of(128),
                                         untuned(machine_preset("fdr")), 12)) {
    const plan::PerRound& vector = choice.first_plan().per_round;
    EXPECT_TRUE(vector.empty() || *std::max_element(vector.begin(), vector.end()) <= 15)
        << choice.name();
  }
}

// The lengths of its messages depend on the order of its rounds.
TEST(Candidates, have_the_opposite_order_of_rounds) {
  const std::vector<Choice> found = candidates(allreduce_of(1024, Agreement::reproducible),
                                               nodes_of(2, 8), untuned(machine_preset("ndr")), 5);
  EXPECT_TRUE(has(found, "canonical_dissemination with 5,2 a round")) << found.front().name();
}

// The first two take 0.95 and 0.96 of the choice at hand.
TEST(Candidates, have_neighbours_of_every_round) {
  const auto raced = [](const char* preset, std::uint64_t bytes, const Topology& topology) {
    return candidates(allreduce_of(bytes, Agreement::reproducible), topology,
                      untuned(machine_preset(preset)), 5);
  };
  EXPECT_TRUE(has(raced("qdr", 64, nodes_of(4, 4)), "canonical_dissemination with 1,1,3 a round"))
      << "the first round in two";
  EXPECT_TRUE(
      has(raced("roce100", 1024, nodes_of(2, 8)), "canonical_dissemination with 2,1,2 a round"))
      << "a message less in the middle";
  EXPECT_TRUE(
      has(raced("ndr", 2048, nodes_of(14, 8)), "canonical_dissemination with 2,2,3,2,1 a round"))
      << "a message more in the middle of five rounds";
}

// Times over latencies have a second valley, of trees that are nearly flat.
TEST(Candidates, have_trees_that_are_nearly_flat) {
  CollectiveRequest request = allreduce_of(4096);
  request.collective = Collective::broadcast;
  request.root = Rank{0};
  const std::vector<Choice> found =
      candidates(request, nodes_of(13, 4), untuned(machine_preset("ndr")), 5);
  EXPECT_TRUE(has(found, "4 lanes of latency 11")) << found.front().name();
}

// A race picks what is fastest of its racers, and so decides about connections, too.
TEST(Candidates, connect_a_rank_with_no_more_others_than_a_choice_by_price) {
  CollectiveRequest request = allreduce_of(16);
  request.collective = Collective::allgather;
  const Knowledge roce = untuned(machine_preset("roce10"));
  CollectiveRequest asked = request;
  asked.only = "block_dissemination with 7,7 a round";
  EXPECT_EQ(choose(asked, nodes_of(63), roce).name(), asked.only);
  for (const Choice& choice : candidates(request, nodes_of(63), roce, 8)) {
    std::set<Rank> partners;
    for (const plan::Step& step : choice.first_plan().steps)
      if (step.peer != no_rank) partners.insert(step.peer);
    EXPECT_LE(partners.size(), 24u) << choice.name();
  }
}

// A price may be far from the events.  A measurement over such a price says nothing of another
// shape, where the events of that family are followed.
TEST(Choice, expects_the_time_of_the_events_where_these_are_not_too_many) {
  CollectiveRequest request = allreduce_of(8, Agreement::identical);
  request.only = "recursive_multiplying with 3,3,3,3 a round";
  const Topology topology = nodes_of(64, 4);
  const plan::Network network = machine_preset("fdr").network();
  const Choice choice = choose(request, topology, network);
  const plan::Picoseconds time =
      plan_time({request, topology, network}, [&](Rank self) { return choice.plan(self); });
  EXPECT_GT(choice.cost(), time + time / 5) << "or the price is the time";
  EXPECT_NEAR(static_cast<double>(choice.expected(messages_of_finding_max)),
              static_cast<double>(time), 0.003 * static_cast<double>(time));
  EXPECT_EQ(choice.expected(0), choice.cost());
}

TEST(Knowledge, takes_whatever_machine_a_file_describes) {
  const Machine& preset = machine_preset("edr");
  Machine nameless = machine_preset("hdr");
  nameless.name.clear();
  EXPECT_TRUE(is_described(nameless));
  EXPECT_EQ(tuned(preset, {.machine = nameless}, TuningBits::free).machine, nameless);
  EXPECT_FALSE(is_described(Tuning().machine));
  EXPECT_EQ(tuned(preset, {}, TuningBits::free).machine, preset);
}

TEST(Candidates, have_uniform_vectors_whoever_the_rounds_are_of) {
  Topology with_domains = nodes_of(9, 8);
  for (std::uint32_t rank = 0; rank < with_domains.rank_count; ++rank)
    with_domains.domain_of.push_back(Node{rank / 4});
  std::size_t across_nodes = 0, in_domains = 0, most = 0;
  for (const Topology& topology : {nodes_of(24), nodes_of(9, 8), with_domains})
    for (const Choice& choice : rivals(allreduce_of(8), topology, Knowledge().machine.network())) {
      const std::vector<Choice> uniform =
          with_uniform_vectors(choice, allreduce_of(8), topology, Knowledge());
      if (uniform.empty()) continue;
      // Each is another schedule.  Of the seven vectors, some are the same schedule: 5,5 and 6,6 of
      // 24 members; 2,2 and 3,3, and 4,4 to 7,7, of 9.
      std::set<std::string> names;
      for (const Choice& one : uniform) {
        names.insert(one.name());
        EXPECT_EQ(one.plan(Rank{0}).rank_count, choice.plan(Rank{0}).rank_count) << one.name();
      }
      EXPECT_EQ(names.size(), uniform.size()) << choice.name();
      EXPECT_GE(uniform.size(), 3u) << choice.name() << testing::PrintToString(names);
      EXPECT_LE(uniform.size(), 7u) << choice.name();
      most = std::max(most, uniform.size());
      if (choice.variant().across) ++across_nodes;
      if (choice.variant().across && !topology.domain_of.empty()) ++in_domains;
    }
  EXPECT_GT(across_nodes, 0u);
  EXPECT_GT(in_domains, 0u);
  EXPECT_EQ(most, 7u);
}

/// Noise would decide a race between equal schedules.
TEST(Candidates, are_no_schedule_twice_under_two_names) {
  CollectiveRequest of_barrier;
  of_barrier.collective = Collective::barrier;
  for (const std::uint32_t ranks : {2u, 3u, 4u, 5u, 9u})
    for (const CollectiveRequest& request : {of_barrier, allreduce_of(8)}) {
      const Choice choice = choose(request, nodes_of(ranks), Knowledge());
      std::set<std::string> names;
      const std::vector<Choice> uniform =
          with_uniform_vectors(choice, request, nodes_of(ranks), Knowledge());
      for (const Choice& one : uniform)
        EXPECT_TRUE(names.insert(name_when_trimmed(one)).second) << one.name();
      // n messages in one round reach n + 1 ranks.
      if (!uniform.empty()) {
        EXPECT_LE(uniform.size(), ranks - 1);
      }
      names.clear();
      for (const Choice& one : candidates(request, nodes_of(ranks), Knowledge(), 4))
        EXPECT_TRUE(names.insert(name_when_trimmed(one)).second) << one.name();
    }
  const Choice barrier_of_two = choose(of_barrier, nodes_of(2), Knowledge());
  EXPECT_EQ(with_uniform_vectors(barrier_of_two, of_barrier, nodes_of(2), Knowledge()).size(), 1u);
}

TEST(Explanation, ends_with_what_would_change_the_choice) {
  const std::string text = what_would_flip(allreduce_of(8), nodes_of(16), Knowledge());
  EXPECT_NE(text.find("two_partial_dissemination with "), std::string::npos) << text;
  EXPECT_NE(text.find(" if the gap of a port were "), std::string::npos) << text;
  // It does change there.
  const std::string now = choose(allreduce_of(8), nodes_of(16), Knowledge()).name();
  EXPECT_EQ(text.find(now + " if "), std::string::npos) << text;
}

// A choice that stays because the file is uncertain does so for values near that of the file, too.
TEST(Explanation, says_what_would_change_a_choice_with_the_intervals_of_the_file) {
  std::size_t changes = 0;
  for (const std::uint32_t nodes : {9u, 12u, 16u, 24u, 31u}) {
    Knowledge knowledge = untuned(machine_preset("edr"));
    knowledge.untuned = machine_preset("fdr");
    for (Figure& figure : knowledge.machine.figures) {
      figure.low = figure.value * 97 / 100;
      figure.high = figure.value * 103 / 100;
    }
    const CollectiveRequest request = allreduce_of(1024, Agreement::identical);
    const std::string now = choose(request, nodes_of(nodes), knowledge).name();
    std::istringstream lines(what_would_flip(request, nodes_of(nodes), knowledge));
    for (std::string line; std::getline(lines, line); ++changes) {
      // "X if the gap of a port were above 123.4 ns"
      const std::string words = "the gap of a port were ";
      const std::size_t at = line.find(words);
      if (at == std::string::npos) continue;
      const bool is_above = line.find("above", at) != std::string::npos;
      const double ns = std::stod(line.substr(at + words.size() + std::string("above ").size()));
      const auto name_at = [&](double share) {
        Knowledge moved = knowledge;
        Figure& figure = moved.machine[Parameter::gap];
        const double value = ns * 1000 * share;
        figure.value = static_cast<std::int64_t>(value);
        figure.low = static_cast<std::int64_t>(value * 0.97);
        figure.high = static_cast<std::int64_t>(value * 1.03);
        return choose(request, nodes_of(nodes), moved).name();
      };
      EXPECT_NE(name_at(is_above ? 1.01 : 0.99), now) << line;
      EXPECT_EQ(name_at(is_above ? 0.96 : 1.04), now) << line;
    }
  }
  EXPECT_GE(changes, 5u);
}

// What takes time is few of each: no events of thousands of ranks are followed, and no more than a
// few dozens of candidates are priced.
TEST(Choosing, of_thousands_of_ranks_looks_at_few_candidates) {
  for (const CollectiveRequest& request : some_requests())
    for (const auto& [nodes, ranks_per_node] :
         {std::pair{4096u, 1u}, {512u, 8u}, {128u, 32u}, {64u, 64u}}) {
      const Topology topology = nodes_of(nodes, ranks_per_node);
      const Choice choice = choose(request, topology, Knowledge());
      EXPECT_EQ(choice.expected(0), choice.cost()) << choice.name() << " was followed";
      EXPECT_LE(rivals(request, topology, Knowledge().machine.network()).size(), 60u)
          << name_of(request.collective) << ": " << choice.name();
    }
}

#if defined(__has_feature)
#define TUTTI_TEST_HAS_FEATURE(name) __has_feature(name)
#else
#define TUTTI_TEST_HAS_FEATURE(name) 0
#endif
#if !defined(NDEBUG) || defined(TUTTI_TEST_EMULATED) || defined(__SANITIZE_ADDRESS__) || \
    defined(__SANITIZE_THREAD__) || TUTTI_TEST_HAS_FEATURE(address_sanitizer) ||         \
    TUTTI_TEST_HAS_FEATURE(thread_sanitizer) || TUTTI_TEST_HAS_FEATURE(memory_sanitizer)
constexpr std::chrono::milliseconds choosing_max{400};
#else
// 8 alone on an EPYC, 15 to 23 beside other programs on a Xeon with two CPUs.
constexpr std::chrono::milliseconds choosing_max{40};
#endif

// All ranks choose by themselves, each time an operation is made: about a millisecond for thousands
// of ranks (release build), and a few at most for few, whose events are followed.  Processor time
// is measured, because it does not pass while other programs run.
TEST(Choosing, takes_about_a_millisecond) {
  const Knowledge nothing, races = bench::of_many_races();
  std::chrono::nanoseconds slowest{0};
  for (const CollectiveRequest& request : some_requests())
    for (const auto& [nodes, ranks_per_node] :
         {std::pair{4096u, 1u}, {512u, 8u}, {64u, 1u}, {13u, 8u}}) {
      const Topology topology = nodes_of(nodes, ranks_per_node);
      for (const Knowledge* const knowledge : {&nothing, &races}) {
        auto least = std::chrono::nanoseconds::max();
        std::string name;
        for (int i = 0; i < 3; ++i) {
          const std::clock_t begin = std::clock();
          const Choice choice = choose(request, topology, *knowledge);
          const auto taken = std::clock() - begin;
          least =
              std::min(least, std::chrono::nanoseconds(taken * (1'000'000'000 / CLOCKS_PER_SEC)));
          name = choice.name();
        }
        std::printf("%-14s %8zu bytes, %-12s %4u nodes of %u, %s: %8.1f us, %s\n",
                    name_of(request.collective), request.bytes(), name_of(request.agreement), nodes,
                    ranks_per_node, knowledge == &nothing ? "no file " : "full one",
                    static_cast<double>(least.count()) / 1e3, name.c_str());
        slowest = std::max(slowest, least);
      }
    }
  std::printf("slowest: %.1f us\n", static_cast<double>(slowest.count()) / 1e3);
  EXPECT_LE(slowest, choosing_max);
}

}  // namespace
}  // namespace tutti::tune
