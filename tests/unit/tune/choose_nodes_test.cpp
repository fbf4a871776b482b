// Promise: how nodes enter a schedule, and which ranks are connected for it, follows from the nodes
// where nobody asks for it, and keeps the promise of the collective.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "choosing.hpp"
#include "tune/choose.hpp"

namespace tutti::tune {
namespace {

TEST(Selection, combines_inside_nodes_first_where_that_keeps_the_promise) {
  const std::vector<Node> blocks = nodes_of(3, 4), dealt = nodes_of(3, 4, true);
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.node_of = blocks;
  EXPECT_EQ(taken(asked), "leader/recursive_multiplying");
  asked.node_of = dealt;
  EXPECT_EQ(taken(asked), "leader/recursive_multiplying");
  asked.element_count = 1 << 11;
  EXPECT_EQ(taken(asked), "lanes/chunked_fold");
  asked.agreement = Agreement::relaxed;
  EXPECT_EQ(taken(asked), "lanes/chunked_fold");
  asked.element_count = 1 << 16;
  EXPECT_EQ(taken(asked), "lanes/turns") << "the part of a lane is worth cutting again";
  asked.across = Across::flat;
  EXPECT_EQ(taken(asked), "chunked_fold");
  asked.across = Across::leader;
  asked.per_round = {2};  // three nodes
  EXPECT_EQ(taken(asked), "leader/two_partial_dissemination");
  asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.node_of = blocks;
  asked.per_round = {3, 2};  // covers all ranks
  EXPECT_EQ(taken(asked), "canonical_dissemination");
  asked.per_round = {};
  asked.agreement = Agreement::reproducible;
  EXPECT_EQ(taken(asked).find('/'), std::string::npos);
  Asked ordered = request(BuiltIn::none, ElementType::other, Agreement::relaxed);
  ordered.node_of = blocks;
  EXPECT_EQ(taken(ordered), "leader/two_partial_dissemination");
  ordered.node_of = dealt;
  EXPECT_EQ(taken(ordered), "two_partial_dissemination");
}

TEST(Selection, lanes_are_worth_their_messages) {
  const std::vector<Node> blocks = nodes_of(2, 16);
  Asked asked = request(BuiltIn::sum, ElementType::int64, Agreement::identical);
  asked.node_of = blocks;
  const auto lanes = [&](std::size_t element_count) {
    asked.element_count = element_count;
    const plan::Plan plan = allreduce_plan(Rank{0}, 32, asked);
    return plan.algorithm == "lanes/two_partial_dissemination" ? plan.parts : 1;
  };
  EXPECT_EQ(lanes(1), 1);
  EXPECT_LT(lanes(64), lanes(2048)) << "few lanes have fewer messages";
  EXPECT_EQ(lanes(2048), 16);
  // Where ranks share CPUs, by a rule: with 512 bytes a lane none, with 1 KiB all.
  const Topology shared{.rank_count = 32, .node_of = blocks, .shares_cpus = true};
  const auto name = [&] { return plan_for(asked, shared, Rank{0}, fdr).algorithm; };
  asked.element_count = 512;
  EXPECT_EQ(name(), "leader/two_partial_dissemination");
  asked.element_count = 1024;
  EXPECT_EQ(name(), "two_partial_dissemination");
  asked.element_count = 2048;
  EXPECT_EQ(name(), "lanes/two_partial_dissemination");
  // A node of one rank leaves one lane.
  std::vector<Node> uneven = blocks;
  uneven.push_back(Node{2});
  asked.node_of = uneven;
  EXPECT_EQ(taken(asked, 33), "leader/chunked_fold");
  asked.element_count = 1;
  EXPECT_EQ(taken(asked, 33).find("lanes"), std::string::npos);
  // No lane without an element.
  asked.node_of = blocks;
  asked.element_count = 3;
  asked.across = Across::lanes;
  EXPECT_EQ(allreduce_plan(Rank{0}, 32, asked).parts, 3);
}

TEST(Selection, ranks_of_a_node_that_share_cpus_wait_for_few_turns) {
  CollectiveRequest asked{
      .collective = Collective::allreduce,
      .reduction = {.element_bytes = 1, .properties = {.commutative = true, .exact = true}}};
  const auto chosen = [&](std::uint32_t ranks, bool shares_cpus, std::size_t bytes) {
    asked.element_count = bytes;
    const Topology topology{
        .rank_count = ranks, .node_of = nodes_of(1, ranks), .shares_cpus = shares_cpus};
    return plan_for(asked, topology, Rank{0}, fdr);
  };
  EXPECT_EQ(chosen(8, true, 8).per_round, plan::PerRound{7});
  EXPECT_EQ(chosen(8, true, 4096).per_round, plan::PerRound{7});
  EXPECT_GT(chosen(8, false, 4096).per_round.size(), 1u);
  EXPECT_TRUE(chosen(8, false, 8192).algorithm.starts_with("lanes/"));
  EXPECT_FALSE(chosen(8, true, 16383).algorithm.starts_with("lanes/"));
  EXPECT_TRUE(chosen(8, true, 16384).algorithm.starts_with("lanes/"));

  asked.collective = Collective::reduce;
  asked.root = Rank{0};
  EXPECT_EQ(chosen(8, true, 8).algorithm, "flat_tree");
  EXPECT_EQ(chosen(8, true, 16384).algorithm, "flat_tree");
  EXPECT_EQ(chosen(8, true, 16385).algorithm, "binomial_tree");
  EXPECT_EQ(chosen(3, true, 8).algorithm, "binomial_tree");
  EXPECT_EQ(chosen(17, true, 8).algorithm, "binomial_tree");
  EXPECT_NE(chosen(8, false, 8).algorithm, "flat_tree");
}

TEST(Selection, refuses_nodes_of_more_ranks_than_are_slots) {
  const std::vector<Node> large = nodes_of(2, 20'000);
  Asked asked = request(BuiltIn::sum, ElementType::int64, Agreement::identical);
  asked.node_of = large;
  EXPECT_EQ(taken(asked, 40'000), "two_partial_dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 40'000, {.node_of = large}).algorithm, "dissemination");
  asked.across = Across::leader;
  expect_refused(ErrorCode::unsupported, [&] { (void)taken(asked, 40'000); },
                 {"across leader", "16384", "use flat"});
  expect_refused(
      ErrorCode::unsupported,
      [&] { (void)barrier_plan(Rank{0}, 40'000, {.across = Across::leader, .node_of = large}); },
      {"barrier", "across leader", "16384"});
  asked.across = Across{9};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked, 40'000); }, {"across 9"});
  expect_refused(ErrorCode::invalid_argument,
                 [] { (void)barrier_plan(Rank{0}, 4, {.across = Across{9}}); }, {"across 9"});
}

TEST(Selection, a_single_node_has_lanes_for_large_payloads_and_no_leader) {
  const std::vector<Node> eight = nodes_of(1, 8);
  Asked asked = request(BuiltIn::sum, ElementType::int64, Agreement::identical);
  asked.node_of = eight;
  EXPECT_EQ(taken(asked, 8), "two_partial_dissemination");
  asked.element_count = 1 << 14;
  EXPECT_EQ(taken(asked, 8), "lanes/two_partial_dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.node_of = eight}).algorithm, "dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.across = Across::leader, .node_of = eight}).algorithm,
            "leader/dissemination");
  const std::vector<Node> two = nodes_of(2, 4);
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.node_of = two}).algorithm, "leader/dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.across = Across::flat, .node_of = two}).algorithm,
            "dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.per_round = {7}, .node_of = two}).algorithm,
            "dissemination");
}

TEST(Selection, domains_meet_first_in_barriers_and_small_allreduces) {
  const std::vector<Node> node = nodes_of(1, 8), two = nodes_of(2, 4), domains = nodes_of(4, 2);
  const auto barrier = [](const BarrierAsked& asked) {
    return barrier_plan(Rank{0}, 8, asked).algorithm;
  };
  EXPECT_EQ(barrier({.node_of = node, .domain_of = domains}), "domains/dissemination");
  EXPECT_EQ(barrier({.node_of = two, .domain_of = domains}), "domains/leader/dissemination");
  EXPECT_EQ(barrier({.node_of = two, .domain_of = two}), "leader/dissemination") << "undivided";
  EXPECT_EQ(barrier({.node_of = node, .domain_of = node}), "dissemination");
  EXPECT_EQ(barrier({.across = Across::flat, .node_of = node, .domain_of = domains}),
            "dissemination");
  EXPECT_EQ(barrier({.across = Across::leader, .node_of = two, .domain_of = domains}),
            "leader/dissemination");
  EXPECT_EQ(barrier({.per_round = {7}, .node_of = node, .domain_of = domains}), "dissemination");
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.node_of = node;
  asked.domain_of = domains;
  EXPECT_EQ(taken(asked, 8), "domains/recursive_multiplying");
  asked.reads_in_place = true;
  asked.domain_of = two;
  EXPECT_EQ(taken(asked, 8), "domains/recursive_multiplying") << "two domains are not two ranks";
  asked.reads_in_place = false;
  asked.domain_of = domains;
  asked.node_of = two;
  EXPECT_EQ(taken(asked, 8), "domains/leader/recursive_multiplying");
  asked.element_count = 1 << 16;
  EXPECT_EQ(taken(asked, 8), "lanes/turns") << "large";
  asked.element_count = 1;
  asked.agreement = Agreement::reproducible;
  EXPECT_EQ(taken(asked, 8).find('/'), std::string::npos) << "bits depend on no shape";
  // In rank order only where the ranks of a domain follow each other.
  const std::vector<Node> dealt = nodes_of(4, 2, true);
  asked = request(BuiltIn::none, ElementType::other, Agreement::identical);
  asked.node_of = node;
  asked.domain_of = dealt;
  EXPECT_EQ(taken(asked, 8).find("domains"), std::string::npos);
  asked.domain_of = domains;
  EXPECT_EQ(taken(asked, 8), "domains/recursive_multiplying");
}

TEST(Selection, trees_over_nodes_are_fibonacci_unless_messages_per_round_are_given) {
  const auto broadcast = [](BroadcastAsked asked) {
    asked.bytes = asked.bytes == 0 ? 1024 : asked.bytes;
    return broadcast_plan(Rank{0}, 24, asked).algorithm;
  };
  const std::vector<Node> two = nodes_of(12, 2), one = nodes_of(1, 24);
  EXPECT_EQ(broadcast({}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.node_of = two}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.bytes = 256}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.bytes = 8, .tree = Tree::fibonacci}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.per_round_by_default = {4, 4}}), "knomial_tree");
  EXPECT_EQ(broadcast({.tree = Tree::knomial}), "knomial_tree");
  EXPECT_EQ(broadcast({.node_of = one}), "binomial_tree") << "more than a flat one is for";
  EXPECT_EQ(broadcast({.node_of = one, .tree = Tree::fibonacci}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.node_of = two, .tree = Tree::binomial}), "binomial_tree");
  EXPECT_EQ(broadcast({.node_of = one, .reads_in_place = true}), "single_copy");
  EXPECT_EQ(broadcast({.node_of = one, .reads_in_place = true, .tree = Tree::fibonacci}),
            "fibonacci_tree");
  // Larger payloads keep a port busy for longer: fewer messages fit into the time of one.
  const auto children_of_root = [](std::size_t bytes) {
    return broadcast_plan(Rank{0}, 64, {.bytes = bytes, .tree = Tree::fibonacci}).per_round[0];
  };
  EXPECT_GT(children_of_root(8), children_of_root(2048));
  EXPECT_GT(children_of_root(2048), children_of_root(65'536));
  EXPECT_EQ(children_of_root(SIZE_MAX), 6u) << "binomial";
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::reproducible);
  asked.collective = Collective::reduce;
  asked.root = Rank{0};
  const auto reduce = [&] { return allreduce_plan(Rank{0}, 24, asked).algorithm; };
  EXPECT_EQ(reduce(), "binomial_tree") << "the canonical one";
  asked.tree = Tree::knomial;
  expect_refused(ErrorCode::unsupported, [&] { (void)reduce(); },
                 {"tree knomial", "reproducible", "use automatic or binomial"});
  asked.agreement = Agreement::identical;
  EXPECT_EQ(reduce(), "knomial_tree");
  asked.tree = Tree::automatic;
  EXPECT_EQ(reduce(), "fibonacci_tree");
  asked.tree = Tree{77};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)reduce(); }, {"tree 77", "tutti::Tree"});
}

