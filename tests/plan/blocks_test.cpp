// Promise: collectives of blocks are right for every rank count and root, copied and by reference;
// two copies of their slots suffice however far a rank runs ahead; nobody writes a buffer, or ends
// a call, while a peer may read it.
#include "plan/blocks/blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/blocks/block_dissemination.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/verify.hpp"
#include "plan/cost/makespan.hpp"
#include "rule_of_thumb.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;

constexpr std::uint32_t calls = 5;

struct Collective {
  const char* name;
  Promise promise;
  bool is_rooted;
  std::function<Plan(Rank self, std::uint32_t rank_count, Rank root)> build;
};

std::vector<Node> three_nodes(std::uint32_t rank_count) {
  std::vector<Node> node_of;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) node_of.push_back(Node{rank / 2 % 3});
  return node_of;
}

std::vector<Collective> collectives(Transport transport) {
  return {
      {"allgather", Promise::gather, false,
       [=](Rank self, std::uint32_t count, Rank) {
         return direct_allgather(self, count, transport);
       }},
      {"alltoall", Promise::gather, false,
       [=](Rank self, std::uint32_t count, Rank) {
         return direct_alltoall(self, count, transport);
       }},
      {"gather", Promise::gather, true,
       [=](Rank self, std::uint32_t count, Rank root) {
         return direct_gather(self, count, root, transport);
       }},
      {"scatter", Promise::scatter, true,
       [=](Rank self, std::uint32_t count, Rank root) {
         return direct_scatter(self, count, root, transport);
       }},
      {"scatter on nodes", Promise::scatter, true, [=](Rank self, std::uint32_t count, Rank root) {
         return direct_scatter(self, count, root, transport, three_nodes(count));
       }}};
}

std::vector<Plan> plans_of(const Collective& collective, std::uint32_t rank_count, Rank root) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(collective.build(Rank{rank}, rank_count, root));
  return plans;
}

template <class F>
void for_roots(const Collective& collective, std::uint32_t rank_count, F&& f) {
  if (!collective.is_rooted) return f(no_rank);
  for (std::uint32_t root = 0; root < rank_count; root += rank_count <= 16 ? 1 : 7) f(Rank{root});
}

// The root's port sends blocks for other nodes while the root stores those of its own node.
TEST(Blocks, of_a_scatter_leave_for_other_nodes_first) {
  for (const Transport transport : {Transport::copied, Transport::by_reference})
    for (std::uint32_t root = 0; root < 8; ++root) {
      const std::vector<Node> node_of = three_nodes(8);
      bool is_inside = false;
      int sent = 0;
      for (const Step& step : direct_scatter(Rank{root}, 8, Rank{root}, transport, node_of).steps) {
        if (step.action != Action::put) continue;
        const bool shares_node = node_of[index_of(step.peer)] == node_of[root];
        EXPECT_TRUE(shares_node || !is_inside) << "root " << root;
        is_inside = shares_node;
        ++sent;
      }
      EXPECT_EQ(sent, 7);
      EXPECT_TRUE(is_inside);
    }
}

TEST(Blocks, are_right_for_every_rank_count_and_root) {
  for (const Transport transport : {Transport::copied, Transport::by_reference})
    for (const Collective& collective : collectives(transport))
      for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to / 2; ++ranks)
        for_roots(collective, ranks, [&](Rank root) {
          EXPECT_EQ(first_violation(plans_of(collective, ranks, root), collective.promise, root),
                    std::nullopt)
              << collective.name << ", " << ranks << " ranks, root " << index_of(root);
        });
}

TEST(Blocks, nothing_is_written_while_a_peer_may_read_it) {
  for (const Transport transport : {Transport::copied, Transport::by_reference})
    for (const Collective& collective : collectives(transport)) {
      const bool apart =
          transport == Transport::by_reference && std::string(collective.name) == "alltoall";
      for (std::uint32_t ranks = 2; ranks <= 9; ++ranks)
        for_roots(collective, ranks, [&](Rank root) {
          const std::vector<Plan> plans = plans_of(collective, ranks, root);
          HappensBefore order(plans, calls, 2,
                              apart ? HappensBefore::Buffers::apart : HappensBefore::Buffers::same);
          EXPECT_EQ(order.race(), std::nullopt)
              << collective.name << ", " << ranks << " ranks, root " << index_of(root);
        });
    }
}

