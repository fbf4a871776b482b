// Promise: zero-copy broadcasts and allgathers, and allreduces and reduces of ranks that share
// nodes, are right for every shape of nodes, every placement and root; nobody writes a buffer, or
// ends a call, while a peer or the network may use it; no payload needs a register, but for those
// that an allreduce combines across nodes, and a reduce for its root and across; no more messages
// are on their way than the plan says.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/allreduce/zero_copy_allreduce.hpp"
#include "plan/blocks/zero_copy_allgather.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/verify.hpp"
#include "plan/rooted/zero_copy_broadcast.hpp"
#include "plan/rooted/zero_copy_reduce.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;
using tutti::test::compositions, tutti::test::in_blocks, tutti::test::NodeOf, tutti::test::placed;

constexpr std::uint32_t calls = 4;

TreeFans flat_binomial(std::uint32_t ranks) {
  return {.in_node = {ranks}};
}
TreeFans chain(std::uint32_t ranks) {
  return {.in_node = {ranks}, .is_chain = true};
}
TreeFans fibonacci(std::uint32_t) {
  return {.across_by = {Branching::Rule::fibonacci, 3}};
}
constexpr auto every_fans = {flat_binomial, chain, fibonacci};

std::vector<Plan> broadcasts(const NodeOf& node_of, Rank root, const TreeFans& fans,
                             std::uint16_t pieces) {
  const auto count = static_cast<std::uint32_t>(node_of.size());
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    plans.push_back(zero_copy_broadcast(
        Rank{rank}, {.root = root, .rank_count = count, .node_of = node_of, .fans = fans}, pieces));
  return plans;
}

std::vector<Plan> allgathers(const NodeOf& node_of, std::uint16_t pieces) {
  const auto count = static_cast<std::uint32_t>(node_of.size());
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    plans.push_back(zero_copy_allgather(Rank{rank}, count, node_of, pieces));
  return plans;
}

std::vector<Plan> allreduces(const NodeOf& node_of, std::uint16_t pieces) {
  const ZeroCopyLanes shape{.rank_count = static_cast<std::uint32_t>(node_of.size()),
                            .node_of = node_of,
                            .pieces = pieces};
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank)
    plans.push_back(zero_copy_allreduce(Rank{rank}, shape));
  return plans;
}

std::vector<Plan> reduces(const NodeOf& node_of, Rank root, std::uint16_t pieces) {
  const ZeroCopyReduce shape{.root = root,
                             .rank_count = static_cast<std::uint32_t>(node_of.size()),
                             .node_of = node_of,
                             .pieces = pieces};
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank)
    plans.push_back(zero_copy_reduce(Rank{rank}, shape));
  return plans;
}

void expect_no_payload_in_registers(const std::vector<Plan>& plans) {
  for (const Plan& plan : plans) {
    EXPECT_TRUE(has_no_registers(plan));
    EXPECT_EQ(plan.partial_count, 0u);
  }
}

/// All shapes of two nodes and more, or of ranks that share nodes, and others whose ranks are dealt
/// out.
enum class Shapes { of_nodes, of_shared_nodes };
template <class F>
void for_every_shape(std::uint32_t ranks_max, F&& f, Shapes shapes = Shapes::of_nodes) {
  std::mt19937 random(7);
  for (std::uint32_t ranks = 2; ranks <= ranks_max; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : compositions(ranks)) {
      if (shapes == Shapes::of_shared_nodes && sizes.size() == ranks) continue;
      if (shapes == Shapes::of_nodes && sizes.size() < 2) continue;
      f(in_blocks(sizes));
      if (sizes.size() < 2) continue;
      const NodeOf dealt =
          placed(ranks, static_cast<std::uint32_t>(sizes.size()), sizes[0] % 2 == 0, random);
      if (node_count_of(dealt, ranks) > 1) f(dealt);
    }
}

