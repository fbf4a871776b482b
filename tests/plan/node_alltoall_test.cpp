// Promise: alltoalls in which the blocks of a node go together are right for every shape of nodes;
// two copies of their slots suffice; from one node to another there is one message, and the ranks
// of a node share this work.
#include "plan/blocks/node_alltoall.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "happens_before.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;
using tutti::test::in_blocks;
using tutti::test::NodeOf;

std::vector<Plan> plans_of(const NodeOf& node_of) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < node_of.size(); ++rank)
    plans.push_back(node_alltoall(Rank{rank}, node_of));
  return plans;
}

std::string violation_of(const std::vector<Plan>& plans) {
  return first_violation(plans, Promise::gather).value_or("none");
}

/// Every shape of few ranks, and some of many.
template <class F>
void for_shapes(F&& f) {
  for (std::uint32_t ranks = 2; ranks <= 8; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks))
      if (sizes.size() > 1) f(in_blocks(sizes));
  std::mt19937 random(7);
  for (int sample = 0; sample < test::samples(60); ++sample) {
    const std::uint32_t ranks = 3 + static_cast<std::uint32_t>(random()) % 58;
    const std::uint32_t nodes = 2 + static_cast<std::uint32_t>(random()) % (ranks - 1);
    const NodeOf node_of = tutti::test::placed(ranks, nodes, sample % 2 == 0, random);
    if (node_count_of(node_of, ranks) > 1) f(node_of);
  }
}

bool crosses(const NodeOf& node_of, const Plan& plan, const Step& step) {
  return step.peer != no_rank && node_of[index_of(step.peer)] != node_of[index_of(plan.self)];
}

TEST(NodeAlltoall, is_right_for_every_shape) {
  for_shapes([](const NodeOf& node_of) {
    ASSERT_TRUE(is_node_alltoall(node_of));
    EXPECT_EQ(violation_of(plans_of(node_of)), "none") << tutti::test::text_of(node_of);
  });
}

TEST(NodeAlltoall, two_copies_suffice_and_one_does_not) {
  for (std::uint32_t ranks = 2; ranks <= 6; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks))
      if (sizes.size() > 1) {
        const std::vector<Plan> plans = plans_of(in_blocks(sizes));
        EXPECT_EQ(HappensBefore(plans, 6, 2).race(), std::nullopt)
            << tutti::test::text_of(in_blocks(sizes));
        EXPECT_NE(HappensBefore(plans, 6, 1).race(), std::nullopt)
            << tutti::test::text_of(in_blocks(sizes));
      }
  std::mt19937 random(8);
  for (int sample = 0; sample < test::samples(20); ++sample) {
    const NodeOf node_of = tutti::test::placed(7, 4, sample % 2 == 0, random);
    if (node_count_of(node_of, 7) == 1) continue;
    EXPECT_EQ(HappensBefore(plans_of(node_of), 6, 2).race(), std::nullopt)
        << tutti::test::text_of(node_of);
  }
}

TEST(NodeAlltoall, from_one_node_to_another_is_one_message) {
  for_shapes([](const NodeOf& node_of) {
    std::map<std::pair<Node, Node>, int> messages;
    for (const Plan& plan : plans_of(node_of))
      for (const Step& step : plan.steps)
        if (step.action == Action::put && crosses(node_of, plan, step))
          ++messages[{node_of[index_of(plan.self)], node_of[index_of(step.peer)]}];
    const std::size_t nodes = node_count_of(node_of, 0);
    EXPECT_EQ(messages.size(), nodes * (nodes - 1)) << tutti::test::text_of(node_of);
    for (const auto& [pair, count] : messages) EXPECT_EQ(count, 1) << tutti::test::text_of(node_of);
  });
}

/// The ranks of other nodes to which a plan sends.
std::set<Rank> partners_of(const NodeOf& node_of, const Plan& plan) {
  std::set<Rank> partners;
  for (const Step& step : plan.steps)
    if (crosses(node_of, plan, step)) partners.insert(step.peer);
  return partners;
}

TEST(NodeAlltoall, the_ranks_of_a_node_share_the_others) {
  for_shapes([](const NodeOf& node_of) {
    const auto nodes = members_of_nodes(static_cast<std::uint32_t>(node_of.size()), node_of);
    for (const Plan& plan : plans_of(node_of)) {
      const std::size_t members = nodes[index_of(node_of[index_of(plan.self)])].size();
      const std::size_t partners = partners_of(node_of, plan).size();
      EXPECT_GE(partners, (nodes.size() - 1) / members) << tutti::test::text_of(node_of);
      EXPECT_LE(partners, (nodes.size() - 1 + members - 1) / members)
          << tutti::test::text_of(node_of);
    }
  });
  const NodeOf even = in_blocks(std::vector<std::uint32_t>(9, 4));
  for (const Plan& plan : plans_of(even)) EXPECT_EQ(partners_of(even, plan).size(), 2u);
}