/// The explained tree is the one that is built, and its name has no latency of the network.
TEST(Selection, the_tree_of_a_single_node_is_built_as_it_is_explained) {
  for (const Collective collective : {Collective::broadcast, Collective::reduce})
    for (const std::uint32_t ranks : {2u, 5u, 16u, 17u, 64u})
      for (const std::size_t bytes : {8u, 1024u, 1u << 17})
        for (const Tree tree : {Tree::automatic, Tree::fibonacci}) {
          const CollectiveRequest asked{
              .collective = collective,
              .element_count = bytes / 8,
              .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
              .root = Rank{0},
              .tree = tree};
          const Topology topology{.rank_count = ranks, .node_of = nodes_of(1, ranks)};
          const Choice choice = choose(asked, topology, fdr);
          const std::string text = choice.name() + ": " + choice.explanation();
          const plan::Plan plan = choice.plan(Rank{0});
          if (tree == Tree::fibonacci) {
            EXPECT_EQ(plan.algorithm.substr(0, 9), choice.name().substr(0, 9)) << text;
            EXPECT_NE(text.find(" of latency "), std::string::npos) << text;
          } else if (collective == Collective::broadcast && ranks <= 16) {
            EXPECT_EQ(choice.name(), "knomial_tree with " + std::to_string(ranks - 1) + " a round");
            EXPECT_EQ(plan.per_round, plan::PerRound{plan.parts * (ranks - 1)}) << text;
          } else {
            EXPECT_EQ(choice.name(), "binomial_tree");
            EXPECT_EQ(plan.algorithm, "binomial_tree") << text;
          }
          EXPECT_EQ(text.find("0.000 us"), std::string::npos) << text;
          plan::Network slow = fdr;
          slow.between.latency *= 8;
          EXPECT_EQ(choose(asked, topology, slow).name(), choice.name());
          CollectiveRequest again = asked;
          again.only = choice.name();
          EXPECT_EQ(choose(again, topology, fdr).plan(Rank{0}).per_round, plan.per_round) << text;
        }
}

