// Which ranks form a node, found and imposed.
#include "bootstrap/node_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti::bootstrap {
namespace {

HostIdentity host(unsigned char boot, std::uint64_t ipc = 1, std::uint64_t pid = 1) {
  HostIdentity identity;
  identity.boot[0] = std::byte{boot};
  identity.ipc_namespace = ipc;
  identity.uts_namespace = 1;
  identity.pid_namespace = pid;
  return identity;
}

std::vector<Node> nodes(std::initializer_list<std::uint32_t> numbers) {
  std::vector<Node> list;
  for (const auto number : numbers) list.push_back(Node{number});
  return list;
}

std::vector<LocalRank> local_ranks(std::initializer_list<std::uint32_t> numbers) {
  std::vector<LocalRank> list;
  for (const auto number : numbers) list.push_back(LocalRank{number});
  return list;
}

// Protects: nodes are numbered by lowest rank and local ranks by rank, for any order of hosts.
TEST(NodeMap, numbers_nodes_by_lowest_rank) {
  const std::vector hosts{host(9), host(3), host(9), host(3), host(5)};
  const NodeMap map = node_map(hosts);
  EXPECT_EQ(map.node, nodes({0, 1, 0, 1, 2}));
  EXPECT_EQ(map.local_rank, local_ranks({0, 0, 1, 1, 0}));
  EXPECT_EQ(map.node_count, 3u);
}

// Protects: two containers of one host are not taken for a node, nor are hosts whose namespaces
// happen to have the same numbers.
TEST(NodeMap, separates_containers_and_hosts) {
  const std::vector hosts{host(1, 7), host(1, 8), host(2, 7)};
  EXPECT_EQ(node_map(hosts).node, nodes({0, 1, 2}));
}

// Protects: where /proc cannot be read, ranks are apart rather than wrongly together.
TEST(NodeMap, unknown_hosts_are_all_different) {
  const std::vector<HostIdentity> hosts(3);
  EXPECT_EQ(node_map(hosts).node, nodes({0, 1, 2}));
  EXPECT_FALSE(share_process_ids(hosts[0], hosts[1]));
}

// Protects: a process id is only used where it means the same.
TEST(NodeMap, process_ids_are_shared_within_a_pid_namespace) {
  EXPECT_TRUE(share_process_ids(host(1, 1, 5), host(1, 2, 5)));
  EXPECT_FALSE(share_process_ids(host(1, 1, 5), host(1, 1, 6)));
  EXPECT_FALSE(share_process_ids(host(1, 1, 5), host(2, 1, 5)));
}

// Protects: two readings by one process agree, so ranks of one host find each other.
TEST(NodeMap, this_host_is_itself) {
  EXPECT_TRUE(may_share_memory(host_identity(), host_identity()));
  EXPECT_TRUE(share_process_ids(host_identity(), host_identity()));
}

// Protects: the empty job has no node.
TEST(NodeMap, no_ranks_no_nodes) {
  EXPECT_EQ(node_map({}).node_count, 0u);
  EXPECT_EQ(imposed_node_map({.rank_count = 0}).node_count, 0u);
}

// Protects: block placement puts consecutive ranks together, and the last node takes the rest.
TEST(ImposedNodeMap, block_keeps_neighbours_together) {
  const NodeMap map = imposed_node_map({.rank_count = 5, .ranks_per_node = {2}});
  EXPECT_EQ(map.node, nodes({0, 0, 1, 1, 2}));
  EXPECT_EQ(map.local_rank, local_ranks({0, 1, 0, 1, 0}));
  EXPECT_EQ(map.node_count, 3u);
}

// Protects: cyclic placement deals ranks to nodes in turn.
TEST(ImposedNodeMap, cyclic_deals_in_turn) {
  const NodeMap map =
      imposed_node_map({.rank_count = 5, .ranks_per_node = {2}, .placement = Placement::cyclic});
  EXPECT_EQ(map.node, nodes({0, 1, 2, 0, 1}));
  EXPECT_EQ(map.local_rank, local_ranks({0, 0, 0, 1, 1}));
}

// Protects: with one rank per node every rank is its own node, whatever the placement.
TEST(ImposedNodeMap, one_rank_per_node_is_the_identity) {
  for (const auto placement : {Placement::block, Placement::cyclic, Placement::random}) {
    const NodeMap map = imposed_node_map({.rank_count = 4, .placement = placement, .seed = 3});
    EXPECT_EQ(map.node, nodes({0, 1, 2, 3}));
    EXPECT_EQ(map.local_rank, local_ranks({0, 0, 0, 0}));
  }
}

// Protects: whatever the shape, nodes are numbered by lowest rank, local ranks are 0, 1, 2, ... in
// order of rank, and no node holds more than it should.
TEST(ImposedNodeMap, every_shape_is_well_formed) {
  for (std::uint32_t rank_count = 1; rank_count <= 24; ++rank_count) {
    for (std::uint32_t per_node = 1; per_node <= rank_count + 1; ++per_node) {
      for (const auto placement : {Placement::block, Placement::cyclic, Placement::random}) {
        const NodeMap map = imposed_node_map({.rank_count = rank_count,
                                              .ranks_per_node = {per_node},
                                              .placement = placement,
                                              .seed = rank_count * 100 + per_node});
        ASSERT_EQ(map.node_count, (rank_count + per_node - 1) / per_node);
        std::vector<std::uint32_t> members(map.node_count, 0);
        std::uint32_t known = 0;
        for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
          const std::uint32_t node = index_of(map.node[rank]);
          ASSERT_LE(node, known);
          known = std::max(known, node + 1);
          ASSERT_EQ(index_of(map.local_rank[rank]), members[node]++);
          ASSERT_LE(members[node], per_node);
        }
        ASSERT_EQ(known, map.node_count);
      }
    }
  }
}

// Protects: a seed means the same on every machine and compiler, so a failure can be replayed.
TEST(ImposedNodeMap, random_depends_on_the_seed_only) {
  const ImposedNodes shape{
      .rank_count = 8, .ranks_per_node = {2}, .placement = Placement::random, .seed = 42};
  EXPECT_EQ(imposed_node_map(shape).node, nodes({0, 1, 2, 0, 3, 1, 2, 3}));
  ImposedNodes other = shape;
  other.seed = 43;
  EXPECT_NE(imposed_node_map(shape).node, imposed_node_map(other).node);
}

}  // namespace
}  // namespace tutti::bootstrap
