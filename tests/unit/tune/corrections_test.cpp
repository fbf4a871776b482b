// Promises: the corrections of the families of one race have the proportions of their measured over
// predicted times.  Between two races a correction lies between those of the two, and far from all
// races it is 1.  Neither the order of findings nor noisy findings change corrections.
#include "tune/corrections.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tutti::tune {
namespace {

constexpr std::int64_t one = Corrections::one;

/// `choice` in a race in which two other families take what the model says.
Finding finding(std::uint64_t bytes, std::uint32_t nodes, plan::Picoseconds measured,
                const std::string& choice = "ring") {
  return {.collective = Collective::allreduce,
          .bytes = bytes,
          .nodes = nodes,
          .ranks_per_node = 1,
          .operators = OperatorClass::rounding,
          .winner = {.choice = choice, .measured = measured, .predicted = 1'000'000},
          .others = {{"pairwise", 1'000'000, 1'000'000}, {"chunked_fold", 1'000'000, 1'000'000}}};
}
std::int64_t ring(const Corrections& corrections, std::uint64_t bytes, std::uint32_t nodes,
                  std::uint32_t ranks_per_node = 1) {
  return corrections.factor("ring", Collective::allreduce, bytes, nodes, ranks_per_node);
}

TEST(Corrections, nothing_known_corrects_nothing) {
  EXPECT_TRUE(Corrections().empty());
  EXPECT_EQ(ring(Corrections(), 8, 16), one);
  EXPECT_EQ(ring(Corrections({finding(8, 16, 1'250'000, "circulant")}), 8, 16), one);
  const Corrections other({finding(8, 16, 1'250'000)});
  EXPECT_EQ(other.factor("ring", Collective::reduce, 8, 16, 1), one);
  EXPECT_EQ(other.factor("rin", Collective::allreduce, 8, 16, 1), one);
}

TEST(Corrections, exact_at_a_finding) {
  const Corrections corrections(
      {finding(0, 16, 750'000), finding(8, 16, 1'250'000), finding(1 << 20, 96, 1'500'000)});
  EXPECT_EQ(ring(corrections, 0, 16), one * 3 / 4);
  EXPECT_EQ(ring(corrections, 8, 16), one * 5 / 4);
  EXPECT_EQ(ring(corrections, 1 << 20, 96), one * 3 / 2);
}

TEST(Corrections, every_finding_of_a_grid_is_met_exactly) {
  std::mt19937 bits(7);
  std::vector<Finding> findings;
  for (const std::uint64_t bytes : {0u, 8u, 64u, 256u, 1024u, 65536u, 1u << 20})
    for (const std::uint32_t nodes : {2u, 3u, 7u, 16u, 96u, 1024u})
      findings.push_back(finding(bytes, nodes, 600'000 + bits() % 1'300'000));
  const Corrections corrections(findings);
  for (const Finding& one_of_them : findings)
    EXPECT_EQ(ring(corrections, one_of_them.bytes, one_of_them.nodes),
              (one_of_them.winner.measured * one + 500'000) / 1'000'000);
}

TEST(Corrections, monotone_between_two) {
  for (const bool falls : {false, true}) {
    const Corrections by_bytes({finding(64, 16, falls ? 1'500'000 : 800'000),
                                finding(4096, 16, falls ? 800'000 : 1'500'000)});
    std::int64_t before = ring(by_bytes, 64, 16);
    for (std::uint64_t bytes = 64; bytes <= 4096; ++bytes) {
      const std::int64_t now = ring(by_bytes, bytes, 16);
      EXPECT_TRUE(falls ? now <= before : now >= before) << bytes;
      before = now;
    }
    EXPECT_NEAR(static_cast<double>(ring(by_bytes, 512, 16)), 1.15 * one, 0.04 * one);
    const Corrections by_nodes({finding(64, 6, falls ? 1'500'000 : 800'000),
                                finding(64, 96, falls ? 800'000 : 1'500'000)});
    before = ring(by_nodes, 64, 6);
    for (std::uint32_t nodes = 6; nodes <= 96; ++nodes) {
      const std::int64_t now = ring(by_nodes, 64, nodes);
      EXPECT_TRUE(falls ? now <= before : now >= before) << nodes;
      before = now;
    }
    EXPECT_NEAR(static_cast<double>(ring(by_nodes, 64, 24)), 1.15 * one, 0.01 * one);
  }
}

TEST(Corrections, fades_to_one_far_from_any_finding) {
  const Corrections corrections({finding(1024, 16, 1'500'000)});
  std::int64_t before = ring(corrections, 1024, 16);
  EXPECT_EQ(before, one * 3 / 2);
  for (std::uint64_t bytes = 1024; bytes <= 20'000; bytes += 8) {
    const std::int64_t now = ring(corrections, bytes, 16);
    EXPECT_LE(now, before);
    before = now;
  }
  EXPECT_NEAR(static_cast<double>(ring(corrections, 4096, 16)), 1.25 * one, 0.01 * one);
  EXPECT_EQ(ring(corrections, 17'000, 16), one);  // four doublings
  EXPECT_EQ(ring(corrections, 8, 16), one);
  EXPECT_EQ(ring(corrections, UINT64_MAX, 16), one);
  EXPECT_NEAR(static_cast<double>(ring(corrections, 1024, 32)), 1.25 * one, 0.01 * one);
  EXPECT_EQ(ring(corrections, 1024, 64), one);  // two
  EXPECT_EQ(ring(corrections, 1024, 4), one);
  EXPECT_EQ(ring(corrections, 1024, 16, 2), one * 5 / 4);
  EXPECT_EQ(ring(corrections, 1024, 16, 4), one);
}

TEST(Corrections, two_that_are_too_far_apart_do_not_reach_the_middle) {
  const Corrections corrections({finding(8, 16, 1'500'000), finding(1 << 20, 16, 1'500'000)});
  EXPECT_EQ(ring(corrections, 4096, 16), one);
}

TEST(Corrections, nodes_without_a_finding_of_about_these_bytes_do_not_hide_their_neighbours) {
  const Corrections corrections({finding(8, 64, 1'400'000), finding(1 << 20, 96, 700'000)});
  EXPECT_GT(ring(corrections, 8, 96), one * 11 / 10);
}

TEST(Corrections, bounded) {
  const Corrections corrections({finding(8, 16, 900'000'000'000'000), finding(8, 1024, 1)});
  EXPECT_EQ(ring(corrections, 8, 16), Corrections::most);
  EXPECT_EQ(ring(corrections, 8, 1024), Corrections::least);
  Finding huge = finding(8, 16, INT64_MAX);
  huge.winner.predicted = INT64_MAX / 3 * 2;
  EXPECT_NEAR(static_cast<double>(ring(Corrections({huge}), 8, 16)), 1.5 * one, 1);
}

TEST(Corrections, families_are_compared_with_the_middle_one_of_their_race) {
  // Before the division the factors are 8, 10, 14 and 40; the lower one of the middle two is 10.
  Finding race = finding(8, 1, 8'000'000);
  race.others = {{"circulant", 10'000'000, 1'000'000},
                 {"8 lanes, circulant across", 14'000'000, 1'000'000},
                 {"dissemination with 3 a round", 40'000'000, 1'000'000}};
  const Corrections corrections({race});
  const auto of = [&](const char* family) {
    return corrections.factor(family, Collective::allreduce, 8, 1, 1);
  };
  EXPECT_EQ(of("ring"), (8 * one + 5) / 10);
  EXPECT_EQ(of("circulant"), one);
  EXPECT_EQ(of("lanes, circulant across"), (14 * one + 5) / 10);
  EXPECT_EQ(of("dissemination"), Corrections::most);
  EXPECT_EQ(of("not_raced"), one);  // as the middle family
}

TEST(Corrections, what_raced_families_have_in_common_does_not_favour_those_that_were_not) {
  // The model is 7 % off everywhere; the sets of families that were raced differ.
  Finding shorter = finding(1024, 16, 1'070'000);
  shorter.others = {{"circulant", 1'070'000, 1'000'000}};
  Finding longer = finding(2048, 16, 1'070'000);
  longer.others = {{"lanes, ring across", 1'070'000, 1'000'000}};
  const Corrections both({shorter, longer});
  for (const std::uint64_t bytes : {1024u, 1500u, 2048u})
    for (const char* family : {"ring", "circulant", "lanes, ring across", "not_raced"})
      EXPECT_EQ(both.factor(family, Collective::allreduce, bytes, 16, 1), one) << family << bytes;
  // A collective with two raced families is not compared with other collectives.
  Finding other = shorter;
  other.collective = Collective::reduce;
  other.others[0].measured = 2'140'000;
  const Corrections two({shorter, other});
  EXPECT_NEAR(static_cast<double>(two.factor("circulant", Collective::reduce, 1024, 16, 1)),
              2 * one, 1);
  EXPECT_EQ(two.factor("circulant", Collective::allreduce, 1024, 16, 1), one);
}

TEST(Corrections, races_of_other_agreements_at_the_same_point_are_compared_by_themselves) {
  const Finding identical = finding(8, 16, 950'000);
  Finding reproducible = finding(8, 16, 1'100'000, "canonical_dissemination with 3,3 a round");
  reproducible.others = {{"canonical_halving", 1'100'000, 1'000'000}};
  const Corrections both({identical, reproducible});
  for (const char* family : {"canonical_dissemination", "canonical_halving", "chunked_fold"})
    EXPECT_EQ(both.factor(family, Collective::allreduce, 8, 16, 1), one) << family;
  EXPECT_EQ(ring(both, 8, 16), (95 * one + 50) / 100);
}

TEST(Corrections, between_points_whose_medians_differ_are_between_the_divided_factors) {
  // 1.5 / 1.5 and 1.5 / 1.2
  Finding shorter = finding(64, 16, 1'500'000), longer = finding(4096, 16, 1'500'000);
  for (Timing& other : shorter.others) other.measured = 1'500'000;
  for (Timing& other : longer.others) other.measured = 1'200'000;
  const Corrections both({shorter, longer});
  EXPECT_EQ(ring(both, 64, 16), one);
  EXPECT_EQ(ring(both, 4096, 16), one * 5 / 4);
  EXPECT_NEAR(static_cast<double>(ring(both, 512, 16)), 1.125 * one, 0.04 * one);
  EXPECT_EQ(both.factor("pairwise", Collective::allreduce, 512, 16, 1), one);
}

TEST(Corrections, a_family_alone_in_its_race_corrects_nothing) {
  Finding alone = finding(8, 1, 1'500'000);
  alone.others = {{"ring", 1'300'000, 1'000'000}};
  EXPECT_TRUE(Corrections({alone}).empty());
  EXPECT_EQ(ring(Corrections({alone, finding(8, 1, 1'250'000)}), 8, 1), one * 5 / 4);
}

TEST(Corrections, order_of_findings_does_not_matter) {
  std::mt19937 generator(11);
  const auto bits = [&] { return static_cast<std::uint32_t>(generator()); };
  std::vector<Finding> findings;
  for (int i = 0; i < 60; ++i) {
    findings.push_back(finding(std::uint64_t{1} << bits() % 22, 1u << bits() % 9,
                               600'000 + bits() % 1'300'000,
                               bits() % 2 == 0 ? "ring" : "8 lanes, circulant across"));
    findings.back().ranks_per_node = 1 + bits() % 8;
    findings.back().others = {
        {"16 lanes, circulant across", 600'000 + bits() % 1'300'000, 1'000'000}};
  }
  const Corrections first(findings);
  std::shuffle(findings.begin(), findings.end(), generator);
  const Corrections second(findings);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t bytes = bits() >> bits() % 32;
    const std::uint32_t nodes = 1 + bits() % 600, ranks_per_node = 1 + bits() % 9;
    for (const char* family : {"ring", "lanes, circulant across"})
      ASSERT_EQ(first.factor(family, Collective::allreduce, bytes, nodes, ranks_per_node),
                second.factor(family, Collective::allreduce, bytes, nodes, ranks_per_node));
  }
}

TEST(Corrections, noisy_findings_and_those_without_a_price_do_not_count) {
  Finding noisy = finding(8, 16, 1'500'000);
  noisy.is_noisy = true;
  EXPECT_EQ(ring(Corrections({noisy, finding(8, 16, 1'250'000)}), 8, 16), one * 5 / 4);
  EXPECT_TRUE(Corrections({noisy}).empty());
  Finding priceless = finding(8, 16, 1'500'000);
  priceless.winner.predicted = 0;
  EXPECT_EQ(ring(Corrections({priceless}), 8, 16), one);
  priceless.others[0].predicted = priceless.others[1].predicted = 0;
  EXPECT_TRUE(Corrections({priceless}).empty());
}

TEST(Corrections, losers_count_as_well_and_several_of_a_family_by_their_mean) {
  Finding race = finding(8, 16, 1'250'000, "dissemination with 3,3 a round");
  race.others = {{"ring", 1'200'000, 1'000'000},
                 {"dissemination with 15 a round", 1'750'000, 1'000'000}};
  const Corrections corrections({race});
  EXPECT_EQ(ring(corrections, 8, 16), one);
  EXPECT_EQ(corrections.factor("dissemination", Collective::allreduce, 8, 16, 1), one * 5 / 4);
}

TEST(Corrections, a_family_is_a_name_without_numbers) {
  for (const auto& [name, family] : std::vector<std::pair<const char*, const char*>>{
           {"ring", "ring"},
           {"two_partial_dissemination with 3,2 a round", "two_partial_dissemination"},
           {"8 lanes in 2 sub-blocks, circulant across", "lanes, circulant across"},
           {"lanes, circulant across", "lanes, circulant across"},
           {"8 lanes of 4 with 3,2 a round in 8 turns in 2 sub-blocks, dissemination with 5 a "
            "round across",
            "lanes, dissemination across"},
           {"groups of 4, leader, circulant with 1,1 a round across across",
            "groups, leader, circulant across across"},
           {"fibonacci_tree with 3,2,1 children and 4 pieces", "fibonacci_tree"},
           {"fibonacci_tree of latency 5", "fibonacci_tree"},
           {"4 lanes of latency 5 along a chain", "lanes along a chain"},
           {"", ""},
           {"8", ""},
           {"8, ring", "ring"}})
    EXPECT_EQ(family_of(name), family) << name;
}

}  // namespace
}  // namespace tutti::tune