TEST(NodeAlltoall, tells_what_its_slots_hold) {
  for_shapes([](const NodeOf& node_of) {
    for (const Plan& plan : plans_of(node_of)) {
      EXPECT_EQ(std::uint64_t{plan.slot_count} * plan.payloads, node_alltoall_payloads(node_of));
      EXPECT_LE(plan.partial_count, plan.slot_count) << tutti::test::text_of(node_of);
    }
  });
  EXPECT_FALSE(is_node_alltoall(in_blocks({4})));
  EXPECT_FALSE(is_node_alltoall(in_blocks({256, 256})));  // 65536 payloads
  EXPECT_TRUE(is_node_alltoall(in_blocks({255, 256})));
}

// ---- What the verifier refuses ------------------------------------------------------------------

/// Four ranks of each of three nodes, with `spoil(step)` done to the first step of rank 1 for which
/// it says so.
template <class F>
std::string violation_when(F&& spoil) {
  std::vector<Plan> plans = plans_of(in_blocks({4, 4, 4}));
  for (Step& step : plans[1].steps)
    if (spoil(step)) return violation_of(plans);
  return "none: nothing to spoil";
}

std::uint16_t after(std::uint16_t number) {
  return static_cast<std::uint16_t>(number + 1);
}

TEST(NodeAlltoall, a_block_in_anothers_place_is_seen) {
  for (const Place from : {Place::source, Place::slot})
    for (const Place into : {Place::target, Place::partial}) {
      const auto is_such = [&](const Step& step) {
        return step.action == Action::copy && step.from.place == from && step.into.place == into &&
               step.round == (into == Place::target && from == Place::slot ? 2u : 0u);
      };
      EXPECT_EQ(violation_when([&](Step& step) {
                  if (!is_such(step)) return false;
                  if (from == Place::source)
                    step.part = static_cast<std::uint16_t>((step.part + 1) % 12);
                  else
                    step.from.payload = after(step.from.payload);
                  return true;
                }).find("none"),
                std::string::npos)
          << static_cast<int>(from) << " " << static_cast<int>(into);
    }
}

TEST(NodeAlltoall, blocks_of_two_senders_that_change_places_are_seen) {
  // The blocks of two members for one rank change places when they are put together; their lengths
  // and their receiver are alike.
  std::vector<Plan> plans = plans_of(in_blocks({4, 4, 4}));
  std::vector<Step*> together;
  for (Step& step : plans[0].steps)
    if (step.action == Action::copy && step.payloads == 4) together.push_back(&step);
  ASSERT_EQ(together.size(), 3u);
  std::swap(together[0]->into, together[1]->into);
  EXPECT_NE(violation_of(plans).find("does not hold the contribution"), std::string::npos)
      << violation_of(plans);
}

TEST(NodeAlltoall, blocks_for_two_ranks_that_change_places_are_seen) {
  // The blocks for two members change places when they are dealt out.
  std::vector<Plan> plans = plans_of(in_blocks({4, 4, 4}));
  std::vector<Step*> dealt;
  for (Step& step : plans[0].steps)
    if (step.action == Action::copy && step.round == 1 && step.into.place == Place::partial)
      dealt.push_back(&step);
  ASSERT_EQ(dealt.size(), 12u);
  std::swap(dealt[0]->into, dealt[1]->into);
  EXPECT_NE(violation_of(plans).find("holds a block for rank"), std::string::npos)
      << violation_of(plans);
  // And of several at once, where a step is about the last.
  plans = plans_of(in_blocks({4, 4, 4}));
  for (Step& step : plans[0].steps)
    if (step.action == Action::copy && step.payloads == 4) {
      step.payloads = 3;
      step.from.payload = after(step.from.payload);
      step.into.payload = after(step.into.payload);
      break;
    }
  EXPECT_NE(violation_of(plans).find("undefined"), std::string::npos) << violation_of(plans);
}

TEST(NodeAlltoall, a_wrong_porter_is_seen) {
  const auto porter = [](const Step& step) {
    return step.action == Action::put && step.round == 1;
  };
  EXPECT_EQ(violation_when([&](Step& step) {
              if (!porter(step)) return false;
              step.peer = Rank{index_of(step.peer) ^ 1};
              return true;
            }).find("none"),
            std::string::npos);
  EXPECT_EQ(violation_when([&](Step& step) {
              if (!porter(step)) return false;
              step.peer = Rank{(index_of(step.peer) + 4) % 12};
              return true;
            }).find("none"),
            std::string::npos);
  EXPECT_EQ(violation_when([&](Step& step) {  // nobody forwards in round 0
              if (step.action != Action::put || step.round != 0) return false;
              step.part = static_cast<std::uint16_t>((step.part + 1) % 4);
              return true;
            })
                .find("none"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::plan
