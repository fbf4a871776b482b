// Promise: leaders and lanes are right for every node shape, number of lanes, order and schedule
// across; what leaves a node is what the schedule across sends; nothing is overwritten while it may
// be read.
#include "plan/allreduce/lanes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "happens_before.hpp"
#include "plan/allreduce/canonical_dissemination.hpp"
#include "plan/allreduce/canonical_halving.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/circulant.hpp"
#include "plan/allreduce/decomposition.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/verify.hpp"
#include "plan/rooted/rooted.hpp"
#include "rule_of_thumb.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using tutti::test::compositions, tutti::test::in_blocks, tutti::test::NodeOf, tutti::test::placed,
    tutti::test::renamed;

struct ScheduleAcross {
  const char* name;
  PlanAcross plan;
  Promise promise;
  Order order;
};

const ScheduleAcross schedules_across[] = {
    {"two partials",
     [](Rank self, std::uint32_t nodes) {
       return two_partial_allreduce(self, nodes, uniform(nodes, 2), Order::commutative);
     },
     Promise::each_once, Order::commutative},
    {"recursive multiplying",
     [](Rank self, std::uint32_t nodes) {
       return recursive_multiplying_allreduce(self, nodes,
                                              test::rule_core(nodes, 8, uniform(nodes, 1)));
     },
     Promise::same_result, Order::commutative},
    {"recursive multiplying in rank order",
     [](Rank self, std::uint32_t nodes) {
       return recursive_multiplying_allreduce(self, nodes,
                                              test::rule_core(nodes, 8, uniform(nodes, 3)));
     },
     Promise::same_expression, Order::rank_order},
    {"decomposition",
     [](Rank self, std::uint32_t nodes) {
       return decomposition_allreduce(self, nodes, 2, Digits::joined, Order::commutative);
     },
     Promise::each_once, Order::commutative},
    {"dissemination",
     [](Rank self, std::uint32_t nodes) {
       return dissemination_allreduce(self, nodes, uniform(nodes, 3));
     },
     Promise::at_least_once, Order::commutative},
    // These cut the part of a lane again.
    {"circulant", [](Rank self, std::uint32_t nodes) { return circulant_allreduce(self, nodes); },
     Promise::same_result, Order::commutative},
    {"fold by owners",
     [](Rank self, std::uint32_t nodes) { return chunked_fold_allreduce(self, nodes); },
     Promise::same_expression, Order::rank_order},
    {"halves along the tree",
     [](Rank self, std::uint32_t nodes) { return canonical_halving_allreduce(self, nodes); },
     Promise::same_expression, Order::rank_order},
};

Plan barrier_across(Rank self, std::uint32_t nodes) {
  return dissemination_barrier(self, nodes, uniform(nodes, 2));
}

std::vector<Plan> plans_of(const LaneShape& shape, const ScheduleAcross& across,
                           Target target = Target::of_rank) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank)
    plans.push_back(lanes_allreduce(Rank{rank}, shape, across.order, across.plan, target));
  return plans;
}

std::vector<Plan> barriers_of(const NodeOf& node_of) {
  const auto ranks = static_cast<std::uint32_t>(node_of.size());
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(
        leader_barrier(Rank{rank}, {.rank_count = ranks, .node_of = node_of}, barrier_across));
  return plans;
}

LaneShape shape_of(const NodeOf& node_of, std::uint32_t lanes) {
  return {.rank_count = static_cast<std::uint32_t>(node_of.size()),
          .node_of = node_of,
          .lane_count = lanes};
}

void expect_right(const NodeOf& node_of) {
  const std::string text = tutti::test::text_of(node_of);
  const auto ranks = static_cast<std::uint32_t>(node_of.size());
  for (std::uint32_t lanes = 1; lanes <= lanes_max(ranks, node_of); ++lanes)
    for (const ScheduleAcross& across : schedules_across) {
      if (across.order == Order::rank_order && !nodes_are_runs(node_of)) continue;
      EXPECT_EQ(first_violation(plans_of(shape_of(node_of, lanes), across), across.promise),
                std::nullopt)
          << text << ", " << lanes << " lanes, " << across.name;
    }
  EXPECT_EQ(first_violation(barriers_of(node_of), Promise::barrier), std::nullopt) << text;
}

