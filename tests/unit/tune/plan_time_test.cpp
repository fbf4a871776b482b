// Promise: the time of one node that stands for all is about that of the events of all nodes.
#include "tune/plan_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "equal_nodes.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/cost/makespan.hpp"
#include "tune/choose.hpp"
#include "tune/machine.hpp"

namespace tutti::tune {
namespace {

TEST(PlanTime, of_one_node_is_that_of_all_where_nodes_do_alike) {
  Quotients flat, by_nodes;
  for (const char* const preset : {"qdr", "hdr"}) {
    const plan::Network network = machine_preset(preset).network();
    for (const Collective collective : {Collective::barrier, Collective::allreduce})
      for (const Agreement agreement : {Agreement::identical, Agreement::relaxed})
        for (const std::uint32_t node_count : {5u, 16u, 40u})
          for (const std::uint32_t ranks_per_node : {1u, 4u})
            for (const std::size_t bytes : {8u, 2048u, 65536u}) {
              const bool has_payload = collective == Collective::allreduce;
              const CollectiveRequest request{
                  .collective = collective,
                  .element_count = has_payload ? bytes / 8 : 0,
                  .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
                  .agreement = agreement};
              const Topology topology = nodes_of(node_count, ranks_per_node);
              for (const Choice& choice : rivals(request, topology, network)) {
                const Query query = choice.query();
                if (!nodes_do_alike(query, choice.row(), choice.variant(), choice.first_plan()))
                  continue;
                const std::optional<plan::Picoseconds> time =
                    followed_time(query, choice.row(), choice.variant(), choice.first_plan());
                if (!time) continue;
                const plan::Picoseconds truth =
                    priced_plan_time(query, [&](Rank self) { return choice.plan(self); });
                (ranks_per_node == 1 ? flat : by_nodes).add(*time, truth);
              }
            }
  }
  flat.print("each rank a node of its own");
  by_nodes.print("nodes of 4 ranks");
  for (const Quotients& quotients : {flat, by_nodes}) {
    EXPECT_GT(quotients.count, 50u);
    EXPECT_GT(2 * quotients.equal, quotients.count);
    EXPECT_GE(quotients.least, 0.99);
    EXPECT_LE(quotients.largest, 1.01);
  }
}

TEST(PlanTime, of_one_node_is_the_largest_number_where_another_node_does_not_do_alike) {
  const plan::Network network = machine_preset("fdr").network();
  const std::vector<plan::Plan> root{plan::dissemination_allreduce(Rank{0}, 4, {3}),
                                     plan::dissemination_allreduce(Rank{1}, 4, {3})};
  std::vector<plan::Plan> awaits = root;
  for (plan::Step& step : awaits[0].steps)
    if (step.action == plan::Action::put) step.slot = 0;  // nobody sends the others
  const std::vector<Node> node_of{Node{0}, Node{0}, Node{1}, Node{1}};
  const std::vector<std::uint32_t> place_of{0, 1, 0, 1};
  const plan::Call call{.payload_bytes = 8, .element_bytes = 8};
  EXPECT_LT(plan::makespan_of_node(root, network, node_of, place_of, call), 100'000'000);
  EXPECT_EQ(plan::makespan_of_node(awaits, network, node_of, place_of, call),
            std::numeric_limits<plan::Picoseconds>::max());
}

TEST(PlanTime, halves_are_exchanged_in_pairs_of_which_no_node_tells_the_other) {
  const plan::Network network = machine_preset("fdr").network();
  const Topology topology = nodes_of(8, 4);
  const CollectiveRequest request{
      .collective = Collective::allreduce,
      .element_count = 131072,
      .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
      .only = "4 lanes, canonical_halving across"};
  const Choice choice = choose(request, topology, network);
  EXPECT_TRUE(choice.first_plan().parts > 1);
  EXPECT_FALSE(nodes_do_alike(choice.query(), choice.row(), choice.variant(), choice.first_plan()));
}

}  // namespace
}  // namespace tutti::tune