TEST(Selection, a_root_is_not_connected_with_many_ranks_of_other_nodes) {
  const auto taken = [](std::uint32_t count, std::uint32_t size, std::size_t bytes,
                        plan::Transport transport = plan::Transport::copied) {
    const std::vector<Node> nodes = nodes_of(count, size);
    BlocksAsked asked{.collective = Collective::gather,
                      .bytes = bytes,
                      .node_of = nodes,
                      .transport = transport,
                      .root = Rank{1}};
    const std::string gather = blocks_plan(Rank{0}, count * size, asked).algorithm;
    asked.collective = Collective::scatter;
    const std::string scatter = blocks_plan(Rank{0}, count * size, asked).algorithm;
    EXPECT_EQ(gather.substr(0, gather.find("gather")), scatter.substr(0, scatter.find("scatter")));
    return gather;
  };
  EXPECT_EQ(taken(32, 1, 8), "direct");
  EXPECT_EQ(taken(33, 1, 8), "tree_gather");
  EXPECT_EQ(taken(33, 1, 1u << 20), "tree_gather");
  EXPECT_EQ(taken(1, 100, 5000), "direct");  // of its node it is connected with none
  EXPECT_EQ(taken(1, 100, 5000, plan::Transport::by_reference), "single_copy");
  EXPECT_EQ(taken(2, 31, 5000), "direct");
  EXPECT_EQ(taken(2, 32, 5000), "tree_gather");
  EXPECT_EQ(taken(2, 32, 8), "node_gather");
  EXPECT_EQ(taken(32, 8, 8), "node_gather");
  EXPECT_EQ(taken(33, 8, 8), "tree_gather");
  const BlocksAsked nodes_of_one{.collective = Collective::gather, .bytes = 8, .root = Rank{39}};
  EXPECT_EQ(blocks_plan(Rank{0}, 40, nodes_of_one).algorithm, "tree_gather");
  EXPECT_EQ(
      blocks_plan(Rank{0}, 32, {.collective = Collective::scatter, .root = Rank{3}}).algorithm,
      "direct");
}