TEST(ZeroCopy, broadcasts_are_right_for_every_shape_and_root) {
  for_every_shape(test::samples_divisor == 1 ? 8 : 5, [](const NodeOf& node_of) {
    for (const auto fans : every_fans)
      for (std::uint32_t root = 0; root < node_of.size(); ++root) {
        const std::vector<Plan> plans =
            broadcasts(node_of, Rank{root}, fans(static_cast<std::uint32_t>(node_of.size())), 3);
        ASSERT_EQ(first_violation(plans, Promise::broadcast, Rank{root}), std::nullopt)
            << node_of.size() << " ranks, root " << root;
        expect_no_payload_in_registers(plans);
      }
  });
}

TEST(ZeroCopy, broadcasts_of_many_pieces_go_in_windows) {
  for (const std::uint16_t pieces : {std::uint16_t{12}, std::uint16_t{13}, std::uint16_t{50}})
    for (const NodeOf& node_of : {in_blocks({1, 1, 1}), in_blocks({2, 3, 1})})
      for (const auto fans : every_fans) {
        const std::vector<Plan> plans = broadcasts(node_of, Rank{1}, fans(6), pieces);
        EXPECT_EQ(first_violation(plans, Promise::broadcast, Rank{1}), std::nullopt);
        EXPECT_EQ(HappensBefore(plans, calls, 2).race(), std::nullopt);
      }
}

TEST(ZeroCopy, broadcasts_write_nothing_that_is_in_use) {
  for_every_shape(6, [](const NodeOf& node_of) {
    for (const auto fans : every_fans)
      for (std::uint32_t root = 0; root < node_of.size(); ++root)
        ASSERT_EQ(HappensBefore(broadcasts(node_of, Rank{root},
                                           fans(static_cast<std::uint32_t>(node_of.size())), 2),
                                calls, 2)
                      .race(),
                  std::nullopt)
            << node_of.size() << " ranks, root " << root;
  });
}

TEST(ZeroCopy, allgathers_are_right_for_every_shape) {
  for_every_shape(test::samples_divisor == 1 ? 9 : 5, [](const NodeOf& node_of) {
    for (const std::uint16_t pieces : {std::uint16_t{1}, std::uint16_t{3}}) {
      const std::vector<Plan> plans = allgathers(node_of, pieces);
      ASSERT_EQ(first_violation(plans, Promise::gather), std::nullopt)
          << node_of.size() << " ranks, " << pieces << " pieces";
      expect_no_payload_in_registers(plans);
    }
  });
}

TEST(ZeroCopy, allgathers_write_nothing_that_is_in_use) {
  for_every_shape(6, [](const NodeOf& node_of) {
    for (const auto buffers : {HappensBefore::Buffers::same, HappensBefore::Buffers::apart})
      ASSERT_EQ(HappensBefore(allgathers(node_of, 2), calls, 2, buffers).race(), std::nullopt)
          << node_of.size() << " ranks";
  });
}

TEST(ZeroCopy, allreduces_are_right_for_every_shape) {
  for_every_shape(
      test::samples_divisor == 1 ? 9 : 5,
      [](const NodeOf& node_of) {
        for (const std::uint16_t pieces : {std::uint16_t{1}, std::uint16_t{3}}) {
          const std::vector<Plan> plans = allreduces(node_of, pieces);
          ASSERT_EQ(first_violation(plans, Promise::same_result), std::nullopt)
              << node_of.size() << " ranks, " << pieces << " pieces";
          if (node_count_of(node_of, 0) == 1) expect_no_payload_in_registers(plans);
          EXPECT_EQ(plans[0].parts,
                    zero_copy_parts(ZeroCopyLanes{
                        .rank_count = plans[0].rank_count, .node_of = node_of, .pieces = pieces}));
        }
      },
      Shapes::of_shared_nodes);
}

TEST(ZeroCopy, allreduces_write_nothing_that_is_in_use) {
  for_every_shape(
      6,
      [](const NodeOf& node_of) {
        for (const auto buffers : {HappensBefore::Buffers::same, HappensBefore::Buffers::apart})
          ASSERT_EQ(HappensBefore(allreduces(node_of, 2), calls, 2, buffers).race(), std::nullopt)
              << node_of.size() << " ranks";
      },
      Shapes::of_shared_nodes);
}

