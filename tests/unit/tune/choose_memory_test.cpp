// Promise: payloads are cut so that they fit the memory they go through, and go from users' buffers
// to users' buffers where that is worth it and can be done.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "choosing.hpp"
#include "plan/blocks/blocks.hpp"
#include "tune/choose.hpp"
#include "tune/chunks.hpp"
#include "tune/hierarchy.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {
namespace {

/// However large the payload, with room for a few more operations.
TEST(Selection, what_is_passed_on_fits_the_default_arena) {
  const auto memory = [](const plan::Plan& plan) {
    const std::size_t registers = plan.slot_count - plan.line_slot_count + plan.partial_count;
    return 2 * registers * (chunk_bytes_for(plan, false) + 64);
  };
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.element_count = 64u << 20;
  for (const std::uint32_t ranks : {33u, 64u, 341u, 600u, 1024u, 4096u}) {
    const plan::Plan plan = allreduce_plan(Rank{0}, ranks, asked);
    EXPECT_EQ(plan.algorithm, "circulant") << ranks << " ranks";
    EXPECT_LE(memory(plan), 14u << 20) << ranks << " ranks";
    asked.agreement = Agreement::reproducible;
    const std::uint32_t fewer = std::min(ranks, 4095u);
    const plan::Plan along_tree = allreduce_plan(Rank{0}, fewer, asked);
    EXPECT_EQ(along_tree.algorithm, "canonical_halving") << ranks << " ranks";
    EXPECT_LE(memory(along_tree), 14u << 20) << ranks << " ranks";
    asked.agreement = Agreement::identical;
    const plan::Plan scatter =
        blocks_plan(Rank{0}, ranks, {.collective = Collective::scatter, .bytes = 64u << 20});
    EXPECT_EQ(scatter.algorithm, "tree_scatter") << ranks << " ranks";
    EXPECT_LE(memory(scatter), 14u << 20) << ranks << " ranks";
  }
  EXPECT_NE(taken(asked, 5000), "circulant");
  asked.agreement = Agreement::reproducible;
  EXPECT_EQ(taken(asked, 4096), "canonical_dissemination") << "halves would not fit";
}

TEST(Selection, chunks_hold_at_most_what_is_asked_for_and_an_element_of_each_part) {
  EXPECT_EQ(chunk_count(0, 8, 1, 64), 1u);
  EXPECT_EQ(chunk_count(0, 0, 1, 64), 1u);  // a barrier
  EXPECT_EQ(chunk_count(8, 8, 1, 64), 1u);
  EXPECT_EQ(chunk_count(9, 8, 1, 64), 2u);
  EXPECT_EQ(chunk_count(16, 8, 2, 64), 1u);
  EXPECT_EQ(chunk_count(17, 8, 2, 64), 2u);
  EXPECT_EQ(chunk_count(3, 1000, 1, 64), 3u);
  EXPECT_EQ(chunk_count(3, 1000, 2, 64), 1u);
  EXPECT_EQ(chunk_count(2, 1000, 3, 64), 1u);
}

TEST(Selection, blocks_in_a_single_node_go_in_longer_chunks_if_their_partials_stay_small) {
  using plan::Transport;
  for (std::uint32_t ranks = 2; ranks <= 64; ++ranks)
    for (const Rank self : {Rank{0}, Rank{ranks - 1}})
      for (const plan::Plan& plan :
           {plan::direct_allgather(self, ranks, Transport::copied),
            plan::direct_alltoall(self, ranks, Transport::copied),
            plan::direct_gather(self, ranks, Rank{0}, Transport::copied),
            plan::direct_scatter(self, ranks, Rank{0}, Transport::copied)}) {
        const std::size_t usual = chunk_bytes_for(plan, true);
        for (const std::size_t arena : {1u << 20, 4u << 20, 8u << 20, 16u << 20, 64u << 20}) {
          const std::size_t chunk = chunk_bytes_in_one_node(plan, 0, arena);
          if (ranks == 2 && arena >= 16u << 20) {
            const bool is_exchange = plan.flow_control != plan::FlowControl::one_way;
            EXPECT_EQ(chunk, is_exchange ? 512u << 10 : 256u << 10);
          }
          EXPECT_GE(chunk, usual);
          if (chunk > usual) {
            EXPECT_LE(2 * chunk * plan.partial_count, std::min<std::size_t>(arena / 16, 1u << 20));
          }
          if (arena == 1u << 20) {
            EXPECT_EQ(chunk, usual);
          }
          EXPECT_EQ(chunk_bytes_in_one_node(plan, 4096, arena), 4096u) << "as asked";
        }
      }
  const plan::Plan read = plan::direct_allgather(Rank{0}, 2, Transport::by_reference);
  EXPECT_EQ(chunk_bytes_in_one_node(read, 0, 16u << 20), chunk_bytes_for(read, true));
  const Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  const plan::Plan sum = allreduce_plan(Rank{0}, 2, asked);
  EXPECT_EQ(chunk_bytes_in_one_node(sum, 0, 16u << 20), 64u << 10);
}

TEST(Selection, long_broadcasts_in_a_single_node_go_in_longer_chunks_if_these_stay_few_and_small) {
  for (const std::uint32_t ranks : {2u, 5u, 8u}) {
    const auto chunk = [&](std::size_t bytes, std::size_t arena_bytes, std::size_t asked = 0) {
      const plan::Plan tree = broadcast_plan(
          Rank{0}, ranks,
          {.bytes = bytes, .per_round_by_default = {}, .node_of = nodes_of(1, ranks)});
      EXPECT_EQ(tree.parts, bytes < 32u << 10 ? 1 : 4);
      EXPECT_TRUE(is_flat_broadcast(tree));
      return tree.parts * chunk_bytes_in_one_node(tree, asked, arena_bytes, bytes);
    };
    constexpr std::size_t usual = 64u << 10, arena = 64u << 20;
    EXPECT_EQ(chunk(1000, arena), usual);
    EXPECT_EQ(chunk(32u << 10, arena), usual);
    EXPECT_EQ(chunk(256u << 10, arena), usual);
    EXPECT_EQ(chunk(512u << 10, arena), 128u << 10);
    EXPECT_EQ(chunk(2u << 20, arena), 512u << 10);
    EXPECT_EQ(chunk(64u << 20, arena), 512u << 10);
    EXPECT_EQ(chunk(64u << 20, 16u << 20), 512u << 10) << "of the default arena";
    EXPECT_EQ(chunk(8u << 20, arena, 4096), 4096u) << "as asked";
    EXPECT_EQ(chunk(8u << 20, 1u << 20), usual) << "of a small arena";
    EXPECT_LE(2 * chunk(8u << 20, 4u << 20), (4u << 20) / 16) << "the root's partials";
  }
  // Ranks further down a deeper tree would wait longer for such chunks, so they are not used there.
  const plan::Plan tree = broadcast_plan(Rank{0}, 8,
                                         {.bytes = 8u << 20,
                                          .per_round_by_default = {},
                                          .node_of = nodes_of(1, 8),
                                          .tree = Tree::binomial});
  ASSERT_GT(tree.per_round.size(), 1u);
  EXPECT_EQ(tree.parts, 1) << "nor is it cut into pieces";
  EXPECT_EQ(chunk_bytes_in_one_node(tree, 0, 64u << 20, 8u << 20), 64u << 10);
}

TEST(Selection, chunks_stay_in_the_cache_unless_the_users_buffers_hold_them) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.element_count = 1u << 20;
  const auto chunk_bytes = [&](std::uint32_t rank_count, bool shares_nodes) {
    return chunk_bytes_for(allreduce_plan(Rank{0}, rank_count, asked), shares_nodes);
  };
  EXPECT_EQ(chunk_bytes(2, false), 128u << 10);
  EXPECT_EQ(chunk_bytes(2, true), 64u << 10);
  EXPECT_LT(chunk_bytes(32, false), 64u << 10);  // 62 slots
  asked.algorithm = Algorithm::recursive_multiplying;
  EXPECT_EQ(chunk_bytes(2, false), 128u << 10);
  asked.algorithm = Algorithm::chunked_fold;
  asked.zero_copy = true;
  EXPECT_EQ(chunk_bytes(2, false), 1u << 20);
  const plan::Plan chain =
      broadcast_plan(Rank{0}, 8, {.bytes = 8u << 20, .per_round_by_default = {}, .node_of = {}});
  ASSERT_TRUE(chain.is_pipeline);
  EXPECT_EQ(chunk_bytes_for(chain, false), 8u << 10);
  EXPECT_EQ(chunk_bytes_for(chain, false, 1000), 1000u);
  EXPECT_EQ(chunk_bytes_for(chain, false, 64u << 10), 64u << 10);
  EXPECT_LT(chunk_bytes_for(chain, false, 1u << 30), 4u << 20);  // the arena's share
}