TEST(Selection, broadcasts_and_reduces_of_many_ranks_go_in_lanes_unless_ranks_share_cpus) {
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    CollectiveRequest asked{.collective = collective,
                            .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
                            .root = Rank{0}};
    Topology topology{.rank_count = 32, .node_of = nodes_of(8, 4)};
    const auto name = [&] { return plan_for(asked, topology, Rank{0}, fdr).algorithm; };
    const auto is_in_lanes = [&](std::size_t elements) {
      asked.element_count = elements;
      return name().starts_with("lanes/");
    };
    EXPECT_FALSE(is_in_lanes(1));
    EXPECT_TRUE(is_in_lanes(4096));
    EXPECT_EQ(name(), "lanes/pipelined_chain");
    EXPECT_TRUE(is_in_lanes(1u << 20));
    EXPECT_EQ(name(), "lanes/pipelined_chain");
    asked.tree = Tree::fibonacci;
    EXPECT_EQ(name(), "fibonacci_tree");
    asked.tree = Tree::automatic;
    topology.shares_cpus = true;
    EXPECT_EQ(name(), "pipelined_chain");
  }
}

TEST(Selection, small_blocks_of_an_alltoall_go_together_where_that_saves_messages) {
  const auto taken = [](const std::vector<Node>& nodes, std::size_t bytes,
                        plan::Transport transport = plan::Transport::copied, Rank self = Rank{0}) {
    return blocks_plan(self, static_cast<std::uint32_t>(nodes.size()),
                       {.bytes = bytes, .node_of = nodes, .transport = transport})
        .algorithm;
  };
  for (const std::size_t bytes : {0u, 1u, 8u, 256u})
    EXPECT_EQ(taken(nodes_of(16, 4), bytes), "node_alltoall") << bytes;
  EXPECT_EQ(taken(nodes_of(16, 4), 1025), "direct");
  EXPECT_EQ(taken(nodes_of(16, 4), 8, plan::Transport::by_reference), "single_copy");
  // There are enough messages to save, for what is copied more.
  EXPECT_EQ(taken(nodes_of(4, 2), 8), "node_alltoall");
  const Topology shared{.rank_count = 8, .node_of = nodes_of(4, 2), .shares_cpus = true};
  EXPECT_EQ(plan_for({.collective = Collective::alltoall,
                      .element_count = 8,
                      .reduction = {.element_bytes = 1}},
                     shared, Rank{0}, fdr)
                .algorithm,
            "direct")
      << "where ranks share CPUs, each stage waits longer";
  EXPECT_EQ(taken(nodes_of(3, 3), 8), "node_alltoall");
  EXPECT_EQ(taken(nodes_of(3, 3), 512), "direct");
  EXPECT_EQ(taken(nodes_of(1, 16), 8), "direct");
  EXPECT_EQ(taken(nodes_of(8, 1), 8), "direct");
  // The registers may have 2^21 bytes, for two copies of slots and as many partials.
  EXPECT_EQ(taken(nodes_of(8, 8), 274), "node_alltoall");
  EXPECT_EQ(taken(nodes_of(4, 32), 32), "node_alltoall");
  EXPECT_EQ(taken(nodes_of(4, 32), 33), "direct");
  EXPECT_EQ(taken(nodes_of(2, 300), 1), "direct");
  // All ranks choose alike.
  const std::vector<Node> uneven = nodes_of({5, 1, 4, 2});
  for (std::uint32_t rank = 0; rank < uneven.size(); ++rank)
    EXPECT_EQ(taken(uneven, 8, plan::Transport::copied, Rank{rank}), "node_alltoall") << rank;
}

