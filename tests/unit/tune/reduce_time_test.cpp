// Promise: what reduces on nodes of equally many ranks are priced by, without any plan, is about
// the recurrence of all events.
#include "tune/reduce_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "equal_nodes.hpp"
#include "tune/choose.hpp"
#include "tune/chunks.hpp"
#include "tune/machine.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {
namespace {

CollectiveRequest reduce_of(std::size_t bytes, Agreement agreement) {
  return {.collective = Collective::reduce,
          .element_count = bytes / 8,
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
          .agreement = agreement,
          .root = Rank{0}};
}

/// Adds price / simulated time of each choice of a tree with `lane_count` lanes, or if that is 0,
/// of any number.
void add(Quotients& quotients, const CollectiveRequest& request, const Topology& topology,
         const plan::Network& network, std::uint32_t lane_count) {
  const std::vector<Choice> all = rivals(request, topology, network);
  for (const Choice& choice : all) {
    if (all.size() < 2 || choice.variant().fans.is_chain) continue;
    if (lane_count != 0 && choice.variant().lane_count != lane_count) continue;
    quotients.add(choice.cost(), plan_time({request, topology, network},
                                           [&](Rank self) { return choice.plan(self); }));
  }
}

/// Likewise of lanes that have `chunk_count` chunks each.
void add_lanes(Quotients& quotients, std::uint32_t lane_count, std::size_t chunk_count,
               CollectiveRequest request, const Topology& topology, const plan::Network& network) {
  const auto bytes_of = [&](std::size_t chunk_bytes) {
    return lane_count * chunk_count * chunk_bytes;
  };
  request.element_count = bytes_of(chunk_bytes_in_node) / 8;
  for (const Choice& choice : rivals(request, topology, network))
    if (choice.variant().lane_count == lane_count && !choice.variant().fans.is_chain) {
      request.element_count = bytes_of(chunk_bytes_for(choice.first_plan(), true) / 8);
      add(quotients, request, topology, network, lane_count);
      return;
    }
}

TEST(ReduceTime, is_about_the_recurrence_of_all_events) {
  Quotients quotients;
  for (const char* const preset : {"qdr", "hdr", "roce25"}) {
    const plan::Network network = machine_preset(preset).network();
    for (const Agreement agreement : {Agreement::identical, Agreement::relaxed})
      for (const std::uint32_t node_count : {2u, 5u, 9u, 16u, 33u})
        for (const std::uint32_t ranks_per_node : {1u, 3u, 8u})
          for (const std::size_t bytes : {8u, 1024u, 4096u})
            add(quotients, reduce_of(bytes, agreement), nodes_of(node_count, ranks_per_node),
                network, 0);
  }
  quotients.print("reduces");
  EXPECT_GT(quotients.count, 200u);
  EXPECT_GE(quotients.least, 0.9);
  EXPECT_LE(quotients.largest, 1.05);
}

TEST(ReduceTime, of_two_chunks_in_lanes_is_about_that_too) {
  Quotients as_planned, as_seen;
  for (const char* const preset : {"qdr", "hdr", "roce25"}) {
    const plan::Network network = machine_preset(preset).network();
    for (const std::uint32_t node_count : {2u, 5u, 9u, 33u})
      for (const std::uint32_t ranks_per_node : {4u, 6u, 8u})
        for (const std::uint32_t lane_count : {2u, 4u, 8u}) {
          const Topology topology = nodes_of(node_count, ranks_per_node);
          CollectiveRequest request = reduce_of(0, Agreement::identical);
          add_lanes(as_planned, lane_count, 2, request, topology, network);
          request.reduction.properties.commutative = false;
          add_lanes(as_planned, lane_count, 2, request, topology, network);
          add_lanes(as_seen, lane_count, 2, reduce_of(0, Agreement::relaxed), topology, network);
        }
  }
  as_planned.print("reduces of two chunks");
  EXPECT_GT(as_planned.count, 300u);
  EXPECT_GE(as_planned.least, 0.98);
  EXPECT_LE(as_planned.largest, 1.07);
  as_seen.print("reduces of two chunks, combined as they come");
  EXPECT_GT(as_seen.count, 150u);
  EXPECT_GE(as_seen.least, 0.92);
  EXPECT_LE(as_seen.largest, 1.02);
}

// Only 32 of so many lanes are followed.
TEST(ReduceTime, of_many_lanes_is_about_that_too) {
  Quotients quotients;
  const plan::Network network = machine_preset("hdr").network();
  for (const std::uint32_t node_count : {2u, 5u})
    add_lanes(quotients, 40, 2, reduce_of(0, Agreement::identical), nodes_of(node_count, 40),
              network);
  quotients.print("reduces of two chunks in 40 lanes");
  EXPECT_GE(quotients.count, 2u);
  EXPECT_GE(quotients.least, 0.98);
  EXPECT_LE(quotients.largest, 1.02);
}

// Later chunks take what the busiest port or rank takes.
TEST(ReduceTime, of_more_chunks_in_lanes_is_near) {
  Quotients quotients;
  for (const char* const preset : {"qdr", "hdr", "roce25"}) {
    const plan::Network network = machine_preset(preset).network();
    for (const std::uint32_t node_count : {2u, 5u, 33u})
      for (const std::uint32_t lane_count : {2u, 4u, 8u})
        for (const std::size_t chunk_count : {3u, 4u, 8u})
          add_lanes(quotients, lane_count, chunk_count, reduce_of(0, Agreement::identical),
                    nodes_of(node_count, 8), network);
  }
  quotients.print("reduces of 3 to 8 chunks");
  EXPECT_GT(quotients.count, 150u);
  EXPECT_GE(quotients.least, 0.94);
  EXPECT_LE(quotients.largest, 1.07);
}

}  // namespace
}  // namespace tutti::tune
