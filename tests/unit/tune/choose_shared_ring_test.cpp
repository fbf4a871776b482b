// Promise: the shared ring, or half of it, is taken where it costs least and all ranks have room
// for it, or where it is asked for; it is refused where it cannot do what is asked.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "choosing.hpp"
#include "tune/choose.hpp"

namespace tutti::tune {
namespace {

TEST(Selection, the_shared_ring_is_a_flow_and_refuses_what_it_cannot_do) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  const std::vector<Node> nodes = {Node{0}, Node{0}, Node{1}, Node{1}, Node{1}};
  asked.node_of = nodes;
  asked.algorithm = Algorithm::shared_ring;
  EXPECT_TRUE(choose(asked, {.rank_count = 5, .node_of = nodes}, fdr).row().is_flow);
  const auto partners = [&](std::uint32_t rank_count = 5) {
    return allreduce_plan(Rank{0}, rank_count, asked);
  };
  EXPECT_EQ(partners().algorithm, "shared_ring");
  EXPECT_EQ(partners().parts, 6);  // two blocks, of a sub-block for each rank of the larger node
  asked.across = Across::leader;
  expect_refused(ErrorCode::unsupported, [&] { (void)partners(); },
                 {"across leader", "shared_ring", "leave across out"});
  asked.across = Across::flat;
  EXPECT_EQ(partners().algorithm, "shared_ring");
  asked.per_round = {2};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)partners(); },
                 {"per_round 2", "shared_ring", "leave per_round out"});
  asked.per_round = {};
  asked.agreement = Agreement::reproducible;
  expect_refused(ErrorCode::unsupported, [&] { (void)partners(); },
                 {"shared_ring promises no more than identical", "use automatic, canonical"});
  asked.reduction = built_in_reduction(BuiltIn::sum, ElementType::int64);
  EXPECT_EQ(partners().algorithm, "shared_ring");  // integers agree anyway
  asked.reduction = request(BuiltIn::none, ElementType::float64, Agreement::identical).reduction;
  expect_refused(ErrorCode::unsupported, [&] { (void)partners(); },
                 {"shared_ring does not keep rank order", "does not commute"});
  asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.algorithm = Algorithm::shared_ring;
  EXPECT_EQ(partners(16384).parts, 16384);
  expect_refused(ErrorCode::unsupported, [&] { (void)partners(16385); },
                 {"at most 32768", "16385 nodes", "use ring"});
  asked.element_count = 1u << 20;  // 4 sub-blocks are wanted
  EXPECT_EQ(partners(98).parts, 98 * 4);
  EXPECT_EQ(partners(8192).parts, 8192 * 2);
}

/// An allgather or reduce_scatter of 1 MiB in all, of 8 ranks.
CollectiveRequest half_of_a_ring(Collective collective) {
  CollectiveRequest asked{.collective = collective, .algorithm = Algorithm::shared_ring};
  if (collective == Collective::reduce_scatter) {
    asked.reduction = built_in_reduction(BuiltIn::sum, ElementType::float64);
    asked.element_count = (1u << 20) / 8;
  } else {
    asked.reduction.element_bytes = 1;
    asked.element_count = (1u << 20) / 8;
  }
  return asked;
}

constexpr Collective halves[] = {Collective::allgather, Collective::reduce_scatter};

