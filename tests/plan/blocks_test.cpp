// Promise: collectives of blocks are right for every rank count and root, copied and by reference;
// two copies of their slots suffice however far a rank runs ahead; nobody writes a buffer, or ends
// a call, while a peer may read it.
#include "plan/blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "happens_before.hpp"
#include "plan/chunked_fold.hpp"
#include "plan/node_allgather.hpp"
#include "plan/verify.hpp"
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

std::vector<Collective> collectives(Transport transport) {
  return {{"allgather", Promise::gather, false,
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
          {"scatter", Promise::scatter, true, [=](Rank self, std::uint32_t count, Rank root) {
             return direct_scatter(self, count, root, transport);
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

TEST(Blocks, AreRightForEveryRankCountAndRoot) {
  for (const Transport transport : {Transport::copied, Transport::by_reference})
    for (const Collective& collective : collectives(transport))
      for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to / 2; ++ranks)
        for_roots(collective, ranks, [&](Rank root) {
          EXPECT_EQ(first_violation(plans_of(collective, ranks, root), collective.promise, root),
                    std::nullopt)
              << collective.name << ", " << ranks << " ranks, root " << index_of(root);
        });
}

TEST(Blocks, NothingIsWrittenWhileAPeerMayReadIt) {
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

std::vector<Plan> allgather_plans_of(const tutti::test::NodeOf& node_of) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < node_of.size(); ++rank)
    plans.push_back(node_allgather(Rank{rank}, node_of));
  return plans;
}

void expect_right(const tutti::test::NodeOf& node_of) {
  const std::vector<Plan> plans = allgather_plans_of(node_of);
  EXPECT_EQ(first_violation(plans, Promise::gather), std::nullopt) << tutti::test::text_of(node_of);
  if (node_of.size() > 9) return;
  EXPECT_EQ(HappensBefore(plans, calls, 2).race(), std::nullopt) << tutti::test::text_of(node_of);
}

TEST(Blocks, OfNodesAreRightForEveryShape) {
  for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
    for (const std::vector<std::uint32_t>& sizes : tutti::test::compositions(ranks))
      expect_right(tutti::test::in_blocks(sizes));
  std::mt19937 random(3);
  for (int sample = 0; sample < 60; ++sample) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(random()) % 40;
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

TEST(Blocks, OfNodesGoOnceIntoEachAndAreDealtOutEvenly) {
  const tutti::test::NodeOf even = tutti::test::in_blocks({4, 4, 4});
  for (const Plan& plan : allgather_plans_of(even)) {
    EXPECT_EQ(far_steps(plan, Action::put, even), 2u) << "one into each of the other nodes";
    EXPECT_EQ(far_steps(plan, Action::await, even), 2u) << "from its like there";
  }
  const tutti::test::NodeOf uneven = tutti::test::in_blocks({2, 5});
  const std::size_t expected[] = {3, 2, 1, 1, 0, 0, 0};
  for (const Plan& plan : allgather_plans_of(uneven)) {
    EXPECT_EQ(far_steps(plan, Action::await, uneven), expected[index_of(plan.self)])
        << index_of(plan.self);
  }
}

TEST(Blocks, OfNodesOneCopyOfTheSlotsWouldNotDo) {
  EXPECT_NE(HappensBefore(allgather_plans_of(tutti::test::in_blocks({2, 3})), calls, 1).race(),
            std::nullopt);
}

/// What is in the way of swapping blocks by reference in place.
TEST(Blocks, SwappedInPlaceByReferenceWouldBeWrittenTooEarly) {
  const Collective alltoall = collectives(Transport::by_reference)[1];
  EXPECT_NE(HappensBefore(plans_of(alltoall, 3, no_rank), calls, 2).race(), std::nullopt);
}

TEST(Blocks, OneCopyOfTheSlotsWouldNotDo) {
  const Collective alltoall = collectives(Transport::copied)[1];
  EXPECT_NE(HappensBefore(plans_of(alltoall, 3, no_rank), calls, 1).race(), std::nullopt);
}

TEST(Blocks, WithoutAnswersByReferenceWouldBeWrong) {
  for (const Collective& collective : collectives(Transport::by_reference)) {
    std::vector<Plan> plans = plans_of(collective, 3, Rank{1});
    for (Plan& plan : plans)
      std::erase_if(plan.steps, [](const Step& step) {
        return (step.action == Action::put || step.action == Action::await) && step.segments == 0;
      });
    HappensBefore order(plans, calls, 2, HappensBefore::Buffers::apart);
    EXPECT_NE(order.race(), std::nullopt) << collective.name;
  }
}

TEST(Blocks, ReduceScatterFollowsTheCanonicalTree) {
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

TEST(Blocks, ABlockForAnotherRankIsSeen) {
  const Collective alltoall = collectives(Transport::copied)[1];
  std::vector<Plan> plans = plans_of(alltoall, 3, no_rank);
  std::swap(plans[0].steps[1].part, plans[0].steps[3].part);
  EXPECT_NE(violation_of(plans, Promise::gather), "none");
  plans = plans_of(alltoall, 3, no_rank);
  for (Plan& plan : plans) plan.swaps_blocks = false;
  EXPECT_NE(violation_of(plans, Promise::gather), "none");
}

TEST(Blocks, ABlockThatIsNotWrittenOrNotWantedIsSeen) {
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