TEST(Lanes, are_right_for_every_node_shape_of_up_to_twelve_ranks) {
  for (std::uint32_t ranks = 1; ranks <= (test::samples_divisor == 1 ? 12U : 8U); ++ranks)
    for (const auto& sizes : compositions(ranks)) expect_right(in_blocks(sizes));
}

TEST(Lanes, leave_their_result_in_a_target_of_the_node) {
  using test::HappensBefore;
  for (std::uint32_t ranks = 2; ranks <= 7; ++ranks)
    for (const auto& sizes : compositions(ranks)) {
      const NodeOf node_of = in_blocks(sizes);
      for (std::uint32_t lanes = 1; lanes <= lanes_max(ranks, node_of); ++lanes)
        for (const ScheduleAcross& across : schedules_across) {
          const auto plans = plans_of(shape_of(node_of, lanes), across, Target::of_node);
          const std::string text = tutti::test::text_of(node_of) + ", " + across.name;
          EXPECT_EQ(first_violation(plans, across.promise), std::nullopt) << text;
          EXPECT_EQ(HappensBefore(plans, 5, 2, HappensBefore::Buffers::apart).race(), std::nullopt)
              << text;
        }
    }
  // A rank that has not entered may still read the last result.
  std::vector<Plan> plans =
      plans_of(shape_of(in_blocks({2}), 1), schedules_across[0], Target::of_node);
  for (Plan& plan : plans)
    std::erase_if(plan.steps, [](const Step& step) {
      return step.action == Action::combine ||
             ((step.action == Action::put || step.action == Action::await) && !step.into_target);
    });
  plans[1].steps.erase(plans[1].steps.begin());
  const std::string violation = first_violation(plans, Promise::each_once).value_or("none");
  EXPECT_NE(violation.find("which may not have entered"), std::string::npos) << violation;
}

/// Two ranks alone combine in the target of their node, each in its part; not so where the own
/// contribution comes last, as it would be overwritten if source and target were the same memory.
TEST(Lanes, of_two_ranks_combine_in_a_target_of_the_node) {
  const auto copies_partial_into_target = [](const Plan& plan) {
    return std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
      return step.action == Action::copy && step.from.place == Place::partial &&
             step.into.place == Place::target;
    });
  };
  for (const ScheduleAcross& across : schedules_across)
    for (const std::uint32_t lanes : {1U, 2U}) {
      const auto plans = plans_of(shape_of(in_blocks({2}), lanes), across, Target::of_node);
      for (const Plan& plan : plans) {
        const bool is_last = across.order == Order::rank_order && index_of(plan.self) == 0;
        EXPECT_EQ(copies_partial_into_target(plan), is_last) << across.name;
      }
      // Three have not all entered when the first contribution is there.
      EXPECT_TRUE(copies_partial_into_target(
          plans_of(shape_of(in_blocks({3}), lanes), across, Target::of_node)[0]))
          << across.name;
    }
  // The other rank may still read the last result until its contribution is there.
  std::vector<Plan> plans =
      plans_of(shape_of(in_blocks({2}), 2), schedules_across[0], Target::of_node);
  for (Plan& plan : plans) {
    const auto awaits = std::find_if(plan.steps.begin(), plan.steps.end(),
                                     [](const Step& step) { return step.action == Action::await; });
    ASSERT_LT(awaits + 1, plan.steps.end());
    std::swap(awaits[0], awaits[1]);
  }
  const auto race = test::HappensBefore(plans, 5, 2, test::HappensBefore::Buffers::apart).race();
  ASSERT_TRUE(race.has_value());
  EXPECT_NE(race->find("may read the last result there"), std::string::npos) << *race;
}