TEST(Selection, either_half_of_the_shared_ring_can_be_asked_for) {
  const std::vector<Node> nodes = {Node{0}, Node{0}, Node{1}, Node{1}, Node{1}, Node{2}};
  for (const Collective collective : halves) {
    CollectiveRequest asked = half_of_a_ring(collective);
    const Choice choice = choose(asked, {.rank_count = 8}, fdr);
    EXPECT_TRUE(choice.row().is_flow);
    EXPECT_EQ(choice.plan(Rank{1}).algorithm, "shared_ring");
    EXPECT_EQ(choice.plan(Rank{1}).parts, 8 * 4);
    EXPECT_EQ(choice.plan(Rank{1}).per_round.size(), 7u);
    EXPECT_NE(choice.explanation().find("chosen: shared_ring, which is asked for"),
              std::string::npos)
        << choice.explanation();
    // No less than the bytes through a port take, and little more.
    const plan::Picoseconds port = fdr.between.per_byte.of((1u << 20) / 8 * 7);
    EXPECT_GT(choice.cost(), port);
    EXPECT_LT(choice.cost(), port * 12 / 10);
    EXPECT_EQ(choose(asked, {.rank_count = 6, .node_of = nodes}, fdr).plan(Rank{1}).parts, 3 * 4);
    asked.algorithm = Algorithm::ring;
    expect_refused(ErrorCode::unsupported, [&] { (void)choose(asked, {.rank_count = 8}, fdr); },
                   {"algorithm ring is not offered", "automatic or shared_ring"});
    asked.algorithm = static_cast<Algorithm>(99);
    expect_refused(ErrorCode::invalid_argument,
                   [&] { (void)choose(asked, {.rank_count = 8}, fdr); }, {"algorithm 99 is none"});
    asked.algorithm = Algorithm::shared_ring;
    asked.element_count = 0;
    EXPECT_GE(choose(asked, {.rank_count = 8}, fdr).cost(), 0);
    asked.element_count = std::size_t{1} << 58;
    EXPECT_GT(choose(asked, {.rank_count = 8}, fdr).cost(), 0);
    EXPECT_EQ(choose(asked, {.rank_count = 1}, fdr).plan(Rank{0}).steps.size(), 0u);
  }
  CollectiveRequest asked = half_of_a_ring(Collective::allgather);
  asked.shares_target = true;
  expect_refused(ErrorCode::unsupported,
                 [&] { (void)choose(asked, {.rank_count = 6, .node_of = nodes}, fdr); },
                 {"allgather: algorithm shared_ring copies", "have one target"});
  asked = half_of_a_ring(Collective::reduce_scatter);
  asked.agreement = Agreement::reproducible;
  expect_refused(ErrorCode::unsupported, [&] { (void)choose(asked, {.rank_count = 8}, fdr); },
                 {"reduce_scatter: algorithm shared_ring promises no more than identical"});
  asked = half_of_a_ring(Collective::reduce_scatter);
  asked.element_count = 8;
  expect_refused(ErrorCode::unsupported, [&] { (void)choose(asked, {.rank_count = 16384}, fdr); },
                 {"at most 32768", "16384 nodes"});
}

/// Where one rank has everything, it goes through each port once, and a window waits for the last.
TEST(Selection, a_shared_ring_of_differing_blocks_has_the_price_of_all_bytes) {
  CollectiveRequest asked = half_of_a_ring(Collective::allgather);
  asked.element_count = 1u << 20;
  asked.block_bytes.assign(8, 0);
  asked.block_bytes[3] = 1u << 20;
  const plan::Picoseconds port = fdr.between.per_byte.of(1u << 20);
  const plan::Picoseconds price = choose(asked, {.rank_count = 8}, fdr).cost();
  EXPECT_GT(price, port);
  EXPECT_LT(price, port * 18 / 10);
}

TEST(SharedRingUnasked, is_half_of_it_taken_where_it_costs_least_and_all_have_room) {
  for (const Collective collective : halves) {
    CollectiveRequest asked = half_of_a_ring(collective);
    asked.algorithm = Algorithm::automatic;
    const Topology eight{.rank_count = 8};
    const auto why = [&](const char* words) {
      const std::string text = choose(asked, eight, fdr).explanation();
      EXPECT_NE(text.find(words), std::string::npos) << text << "\n does not say: " << words;
    };
    why("not shared_ring: it takes ");
    why("no rank has told whether it has them");
    asked.ring_room = RingRoom::there;
    const Choice choice = choose(asked, eight, fdr);
    const plan::Picoseconds other = [&] {
      CollectiveRequest without = asked;
      without.ring_room = RingRoom::not_told;
      return choose(without, eight, fdr).cost();
    }();
    EXPECT_EQ(choice.row().is_flow, choice.cost() < other);
    asked.ring_room = RingRoom::not_told;
    EXPECT_EQ(depends_on_ring_room(asked, eight, Knowledge()), choice.row().is_flow);
    asked.element_count = 100;
    why("not shared_ring: the payload is small");
    EXPECT_FALSE(depends_on_ring_room(asked, eight, Knowledge()));
  }
}

