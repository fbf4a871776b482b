// Promise: reduce-scatters along circulant skips, in which nodes add up first, are right for every
// shape of nodes, and allreduces for every rank count; two copies of their slots suffice; they send
// no block more than they have to, to as few partners as they say, and few at a time.
#include "plan/allreduce/circulant.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;
using tutti::test::NodeOf;

constexpr Skips all_skips[] = {Skips::few, Skips::ones};

const char* text_of(Skips skips) {
  return skips == Skips::few ? ", few" : ", ones";
}

std::vector<Plan> scatters(const NodeOf& node_of, Skips skips) {
  const auto ranks = static_cast<std::uint32_t>(node_of.size());
  const CirculantShape shape{.rank_count = ranks, .node_of = node_of, .skips = skips};
  EXPECT_TRUE(is_circulant_reduce_scatter(shape));
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(circulant_reduce_scatter(Rank{rank}, shape));
  return plans;
}

std::vector<Plan> allreduces(std::uint32_t rank_count) {
  EXPECT_TRUE(is_circulant_allreduce(rank_count));
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(circulant_allreduce(Rank{rank}, rank_count));
  return plans;
}

NodeOf all_apart(std::uint32_t ranks) {
  return tutti::test::in_blocks(std::vector<std::uint32_t>(ranks, 1));
}

bool sends_payload(const Step& step) {
  return step.action == Action::put && step.payloads > 0;
}

std::set<Rank> partners_of(const Plan& plan) {
  std::set<Rank> partners;
  for (const Step& step : plan.steps)
    if (step.peer != no_rank) partners.insert(step.peer);
  return partners;
}

void expect_right(const NodeOf& node_of, Skips skips, std::size_t with_order_up_to = 7) {
  const std::vector<Plan> plans = scatters(node_of, skips);
  EXPECT_EQ(first_violation(plans, Promise::reduce_scatter_any_order), std::nullopt)
      << tutti::test::text_of(node_of) << text_of(skips);
  if (node_of.size() > with_order_up_to || node_of.size() == 1) return;
  EXPECT_EQ(HappensBefore(plans, 4, 2).race(), std::nullopt)
      << tutti::test::text_of(node_of) << text_of(skips);
}

TEST(Circulant, scatters_are_right_for_every_rank_count) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    for (const Skips skips : all_skips) expect_right(all_apart(ranks), skips, 9);
  for (const Skips skips : all_skips) expect_right(all_apart(test::up_to(300)), skips);
}

TEST(Circulant, scatters_are_right_for_every_shape) {
  for (std::uint32_t ranks = 2; ranks <= 9; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks))
      for (const Skips skips : all_skips) expect_right(tutti::test::in_blocks(sizes), skips);
  std::mt19937 random(7);
  for (int sample = 0; sample < test::samples(80); ++sample) {
    const std::uint32_t ranks = 3 + static_cast<std::uint32_t>(random()) % 40;
    const std::uint32_t nodes = 1 + static_cast<std::uint32_t>(random()) % std::min(ranks, 12u);
    expect_right(tutti::test::placed(ranks, nodes, sample % 4 < 2, random), all_skips[sample % 2]);
  }
  expect_right(tutti::test::in_blocks(std::vector<std::uint32_t>(test::up_to(100), 2)), Skips::few);
}

TEST(Circulant, allreduces_give_one_result_for_every_rank_count) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks) {
    const std::vector<Plan> plans = allreduces(ranks);
    EXPECT_EQ(first_violation(plans, Promise::same_result), std::nullopt) << ranks << " ranks";
    if (ranks < 2 || ranks > 9) continue;
    EXPECT_EQ(HappensBefore(plans, 4, 2).race(), std::nullopt) << ranks << " ranks";
    EXPECT_NE(HappensBefore(plans, 4, 1).race(), std::nullopt) << "one copy does not do";
  }
  EXPECT_EQ(first_violation(allreduces(test::up_to(300)), Promise::same_result), std::nullopt);
}

