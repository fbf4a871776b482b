// Promise: lanes in turns are right for every shape of equal nodes, every split of the rounds
// across, every number of turns, of their pieces and of exchanges, and any placement; nothing is
// overwritten while it may be read; a node sends no more than it has to; what a rank has to have
// receives for is what the plan says; and their price is near what they take.
#include "plan/allreduce/lane_turns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/core/verify.hpp"
#include "plan/cost/makespan.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using tutti::test::in_blocks, tutti::test::NodeOf;

NodeOf even_nodes(std::uint32_t nodes, std::uint32_t ranks) {
  return in_blocks(std::vector<std::uint32_t>(nodes, ranks));
}

LaneTurns shape_of(const NodeOf& node_of, const PerRound& per_round, std::uint32_t turns,
                   std::uint32_t pieces = 1, std::uint32_t exchanges = 0) {
  return {.rank_count = static_cast<std::uint32_t>(node_of.size()),
          .node_of = node_of,
          .per_round = per_round,
          .turns = turns,
          .pieces = pieces,
          .exchanges = exchanges};
}

NodeCounts counts_of(const LaneTurns& shape) {
  return counts_of_nodes(shape.rank_count, shape.node_of);
}

std::vector<Plan> plans_of(const LaneTurns& shape) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank)
    plans.push_back(lane_turns_allreduce(Rank{rank}, shape));
  return plans;
}

/// Every ordered split of the number of nodes into rounds.
std::vector<PerRound> splits_of(std::uint32_t nodes) {
  if (nodes == 1) return {{}};
  std::vector<PerRound> splits;
  for (std::uint32_t first = 2; first <= nodes; ++first) {
    if (nodes % first != 0) continue;
    for (PerRound rest : splits_of(nodes / first)) {
      rest.insert(rest.begin(), first - 1);
      splits.push_back(std::move(rest));
    }
  }
  return splits;
}

std::string text_of(const LaneTurns& shape) {
  std::string text = std::to_string(shape.rank_count) + " ranks, rounds";
  for (const std::uint32_t messages : shape.per_round) text += " " + std::to_string(messages);
  return text + ", " + std::to_string(shape.turns) + " turns of " + std::to_string(shape.pieces) +
         " pieces, " + std::to_string(shape.exchanges) + " exchanges";
}

TEST(LaneTurns, are_right_for_every_shape_of_equal_nodes) {
  for (std::uint32_t nodes = 2; nodes <= 12; ++nodes)
    for (std::uint32_t ranks = 2; nodes * ranks <= test::up_to(40); ++ranks)
      for (const PerRound& per_round : splits_of(nodes))
        for (const std::uint32_t turns : {1u, 2u, 5u, 9u})
          for (std::uint32_t exchanges = 0; exchanges < per_round.size(); ++exchanges) {
            const NodeOf node_of = even_nodes(nodes, ranks);
            const LaneTurns shape = shape_of(node_of, per_round, turns, 1, exchanges);
            ASSERT_TRUE(is_lane_turns(shape, counts_of(shape))) << text_of(shape);
            EXPECT_EQ(first_violation(plans_of(shape), Promise::same_result), std::nullopt)
                << text_of(shape);
          }
}

TEST(LaneTurns, are_right_in_pieces) {
  for (const auto& [nodes, ranks] : {std::pair{2u, 3u}, {3u, 2u}, {4u, 4u}, {8u, 2u}, {12u, 3u}})
    for (const PerRound& per_round : splits_of(nodes))
      for (std::uint32_t pieces = 2; pieces <= per_round.front() + 1; ++pieces)
        for (const std::uint32_t turns : {1u, 2u, 5u})
          for (std::uint32_t exchanges = 0; exchanges < per_round.size(); ++exchanges) {
            const NodeOf node_of = even_nodes(nodes, ranks);
            const LaneTurns shape = shape_of(node_of, per_round, turns, pieces, exchanges);
            ASSERT_TRUE(is_lane_turns(shape, counts_of(shape))) << text_of(shape);
            EXPECT_EQ(first_violation(plans_of(shape), Promise::same_result), std::nullopt)
                << text_of(shape);
          }
}