/// The costs of a call along the ring, where there is room, and otherwise; and whether it is taken.
struct Both {
  plan::Picoseconds ring, other;
  bool is_ring_taken;
};
Both both_of(CollectiveRequest asked, const Topology& topology, const plan::Network& network) {
  asked.algorithm = Algorithm::automatic;
  asked.ring_room = RingRoom::not_told;
  const plan::Picoseconds other = choose(asked, topology, network).cost();
  asked.ring_room = RingRoom::there;
  const bool is_taken = choose(asked, topology, network).row().is_flow;
  asked.only = "shared_ring";
  return {choose(asked, topology, network).cost(), other, is_taken};
}

/// On nodes of several ranks it must be a fifth cheaper, because its price is less exact there.
TEST(SharedRingUnasked, is_taken_wherever_it_is_cheaper) {
  std::printf(
      "          ranks a node    1     2     4     8    32: cells of 40 that take the ring\n");
  int taken_on_large_nodes = 0;
  for (const char* preset : {"fdr", "hdr"}) {
    const plan::Network network = machine_preset(preset).network();
    for (const Collective collective :
         {Collective::allreduce, Collective::reduce_scatter, Collective::allgather}) {
      std::printf("%s %-14s   ", preset, name_of(collective));
      for (const std::uint32_t ranks_per_node : {1u, 2u, 4u, 8u, 32u}) {
        int taken = 0;
        for (const std::uint32_t nodes : {3u, 4u, 8u, 16u, 32u})
          for (std::size_t bytes = 64u << 10; bytes <= 8u << 20; bytes *= 2) {
            const std::uint32_t ranks = nodes * ranks_per_node;
            CollectiveRequest asked{
                .collective = collective,
                .element_count = collective == Collective::allgather
                                     ? (bytes / 8 + ranks - 1) / ranks
                                     : bytes / 8,
                .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)};
            const Topology topology{.rank_count = ranks,
                                    .node_of = nodes_of(nodes, ranks_per_node)};
            const Both both = both_of(asked, topology, network);
            const bool is_exact = ranks_per_node == 1 && collective != Collective::allgather;
            const plan::Picoseconds weighed = is_exact ? both.ring : both.ring + both.ring / 4;
            EXPECT_EQ(both.is_ring_taken, weighed < both.other)
                << preset << ", " << name_of(collective) << ", " << nodes << " nodes of "
                << ranks_per_node << ", " << bytes << " bytes: " << both.ring << " and "
                << both.other;
            taken += both.is_ring_taken ? 1 : 0;
          }
        std::printf(" %5d", taken);
        if (ranks_per_node == 2) {
          EXPECT_EQ(taken, 0) << "lanes in turns";
        }
        if (ranks_per_node == 32) taken_on_large_nodes += taken;
      }
      std::printf("\n");
    }
  }
  EXPECT_GT(taken_on_large_nodes, 15);
}

/// Lanes of such nodes have no turns.
TEST(SharedRingUnasked, is_taken_on_nodes_of_unequal_size) {
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{32, 16, 32}, {8, 4, 8, 2}, {16, 8}, {3, 1, 2, 4}}) {
    const std::vector<Node> node_of = nodes_of(sizes);
    const Topology topology{.rank_count = static_cast<std::uint32_t>(node_of.size()),
                            .node_of = node_of};
    for (const std::size_t bytes : {64u << 10, 1u << 20}) {
      const Both both =
          both_of({.collective = Collective::allreduce,
                   .element_count = bytes / 8,
                   .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)},
                  topology, fdr);
      EXPECT_TRUE(both.is_ring_taken) << node_of.size() << " ranks, " << bytes
                                      << " bytes: " << both.ring << " and " << both.other;
    }
  }
}