TEST(Circulant, two_copies_do_where_windows_are_answered) {
  constexpr std::uint32_t ranks = 156;  // the first so many
  ASSERT_GT(allreduces(ranks)[0].line_slot_count, 0u);
  ASSERT_EQ(allreduces(ranks - 1)[0].line_slot_count, 0u);
  EXPECT_EQ(HappensBefore(scatters(all_apart(ranks), Skips::few), 3, 2).race(), std::nullopt);
  EXPECT_EQ(HappensBefore(allreduces(ranks), 3, 2).race(), std::nullopt);
}

TEST(Circulant, each_node_sends_a_block_once) {
  for (const Skips skips : all_skips)
    for (const NodeOf& node_of :
         {tutti::test::in_blocks({4, 4, 4, 4, 4, 4, 4}), tutti::test::in_blocks({3, 1, 2, 5})}) {
      std::map<Node, std::size_t> sent;
      for (const Plan& plan : scatters(node_of, skips))
        for (const Step& step : plan.steps) {
          const Node own = node_of[index_of(plan.self)];
          if (sends_payload(step) && node_of[index_of(step.peer)] != own) ++sent[own];
        }
      for (const auto& [node, messages] : sent) {
        const auto own = std::count(node_of.begin(), node_of.end(), node);
        EXPECT_EQ(messages, node_of.size() - static_cast<std::size_t>(own));
      }
    }
}

TEST(Circulant, has_few_partners_and_sends_each_byte_twice_at_most) {
  for (const std::uint32_t ranks : {4u, 5u, 33u, 64u, 100u, 1000u}) {
    const std::size_t skips = std::bit_width(ranks - 1) + std::min(ranks / 12, 12u);
    const Plan scatter = circulant_reduce_scatter(Rank{3}, {.rank_count = ranks});
    const Plan allreduce = circulant_allreduce(Rank{3}, ranks);
    EXPECT_LE(partners_of(scatter).size(), 2 * skips);
    EXPECT_LE(partners_of(allreduce).size(), 2 * skips);
    EXPECT_EQ(std::ranges::count_if(scatter.steps, sends_payload), ranks - 1);
    EXPECT_EQ(std::ranges::count_if(allreduce.steps, sends_payload), 2 * (ranks - 1));
    EXPECT_LE(allreduce.partial_count, 2 * ranks);
  }
}

/// Each message that was not looked at needs a receive.
TEST(Circulant, ranks_that_do_not_look_find_no_more_than_is_promised) {
  for (const std::uint32_t ranks : {2u, 3u, 8u, 24u, 33u, 64u, 155u, 160u, 200u}) {
    const std::vector<Plan> all = allreduces(ranks);
    EXPECT_LE(test::most_on_their_way(all, 4), all[0].incoming_max) << ranks << " ranks";
    const std::vector<Plan> own = scatters(all_apart(ranks), Skips::few);
    EXPECT_LE(test::most_on_their_way(own, 4), ranks > 155 ? own[0].incoming_max : 24)
        << ranks << " ranks";
    EXPECT_LE(all[0].incoming_max, 30u);
    EXPECT_LE(own[0].incoming_max, 30u);
  }
}

TEST(Circulant, what_is_not_added_up_is_seen) {
  std::vector<Plan> plans = scatters(tutti::test::in_blocks({2, 2, 2}), Skips::few);
  const auto combine =
      std::find_if(plans[1].steps.begin(), plans[1].steps.end(),
                   [](const Step& step) { return step.action == Action::combine; });
  plans[1].steps.erase(combine);
  EXPECT_NE(first_violation(plans, Promise::reduce_scatter_any_order), std::nullopt);
  EXPECT_NE(first_violation(scatters(all_apart(5), Skips::few), Promise::reduce_scatter),
            std::nullopt)
      << "it does not follow the canonical tree";
}

}  // namespace
}  // namespace tutti::plan