/// What makes an answer right is the business of the verifier, which all shapes go through.
TEST(Lanes, are_answered_where_the_contribution_was_sent_from_by_two_ranks_alone) {
  for (const ScheduleAcross& across : schedules_across) {
    for (const Plan& plan : plans_of(shape_of(in_blocks({2}), 2), across)) {
      ASSERT_EQ(plan.answers.size(), 2u) << across.name;
      for (const Step& step : plan.steps)
        if (step.action == Action::put) {
          EXPECT_EQ(answer_in(plan, step.slot) != nullptr, step.round > 0) << across.name;
        }
    }
    for (const NodeOf& node_of : {in_blocks({3}), in_blocks({2, 2}), in_blocks({2, 1})})
      for (const Plan& plan : plans_of(shape_of(node_of, 1), across))
        EXPECT_TRUE(plan.answers.empty()) << across.name;
    for (const Plan& plan : plans_of(shape_of(in_blocks({2}), 2), across, Target::of_node))
      EXPECT_TRUE(plan.answers.empty()) << across.name;
  }
}

TEST(Lanes, are_right_for_sampled_placements) {
  std::mt19937 random(3);
  for (int sample = 0; sample < test::samples(300); ++sample) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(random() % 60);
    const std::uint32_t nodes = 1 + static_cast<std::uint32_t>(random() % ranks);
    expect_right(placed(ranks, nodes, sample % 2 == 0, random));
  }
}

TEST(Lanes, are_right_for_many_ranks_of_a_node) {
  for (const std::uint32_t per_node : {16U, 32U})
    for (const std::uint32_t nodes : {1U, 2U, 5U})
      expect_right(in_blocks(std::vector<std::uint32_t>(nodes, per_node)));
}

/// Messages of several payloads.
TEST(Lanes, one_lane_carries_both_sides_of_the_seam_and_blocks_of_the_canonical_tree) {
  const NodeOf node_of = in_blocks({3, 1, 2, 2, 4});
  const ScheduleAcross seam{"rank order",
                            [](Rank self, std::uint32_t nodes) {
                              return two_partial_allreduce(self, nodes, uniform(nodes, 2),
                                                           Order::rank_order);
                            },
                            Promise::rank_order, Order::rank_order};
  EXPECT_EQ(first_violation(plans_of(shape_of(node_of, 1), seam), seam.promise), std::nullopt);
  EXPECT_EQ(test::HappensBefore(plans_of(shape_of(node_of, 1), seam), 5, 2).race(), std::nullopt);
  const ScheduleAcross across{"canonical",
                              [](Rank self, std::uint32_t nodes) {
                                return canonical_dissemination_allreduce(self, nodes,
                                                                         uniform(nodes, 1));
                              },
                              Promise::same_expression, Order::rank_order};
  EXPECT_EQ(first_violation(plans_of(shape_of(node_of, 1), across), across.promise), std::nullopt);
}

TEST(Lanes, send_between_nodes_what_the_schedule_across_sends) {
  for (std::uint32_t lanes = 1; lanes <= 4; ++lanes) {
    const NodeOf node_of = in_blocks({4, 5, 4, 6, 4, 4});
    const std::vector<Plan> plans = plans_of(shape_of(node_of, lanes), schedules_across[0]);
    const Plan across = schedules_across[0].plan(Rank{0}, 6);
    std::uint32_t messages_across = 0;
    for (const std::uint32_t messages : across.per_round) messages_across += messages;
    for (const Plan& plan : plans) {
      const Node node = node_of[index_of(plan.self)];
      const std::uint32_t seat = static_cast<std::uint32_t>(
          std::count(node_of.begin(), node_of.begin() + index_of(plan.self), node));
      std::uint32_t inside = 0, outside = 0;
      for (const Step& step : plan.steps)
        if (step.action == Action::put) ++(node_of[index_of(step.peer)] == node ? inside : outside);
      const auto others =
          static_cast<std::uint32_t>(std::count(node_of.begin(), node_of.end(), node) - 1);
      EXPECT_EQ(outside, seat < lanes ? messages_across : 0);
      EXPECT_EQ(inside, seat < lanes ? lanes - 1 + others : lanes);
      EXPECT_EQ(plan.parts, lanes);
      EXPECT_EQ(plan.slot_count, 5 + lanes + across.slot_count);
    }
  }
}

