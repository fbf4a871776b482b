// Promise: the price of reproducible allreduces over all ranks, which is computed without a plan,
// is about what the recurrence of all events gives.
#include "tune/canonical_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "equal_nodes.hpp"
#include "tune/choose.hpp"
#include "tune/machine.hpp"
#include "tune/names.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {
namespace {

CollectiveRequest request_of(const std::string& name, std::size_t bytes) {
  return {.collective = Collective::allreduce,
          .element_count = bytes / 8,
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
          .agreement = Agreement::reproducible,
          .only = name};
}

/// The price of a choice by name, as a part of the recurrence.
double quotient_of(const std::string& name, const Topology& topology, std::size_t bytes,
                   const plan::Network& network) {
  const CollectiveRequest request = request_of(name, bytes);
  const Choice choice = choose(request, topology, network);
  const plan::Picoseconds time =
      plan_time({request, topology, network}, [&](Rank self) { return choice.plan(self); });
  return static_cast<double>(choice.cost()) / static_cast<double>(time);
}

struct NearQuotients {
  double least = 1, largest = 1;
  std::size_t count = 0, near = 0;  // near: within 5 %

  void add(double quotient) {
    least = std::min(least, quotient);
    largest = std::max(largest, quotient);
    ++count;
    near += quotient >= 0.95 && quotient <= 1.05 ? 1 : 0;
  }
  void print(const char* what) const {
    std::printf("%zu %s, of which %zu are within 5 %%, %.3f to %.3f of the recurrence\n", count,
                what, near, least, largest);
  }
};

TEST(CanonicalTime, of_dissemination_is_about_the_recurrence_of_all_events) {
  NearQuotients quotients;
  for (const char* const preset : {"qdr", "hdr", "roce10"})
    for (const std::uint32_t ranks_per_node : {1u, 3u, 4u, 8u})
      for (const std::uint32_t node_count : {5u, 13u, 16u, 31u})
        for (const std::size_t bytes : {8u, 256u, 4096u})
          for (const std::uint32_t n : {1u, 3u, 6u}) {
            const Topology topology = nodes_of(node_count, ranks_per_node);
            const std::string name = "canonical_dissemination with " +
                                     text_of(plan::uniform(topology.rank_count, n)) + " a round";
            quotients.add(quotient_of(name, topology, bytes, machine_preset(preset).network()));
          }
  quotients.print("disseminations");
  EXPECT_EQ(quotients.count, 432u);
  EXPECT_GE(quotients.near, 425u);
  EXPECT_GE(quotients.least, 0.9);
  EXPECT_LE(quotients.largest, 1.05);
}

TEST(CanonicalTime, of_halving_is_near_enough_to_be_compared) {
  NearQuotients quotients;
  for (const char* const preset : {"qdr", "hdr", "roce10"})
    for (const auto& [node_count, ranks_per_node] : {std::pair{33u, 1u},
                                                     {64u, 1u},
                                                     {24u, 2u},
                                                     {13u, 4u},
                                                     {16u, 4u},
                                                     {24u, 4u},
                                                     {7u, 8u},
                                                     {8u, 8u},
                                                     {13u, 8u},
                                                     {17u, 8u}})
      quotients.add(quotient_of("canonical_halving", nodes_of(node_count, ranks_per_node), 2048,
                                machine_preset(preset).network()));
  quotients.print("halvings");
  EXPECT_EQ(quotients.count, 30u);
  EXPECT_GE(quotients.least, 0.65);
  EXPECT_LE(quotients.largest, 1.3);
}

/// The time of a named choice by closer_cost(), divided by that of the recurrence.
double closer_quotient_of(const std::string& name, const Topology& topology, std::size_t bytes,
                          const plan::Network& network) {
  const CollectiveRequest request = request_of(name, bytes);
  const Choice choice = choose(request, topology, network);
  const Query query{request, topology, network};
  const auto closer = choice.row().closer_cost(query, choice.variant());
  EXPECT_TRUE(closer) << name;
  const plan::Picoseconds time = plan_time(query, [&](Rank self) { return choice.plan(self); });
  return static_cast<double>(closer.value_or(0)) / static_cast<double>(time);
}

TEST(CanonicalTime, of_dissemination_among_all_nodes_is_the_recurrence_but_for_few) {
  NearQuotients quotients;
  for (const char* const preset : {"qdr", "ndr", "roce25"})
    for (const auto& [node_count, ranks_per_node] :
         {std::pair{33u, 1u}, {65u, 1u}, {9u, 4u}, {48u, 4u}, {13u, 8u}, {17u, 8u}, {24u, 8u}})
      for (const std::size_t bytes : {64u, 2048u})
        for (const std::uint32_t n : {1u, 2u, 4u}) {
          const Topology topology = nodes_of(node_count, ranks_per_node);
          const std::string name = "canonical_dissemination with " +
                                   text_of(plan::uniform(topology.rank_count, n)) + " a round";
          quotients.add(
              closer_quotient_of(name, topology, bytes, machine_preset(preset).network()));
        }
  quotients.print("disseminations among all nodes");
  EXPECT_EQ(quotients.count, 126u);
  EXPECT_EQ(quotients.near, 126u);
}

// Rank counts of one cube alone, and of cubes that hear from one half as large, from a small one,
// or from several, of which the last one may be smaller than a node.
TEST(CanonicalTime, of_halving_is_the_recurrence_within_a_twentieth) {
  NearQuotients quotients;
  for (const char* const preset : {"qdr", "ndr", "roce10"})
    for (const auto& [node_count, ranks_per_node] : {std::pair{64u, 1u},
                                                     {33u, 1u},
                                                     {48u, 1u},
                                                     {63u, 1u},
                                                     {17u, 2u},
                                                     {16u, 4u},
                                                     {9u, 4u},
                                                     {31u, 4u},
                                                     {5u, 8u},
                                                     {8u, 8u},
                                                     {13u, 8u},
                                                     {17u, 8u}})
      for (const std::size_t bytes : {2048u, 65536u})
        quotients.add(closer_quotient_of("canonical_halving", nodes_of(node_count, ranks_per_node),
                                         bytes, machine_preset(preset).network()));
  quotients.print("halvings, of nodes that stand for all");
  EXPECT_EQ(quotients.count, 72u);
  EXPECT_EQ(quotients.near, 72u);
}

TEST(CanonicalTime, has_no_halving_on_nodes_that_are_no_cubes) {
  const CollectiveRequest request = request_of("canonical_halving", 2048);
  const plan::Network network = machine_preset("fdr").network();
  const Topology topology = nodes_of(13, 3);
  const Choice choice = choose(request, topology, network);
  EXPECT_FALSE(choice.row().closer_cost({request, topology, network}, choice.variant()));
}

// Two ranks of nodes of their own exchange one message each: everything can be counted by hand.
TEST(CanonicalTime, of_two_ranks_is_one_message_and_one_combination) {
  const plan::Network network = machine_preset("fdr").network();
  const plan::LogGP& between = network.between;
  EXPECT_EQ(canonical_time({.rank_count = 2, .ranks_per_node = 1, .bytes = 512}, {1}, network),
            between.travel_time(512) + between.receive_overhead + between.work_time(512));
}

TEST(CanonicalTime, of_two_ranks_of_a_node_is_a_store_that_is_seen) {
  const plan::Network network = machine_preset("fdr").network();
  const plan::NodeMemory& inside = network.inside;
  EXPECT_EQ(canonical_time({.rank_count = 2, .ranks_per_node = 2, .bytes = 512}, {1}, network),
            inside.store_time(512) + inside.latency + inside.receive_overhead +
                network.between.work_time(512));
}

}  // namespace
}  // namespace tutti::tune
