// Promise: collectives of blocks take the plan that saves most between nodes, connect few ranks
// where there are many, and keep what was promised of order.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tutti/reduction.hpp>
#include <vector>

#include "asked.hpp"
#include "plan/allreduce/canonical_halving.hpp"

namespace tutti::tune {
namespace {

/// `count` nodes of `size` ranks that follow each other.
std::vector<Node> nodes_of(std::uint32_t count, std::uint32_t size) {
  std::vector<Node> node_of;
  for (std::uint32_t rank = 0; rank < count * size; ++rank) node_of.push_back(Node{rank / size});
  return node_of;
}

std::size_t partners_of(const plan::Plan& plan) {
  std::set<Rank> partners;
  for (const plan::Step& step : plan.steps)
    if (step.peer != no_rank) partners.insert(step.peer);
  return partners.size();
}

class ReduceScatter : public testing::Test {
 protected:
  std::string taken(std::uint32_t nodes, std::uint32_t ranks_per_node) {
    return taken(nodes_of(nodes, ranks_per_node));
  }
  std::string taken(const std::vector<Node>& node_of) {
    asked.element_count = bytes / asked.reduction.element_bytes;
    plan = plan_for(asked,
                    {.rank_count = static_cast<std::uint32_t>(node_of.size()), .node_of = node_of},
                    Rank{0}, fdr);
    return plan.algorithm;
  }

  CollectiveRequest asked{.collective = Collective::reduce_scatter,
                          .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)};
  std::size_t bytes = 1u << 20;
  plan::Plan plan;
};

TEST_F(ReduceScatter, goes_directly_among_few_ranks) {
  EXPECT_EQ(taken(1, 8), "chunked_fold");
  EXPECT_EQ(taken(8, 1), "chunked_fold");
  EXPECT_EQ(taken(32, 1), "chunked_fold");
}

TEST_F(ReduceScatter, of_many_ranks_connects_few) {
  EXPECT_EQ(taken(33, 1), "circulant");
  EXPECT_EQ(taken(64, 1), "circulant");
  EXPECT_EQ(partners_of(plan), 16u);
  EXPECT_EQ(taken(1000, 1), "circulant");
  EXPECT_LE(partners_of(plan), 36u);
}

TEST_F(ReduceScatter, nodes_add_up_where_that_saves_more_than_a_hop) {
  EXPECT_EQ(taken(2, 4), "node_direct");
  EXPECT_EQ(taken(9, 2), "node_direct");
  EXPECT_EQ(taken(10, 2), "node_circulant");
  bytes = 8 * 8;
  EXPECT_EQ(taken(8, 8), "node_direct");
}

TEST_F(ReduceScatter, keeps_order_where_it_is_promised) {
  asked.agreement = Agreement::reproducible;
  EXPECT_EQ(taken(4, 4), "chunked_fold");
  EXPECT_EQ(taken(32, 1), "chunked_fold");
  EXPECT_EQ(taken(1, 40), "chunked_fold");
  for (const std::uint32_t nodes : {33u, 64u, 200u, 1000u}) {
    EXPECT_EQ(taken(nodes, 1), "canonical_halving");
    EXPECT_LE(partners_of(plan), plan::canonical_halving_partners_max(nodes));
  }
  EXPECT_EQ(taken(20, 2), "canonical_halving");
  EXPECT_EQ(taken(10'000, 1), "chunked_fold") << "too many ranks for the other one";
  asked.reduction = built_in_reduction(BuiltIn::sum, ElementType::int64);
  EXPECT_EQ(taken(4, 4), "node_direct") << "order does not show";
  asked.agreement = Agreement::identical;
  asked.reduction.properties.commutative = false;
  EXPECT_EQ(taken(4, 4), "chunked_fold");
  EXPECT_EQ(taken(64, 1), "canonical_halving");
}

TEST_F(ReduceScatter, connects_few_where_nodes_differ_too) {
  std::vector<Node> node_of;
  for (std::uint32_t node = 0; node < 80; ++node)
    for (std::uint32_t rank = 0; rank < 2 + node % 2; ++rank) node_of.push_back(Node{node});
  EXPECT_EQ(taken(node_of), "canonical_halving");
  EXPECT_LE(partners_of(plan), plan::canonical_halving_partners_max(200));
  node_of.resize(10);  // nodes of 2, 3, 2, 3
  EXPECT_LE((taken(node_of), partners_of(plan)), 9u);
  node_of = nodes_of(4, 20);
  node_of.pop_back();
  EXPECT_EQ(taken(node_of), "node_direct") << "a few partners in each";
  EXPECT_LE(partners_of(plan), 31u);
}

/// How `total` bytes that `ranks` nodes hold are sent, if the r-th holds a share of weight(r).
template <class Weight>
std::string allgather_taken(std::uint32_t ranks, std::size_t total, Weight weight) {
  CollectiveRequest request{.collective = Collective::allgather, .reduction = {.element_bytes = 1}};
  std::size_t weights = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) weights += weight(rank);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    request.block_bytes.push_back(total * weight(rank) / weights);
  return plan_for(request, {.rank_count = ranks}, Rank{0}, fdr).algorithm;
}

TEST(Allgatherv, is_passed_on_in_pieces_where_blocks_differ_however_many_nodes_there_are) {
  for (const std::uint32_t ranks : {4u, 8u, 16u, 24u, 32u, 48u, 64u})
    for (const std::size_t total : {1u << 20, 4u << 20}) {
      const std::string where = std::to_string(ranks) + " ranks, " + std::to_string(total);
      const auto taken = [&](auto weight) { return allgather_taken(ranks, total, weight); };
      EXPECT_EQ(taken([&](auto rank) { return ranks - 1 - rank; }), "ring_allgather") << where;
      EXPECT_EQ(taken([](auto rank) { return rank == 0 ? 1u : 0u; }),
                ranks < 8 ? "ring_allgather" : "two_tree_allgather")
          << where;
      if (ranks == 64) {  // two long blocks, half in one
        EXPECT_EQ(taken([](auto rank) { return rank % 32 == 0 ? 1u : 0u; }), "two_tree_allgather")
            << where;
        EXPECT_EQ(taken([](auto rank) { return rank == 0 ? 63u : 1u; }), "two_tree_allgather")
            << where;
      }
      const std::string whole = ranks < 10 ? "direct" : "block_dissemination";
      EXPECT_EQ(taken([](auto) { return 1u; }), whole) << where;
      EXPECT_EQ(taken([](auto rank) { return 99u + rank % 3; }), whole)
          << where << ", nearly equal";
    }
}

}  // namespace
}  // namespace tutti::tune