TEST(Selection, registered_buffers_are_written_by_peers_where_that_is_worth_it) {
  const auto may_be = [](Collective collective, const std::vector<Node>& nodes, std::size_t bytes,
                         const plan::PerRound& per_round = {}) {
    return may_be_zero_copy(
        {.collective = collective,
         .element_count = bytes,
         .reduction = {.element_bytes = 1},
         .per_round_by_default = per_round},
        {.rank_count = static_cast<std::uint32_t>(nodes.size()), .node_of = nodes});
  };
  for (const auto& [collective, least] : {std::pair{Collective::broadcast, 256u << 10},
                                          std::pair{Collective::allgather, 64u << 10}}) {
    for (const std::uint32_t ranks_per_node : {1u, 2u}) {
      EXPECT_TRUE(may_be(collective, nodes_of(2, ranks_per_node), least));
      EXPECT_FALSE(may_be(collective, nodes_of(2, ranks_per_node), least - 1));
      EXPECT_FALSE(may_be(collective, nodes_of(2, ranks_per_node), std::size_t{1} << 40));
      EXPECT_FALSE(may_be(collective, nodes_of(2, ranks_per_node), least, {2, 2}));
    }
    EXPECT_FALSE(may_be(collective, nodes_of(1, 4), 1u << 20)) << "one node";
  }
  EXPECT_TRUE(may_be(Collective::allgather, nodes_of(9, 2), 1u << 20));
  EXPECT_FALSE(may_be(Collective::allgather, nodes_of(10, 2), 1u << 20));
  EXPECT_TRUE(may_be(Collective::broadcast, nodes_of(10, 2), 1u << 20));
  EXPECT_FALSE(may_be(Collective::reduce, nodes_of(2, 2), 1u << 20));
  for (const std::size_t bytes : {(1u << 20) - 1, 1u << 20}) {
    const CollectiveRequest asked{.collective = Collective::broadcast,
                                  .element_count = bytes,
                                  .reduction = {.element_bytes = 1}};
    const Topology by_turns{.rank_count = 4, .node_of = nodes_of(2, 2), .shares_cpus = true};
    EXPECT_EQ(may_be_zero_copy(asked, by_turns), bytes == 1u << 20);
  }
}