std::uint32_t node_count_of(const tutti::test::NodeOf& node_of) {
  return static_cast<std::uint32_t>(
      members_of_nodes(static_cast<std::uint32_t>(node_of.size()), node_of).size());
}

std::vector<Plan> allgather_plans_of(const tutti::test::NodeOf& node_of, const PerRound& per_round,
                                     Target target = Target::of_rank) {
  std::vector<Plan> plans;
  const auto count = static_cast<std::uint32_t>(node_of.size());
  for (std::uint32_t rank = 0; rank < count; ++rank)
    plans.push_back(dissemination_allgather(Rank{rank}, count, per_round, node_of, target));
  return plans;
}

/// In one hop.
std::vector<Plan> direct_plans_of(const tutti::test::NodeOf& node_of) {
  const std::uint32_t nodes = node_count_of(node_of);
  return allgather_plans_of(node_of, nodes > 1 ? PerRound{nodes - 1} : PerRound{});
}

std::vector<Plan> flat_plans_of(std::uint32_t rank_count, const PerRound& per_round) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(dissemination_allgather(Rank{rank}, rank_count, per_round));
  return plans;
}

TEST(Blocks, disseminated_are_right_for_every_rank_count_and_vector) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to / 2; ++ranks) {
    std::vector<PerRound> vectors{test::rule_vector(ranks, 8), test::rule_vector(ranks, 1 << 20)};
    for (std::uint32_t n = 1; n <= 7; ++n) vectors.push_back(uniform(ranks, n));
    for (const PerRound& vector : {PerRound{3, 1, 2, 5}, {1, 6, 6}, {60, 9}})
      if (covers(ranks, vector)) vectors.push_back(vector);
    for (const PerRound& vector : vectors) {
      const std::vector<Plan> plans = flat_plans_of(ranks, vector);
      ASSERT_EQ(first_violation(plans, Promise::gather), std::nullopt)
          << ranks << " ranks, n " << vector[0];
      if (ranks >= 2 && ranks <= 9) {
        EXPECT_EQ(HappensBefore(plans, calls, 2).race(), std::nullopt)
            << ranks << " ranks, n " << vector[0];
      }
    }
  }
}

/// Queue pairs: ranks of other nodes that a rank tells or hears.
std::size_t partner_count(const Plan& plan, const tutti::test::NodeOf& node_of) {
  std::set<std::uint32_t> partners;
  for (const Step& step : plan.steps)
    if ((step.action == Action::put || step.action == Action::await) &&
        (node_of.empty() || node_of[index_of(step.peer)] != node_of[index_of(plan.self)]))
      partners.insert(index_of(step.peer));
  return partners.size();
}

TEST(Blocks, disseminated_have_few_partners_and_come_once_each) {
  for (const std::uint32_t ranks : {9u, 16u, 31u, 64u, 100u, 500u})
    for (std::uint32_t n = 1; n <= 4; ++n) {
      const Plan plan = dissemination_allgather(Rank{ranks / 3}, ranks, uniform(ranks, n));
      std::size_t told = 0;
      for (const Round& round : two_partial_rounds(ranks, uniform(ranks, n)))
        told += round.messages;
      EXPECT_LE(partner_count(plan, {}), 2 * told) << ranks << " ranks, n " << n;
      std::size_t sent = 0;
      for (const Step& step : plan.steps)
        sent += step.action == Action::put && step.payloads > 0 ? 1 : 0;
      EXPECT_EQ(sent, ranks - 1);
    }
  const tutti::test::NodeOf even = tutti::test::in_blocks(std::vector<std::uint32_t>(32, 4));
  EXPECT_EQ(partner_count(dissemination_allgather(Rank{5}, 128, uniform(32, 1), even), even), 9u);
}