TEST(Lanes, are_the_schedule_across_where_each_rank_is_a_node) {
  const Plan plan =
      lanes_allreduce(Rank{2}, {.rank_count = 5}, Order::commutative, schedules_across[0].plan);
  const Plan expected = schedules_across[0].plan(Rank{2}, 5);
  EXPECT_EQ(plan.algorithm, expected.algorithm);
  EXPECT_EQ(plan.per_round, expected.per_round);
  ASSERT_EQ(plan.steps.size(), expected.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    EXPECT_EQ(plan.steps[i].action, expected.steps[i].action);
    EXPECT_EQ(plan.steps[i].peer, expected.steps[i].peer);
    EXPECT_EQ(plan.steps[i].slot, expected.steps[i].slot);
  }
}

TEST(Lanes, are_no_more_than_the_smallest_node_has_ranks) {
  const NodeOf node_of = in_blocks({3, 2, 4});
  EXPECT_EQ(lanes_max(9, node_of), 2u);
  EXPECT_TRUE(is_lane_shape(shape_of(node_of, 2)));
  EXPECT_FALSE(is_lane_shape(shape_of(node_of, 3)));
  EXPECT_FALSE(is_lane_shape(shape_of(node_of, 0)));
}

/// Plans of other n may have the same messages per round: ranks compare n as well.
TEST(Lanes, say_the_n_of_the_schedule_across) {
  for (const std::uint32_t n : {1U, 2U})
    EXPECT_EQ(lanes_allreduce(Rank{0}, shape_of(in_blocks({2, 2, 2, 2, 2}), 1), Order::commutative,
                              [&](Rank self, std::uint32_t nodes) {
                                return decomposition_allreduce(self, nodes, n, Digits::joined,
                                                               Order::commutative);
                              })
                  .n,
              n);
}

/// Every way to cut each node into domains that follow each other, if `cuts` says so at a rank.
NodeOf domains_of(const NodeOf& node_of, std::uint32_t cuts) {
  NodeOf domain_of;
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) {
    const bool is_new =
        rank == 0 || node_of[rank] != node_of[rank - 1] || (cuts >> (rank - 1) & 1) != 0;
    const std::uint32_t last = rank == 0 ? UINT32_MAX : index_of(domain_of.back());
    domain_of.push_back(Node{is_new ? last + 1 : last});
  }
  return domain_of;
}

std::vector<Plan> barriers_by_domains(const NodeOf& node_of, const NodeOf& domain_of) {
  const auto ranks = static_cast<std::uint32_t>(node_of.size());
  const NodeOf nodes = nodes_of_domains(node_of, domain_of);
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(leader_barrier(
        Rank{rank}, {.rank_count = ranks, .node_of = domain_of, .one_lane = "domains"},
        [&](Rank domain, std::uint32_t domains) {
          return leader_barrier(domain, {.rank_count = domains, .node_of = nodes}, barrier_across);
        }));
  return plans;
}

std::vector<Plan> allreduces_by_domains(const NodeOf& node_of, const NodeOf& domain_of,
                                        const ScheduleAcross& across) {
  const auto ranks = static_cast<std::uint32_t>(node_of.size());
  const NodeOf nodes = nodes_of_domains(node_of, domain_of);
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(lanes_allreduce(Rank{rank}, {.rank_count = ranks, .node_of = domain_of},
                                    across.order, [&](Rank domain, std::uint32_t domains) {
                                      return lanes_allreduce(
                                          domain, {.rank_count = domains, .node_of = nodes},
                                          across.order, across.plan);
                                    }));
  return plans;
}

void expect_right_by_domains(const NodeOf& node_of, const NodeOf& domain_of) {
  const std::string text =
      tutti::test::text_of(node_of) + ", domains as " + tutti::test::text_of(domain_of);
  EXPECT_EQ(first_violation(barriers_by_domains(node_of, domain_of), Promise::barrier),
            std::nullopt)
      << text;
  for (const ScheduleAcross& across : schedules_across) {
    const bool is_ordered = across.order == Order::rank_order;
    if (is_ordered && (!nodes_are_runs(node_of) || !nodes_are_runs(domain_of))) continue;
    EXPECT_EQ(first_violation(allreduces_by_domains(node_of, domain_of, across), across.promise),
              std::nullopt)
        << text << ", " << across.name;
  }
}