TEST(Selection, ranks_that_share_nodes_combine_in_segments_where_that_is_worth_it) {
  CollectiveRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  const auto may_be = [&](std::vector<Node> nodes, std::size_t bytes = 1u << 20,
                          std::uint32_t partners_max = UINT32_MAX) {
    asked.element_count = bytes / 8;
    asked.partners_max = partners_max;
    return may_be_zero_copy(
        asked, {.rank_count = static_cast<std::uint32_t>(nodes.size()), .node_of = nodes});
  };
  EXPECT_TRUE(may_be(nodes_of(1, 2)));
  EXPECT_FALSE(may_be(nodes_of(1, 2), (1u << 20) - 8)) << "small";
  EXPECT_TRUE(may_be(nodes_of(1, 32)));
  EXPECT_TRUE(may_be(nodes_of(1, 2), 1u << 30));
  EXPECT_FALSE(may_be(nodes_of(1, 2), std::size_t{1} << 40)) << "parts longer than a message";
  EXPECT_TRUE(may_be(nodes_of(2, 2)));
  EXPECT_FALSE(may_be(nodes_of(2, 2), 9u << 20)) << "no room for what goes across";
  EXPECT_TRUE(may_be(nodes_of(2, 8), 9u << 20));
  EXPECT_FALSE(may_be(nodes_of(2, 8))) << "too few pieces";
  EXPECT_TRUE(may_be(nodes_of(9, 2), 4u << 20));
  EXPECT_FALSE(may_be(nodes_of(9, 2), 4u << 20, 7)) << "connections";
  EXPECT_FALSE(may_be(nodes_of(10, 2), 4u << 20)) << "many nodes";
  EXPECT_TRUE(may_be({Node{0}, Node{0}, Node{1}}));
  EXPECT_FALSE(may_be({Node{0}, Node{0}, Node{0}, Node{1}})) << "one lane for three ranks";
  asked.across = Across::lanes;
  EXPECT_FALSE(may_be(nodes_of(1, 2)));
  asked.across = Across::automatic;
  asked.algorithm = Algorithm::ring;
  EXPECT_FALSE(may_be(nodes_of(1, 2)));
  asked.algorithm = Algorithm::automatic;
  asked.agreement = Agreement::reproducible;
  EXPECT_FALSE(may_be(nodes_of(1, 2)));
  asked.reduction = request(BuiltIn::sum, ElementType::int64, Agreement::reproducible).reduction;
  EXPECT_TRUE(may_be(nodes_of(1, 2)));
  EXPECT_FALSE(may_be_zero_copy(
      asked, {.rank_count = 2, .node_of = nodes_of(1, 2), .caches_are_apart = true}));
  asked.reduction.properties.commutative = false;
  EXPECT_FALSE(may_be(nodes_of(1, 2)));
}