/// Not even a rank that has nothing else to do holds back what it has.
TEST(Blocks, disseminated_are_passed_on_as_soon_as_they_are_there) {
  for (const std::uint32_t ranks : {12u, 17u, 32u})
    for (const Plan& plan : flat_plans_of(ranks, uniform(ranks, 2)))
      for (std::size_t at = 0; at < plan.steps.size(); ++at) {
        if (plan.steps[at].action != Action::await) continue;
        // What is put between two awaits is about the first of them, or was there long before.
        std::size_t next = at + 1;
        while (next < plan.steps.size() && plan.steps[next].action != Action::await) ++next;
        const auto sends = [&](const Step& step) {
          return step.action == Action::put && step.part == plan.steps[at].part;
        };
        const auto end = plan.steps.begin() + static_cast<std::ptrdiff_t>(next);
        const auto in_this_round = [&](const Step& step) {
          return sends(step) && step.round == plan.steps[at].round;
        };
        EXPECT_TRUE(std::none_of(end, plan.steps.end(), in_this_round))
            << ranks << " ranks, rank " << index_of(plan.self) << ", step " << at;
      }
}

/// Else every block of a peer would need two receives.
TEST(Blocks, no_more_of_those_disseminated_are_on_their_way_than_it_says) {
  for (const std::uint32_t ranks : {67u, 100u, test::up_to(200)})
    for (std::uint32_t n = 1; n <= 3; ++n) {
      const std::vector<Plan> plans = flat_plans_of(ranks, uniform(ranks, n));
      const std::size_t most = test::most_on_their_way(plans, 3);
      EXPECT_LE(most, 30u) << ranks << " ranks, n " << n;
      EXPECT_EQ(plans[0].incoming_max, 30u);
    }
}

/// Windows are of 4.
TEST(Blocks, disseminated_in_several_windows_are_right) {
  for (const auto& [ranks, per_round] :
       std::vector<std::pair<std::uint32_t, PerRound>>{{33, {1, 1, 1, 1, 1, 1}},
                                                       {50, {1, 1, 1, 1, 1, 1}},
                                                       {51, {16, 2}},
                                                       {70, {24, 2}},
                                                       {100, {24, 3}},
                                                       {test::up_to(200), {66, 2}},
                                                       {test::up_to(300), {70, 5}}}) {
    EXPECT_EQ(first_violation(flat_plans_of(ranks, per_round), Promise::gather), std::nullopt)
        << ranks << " ranks, n " << per_round[0];
    if (ranks < 60) {
      EXPECT_EQ(HappensBefore(flat_plans_of(ranks, per_round), 3, 2).race(), std::nullopt)
          << ranks << " ranks, n " << per_round[0];
    }
  }
  const tutti::test::NodeOf even = tutti::test::in_blocks(std::vector<std::uint32_t>(41, 3));
  EXPECT_EQ(first_violation(allgather_plans_of(even, uniform(41, 1)), Promise::gather),
            std::nullopt);
}

/// Where messages are long, the port is never idle: it takes what the direct exchange takes, which
/// is what so many bytes take, and the answers between windows.
TEST(Blocks, disseminated_take_no_longer_than_directly_where_bytes_count) {
  constexpr LogGP fdr{.latency = 700'000,
                      .send_overhead = 150'000,
                      .receive_overhead = 50'000,
                      .gap = 100'000,
                      .per_byte = {.time = 10'000, .bytes = 68}};
  for (std::uint32_t ranks = 4; ranks <= test::up_to(64); ranks += 3)
    for (const std::uint64_t total : {1u << 20, 4u << 20}) {
      const Call call{.payload_bytes = total / ranks * ranks};
      const std::vector<Plan> plans = flat_plans_of(ranks, test::rule_vector(ranks, total / ranks));
      const Picoseconds time = makespan(plans, fdr, call);
      const Picoseconds bytes_alone =
          (ranks - 1) * fdr.port_time(total / ranks) + fdr.travel_time(0) + fdr.receive_overhead;
      EXPECT_GE(time, bytes_alone);
      EXPECT_LE(time, bytes_alone + plans[0].line_slot_count * fdr.gap)
          << ranks << " ranks, " << total << " bytes";
    }
}

void expect_right(const tutti::test::NodeOf& node_of) {
  const std::uint32_t nodes = node_count_of(node_of);
  std::vector<PerRound> vectors{uniform(nodes, 1), uniform(nodes, 2)};
  if (nodes > 3) vectors.push_back({nodes - 1});
  for (const PerRound& vector : vectors)
    for (const Target target : {Target::of_rank, Target::of_node}) {
      const std::vector<Plan> plans = allgather_plans_of(node_of, vector, target);
      EXPECT_EQ(first_violation(plans, Promise::gather), std::nullopt)
          << tutti::test::text_of(node_of) << ", " << vector.size() << " rounds, "
          << plans[0].algorithm;
      if (node_of.size() > 8) continue;
      EXPECT_EQ(HappensBefore(plans, calls, 2).race(), std::nullopt)
          << tutti::test::text_of(node_of) << ", " << vector.size() << " rounds, "
          << plans[0].algorithm;
    }
}

TEST(Blocks, of_nodes_are_right_for_every_shape) {
  for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks))
      expect_right(tutti::test::in_blocks(sizes));
  std::mt19937 random(3);
  for (int sample = 0; sample < test::samples(80); ++sample) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(random()) % 60;
    const std::uint32_t nodes = 1 + static_cast<std::uint32_t>(random()) % ranks;
    expect_right(tutti::test::placed(ranks, nodes, sample % 2 == 0, random));
  }
}