// Operands come in another order than that of ranks, but are combined once for all of them.
TEST(ZeroCopy, allreduces_do_not_keep_rank_order) {
  EXPECT_NE(first_violation(allreduces(in_blocks({3}), 1), Promise::rank_order), std::nullopt);
}

TEST(ZeroCopy, reduces_are_right_for_every_shape_and_root) {
  for_every_shape(
      test::samples_divisor == 1 ? 8 : 5,
      [](const NodeOf& node_of) {
        const NodeCounts counts =
            counts_of_nodes(static_cast<std::uint32_t>(node_of.size()), node_of);
        if (counts.smallest < 2) return;
        for (std::uint32_t root = 0; root < node_of.size(); ++root)
          for (const std::uint16_t pieces : {std::uint16_t{1}, std::uint16_t{4}}) {
            const std::vector<Plan> plans = reduces(node_of, Rank{root}, pieces);
            ASSERT_EQ(first_violation(plans, Promise::each_once, Rank{root}), std::nullopt)
                << node_of.size() << " ranks, root " << root << ", " << pieces << " pieces";
            for (const Plan& plan : plans) {
              EXPECT_EQ(plan.parts, counts.smallest * pieces);
              EXPECT_EQ(plan.per_round.size(), counts.nodes == 1 ? 3u : 4u);
              EXPECT_EQ(has_no_registers(plan), counts.nodes == 1);
              EXPECT_LE(plan.partial_count, index_of(plan.self) == root ? 0u : pieces);
              EXPECT_FALSE(exposes_target(plan));
            }
          }
      },
      Shapes::of_shared_nodes);
}

TEST(ZeroCopy, reduces_write_nothing_that_is_in_use) {
  for_every_shape(
      6,
      [](const NodeOf& node_of) {
        if (counts_of_nodes(static_cast<std::uint32_t>(node_of.size()), node_of).smallest < 2)
          return;
        for (std::uint32_t root = 0; root < node_of.size(); ++root)
          for (const auto buffers : {HappensBefore::Buffers::same, HappensBefore::Buffers::apart})
            ASSERT_EQ(HappensBefore(reduces(node_of, Rank{root}, 2), calls, 2, buffers).race(),
                      std::nullopt)
                << node_of.size() << " ranks, root " << root;
      },
      Shapes::of_shared_nodes);
}

// A chain: however many nodes there are, a rank meets two others across, and its node's.
TEST(ZeroCopy, reduces_connect_a_rank_with_its_neighbours_along_the_chain) {
  const NodeOf node_of = in_blocks({2, 2, 2, 2, 2, 2});
  for (const Plan& plan : reduces(node_of, Rank{5}, 3)) {
    std::set<Rank> partners;
    for (const Step& step : plan.steps)
      if (step.peer != no_rank) partners.insert(step.peer);
    EXPECT_LE(partners.size(), 3u);
  }
}

