// Promise: along rings of nodes every rank gets every piece of every block, whatever the blocks'
// lengths; each piece comes into a node once; two copies of the slots suffice; partners are few.
#include "plan/ring_allgather.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "happens_before.hpp"
#include "on_their_way.hpp"
#include "plan/steps.hpp"
#include "plan/verify.hpp"
#include "sizes.hpp"
#include "support/node_shapes.hpp"

namespace tutti::plan {
namespace {

using test::HappensBefore;
using Pieces = std::vector<std::uint16_t>;

constexpr std::uint32_t calls = 5;

std::vector<Plan> plans_of(const Pieces& pieces, std::span<const Node> node_of = {}) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < pieces.size(); ++rank)
    plans.push_back(ring_allgather(Rank{rank}, pieces, node_of));
  return plans;
}

/// Equal ones, one long one, decreasing ones, any.
std::vector<Pieces> distributions(std::uint32_t ranks, std::mt19937& random) {
  std::vector<Pieces> all{Pieces(ranks, 1), Pieces(ranks, 3), Pieces(ranks, 1), Pieces(ranks),
                          Pieces(ranks)};
  all[2][random() % ranks] = 17;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    all[3][rank] = static_cast<std::uint16_t>(ranks - rank);
    all[4][rank] = static_cast<std::uint16_t>(1 + random() % 5);
  }
  return all;
}

/// Ranks dealt out to nodes of one size, in order or not.
std::vector<tutti::test::NodeOf> even_shapes(std::uint32_t ranks, std::mt19937& random) {
  std::vector<tutti::test::NodeOf> shapes{{}};
  for (std::uint32_t size = 1; size <= ranks; ++size) {
    if (ranks % size != 0) continue;
    shapes.push_back(tutti::test::in_blocks(std::vector<std::uint32_t>(ranks / size, size)));
    tutti::test::NodeOf mixed = shapes.back();
    std::shuffle(mixed.begin(), mixed.end(), random);
    shapes.push_back(tutti::test::renamed(mixed));
  }
  return shapes;
}

TEST(RingAllgather, IsRightForEveryShapeOfEvenNodesAndAnyPieces) {
  std::mt19937 random(1);
  for (std::uint32_t ranks = 1; ranks <= 12; ++ranks)
    for (const tutti::test::NodeOf& node_of : even_shapes(ranks, random))
      for (const Pieces& pieces : distributions(ranks, random)) {
        const std::vector<Plan> plans = plans_of(pieces, node_of);
        EXPECT_EQ(first_violation(plans, Promise::gather), std::nullopt)
            << tutti::test::text_of(node_of) << ", " << ranks << " ranks";
        if (ranks > 6) continue;
        EXPECT_EQ(HappensBefore(plans, calls, 2).race(), std::nullopt)
            << tutti::test::text_of(node_of) << ", " << ranks << " ranks";
      }
}

TEST(RingAllgather, IsRightForManyRanks) {
  std::mt19937 random(2);
  for (const std::uint32_t ranks : {33u, test::up_to(64u)})
    for (const Pieces& pieces : distributions(ranks, random))
      EXPECT_EQ(first_violation(plans_of(pieces), Promise::gather), std::nullopt) << ranks;
}

/// Few receives do for many pieces.
TEST(RingAllgather, WhoDoesNotLookFindsNoMoreThanThePlanSays) {
  for (const Pieces& pieces :
       {Pieces{50, 50, 50}, Pieces{90, 1, 1, 1}, Pieces{1, 90, 1, 40}, Pieces{1, 1, 1, 1, 130}}) {
    const std::vector<Plan> plans = plans_of(pieces);
    EXPECT_EQ(first_violation(plans, Promise::gather), std::nullopt);
    EXPECT_EQ(HappensBefore(plans, 3, 2).race(), std::nullopt);
    EXPECT_EQ(plans[0].incoming_max, 30u);
    const std::size_t most = test::most_on_their_way(plans, 3);
    EXPECT_LE(most, plans[0].incoming_max);
    EXPECT_GE(most, 3u);
  }
}

TEST(RingAllgather, OneCopyOfTheSlotsWouldNotDo) {
  EXPECT_NE(HappensBefore(plans_of({2, 1, 1}), calls, 1).race(), std::nullopt);
}

TEST(RingAllgather, MissingPiecesAreSeen) {
  std::vector<Plan> plans = plans_of({2, 1, 1});
  // The second piece of rank 0's block comes to rank 2 in place of the first.
  for (Step& step : plans[2].steps)
    if (step.action == Action::copy && step.part == 0 && step.into.place == Place::target)
      step.from = slot_register(1);
  EXPECT_NE(first_violation(plans, Promise::gather), std::nullopt);
}

TEST(RingAllgather, HasTwoPartnersElsewhereAndPiecesComeOnceIntoANode) {
  const tutti::test::NodeOf node_of = tutti::test::in_blocks({3, 3, 3, 3});
  Pieces pieces(12, 1);
  pieces[4] = 9;
  std::size_t sent = 0, total = std::accumulate(pieces.begin(), pieces.end(), std::size_t{0});
  std::set<std::size_t> sent_by_lane;
  for (const Plan& plan : plans_of(pieces, node_of)) {
    std::set<Rank> told, heard;
    std::size_t far = 0;
    for (const Step& step : plan.steps) {
      if (step.peer == no_rank || node_of[index_of(step.peer)] == node_of[index_of(plan.self)])
        continue;
      (step.action == Action::put ? told : heard).insert(step.peer);
      far += step.action == Action::put ? 1u : 0u;
    }
    EXPECT_EQ(told.size(), 1u);
    EXPECT_EQ(heard.size(), 1u);
    sent += far;
    if (node_of[index_of(plan.self)] == Node{1}) sent_by_lane.insert(far);
  }
  EXPECT_EQ(sent, total * 3) << "into each of the other nodes";
  // Node 1 holds that block: its 9 pieces are dealt out, 3 to each lane.
  EXPECT_LE(*sent_by_lane.rbegin() - *sent_by_lane.begin(), 1u);
}

}  // namespace
}  // namespace tutti::plan