TEST(Domains, are_right_for_every_shape_of_nodes_and_domains_of_up_to_eight_ranks) {
  for (std::uint32_t ranks = 1; ranks <= (test::samples_divisor == 1 ? 8U : 6U); ++ranks)
    for (const auto& sizes : compositions(ranks))
      for (std::uint32_t cuts = 0; cuts < 1u << (ranks - 1); ++cuts) {
        const NodeOf node_of = in_blocks(sizes);
        expect_right_by_domains(node_of, domains_of(node_of, cuts));
      }
}

TEST(Domains, are_right_for_sampled_placements) {
  std::mt19937 random(29);
  for (int sample = 0; sample < test::samples(200); ++sample) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(random() % 60);
    const NodeOf domain_of =
        placed(ranks, 1 + static_cast<std::uint32_t>(random() % ranks), sample % 2 == 0, random);
    // Domains dealt to nodes: a node's need not follow each other.
    const std::uint32_t nodes = 1 + static_cast<std::uint32_t>(random() % 4);
    NodeOf node_of;
    for (const Node domain : domain_of) node_of.push_back(Node{index_of(domain) % nodes});
    expect_right_by_domains(node_of, domain_of);
  }
}

TEST(Domains, two_copies_suffice) {
  std::mt19937 random(31);
  for (std::uint32_t ranks = 2; ranks <= 10; ++ranks)
    for (int sample = 0; sample < test::samples(8); ++sample) {
      const auto shapes = compositions(ranks);
      const NodeOf node_of = in_blocks(shapes[random() % shapes.size()]);
      const NodeOf domain_of = domains_of(node_of, static_cast<std::uint32_t>(random()));
      EXPECT_EQ(test::HappensBefore(barriers_by_domains(node_of, domain_of), 5, 2).race(),
                std::nullopt)
          << tutti::test::text_of(domain_of);
      for (const ScheduleAcross& across : schedules_across)
        EXPECT_EQ(
            test::HappensBefore(allreduces_by_domains(node_of, domain_of, across), 5, 2).race(),
            std::nullopt)
            << tutti::test::text_of(domain_of) << ", " << across.name;
    }
}

/// Two nodes of two domains of four: of 16 ranks, 4 write out of their domain, 2 out of their node.
TEST(Domains, only_their_leaders_write_out_of_them) {
  const NodeOf node_of = in_blocks({8, 8}), domain_of = in_blocks({4, 4, 4, 4});
  std::uint32_t out_of_domain = 0, out_of_node = 0;
  for (const Plan& plan : barriers_by_domains(node_of, domain_of)) {
    EXPECT_EQ(plan.algorithm, "domains/leader/dissemination");
    for (const Step& step : plan.steps) {
      if (step.action != Action::put) continue;
      const std::size_t self = index_of(plan.self), peer = index_of(step.peer);
      out_of_domain += domain_of[self] != domain_of[peer] ? 1 : 0;
      out_of_node += node_of[self] != node_of[peer] ? 1 : 0;
    }
  }
  EXPECT_EQ(out_of_node, 2u);
  EXPECT_EQ(out_of_domain, out_of_node + 4u) << "in and out of each node";
}

TEST(Lanes, one_copy_does_not_suffice) {
  std::uint32_t races = 0;
  for (const ScheduleAcross& across : schedules_across)
    for (const std::uint32_t lanes : {1U, 2U})
      if (test::HappensBefore(plans_of(shape_of(in_blocks({2, 3, 2}), lanes), across), 5, 1).race())
        ++races;
  EXPECT_GT(races, 5U);
}