/// Puts to, or awaits from, other nodes.
std::size_t far_steps(const Plan& plan, Action action, const tutti::test::NodeOf& node_of) {
  return static_cast<std::size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(), [&](const Step& step) {
        return step.action == action &&
               node_of[index_of(step.peer)] != node_of[index_of(plan.self)];
      }));
}

TEST(Blocks, of_nodes_go_once_into_each_and_are_dealt_out_evenly) {
  const tutti::test::NodeOf even = tutti::test::in_blocks({4, 4, 4});
  for (const PerRound& vector : {PerRound{2}, {1, 1}})
    for (const Plan& plan : allgather_plans_of(even, vector)) {
      EXPECT_EQ(far_steps(plan, Action::put, even), 2u) << "one for each of the other nodes";
      EXPECT_EQ(far_steps(plan, Action::await, even), 2u) << "from its like there";
    }
  const tutti::test::NodeOf uneven = tutti::test::in_blocks({2, 5});
  const std::size_t expected[] = {3, 2, 1, 1, 0, 0, 0};
  for (const Plan& plan : direct_plans_of(uneven)) {
    EXPECT_EQ(far_steps(plan, Action::await, uneven), expected[index_of(plan.self)])
        << index_of(plan.self);
  }
}

/// Each rank writes what it holds for its node, and the others are told of it.
TEST(Blocks, of_nodes_with_one_target_are_written_once) {
  for (const auto& sizes : {std::vector<std::uint32_t>{4}, {2, 3}, {3, 3, 3}}) {
    const tutti::test::NodeOf node_of = tutti::test::in_blocks(sizes);
    const std::uint32_t nodes = node_count_of(node_of);
    std::vector<std::size_t> written(nodes);
    for (const Plan& plan : allgather_plans_of(node_of, uniform(nodes, 2), Target::of_node)) {
      EXPECT_TRUE(plan.shares_target);
      EXPECT_TRUE(plan.algorithm.ends_with("_shared_target"));
      for (const Step& step : plan.steps) {
        if (step.action == Action::copy && step.into.place == Place::target)
          ++written[index_of(node_of[index_of(plan.self)])];
        if (step.action != Action::put || step.payloads == 0) continue;
        EXPECT_EQ(step.into_target, node_of[index_of(step.peer)] == node_of[index_of(plan.self)]);
      }
      if (nodes == 1) {
        EXPECT_EQ(plan.slot_count, plan.line_slot_count);
        EXPECT_EQ(plan.partial_count, 0);
      }
    }
    EXPECT_EQ(written, std::vector<std::size_t>(nodes, node_of.size()));
  }
}