TEST(Selection, what_is_chosen_across_nodes_connects_no_rank_with_too_many) {
  for (const std::uint32_t nodes : {3u, 5u, 7u, 9u, 12u, 17u, 24u, 31u})
    for (const std::uint32_t partners_max : {3u, 5u, 6u, 8u})
      for (const std::size_t elements : {512u, 8192u, 131072u}) {
        CollectiveRequest asked{.element_count = elements,
                                .reduction = built_in_reduction(BuiltIn::sum, ElementType::int64),
                                .partners_max = partners_max};
        const Topology topology{.rank_count = 2 * nodes, .node_of = nodes_of(nodes, 2)};
        const Choice choice = choose(asked, topology, fdr);
        if (choice.variant().across == nullptr || choice.variant().across->plan(Rank{0}).parts == 1)
          continue;  // schedules of whole payloads connect as many as their rounds have messages
        for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank) {
          std::set<Rank> partners;
          for (const plan::Step& step : choice.plan(Rank{rank}).steps)
            if (step.peer != no_rank &&
                topology.node_of[index_of(step.peer)] != topology.node_of[rank])
              partners.insert(step.peer);
          EXPECT_LE(partners.size(), partners_max)
              << choice.explanation() << "\nrank " << rank << " of " << topology.rank_count;
        }
      }
}

TEST(Selection, small_blocks_of_an_alltoall_go_through_other_ranks_where_none_share_a_node) {
  const auto taken = [](std::uint32_t ranks, std::size_t bytes,
                        plan::Transport transport = plan::Transport::copied) {
    return blocks_plan(Rank{0}, ranks, {.bytes = bytes, .transport = transport}).algorithm;
  };
  for (const std::uint32_t ranks : {1u, 2u, 3u, 4u, 8u, 15u}) EXPECT_EQ(taken(ranks, 8), "direct");
  for (const std::uint32_t ranks : {16u, 20u, 64u, 96u, 256u}) {
    EXPECT_EQ(taken(ranks, 8), "bruck_alltoall") << ranks;
    EXPECT_EQ(taken(ranks, 1025), "direct") << ranks;
    EXPECT_EQ(taken(ranks, 8, plan::Transport::by_reference), "single_copy") << ranks;
  }
}

}  // namespace
}  // namespace tutti::tune
