// Promise: the bits of floating-point results agree as the agreement says, for every number of
// ranks up to 64, every schedule and vector, and every order of arrival.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <tutti/detail/names.hpp>
#include <tutti/reduction.hpp>
#include <utility>
#include <vector>

#include "simulated_run.hpp"
#include "support/adversarial.hpp"
#include "tune/choose.hpp"

namespace tutti {
namespace {

using simulation::Bytes;

constexpr std::size_t element_count = 21;  // each kind of element three times

std::vector<Bytes> inputs(std::uint32_t rank_count) {
  std::vector<Bytes> all;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    std::mt19937_64 random(rank + 1);
    std::vector<double> values;
    for (std::size_t i = 0; i < element_count; ++i)
      values.push_back(test::adversarial<double>(random, rank, i));
    const auto bytes = std::as_bytes(std::span(values));
    all.emplace_back(bytes.begin(), bytes.end());
  }
  return all;
}

struct Shape {
  Algorithm algorithm = Algorithm::automatic;
  Agreement agreement = Agreement::identical;
  plan::PerRound per_round = {};
};

std::string text_of(const Shape& shape) {
  std::string text = std::string(name_of(shape.algorithm)) + " n";
  for (const std::uint32_t entry : shape.per_round) text += " " + std::to_string(entry);
  return text;
}

/// Results of all ranks.
std::vector<Bytes> results(std::uint32_t rank_count, const Shape& shape, std::uint64_t seed = 1) {
  const tune::CollectiveRequest request{
      .element_count = element_count,
      .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
      .agreement = shape.agreement,
      .algorithm = shape.algorithm,
      .per_round = shape.per_round};
  const tune::Choice choice = tune::choose(request, {.rank_count = rank_count}, tune::Knowledge());
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) plans.push_back(choice.plan(Rank{rank}));
  return simulation::simulate(plans,
                              {.reduction = request.reduction,
                               .element_count = element_count,
                               .any_order = tune::takes_any_order(request),
                               .seed = seed},
                              inputs(rank_count));
}

bool all_equal(const std::vector<Bytes>& results) {
  return std::all_of(results.begin(), results.end(),
                     [&](const Bytes& one) { return one == results[0]; });
}

/// What one rank computes with everybody's elements, along the canonical tree over `count` ranks
/// from `first` on: the largest power of two below the count to the left.
Bytes along_the_tree(const Reduction& reduction, const std::vector<Bytes>& all, std::uint32_t first,
                     std::uint32_t count) {
  if (count == 1) return all[first];
  std::uint32_t left = 1;
  while (2 * left < count) left *= 2;
  const Bytes lower = along_the_tree(reduction, all, first, left);
  Bytes upper = along_the_tree(reduction, all, first + left, count - left);
  reduction.combine(lower.data(), upper.data(), element_count, nullptr);
  return upper;
}

/// No vector, and uniform ones.
std::vector<plan::PerRound> vectors(std::uint32_t rank_count) {
  std::vector<plan::PerRound> all{{}};
  for (const std::uint32_t n : {1u, 2u, 3u, 7u}) all.push_back(plan::uniform(rank_count, n));
  return all;
}

void for_each_shape(std::uint32_t rank_count, Agreement least,
                    const std::function<void(const Shape&)>& visit) {
  for (const tune::Row& schedule : tune::named_schedules()) {
    if (schedule.needs_idempotent || schedule.needs_inverse) continue;
    if (least == Agreement::reproducible && tune::agreement_of(schedule) != least) continue;
    if (least == Agreement::identical && tune::agreement_of(schedule) == Agreement::relaxed)
      continue;
    for (const plan::PerRound& vector : vectors(rank_count))
      if (schedule.takes != tune::PerRoundIs::nothing || vector.empty())
        visit({schedule.algorithm, least, vector});
  }
}

TEST(BitsOfAllRanks, are_identical_up_to_64_ranks) {
  std::uint32_t runs = 0, misses = 0;
  for (std::uint32_t rank_count = 1; rank_count <= 64; ++rank_count)
    for_each_shape(rank_count, Agreement::identical, [&](const Shape& shape) {
      const bool is_met = all_equal(results(rank_count, shape));
      EXPECT_TRUE(is_met) << rank_count << " " << text_of(shape);
      ++runs;
      misses += is_met ? 0 : 1;
    });
  std::printf("1 to 64 ranks, identical: ranks differ in %u of %u runs\n", misses, runs);
}