// Only where nothing else stands in the way.
TEST(Selection, caches_apart_are_told_of_where_they_decide) {
  const auto why = [](std::size_t bytes, bool caches_are_apart) {
    CollectiveRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
    asked.element_count = bytes / 8;
    const Topology topology{
        .rank_count = 2, .node_of = nodes_of(1, 2), .caches_are_apart = caches_are_apart};
    EXPECT_EQ(choose(asked, topology, fdr).explanation().find("cache"), std::string::npos)
        << "nobody has said that buffers lie in segments";
    return why_copied_from_segments({asked, topology, fdr});
  };
  EXPECT_NE(why(1u << 20, true).find("CPUs of a node share no cache"), std::string::npos);
  EXPECT_EQ(why(1u << 20, false), "");
  EXPECT_EQ(why((1u << 20) - 8, true), "");
}

TEST(Selection, ranks_that_share_nodes_have_one_chunk_in_segments_and_nothing_else_to_choose) {
  for (const auto& [node_count, ranks_per_node] :
       {std::pair{1u, 2u}, {1u, 5u}, {2u, 2u}, {3u, 4u}}) {
    const std::vector<Node> nodes = nodes_of(node_count, ranks_per_node);
    CollectiveRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
    asked.element_count = (4u << 20) / 8;
    const Topology topology{.rank_count = static_cast<std::uint32_t>(nodes.size()),
                            .node_of = nodes};
    EXPECT_NE(choose(asked, topology, fdr).row().name, std::string("lanes_zero_copy"));
    asked.zero_copy = true;
    const Choice choice = choose(asked, topology, fdr);
    EXPECT_EQ(choice.name(), "lanes_zero_copy");
    const plan::Plan plan = choice.first_plan();
    for (const std::size_t chunk_bytes : {std::size_t{0}, std::size_t{4096}})
      EXPECT_EQ(
          chunk_count(asked.element_count, 8, plan.parts, chunk_bytes_for(plan, true, chunk_bytes)),
          1u);
    // Both of the network and of the memory, the price counts what the recurrence counts.
    const plan::Picoseconds time =
        plan_time({asked, topology, fdr}, [&](Rank self) { return choice.plan(self); });
    EXPECT_LT(time, choice.cost() * 5 / 4) << node_count;
    EXPECT_GT(time, choice.cost() / 2) << node_count;
  }
}

