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

/// Adds what each choice of so many lanes costs over what it takes; 0: of any number of lanes.
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
  Quotients in_order, as_seen;
  for (const char* const preset : {"qdr", "hdr", "roce25"}) {
    const plan::Network network = machine_preset(preset).network();
    for (const std::uint32_t node_count : {2u, 5u, 9u, 33u})
      for (const std::uint32_t ranks_per_node : {4u, 6u, 8u})
        for (const std::uint32_t lane_count : {2u, 4u, 8u}) {
          const std::size_t bytes = lane_count * 2 * chunk_bytes_in_node;
          const Topology topology = nodes_of(node_count, ranks_per_node);
          add(in_order, reduce_of(bytes, Agreement::identical), topology, network, lane_count);
          add(as_seen, reduce_of(bytes, Agreement::relaxed), topology, network, lane_count);
        }
  }
  in_order.print("reduces of two chunks");
  EXPECT_GT(in_order.count, 150u);
  EXPECT_GE(in_order.least, 0.98);
  EXPECT_LE(in_order.largest, 1.02);
  as_seen.print("reduces of two chunks, combined as they come");
  EXPECT_GT(as_seen.count, 150u);
  EXPECT_GE(as_seen.least, 0.92);
  EXPECT_LE(as_seen.largest, 1.02);
}

}  // namespace
}  // namespace tutti::tune
