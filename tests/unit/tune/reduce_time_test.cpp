// Promise: what reduces on nodes of equally many ranks are priced by, without any plan, is about
// the recurrence of all events.
#include "tune/reduce_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "equal_nodes.hpp"
#include "tune/choose.hpp"
#include "tune/machine.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {
namespace {

TEST(ReduceTime, is_about_the_recurrence_of_all_events) {
  Quotients quotients;
  for (const char* const preset : {"qdr", "hdr", "roce25"}) {
    const plan::Network network = machine_preset(preset).network();
    for (const Agreement agreement : {Agreement::identical, Agreement::relaxed})
      for (const std::uint32_t node_count : {2u, 5u, 9u, 16u, 33u})
        for (const std::uint32_t ranks_per_node : {1u, 3u, 8u})
          for (const std::size_t bytes : {8u, 1024u, 4096u}) {
            const CollectiveRequest request{
                .collective = Collective::reduce,
                .element_count = bytes / 8,
                .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
                .agreement = agreement,
                .root = Rank{0}};
            const Topology topology = nodes_of(node_count, ranks_per_node);
            const std::vector<Choice> all = rivals(request, topology, network);
            for (const Choice& choice : all) {
              if (all.size() < 2 || choice.variant().fans.is_chain) continue;
              quotients.add(choice.cost(), plan_time({request, topology, network},
                                                     [&](Rank self) { return choice.plan(self); }));
            }
          }
  }
  quotients.print("reduces");
  EXPECT_GT(quotients.count, 200u);
  EXPECT_GE(quotients.least, 0.9);
  EXPECT_LE(quotients.largest, 1.05);
}

}  // namespace
}  // namespace tutti::tune