TEST(Selection, a_reduce_in_segments_is_cut_where_it_was_measured_to_be_faster) {
  CollectiveRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.collective = Collective::reduce;
  asked.root = Rank{0};
  asked.element_count = (1u << 20) / 8;
  const auto taken = [&](std::uint32_t node_count, std::uint32_t ranks, bool shares_cpus = false) {
    const Topology topology{.rank_count = node_count * ranks,
                            .node_of = nodes_of(node_count, ranks),
                            .shares_cpus = shares_cpus};
    EXPECT_NE(choose(asked, topology, fdr).name(), "lanes_zero_copy");
    CollectiveRequest in_segments = asked;
    in_segments.zero_copy = true;
    const bool is_taken = choose(in_segments, topology, fdr).name() == "lanes_zero_copy";
    EXPECT_EQ(is_taken, may_be_zero_copy(asked, topology));
    return is_taken;
  };
  EXPECT_TRUE(taken(1, 2));
  EXPECT_FALSE(taken(1, 2, true));
  EXPECT_FALSE(taken(1, 4));
  EXPECT_FALSE(taken(1, 3, true));
  EXPECT_FALSE(taken(1, 9, true));
  EXPECT_TRUE(taken(2, 2, true));
  EXPECT_TRUE(taken(4, 4, true));
  EXPECT_FALSE(taken(5, 4, true));
  EXPECT_FALSE(taken(2, 5, true));
  EXPECT_FALSE(taken(2, 2));
  EXPECT_FALSE(taken(2, 1, true));
  EXPECT_FALSE(taken(2, 1));
  --asked.element_count;
  EXPECT_FALSE(taken(1, 2));
  asked.element_count = (512u << 10) / 8;
  EXPECT_TRUE(taken(1, 4, true));
  EXPECT_TRUE(taken(1, 8, true));
  EXPECT_TRUE(taken(2, 4, true));
  --asked.element_count;
  EXPECT_FALSE(taken(1, 4, true));
  EXPECT_FALSE(taken(2, 4, true));
  asked.element_count = (8u << 20) / 8;
  EXPECT_TRUE(taken(1, 2));
  for (const std::uint32_t ranks : {2u, 3u, 4u}) {
    asked.element_count = (std::size_t{ranks} << 20) / 8;
    EXPECT_TRUE(taken(2, ranks, true));
    ++asked.element_count;
    EXPECT_FALSE(taken(2, ranks, true)) << "a worker would hold more of its lane";
  }
  asked.element_count = (8u << 20) / 8;
  const std::vector<Node> node = nodes_of(1, 2);
  const plan::Plan plan =
      plan::zero_copy_reduce(Rank{0}, {.rank_count = 2, .node_of = node, .pieces = 8});
  EXPECT_EQ(chunk_count(asked.element_count, 8, plan.parts, chunk_bytes_for(plan, true)), 8u);
  EXPECT_EQ(chunk_bytes_for(plan, true, 4096), 4096u);
  EXPECT_EQ(chunk_bytes_for(plan, true, 1u << 20), chunk_bytes_of_reduce);
  const CollectiveRequest of_doubles = asked;
  for (const std::size_t element_bytes : {chunk_bytes_of_reduce, chunk_bytes_of_reduce + 1}) {
    asked.reduction.element_bytes = static_cast<std::uint32_t>(element_bytes);
    asked.element_count = (8u << 20) / chunk_bytes_of_reduce;
    EXPECT_EQ(taken(1, 2), element_bytes == chunk_bytes_of_reduce);
    EXPECT_EQ(taken(1, 8, true), element_bytes == chunk_bytes_of_reduce);
  }
  asked = of_doubles;
  for (const auto change :
       {+[](CollectiveRequest& one) { one.tree = Tree::knomial; },
        +[](CollectiveRequest& one) { one.participant_count = 1; },
        +[](CollectiveRequest& one) { one.per_round_by_default = {2}; },
        +[](CollectiveRequest& one) { one.agreement = Agreement::reproducible; },
        +[](CollectiveRequest& one) { one.reduction.properties.commutative = false; }}) {
    const CollectiveRequest before = asked;
    change(asked);
    EXPECT_FALSE(may_be_zero_copy(asked, {.rank_count = 2, .node_of = nodes_of(1, 2)}));
    asked = before;
  }
}

TEST(Selection, a_reduce_in_segments_over_nodes_needs_a_cache_and_two_ranks_of_each_node) {
  CollectiveRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.collective = Collective::reduce;
  asked.root = Rank{0};
  asked.element_count = (1u << 20) / 8;
  const auto taken = [&](std::vector<Node> node_of, bool caches_are_apart = false) {
    const Topology topology{.rank_count = static_cast<std::uint32_t>(node_of.size()),
                            .node_of = std::move(node_of),
                            .shares_cpus = true,
                            .caches_are_apart = caches_are_apart};
    const bool is_taken = may_be_zero_copy(asked, topology);
    EXPECT_EQ(why_copied_from_segments({asked, topology, fdr}).empty(),
              is_taken || !caches_are_apart);
    return is_taken;
  };
  EXPECT_TRUE(taken(nodes_of(2, 2)));
  EXPECT_FALSE(taken(nodes_of(2, 2), true));
  EXPECT_TRUE(taken(nodes_of(1, 4), true)) << "in a single node caches were not seen to matter";
  EXPECT_TRUE(taken({Node{0}, Node{0}, Node{1}, Node{1}, Node{1}}));
  EXPECT_FALSE(taken({Node{0}, Node{0}, Node{1}}));
  // Two lanes of 16 pieces of elements of 64 KiB.
  asked.reduction.element_bytes = 64u << 10;
  asked.element_count = 31;
  EXPECT_FALSE(taken(nodes_of(2, 2)));
  asked.element_count = 32;
  EXPECT_TRUE(taken(nodes_of(2, 2)));
}