TEST(LaneTurns, are_right_wherever_the_ranks_of_a_node_are) {
  std::mt19937 random(5);
  for (const std::uint32_t nodes : {2u, 3u, 6u}) {
    NodeOf node_of = even_nodes(nodes, 4);
    for (int sample = 0; sample < test::samples(10); ++sample) {
      std::shuffle(node_of.begin(), node_of.end(), random);
      node_of = tutti::test::renamed(node_of);
      for (const PerRound& per_round : splits_of(nodes))
        for (const std::uint32_t pieces : {1u, 2u})
          for (std::uint32_t exchanges = 0; exchanges < per_round.size(); ++exchanges)
            EXPECT_EQ(first_violation(plans_of(shape_of(node_of, per_round, 3, pieces, exchanges)),
                                      Promise::same_result),
                      std::nullopt)
                << tutti::test::text_of(node_of);
    }
  }
}

TEST(LaneTurns, overwrite_nothing_that_may_be_read) {
  for (const std::uint32_t nodes : {2u, 4u, 6u, 8u})
    for (const std::uint32_t turns : {1u, 3u})
      for (const PerRound& per_round : splits_of(nodes)) {
        const NodeOf node_of = even_nodes(nodes, 2);
        for (std::uint32_t pieces = 1; pieces <= per_round.front() + 1; ++pieces)
          for (std::uint32_t exchanges = 0; exchanges < per_round.size(); ++exchanges) {
            const LaneTurns shape = shape_of(node_of, per_round, turns, pieces, exchanges);
            EXPECT_EQ(test::HappensBefore(plans_of(shape), 5, 2).race(), std::nullopt)
                << text_of(shape);
          }
      }
}

TEST(LaneTurns, have_as_many_messages_on_their_way_as_they_say) {
  for (const std::uint32_t nodes : {2u, 4u, 8u})
    for (const std::uint32_t turns : {1u, 2u, 4u, 12u})
      for (const PerRound& per_round : splits_of(nodes)) {
        for (const auto& [pieces, exchanges] :
             {std::pair{1u, 0u}, {2u, 0u}, {4u, 0u}, {1u, 1u}, {2u, 1u}, {4u, 1u}, {2u, 2u}}) {
          if (pieces > per_round.front() + 1 || exchanges >= per_round.size()) continue;
          const NodeOf node_of = even_nodes(nodes, 2);
          const LaneTurns shape = shape_of(node_of, per_round, turns, pieces, exchanges);
          const std::vector<Plan> plans = plans_of(shape);
          std::size_t across = 0;  // inside a node there are no receives
          for (const Plan& plan : plans) across = std::max<std::size_t>(across, plan.incoming_max);
          std::vector<Plan> lane = plans;
          for (Plan& plan : lane)
            std::erase_if(plan.steps, [&](const Step& step) {
              return step.peer != no_rank &&
                     node_of[index_of(step.peer)] == node_of[index_of(plan.self)];
            });
          EXPECT_LE(test::most_on_their_way(lane, 3), across) << text_of(shape);
          EXPECT_LE(across, 8u) << text_of(shape);
        }
      }
}

TEST(LaneTurns, say_how_many_partials_they_have) {
  const NodeOf node_of = even_nodes(4, 2);
  std::vector<Plan> plans = plans_of(shape_of(node_of, {3}, 2));
  plans[3].partials_max = 7;
  EXPECT_NE(first_violation(plans, Promise::same_result).value_or("none").find("laid out"),
            std::string::npos);
  for (Plan& plan : plans) plan.partials_max = 5;
  EXPECT_NE(first_violation(plans, Promise::same_result).value_or("none").find("more partials"),
            std::string::npos);
}