TEST(BitsOfAllRanks, are_those_of_one_tree_where_reproducible) {
  std::uint32_t runs = 0, misses = 0;
  for (std::uint32_t rank_count = 1; rank_count <= 64; ++rank_count) {
    const Bytes reference = along_the_tree(built_in_reduction(BuiltIn::sum, ElementType::float64),
                                           inputs(rank_count), 0, rank_count);
    for_each_shape(rank_count, Agreement::reproducible, [&](const Shape& shape) {
      for (const std::uint64_t seed : {1u, 2u}) {
        const auto all = results(rank_count, shape, seed);
        const bool is_met = all_equal(all) && all[0] == reference;
        EXPECT_TRUE(is_met) << rank_count << " " << text_of(shape);
        ++runs;
        misses += is_met ? 0 : 1;
      }
    });
  }
  std::printf("1 to 64 ranks, reproducible: other bits than one rank in %u of %u runs\n", misses,
              runs);
}

/// Ranks are on nodes in rank order, `ranks_per_node` on each; the last node may have fewer.
tune::Topology nodes_of(std::uint32_t rank_count, std::uint32_t ranks_per_node) {
  tune::Topology topology{.rank_count = rank_count};
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

struct Counted {
  std::uint32_t choices = 0, canonical = 0, misses = 0;
};

/// Runs all choices between which a price decides, over the elements of inputs().  All ranks must
/// have the same bits, and where the row says so, those of one tree.
void look_at_all_choices(const tune::Topology& topology, Agreement agreement, std::size_t bytes,
                         Counted& counted) {
  const std::uint32_t rank_count = topology.rank_count;
  const std::vector<Bytes> sources = inputs(rank_count);
  const tune::CollectiveRequest request{
      .element_count = bytes / sizeof(double),
      .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
      .agreement = agreement};
  const Bytes reference = along_the_tree(request.reduction, sources, 0, rank_count);
  for (const tune::Choice& choice :
       tune::rivals(request, topology, tune::machine_preset("fdr").network())) {
    if (choice.row().is_flow) continue;  // shared_ring_simulation has these
    const bool is_canonical = agreement == Agreement::reproducible;
    std::vector<plan::Plan> plans;
    for (std::uint32_t rank = 0; rank < rank_count; ++rank)
      plans.push_back(choice.plan(Rank{rank}));
    const auto all = simulation::simulate(plans,
                                          {.reduction = request.reduction,
                                           .element_count = element_count,
                                           .any_order = tune::takes_any_order(request),
                                           .seed = counted.choices},
                                          sources);
    const bool is_met = all_equal(all) && (!is_canonical || all[0] == reference);
    EXPECT_TRUE(is_met) << choice.name() << ", " << name_of(agreement) << ", " << bytes
                        << " bytes, " << rank_count << " ranks, " << topology.node_count()
                        << " nodes";
    ++counted.choices;
    counted.canonical += is_canonical ? 1 : 0;
    counted.misses += is_met ? 0 : 1;
  }
}

// The choices are leaders, lanes, groups and domains, with all schedules across nodes that are
// considered, also those for large payloads.
TEST(BitsOfAllRanks, are_those_of_the_agreement_for_every_choice_on_nodes_of_several_ranks) {
  Counted counted;
  for (std::uint32_t rank_count = 2; rank_count <= 40; ++rank_count)
    for (const std::uint32_t ranks_per_node : {2u, 3u, 4u, 8u}) {
      if (ranks_per_node > rank_count) continue;
      // Each shape has one of two sizes, which differ in the choices that are considered.
      const std::size_t bytes = (rank_count + ranks_per_node) % 2 == 0 ? 168 : 1u << 20;
      for (const Agreement agreement : {Agreement::identical, Agreement::reproducible})
        look_at_all_choices(nodes_of(rank_count, ranks_per_node), agreement, bytes, counted);
    }
  std::printf("2 to 40 ranks on nodes: misses %u of %u choices, of which %u canonical\n",
              counted.misses, counted.choices, counted.canonical);
  EXPECT_GT(counted.choices, 2000u);
}

// Or the tests above could not fail.
TEST(BitsOfAllRanks, differ_where_relaxed) {
  std::uint32_t counts_that_differ = 0;
  std::uint32_t runs_that_differ = 0;
  for (std::uint32_t rank_count = 2; rank_count <= 64; ++rank_count) {
    const Shape shape{Algorithm::two_partial, Agreement::relaxed, plan::uniform(rank_count, 3)};
    const auto first = results(rank_count, shape, 1);
    if (!all_equal(first)) ++counts_that_differ;
    if (results(rank_count, shape, 2) != first) ++runs_that_differ;
  }
  EXPECT_GT(counts_that_differ, 40u);
  EXPECT_GT(runs_that_differ, 20u) << "arrivals are combined as they come";
}

/// Their sums are rounded at each step.
std::vector<Bytes> fractions(std::uint32_t rank_count) {
  std::vector<Bytes> all;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    std::vector<double> values;
    for (std::size_t i = 0; i < element_count; ++i)
      values.push_back(1.0 / static_cast<double>(3 + 7 * i + 11 * rank));
    const auto bytes = std::as_bytes(std::span(values));
    all.emplace_back(bytes.begin(), bytes.end());
  }
  return all;
}