/// A piece is one message of whole elements.
TEST(Selection, zero_copy_is_not_taken_where_a_piece_would_be_longer_than_a_message) {
  const auto may_be = [](Collective collective, std::size_t count, std::size_t element_bytes) {
    return may_be_zero_copy(
        {.collective = collective,
         .element_count = count,
         .reduction = {.element_bytes = static_cast<std::uint32_t>(element_bytes)}},
        {.rank_count = 4, .node_of = nodes_of(2, 2)});
  };
  EXPECT_TRUE(may_be(Collective::broadcast, 5'592'400, 24));
  EXPECT_FALSE(may_be(Collective::broadcast, 5'592'405, 24));
  EXPECT_FALSE(may_be(Collective::broadcast, 44'739'242, 3));
  EXPECT_FALSE(may_be(Collective::broadcast, 42, 3u << 20));
  EXPECT_FALSE(may_be(Collective::broadcast, 1, 9u << 20));
  EXPECT_TRUE(may_be(Collective::allgather, 16, 3u << 20));
  EXPECT_FALSE(may_be(Collective::allgather, 20, 3u << 20));
}

TEST(Selection, registers_of_lanes_in_turns_keep_to_their_budget) {
  for (const auto& [node_count, ranks_per_node, bytes] :
       {std::tuple{128u, 16u, 4u << 20}, std::tuple{64u, 32u, 8u << 20},
        std::tuple{32u, 128u, 8u << 20}, std::tuple{16u, 8u, 1u << 20}}) {
    const std::vector<Node> nodes = nodes_of(node_count, ranks_per_node);
    Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
    asked.element_count = bytes / sizeof(double);
    asked.node_of = nodes;
    const plan::Plan plan =
        allreduce_plan(Rank{0}, static_cast<std::uint32_t>(nodes.size()), asked);
    const std::size_t chunk = chunk_bytes_for(plan, true);
    const std::size_t payloads = payloads_of_registers(plan, plan.partials_max);
    const std::size_t registers = std::size_t{plan.slot_count} + plan.partials_max;
    if (plan.algorithm == "lanes/turns") {
      EXPECT_LE(2 * (payloads * chunk + registers * 2 * 64), plan_registers_bytes) << nodes.size();
    }
    if (nodes.size() == 128) {
      EXPECT_EQ(plan.algorithm, "lanes/turns");
    }
  }
}

TEST(Selection, zero_copy_plans_have_no_registers_and_one_chunk) {
  for (const Collective collective : {Collective::broadcast, Collective::allgather})
    for (const std::uint32_t node_count : {2u, 4u, 9u})
      for (const std::uint32_t ranks_per_node : {1u, 3u, 20u})
        for (const std::size_t bytes : {64u << 10, 1u << 20, 64u << 20}) {
          const std::vector<Node> nodes = nodes_of(node_count, ranks_per_node);
          const CollectiveRequest asked{.collective = collective,
                                        .element_count = bytes,
                                        .reduction = {.element_bytes = 1},
                                        .root = Rank{0},
                                        .zero_copy = true};
          const plan::Plan plan = plan_for(
              asked, {.rank_count = static_cast<std::uint32_t>(nodes.size()), .node_of = nodes},
              Rank{0}, fdr);
          EXPECT_TRUE(plan.algorithm.ends_with("_zero_copy")) << plan.algorithm;
          EXPECT_TRUE(has_no_registers(plan));
          const std::size_t part = chunk_bytes_for(plan, ranks_per_node > 1);
          EXPECT_EQ(chunk_bytes_for(plan, ranks_per_node > 1, 4096), part) << "asked for chunks";
          const bool is_broadcast = collective == Collective::broadcast;
          const std::size_t pieces = is_broadcast ? plan.parts : plan.parts / nodes.size();
          EXPECT_EQ(chunk_count(bytes, 1, pieces, part), 1u);
          EXPECT_LE(plan.incoming_max, 12u);
        }
}

}  // namespace
}  // namespace tutti::tune
