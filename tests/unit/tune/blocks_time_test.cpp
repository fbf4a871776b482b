// Promise: what allgathers of blocks on equal nodes are priced by, without plans of their ranks, is
// about what the recurrence of all events gives.
#include "tune/blocks_time.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>

#include "equal_nodes.hpp"
#include "plan/blocks/block_dissemination.hpp"
#include "plan/core/per_round.hpp"
#include "tune/machine.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {
namespace {

TEST(BlocksTime, is_about_the_recurrence_of_all_events) {
  Quotients quotients;
  for (const char* const preset : {"qdr", "ndr", "roce10"}) {
    const plan::Network network = machine_preset(preset).network();
    for (const std::uint32_t node_count : {2u, 7u, 16u, 33u})
      for (const std::uint32_t ranks_per_node : {1u, 3u, 8u})
        for (const std::size_t block_bytes : {8u, 512u, 8192u})
          for (const std::uint32_t n : {1u, 2u, 4u}) {
            const Topology topology = nodes_of(node_count, ranks_per_node);
            const plan::PerRound vector = plan::uniform(node_count, n);
            const CollectiveRequest request{
                .collective = Collective::allgather,
                .element_count = block_bytes / 8,
                .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)};
            const BlocksShape shape{node_count, ranks_per_node, block_bytes};
            ASSERT_TRUE(has_blocks_time(shape));
            quotients.add(blocks_time(shape, vector, network),
                          plan_time({request, topology, network}, [&](Rank self) {
                            return plan::dissemination_allgather(
                                self, topology.rank_count, vector,
                                ranks_per_node == 1 ? std::span<const Node>()
                                                    : std::span<const Node>(topology.node_of));
                          }));
          }
  }
  quotients.print("allgathers");
  EXPECT_EQ(quotients.count, 324u);
  EXPECT_GE(quotients.least, 0.98);
  // Among two nodes, a rank takes what others of its node give it while it waits for the last one.
  EXPECT_LE(quotients.largest, 1.1);
}

// Two ranks, each a node of its own, send one message each: everything can be counted by hand.
TEST(BlocksTime, of_two_ranks_is_one_message) {
  const plan::Network network = machine_preset("fdr").network();
  const plan::LogGP& between = network.between;
  EXPECT_EQ(blocks_time({.node_count = 2, .ranks_per_node = 1, .bytes = 512}, {1}, network),
            between.travel_time(512) + between.receive_overhead);
}

TEST(BlocksTime, is_not_for_thousands_of_ranks) {
  EXPECT_TRUE(has_blocks_time({.node_count = 1024, .ranks_per_node = 1}));
  EXPECT_FALSE(has_blocks_time({.node_count = 1025, .ranks_per_node = 1}));
  EXPECT_FALSE(has_blocks_time({.node_count = 16, .ranks_per_node = 64}));  // too many turns
  EXPECT_FALSE(has_blocks_time({.node_count = UINT32_MAX, .ranks_per_node = UINT32_MAX}));
}

}  // namespace
}  // namespace tutti::tune