/// Results of a choice, and what tells it apart.
struct Kept {
  std::string name;
  tune::Association association;
  std::vector<Bytes> results;
};

Kept chosen(const tune::CollectiveRequest& request, const tune::Topology& topology,
            const tune::Knowledge& knowledge) {
  const tune::Choice choice = tune::choose(request, topology, knowledge);
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
    plans.push_back(choice.plan(Rank{rank}));
  return {choice.name(), choice.row().association,
          simulation::simulate(plans,
                               {.reduction = request.reduction,
                                .element_count = request.element_count,
                                .any_order = tune::takes_any_order(request)},
                               fractions(topology.rank_count))};
}

// A file with another machine, rules and findings; whatever the call or its context says.
TEST(BitsOfAllRanks, stay_as_without_a_tuning_file_where_they_are_kept) {
  const tune::Machine fdr = tune::machine_preset("fdr");
  const tune::Knowledge without = tune::untuned(fdr);
  std::uint32_t names_that_differ = 0, bits_that_differ = 0, kept_that_differ = 0, files = 0;
  std::vector<tune::CollectiveRequest> requests;
  for (const Agreement agreement : {Agreement::identical, Agreement::reproducible}) {
    const tune::CollectiveRequest plain{
        .element_count = element_count,
        .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
        .agreement = agreement};
    requests.push_back(plain);
    requests.push_back(plain);
    requests.back().per_round_by_default = {3, 3};
    requests.push_back(plain);
    requests.back().algorithm = Algorithm::canonical_dissemination;
    for (const tune::Collective collective : {tune::Collective::reduce, tune::Collective::scan}) {
      requests.push_back(plain);
      requests.back().collective = collective;
      if (collective == tune::Collective::reduce) requests.back().root = Rank{5};
    }
    if (agreement == Agreement::reproducible) continue;
    requests.push_back(plain);
    requests.back().algorithm = Algorithm::recursive_multiplying;
    for (const Across across : {Across::flat, Across::leader, Across::lanes}) {
      requests.push_back(plain);
      requests.back().across = across;
    }
  }
  for (const std::uint32_t ranks_per_node : {1u, 3u}) {
    tune::Topology topology{.rank_count = 12};
    for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
      topology.node_of.push_back(Node{rank / ranks_per_node});
    for (const tune::CollectiveRequest& request : requests)
      for (const char* const preset : {"fdr", "roce10", "ndr"}) {
        const auto file = [&](tune::TuningBits bits) {
          tune::Tuning tuning;
          tuning.machine = tune::machine_preset(preset);
          tune::Rule rule;
          rule.agreement = Agreement::reproducible;
          rule.per_round = {2, 1, 1};
          tuning.rules.push_back(rule);
          rule.agreement = Agreement::identical;
          rule.algorithm = Algorithm::recursive_multiplying;
          rule.per_round.clear();
          if (ranks_per_node == 1) tuning.rules.push_back(rule);
          rule = {.collective = tune::Collective::reduce, .tree = Tree::fibonacci};
          tuning.rules.push_back(rule);
          tune::Finding finding;
          finding.bytes = request.bytes();
          finding.nodes = topology.node_count();
          finding.ranks_per_node = ranks_per_node;
          finding.agreement = request.agreement;
          finding.operators = tune::operator_class_of(request);
          finding.winner.choice = "chunked_fold";
          tuning.findings.push_back(std::move(finding));
          return tune::tuned(fdr, std::move(tuning), bits);
        };
        const Kept expected = chosen(request, topology, without);
        const Kept kept = chosen(request, topology, file(tune::TuningBits::keep));
        const Kept free = chosen(request, topology, file(tune::TuningBits::free));
        EXPECT_EQ(kept.association, expected.association) << kept.name << ", " << expected.name;
        EXPECT_TRUE(kept.results == expected.results) << kept.name << ", " << expected.name;
        if (free.name != expected.name) ++names_that_differ;
        if (free.results != expected.results) ++bits_that_differ;
        if (kept.results != expected.results) ++kept_that_differ;
        ++files;
      }
  }
  std::printf("%u calls with a tuning file: other bits in %u, where they are kept in %u\n", files,
              bits_that_differ, kept_that_differ);
  // Or the file changes nothing.
  EXPECT_GT(names_that_differ, 6u);
  EXPECT_GT(bits_that_differ, 0u);
}

}  // namespace
}  // namespace tutti