TEST(Lanes, two_copies_suffice) {
  std::mt19937 random(17);
  for (std::uint32_t ranks = 2; ranks <= 10; ++ranks)
    for (const auto& sizes : compositions(ranks)) {
      if (ranks > 6 && random() % 16 != 0) continue;
      // Each shape is tried in blocks or scattered, by chance.
      NodeOf node_of = in_blocks(sizes);
      if (random() % 2 == 0) std::shuffle(node_of.begin(), node_of.end(), random);
      node_of = renamed(node_of);
      EXPECT_EQ(test::HappensBefore(barriers_of(node_of), 5, 2).race(), std::nullopt);
      for (std::uint32_t lanes = 1; lanes <= lanes_max(ranks, node_of); ++lanes)
        for (const ScheduleAcross& across : schedules_across) {
          if (across.order == Order::rank_order && !nodes_are_runs(node_of)) continue;
          EXPECT_EQ(test::HappensBefore(plans_of(shape_of(node_of, lanes), across), 5, 2).race(),
                    std::nullopt)
              << tutti::test::text_of(node_of) << ", " << lanes << " lanes, " << across.name;
        }
    }
}

/// Trees and chains across, from and to a root.
struct RootedLanes {
  LaneShape lanes;
  Rank root;
  TreeFans fans;

  RootedShape across(std::uint32_t node_count) const {
    const std::uint32_t node =
        lanes.node_of.empty() ? index_of(root) : index_of(lanes.node_of[index_of(root)]);
    return {.root = Rank{node}, .rank_count = node_count, .fans = fans};
  }
  std::vector<Plan> broadcasts() const {
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < lanes.rank_count; ++rank)
      plans.push_back(lanes_broadcast(Rank{rank}, root, lanes, [&](Rank node, std::uint32_t count) {
        return tree_broadcast(node, across(count));
      }));
    return plans;
  }
  std::vector<Plan> reduces(Order order) const {
    std::vector<Plan> plans;
    for (std::uint32_t rank = 0; rank < lanes.rank_count; ++rank)
      plans.push_back(lanes_reduce(
          Rank{rank}, root, lanes, order,
          [&](Rank node, std::uint32_t count) { return tree_reduce(node, across(count), order); }));
    return plans;
  }
};

void expect_rooted_right(const NodeOf& node_of, Rank root, bool with_races) {
  const TreeFans some_fans[] = {
      {}, {.across_by = {Branching::Rule::fibonacci, 3}}, {.is_chain = true}};
  const auto ranks = static_cast<std::uint32_t>(node_of.size());
  for (std::uint32_t lanes = 1; lanes <= lanes_max(ranks, node_of); ++lanes)
    for (const TreeFans& fans : some_fans) {
      const RootedLanes rooted{shape_of(node_of, lanes), root, fans};
      const std::string text = tutti::test::text_of(node_of) + ", " + std::to_string(lanes) +
                               " lanes, root " + std::to_string(index_of(root));
      const auto expect = [&](const std::vector<Plan>& plans, Promise promise) {
        EXPECT_EQ(first_violation(plans, promise, root), std::nullopt)
            << text << ", " << plans[0].algorithm;
        if (with_races) {
          EXPECT_EQ(test::HappensBefore(plans, 6, 2).race(), std::nullopt)
              << text << ", " << plans[0].algorithm;
        }
      };
      expect(rooted.broadcasts(), Promise::broadcast);
      expect(rooted.reduces(Order::commutative), Promise::each_once);
      if (nodes_are_runs(node_of)) expect(rooted.reduces(Order::rank_order), Promise::rank_order);
    }
}

TEST(Lanes, broadcast_and_reduce_for_every_node_shape_and_root) {
  for (std::uint32_t ranks = 2; ranks <= (test::samples_divisor == 1 ? 9U : 7U); ++ranks)
    for (const auto& sizes : compositions(ranks))
      for (std::uint32_t root = 0; root < ranks; ++root)
        expect_rooted_right(in_blocks(sizes), Rank{root}, ranks <= 6);
}

TEST(Lanes, broadcast_and_reduce_for_sampled_placements) {
  std::mt19937 random(31);
  for (int sample = 0; sample < test::samples(100); ++sample) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(random() % 40);
    const std::uint32_t nodes = 2 + static_cast<std::uint32_t>(random() % std::min(ranks - 1, 8u));
    expect_rooted_right(placed(ranks, nodes, sample % 2 == 0, random),
                        Rank{static_cast<std::uint32_t>(random() % ranks)}, false);
  }
}

}  // namespace
}  // namespace tutti::plan