/// An allreduce of 1 MiB, of as many nodes of one rank each.
Asked of_a_ring() {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.element_count = (1u << 20) / 8;
  asked.ring_room = RingRoom::there;
  return asked;
}

TEST(SharedRingUnasked, is_taken_where_it_costs_least_and_all_have_room) {
  for (const std::uint32_t ranks : {3u, 8u, 16u, 32u}) {
    const Choice choice = choose(of_a_ring(), {.rank_count = ranks}, fdr);
    EXPECT_STREQ(choice.row().name, "shared_ring") << ranks;
    Asked told_nothing = of_a_ring();
    told_nothing.ring_room = RingRoom::not_told;
    const Choice otherwise = choose(told_nothing, {.rank_count = ranks}, fdr);
    EXPECT_FALSE(otherwise.row().is_flow) << ranks;
    EXPECT_LT(choice.cost(), otherwise.cost()) << ranks;
    EXPECT_TRUE(depends_on_ring_room(told_nothing, {.rank_count = ranks}, Knowledge())) << ranks;
  }
}

/// What the explanation says why it is not taken; empty: it is.
std::string why_no_ring(const Asked& asked, const Topology& topology) {
  const Choice choice = choose(asked, topology, fdr);
  if (choice.row().is_flow) return "";
  const std::string text = choice.explanation(), begin = "\n  not shared_ring: ";
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return "it costs more";
  return text.substr(at + begin.size(), text.find('\n', at + 1) - at - begin.size());
}

TEST(SharedRingUnasked, says_why_it_is_not_taken) {
  const Topology eight{.rank_count = 8};
  const auto expect = [](const std::string& said, const char* words) {
    EXPECT_NE(said.find(words), std::string::npos) << said << "\n does not say: " << words;
  };
  EXPECT_EQ(why_no_ring(of_a_ring(), eight), "");
  Asked other = of_a_ring();
  other.ring_room = RingRoom::missing;
  expect(why_no_ring(other, eight),
         "bytes of the arena of the first rank of a node, and some rank");
  other.ring_room = RingRoom::not_told;
  expect(why_no_ring(other, eight), "no rank has told");
  other = of_a_ring();
  other.agreement = Agreement::reproducible;
  expect(why_no_ring(other, eight), "promises no more than identical");
  other = of_a_ring();
  other.reduction = request(BuiltIn::none, ElementType::float64, Agreement::identical).reduction;
  expect(why_no_ring(other, eight), "does not keep rank order");
  other = of_a_ring();
  other.element_count = 1000;
  expect(why_no_ring(other, eight), "the payload is small");
  other = of_a_ring();
  other.zero_copy = true;
  expect(why_no_ring(other, eight), "payloads stay in their users' buffers");
  other = of_a_ring();
  other.per_round = {1, 1, 1};
  expect(why_no_ring(other, eight), "messages per round are asked for");
  expect(why_no_ring(of_a_ring(), {.rank_count = 8, .shares_cpus = true}), "ranks share CPUs");
  other = of_a_ring();
  other.across = Across::flat;
  expect(why_no_ring(other, eight), "it is asked how nodes enter");
}

TEST(SharedRingUnasked, nobody_has_to_tell_of_room_where_nothing_depends_on_it) {
  Asked asked = of_a_ring();
  asked.ring_room = RingRoom::not_told;
  EXPECT_TRUE(depends_on_ring_room(asked, {.rank_count = 8}, Knowledge()));
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 8, .shares_cpus = true}, Knowledge()));
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 1}, Knowledge()));
  EXPECT_FALSE(
      depends_on_ring_room(of_a_ring(), {.rank_count = 8}, Knowledge()));  // they have told
  asked.algorithm = Algorithm::shared_ring;
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 8}, Knowledge()));
  asked.algorithm = Algorithm::automatic;
  asked.per_round = {1};  // does not cover 8 ranks, which the choice itself refuses
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 8}, Knowledge()));
  asked.per_round = {};
  asked.element_count = 8;
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 8}, Knowledge()));
}

}  // namespace
}  // namespace tutti::tune