TEST(LaneTurns, send_between_nodes_and_inside_what_no_schedule_goes_below) {
  const NodeOf node_of = even_nodes(6, 4);
  const LaneTurns shape = shape_of(node_of, {1, 2}, 5);
  for (const Plan& plan : plans_of(shape)) {
    std::size_t inside = 0, outside = 0, messages = 0;
    for (const Step& step : plan.steps) {
      if (step.action != Action::put) continue;
      const bool is_inside = node_of[index_of(step.peer)] == node_of[index_of(plan.self)];
      (is_inside ? inside : outside) += step.payloads;
      messages += is_inside ? 0 : 1;
    }
    EXPECT_EQ(plan.parts, 24 * 5);
    EXPECT_EQ(inside, 2u * 3 * 6 * 5);  // 2 (L - 1) / L of the parts
    EXPECT_EQ(outside, 2u * 5 * 5);     // 2 (N - 1) / N of a lane's
    EXPECT_EQ(messages, 2u * 3 * 5);
    EXPECT_EQ(plan.slot_count, 2 * 5 * (3 + 3));
    EXPECT_EQ(plan.short_slot_count, 2 * 5 * 3);  // those of other nodes
    EXPECT_EQ(plan.short_payloads, 6 / 2);        // a range of the second digit
    EXPECT_EQ(plan.partial_count, 5 * 5);
    EXPECT_EQ(plan.partials_max, plan.partial_count);
    EXPECT_EQ(plan.payloads, 6);
    EXPECT_EQ(plan.algorithm, "lanes/turns");
  }
}

TEST(LaneTurns, have_more_messages_in_pieces_but_no_more_bytes_and_none_across) {
  const NodeOf node_of = even_nodes(8, 4);
  const auto count = [&](std::uint32_t pieces) {
    std::size_t inside = 0, messages_inside = 0, across = 0;
    const LaneTurns shape = shape_of(node_of, {7}, 3, pieces);
    const std::vector<Plan> plans = plans_of(shape);
    for (const Step& step : plans[5].steps) {
      if (step.action != Action::put) continue;
      const bool is_inside = node_of[index_of(step.peer)] == node_of[index_of(plans[5].self)];
      inside += is_inside ? step.payloads : 0;
      messages_inside += is_inside ? 1 : 0;
      across += is_inside ? 0 : 1;
    }
    EXPECT_EQ(inside, 2u * 3 * 8 * 3);
    EXPECT_EQ(messages_inside, 2u * 3 * 3 * pieces);
    EXPECT_EQ(across, 2u * 7 * 3);
    EXPECT_EQ(plans[5].short_payloads, pieces == 1 ? 1u : (8u + pieces - 1) / pieces);
    return payloads_of_registers(plans[5], plans[5].partials_max);
  };
  const std::size_t whole = count(1);
  for (const std::uint32_t pieces : {2u, 3u, 4u, 8u}) EXPECT_LE(count(pieces), 2 * whole);
  EXPECT_LE(count(8), whole);
}

TEST(LaneTurns, that_exchange_have_fewer_messages_and_between_two_ranks_no_more_bytes) {
  const NodeOf node_of = even_nodes(8, 2);
  const auto across = [&](std::uint32_t exchanges) {
    const std::vector<Plan> plans = plans_of(shape_of(node_of, {1, 1, 1}, 2, 1, exchanges));
    const Plan& plan = plans[5];
    std::size_t messages = 0, parts = 0;
    for (const Step& step : plan.steps) {
      if (step.action != Action::put) continue;
      if (node_of[index_of(step.peer)] == node_of[index_of(plan.self)]) continue;
      ++messages;
      parts += step.payloads;
    }
    EXPECT_EQ(plan.parts, 2u * 16 >> exchanges);
    EXPECT_EQ(plan.slot_count, 2 * 2 + messages);
    EXPECT_EQ(plan.partials_max, 2 * (3 + (exchanges == 2 ? 1 : 0)));
    return std::pair{messages, parts << exchanges};  // of a sixteenth of the turn
  };
  EXPECT_EQ(across(0), (std::pair<std::size_t, std::size_t>{2 * 6, 2 * 14}));
  EXPECT_EQ(across(1), (std::pair<std::size_t, std::size_t>{2 * 5, 2 * 14}));
  EXPECT_EQ(across(2), (std::pair<std::size_t, std::size_t>{2 * 4, 2 * 16}));
}

