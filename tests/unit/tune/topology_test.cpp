// Promise: what is counted once for all of a choice is what looking at all ranks tells.
#include "tune/topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace tutti::tune {
namespace {

/// Nodes of arbitrary ranks, numbered by their lowest ones.
std::vector<Node> arbitrary_nodes(std::uint32_t ranks, std::mt19937& random) {
  std::vector<Node> node_of;
  std::uint32_t nodes = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto node = static_cast<std::uint32_t>(random() % (nodes + 1));
    nodes = std::max(nodes, node + 1);
    node_of.push_back(Node{node});
  }
  return node_of;
}

TEST(Topology, counted_tells_what_all_ranks_tell) {
  std::mt19937 random(3);
  for (std::uint32_t ranks = 1; ranks <= 40; ++ranks)
    for (int i = 0; i < 8; ++i) {
      Topology topology{.rank_count = ranks};
      if (i > 0) topology.node_of = arbitrary_nodes(ranks, random);
      if (i > 5) std::sort(topology.node_of.begin(), topology.node_of.end());  // runs
      std::vector<std::uint32_t> sizes;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const std::size_t node = topology.node_of.empty() ? rank : index_of(topology.node_of[rank]);
        sizes.resize(std::max(sizes.size(), node + 1));
        ++sizes[node];
      }
      const Topology counted = topology.counted();
      ASSERT_TRUE(counted.known.has_value());
      for (const Topology* const one : {&std::as_const(topology), &counted}) {
        EXPECT_EQ(one->node_count(), sizes.size());
        EXPECT_EQ(one->largest_node(), *std::max_element(sizes.begin(), sizes.end()));
        EXPECT_EQ(one->smallest_node(), *std::min_element(sizes.begin(), sizes.end()));
        EXPECT_EQ(one->has_runs(),
                  std::is_sorted(topology.node_of.begin(), topology.node_of.end()));
      }
    }
}

}  // namespace
}  // namespace tutti::tune