/// A rank that has not entered may still read the last result.
TEST(Blocks, of_nodes_with_one_target_have_to_await_entries) {
  std::vector<Plan> plans =
      allgather_plans_of(tutti::test::in_blocks({2, 1}), {1}, Target::of_node);
  for (Plan& plan : plans)
    std::erase_if(plan.steps,
                  [](const Step& step) { return step.into_target && step.payloads == 0; });
  EXPECT_NE(HappensBefore(plans, calls, 2).race(), std::nullopt);
  for (Plan& plan : plans) plan.per_round[0] = 0;
  const std::string violation = first_violation(plans, Promise::gather).value_or("none");
  EXPECT_NE(violation.find("which may not have entered"), std::string::npos) << violation;
}

TEST(Blocks, of_nodes_one_copy_of_the_slots_would_not_do) {
  EXPECT_NE(HappensBefore(direct_plans_of(tutti::test::in_blocks({2, 3})), calls, 1).race(),
            std::nullopt);
  EXPECT_NE(HappensBefore(flat_plans_of(5, {1, 1, 1}), calls, 1).race(), std::nullopt);
}

/// What is in the way of swapping blocks by reference in place.
TEST(Blocks, swapped_in_place_by_reference_would_be_written_too_early) {
  const Collective alltoall = collectives(Transport::by_reference)[1];
  EXPECT_NE(HappensBefore(plans_of(alltoall, 3, no_rank), calls, 2).race(), std::nullopt);
}

TEST(Blocks, one_copy_of_the_slots_would_not_do) {
  const Collective alltoall = collectives(Transport::copied)[1];
  EXPECT_NE(HappensBefore(plans_of(alltoall, 3, no_rank), calls, 1).race(), std::nullopt);
}

TEST(Blocks, without_answers_by_reference_would_be_wrong) {
  for (const Collective& collective : collectives(Transport::by_reference)) {
    std::vector<Plan> plans = plans_of(collective, 3, Rank{1});
    for (Plan& plan : plans)
      std::erase_if(plan.steps, [](const Step& step) {
        return (step.action == Action::put || step.action == Action::await) && step.payloads == 0;
      });
    HappensBefore order(plans, calls, 2, HappensBefore::Buffers::apart);
    EXPECT_NE(order.race(), std::nullopt) << collective.name;
  }
}

TEST(Blocks, reduce_scatter_follows_the_canonical_tree) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to / 2; ++ranks) {
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      plans.push_back(chunked_fold_reduce_scatter(Rank{rank}, ranks));
    EXPECT_EQ(first_violation(plans, Promise::reduce_scatter), std::nullopt) << ranks << " ranks";
    if (ranks >= 2 && ranks <= 9) {
      EXPECT_EQ(HappensBefore(plans, calls, 2).race(), std::nullopt) << ranks << " ranks";
    }
  }
}

// ---- What the verifier refuses ------------------------------------------------------------------

std::string violation_of(const std::vector<Plan>& plans, Promise promise, Rank root = no_rank) {
  return first_violation(plans, promise, root).value_or("none");
}

TEST(Blocks, a_block_for_another_rank_is_seen) {
  const Collective alltoall = collectives(Transport::copied)[1];
  std::vector<Plan> plans = plans_of(alltoall, 3, no_rank);
  std::swap(plans[0].steps[1].part, plans[0].steps[3].part);
  EXPECT_NE(violation_of(plans, Promise::gather), "none");
  plans = plans_of(alltoall, 3, no_rank);
  for (Plan& plan : plans) plan.swaps_blocks = false;
  EXPECT_NE(violation_of(plans, Promise::gather), "none");
}

TEST(Blocks, a_block_that_is_not_written_or_not_wanted_is_seen) {
  const Collective allgather = collectives(Transport::copied)[0];
  std::vector<Plan> plans = plans_of(allgather, 3, no_rank);
  plans[2].steps.pop_back();
  EXPECT_NE(violation_of(plans, Promise::gather).find("rank 2, part"), std::string::npos)
      << violation_of(plans, Promise::gather);
  EXPECT_NE(violation_of(plans_of(allgather, 3, no_rank), Promise::reduce_scatter), "none");
  const Collective scatter = collectives(Transport::copied)[3];
  EXPECT_NE(violation_of(plans_of(scatter, 3, Rank{0}), Promise::scatter, Rank{1}), "none");
  EXPECT_NE(violation_of(plans_of(allgather, 3, no_rank), Promise::scatter, Rank{0})
                .find("where no result belongs"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::plan