TEST(LaneTurns, are_none_of_other_shapes) {
  const auto is = [](const NodeOf& node_of, const PerRound& per_round, std::uint32_t turns = 2) {
    const LaneTurns shape = shape_of(node_of, per_round, turns);
    return is_lane_turns(shape, counts_of(shape));
  };
  EXPECT_TRUE(is(even_nodes(4, 3), {1, 1}));
  EXPECT_TRUE(is(even_nodes(4, 3), {3}));
  EXPECT_FALSE(is(even_nodes(4, 3), {1, 1}, 0));
  EXPECT_FALSE(is(even_nodes(4, 3), {1}));     // does not cover the nodes
  EXPECT_FALSE(is(even_nodes(4, 3), {2, 1}));  // more than cover them
  EXPECT_FALSE(is(even_nodes(4, 3), {3, 0}));
  EXPECT_FALSE(is(even_nodes(4, 3), {3, UINT32_MAX}));
  EXPECT_FALSE(is(even_nodes(4, 3), {}));
  EXPECT_FALSE(is(even_nodes(1, 3), {}));          // one node
  EXPECT_FALSE(is(even_nodes(4, 1), {3}));         // no node of several ranks
  EXPECT_FALSE(is(in_blocks({3, 3, 2, 3}), {3}));  // nodes that differ
  const auto in_pieces = [](std::uint32_t pieces) {
    const NodeOf node_of = even_nodes(8, 2);
    const LaneTurns shape = shape_of(node_of, {3, 1}, 2, pieces);
    return is_lane_turns(shape, counts_of(shape));
  };
  EXPECT_FALSE(in_pieces(0));
  EXPECT_TRUE(in_pieces(4));
  EXPECT_FALSE(in_pieces(5));  // more than a range has blocks
  const auto with_exchanges = [](std::uint32_t exchanges) {
    const NodeOf node_of = even_nodes(8, 2);
    const LaneTurns shape = shape_of(node_of, {1, 1, 1}, 2, 1, exchanges);
    return is_lane_turns(shape, counts_of(shape));
  };
  EXPECT_TRUE(with_exchanges(2));
  EXPECT_FALSE(with_exchanges(3));  // no round that cuts the range of a lane
  EXPECT_TRUE(is(even_nodes(32, 32), {7, 3}, 32));
  EXPECT_FALSE(is(even_nodes(32, 32), {7, 3}, 64));  // too many parts
  EXPECT_FALSE(is(even_nodes(2, 192), {1}, 64));     // too many slots
}

TEST(LaneTurns, have_a_price_near_what_they_take) {
  constexpr NodeMemory memory = {.latency = 100'000,
                                 .send_overhead = 20'000,
                                 .per_byte = {.time = 100},
                                 .receive_overhead = 20'000};
  constexpr LogGP fdr = {.latency = 700'000,
                         .send_overhead = 150'000,
                         .receive_overhead = 50'000,
                         .gap = 100'000,
                         .per_byte = {.time = 10'000, .bytes = 68}};
  constexpr LogGP hdr = {.latency = 600'000,
                         .send_overhead = 100'000,
                         .receive_overhead = 50'000,
                         .gap = 25'000,
                         .per_byte = {.time = 10'000, .bytes = 242},
                         .work = 10'000,
                         .work_per_byte = {.time = 125}};
  for (const LogGP& between : {fdr, hdr})
    for (const std::uint32_t nodes : {4u, 12u})
      for (const std::uint32_t ranks : {4u, 8u})
        for (const auto& [turns, pieces, exchanges] : {std::tuple{4u, 1u, 0u},
                                                       {16u, 1u, 0u},
                                                       {4u, 4u, 0u},
                                                       {16u, 2u, 0u},
                                                       {4u, 1u, 1u},
                                                       {16u, 2u, 1u},
                                                       {4u, 2u, 2u}}) {
          const NodeOf node_of = even_nodes(nodes, ranks);
          PerRound per_round = nodes == 4 ? PerRound{3} : PerRound{3, 2};
          if (exchanges > 0) per_round = nodes == 4 ? PerRound{1, 1} : PerRound{2, 1, 1};
          if (exchanges >= per_round.size()) continue;
          const LaneTurns shape = shape_of(node_of, per_round, turns, pieces, exchanges);
          const std::uint64_t bytes = 3u << 18;
          const Network network{.between = between, .inside = memory};
          const auto taken = static_cast<double>(
              makespan(plans_of(shape), network, node_of, {.payload_bytes = bytes}));
          const auto price =
              static_cast<double>(lane_turns_time(shape, counts_of(shape), network, bytes));
          EXPECT_LE(price, (pieces == 1 ? 1.05 : 1.1) * taken)
              << text_of(shape) << ", " << between.gap;
          EXPECT_GE(price, 0.95 * taken) << text_of(shape) << ", " << between.gap;
        }
}

}  // namespace
}  // namespace tutti::plan