TEST(ZeroCopy, reduces_of_more_ranks_than_slots_suffice_for_are_known) {
  const auto is_possible = [](const std::vector<std::uint32_t>& nodes, std::uint16_t pieces) {
    const NodeOf node_of = in_blocks(nodes);
    return is_zero_copy_reduce({.rank_count = static_cast<std::uint32_t>(node_of.size()),
                                .node_of = node_of,
                                .pieces = pieces});
  };
  EXPECT_TRUE(is_possible({2}, 1));
  EXPECT_FALSE(is_possible({1}, 1));
  EXPECT_FALSE(is_possible({1, 1}, 1));
  EXPECT_FALSE(is_possible({2, 1}, 1));
  EXPECT_FALSE(is_zero_copy_reduce({.rank_count = 4})) << "each rank is a node";
  EXPECT_FALSE(is_possible({2}, 0));
  EXPECT_TRUE(is_possible({1'900}, 8));
  EXPECT_FALSE(is_possible({2'048}, 8));
  EXPECT_TRUE(is_possible({1'900, 1'900}, 8));
  const NodeOf three = in_blocks({3});
  EXPECT_EQ(zero_copy_parts(ZeroCopyReduce{.rank_count = 3, .node_of = three, .pieces = 8}), 24u);
}

TEST(ZeroCopy, reduces_do_not_keep_rank_order) {
  EXPECT_NE(first_violation(reduces(in_blocks({3}), Rank{0}, 1), Promise::rank_order, Rank{0}),
            std::nullopt);
}

// Messages inside nodes take no receives; without them, ranks are further ahead than they can be.
TEST(ZeroCopy, no_more_messages_of_a_reduce_are_on_their_way_than_its_plan_says) {
  for (const std::uint16_t pieces : {std::uint16_t{1}, std::uint16_t{5}, std::uint16_t{16}})
    for (const NodeOf& node_of : {in_blocks({2, 2}), in_blocks({3, 2, 2})})
      for (std::uint32_t root = 0; root < node_of.size(); ++root) {
        std::vector<Plan> plans = reduces(node_of, Rank{root}, pieces);
        const std::uint32_t most = plans[0].incoming_max;
        EXPECT_EQ(most, std::max<std::uint32_t>(pieces, 2));
        for (Plan& plan : plans)
          std::erase_if(plan.steps, [&](const Step& step) {
            return step.peer != no_rank &&
                   index_of(node_of[index_of(step.peer)]) == index_of(node_of[index_of(plan.self)]);
          });
        EXPECT_LE(test::most_on_their_way(plans, calls), most);
      }
}

// Rank 0, whose messages are counted, is alone on its node: others of a node take no receives.
TEST(ZeroCopy, no_more_messages_are_on_their_way_than_the_plans_say) {
  for (const std::uint16_t pieces : {std::uint16_t{1}, std::uint16_t{5}, std::uint16_t{40}})
    for (const NodeOf& node_of :
         {in_blocks({1, 1}), in_blocks({1, 2}), in_blocks({1, 3, 2}), in_blocks({1, 1, 1, 1})}) {
      EXPECT_LE(test::most_on_their_way(allgathers(node_of, pieces), calls), pieces + 2u);
      if (node_count_of(node_of, 0) < node_of.size()) {
        EXPECT_LE(test::most_on_their_way(allreduces(node_of, pieces), calls), 2u * pieces);
      }
      const auto last = static_cast<std::uint32_t>(node_of.size() - 1);
      EXPECT_LE(
          test::most_on_their_way(broadcasts(node_of, Rank{last}, chain(last), pieces), calls),
          std::clamp<std::uint16_t>(pieces, 2, 12));
    }
}

// ---- Plans that leave out what they must not ----------------------------------------------------

template <class IsLeftOut>
std::vector<Plan> without(std::vector<Plan> plans, IsLeftOut&& is_left_out) {
  for (Plan& plan : plans) std::erase_if(plan.steps, is_left_out);
  return plans;
}

bool is_entry(const Step& step) {
  return step.into_target && step.payloads == 0;
}
bool is_acknowledgement(const Step& step) {
  return (step.action == Action::put || step.action == Action::await) && step.payloads == 0 &&
         !step.into_target;
}
bool awaits_sent(const Step& step) {
  return step.action == Action::await_sent;
}

TEST(ZeroCopy, without_entries_a_target_could_be_written_too_early) {
  const NodeOf node_of = in_blocks({2, 2});
  const std::vector<Plan> sent = without(broadcasts(node_of, Rank{0}, chain(4), 2), is_entry);
  EXPECT_NE(first_violation(sent, Promise::broadcast, Rank{0}), std::nullopt);
  EXPECT_NE(HappensBefore(sent, calls, 2).race(), std::nullopt);
  const std::vector<Plan> gathered = without(allgathers(node_of, 2), is_entry);
  const std::string violation = first_violation(gathered, Promise::gather).value_or("");
  EXPECT_NE(violation.find("which may not have entered"), std::string::npos) << violation;
  EXPECT_NE(HappensBefore(gathered, calls, 2).race(), std::nullopt);
}

TEST(ZeroCopy, without_acknowledgements_a_call_would_end_while_its_buffer_is_read) {
  const NodeOf node_of = in_blocks({2, 2});
  EXPECT_NE(HappensBefore(without(broadcasts(node_of, Rank{0}, chain(4), 2), is_acknowledgement),
                          calls, 2)
                .race(),
            std::nullopt);
  EXPECT_NE(HappensBefore(without(allgathers(node_of, 2), is_acknowledgement), calls, 2).race(),
            std::nullopt);
}

TEST(ZeroCopy, what_is_sent_is_awaited_at_its_end) {
  const NodeOf node_of = in_blocks({1, 2});
  const std::vector<Plan> sent = without(broadcasts(node_of, Rank{0}, chain(3), 1), awaits_sent);
  EXPECT_EQ(first_violation(sent, Promise::broadcast, Rank{0}),
            "rank 0: ends while its source may be on its way");
  EXPECT_NE(HappensBefore(sent, calls, 2).race(), std::nullopt);
  const std::vector<Plan> gathered = without(allgathers(node_of, 1), awaits_sent);
  EXPECT_NE(first_violation(gathered, Promise::gather), std::nullopt);
  EXPECT_NE(HappensBefore(gathered, calls, 2).race(), std::nullopt);
}

TEST(ZeroCopy, an_allreduce_that_leaves_something_out_is_seen) {
  const NodeOf node_of = in_blocks({2, 2});
  const auto race_without = [&](auto&& is_left_out) {
    return HappensBefore(without(allreduces(node_of, 2), is_left_out), calls, 2).race();
  };
  EXPECT_NE(race_without(is_acknowledgement), std::nullopt);
  EXPECT_NE(race_without(awaits_sent), std::nullopt);
  // The result of the other rank is copied into what that rank may still read as a source.
  EXPECT_NE(race_without([](const Step& step) {
              return step.action == Action::await && step.by_reference && step.round > 0;
            }),
            std::nullopt);
}

TEST(ZeroCopy, a_reduce_that_leaves_something_out_is_seen) {
  for (const NodeOf& node_of : {in_blocks({3}), in_blocks({2, 2}), in_blocks({3, 2})}) {
    const auto race_without = [&](auto&& is_left_out) {
      return HappensBefore(without(reduces(node_of, Rank{1}, 2), is_left_out), calls, 2).race();
    };
    // Others end their calls while their sources are read, or what they have combined.
    EXPECT_NE(race_without(is_acknowledgement), std::nullopt);
    // The root copies what may not have been combined yet into what may still be read as a source.
    EXPECT_NE(race_without([](const Step& step) {
                return step.action == Action::await && step.by_reference && step.round > 0;
              }),
              std::nullopt);
    // The root acknowledges before it has copied.
    std::vector<Plan> hasty = reduces(node_of, Rank{1}, 2);
    std::stable_partition(hasty[1].steps.begin(), hasty[1].steps.end(),
                          [](const Step& step) { return step.action != Action::copy; });
    EXPECT_NE(HappensBefore(hasty, calls, 2).race(), std::nullopt);
  }
}

TEST(ZeroCopy, what_grows_has_to_be_there) {
  std::vector<Plan> plans = allreduces(in_blocks({3}), 1);
  for (Step& step : plans[0].steps)
    if (step.action == Action::combine) step.grows = true;
  const std::string undefined = first_violation(plans, Promise::same_result).value_or("");
  EXPECT_NE(undefined.find("combines into target, which is undefined"), std::string::npos)
      << undefined;
  plans = allreduces(in_blocks({3}), 1);
  for (Step& step : plans[0].steps) step.grows = false;
  const std::string lost = first_violation(plans, Promise::same_result).value_or("");
  EXPECT_NE(lost.find("reads source after target was written"), std::string::npos) << lost;
  plans = allreduces(in_blocks({3}), 1);
  for (Step& step : plans[0].steps)
    if (step.action == Action::copy) step.grows = true;
  const std::string refused = first_violation(plans, Promise::same_result).value_or("");
  EXPECT_NE(refused.find("grows in another way"), std::string::npos) << refused;
}

}  // namespace
}  // namespace tutti::plan
