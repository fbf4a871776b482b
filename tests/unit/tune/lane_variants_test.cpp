// Promise: whether and how lanes cut their part of the payload again costs at most a fifth more
// than the best way, by the model of a machine whose ranks share ports, on the network that prices
// assume.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "plan/cost/makespan.hpp"
#include "tune/choose.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {
namespace {

constexpr plan::NodeMemory memory = {.latency = 100'000,
                                     .send_overhead = 20'000,
                                     .per_byte = {.time = 100},
                                     .receive_overhead = 20'000};

/// As the presets of the software device.
const plan::Network fdr = {.between = {.latency = 700'000,
                                       .send_overhead = 150'000,
                                       .receive_overhead = 50'000,
                                       .gap = 100'000,
                                       .per_byte = {.time = 10'000, .bytes = 68}},
                           .inside = memory};
const plan::Network hdr = {.between = {.latency = 600'000,
                                       .send_overhead = 100'000,
                                       .receive_overhead = 50'000,
                                       .gap = 25'000,
                                       .per_byte = {.time = 10'000, .bytes = 242}},
                           .inside = memory};

Topology nodes_of(std::uint32_t node_count, std::uint32_t ranks_per_node) {
  Topology topology{.rank_count = node_count * ranks_per_node};
  for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
    topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

const Row& row_of_lanes() {
  return *std::find_if(registry().begin(), registry().end(), [](const Row& row) {
    return row.collective == Collective::allreduce && row.name == std::string("lanes");
  });
}

struct Priced {
  std::string algorithm;
  plan::Picoseconds assumed, modelled;
};

std::vector<Priced> prices_of(const Query& query, const plan::Network& network) {
  std::vector<Priced> prices;
  const Row& row = row_of_lanes();
  for (const Variant& variant : row.variants(query)) {
    std::vector<plan::Plan> plans;
    for (std::uint32_t rank = 0; rank < query.topology.rank_count; ++rank)
      plans.push_back(row.build(query, variant, Rank{rank}));
    prices.push_back(
        {plans[0].algorithm, row.cost(query, variant),
         plan::makespan(plans, network, query.topology.node_of,
                        {.payload_bytes = query.request.bytes(), .element_bytes = 8})});
  }
  return prices;
}

TEST(LaneVariants, the_cheapest_is_chosen) {
  const auto by_assumed = [](const Priced& a, const Priced& b) { return a.assumed < b.assumed; };
  const auto by_modelled = [](const Priced& a, const Priced& b) { return a.modelled < b.modelled; };
  double worst_on_fdr = 1, worst_on_hdr = 1;
  int cells = 0, divided = 0;
  for (const plan::Network* const network : {&fdr, &hdr})
    for (const std::uint32_t node_count : {2u, 4u, 8u, 16u, 32u})
      for (const std::uint32_t ranks_per_node : {2u, 4u, 8u})
        for (std::size_t bytes = 8 << 10; bytes <= 8 << 20; bytes *= 4) {
          const CollectiveRequest request{
              .element_count = bytes / 8,
              .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
              .across = Across::lanes};
          const Topology topology = nodes_of(node_count, ranks_per_node);
          const std::vector<Priced> prices = prices_of({request, topology}, *network);
          if (prices.size() < 2) continue;
          const Priced& chosen = *std::min_element(prices.begin(), prices.end(), by_assumed);
          const Priced& best = *std::min_element(prices.begin(), prices.end(), by_modelled);
          const double ratio =
              static_cast<double>(chosen.modelled) / static_cast<double>(best.modelled);
          ++cells;
          divided += &chosen != &prices[0];
          double& worst = network == &fdr ? worst_on_fdr : worst_on_hdr;
          worst = std::max(worst, ratio);
          if (ratio > 1.1)
            std::printf("%s %2u nodes of %u, %8zu bytes: %-34s %9.1f us, %-34s %9.1f us\n",
                        network == &fdr ? "fdr" : "hdr", node_count, ranks_per_node, bytes,
                        chosen.algorithm.c_str(), static_cast<double>(chosen.modelled) / 1e6,
                        best.algorithm.c_str(), static_cast<double>(best.modelled) / 1e6);
        }
  std::printf("%d cells, %d cut again, worst choice %.2f (fdr), %.2f (hdr) times the cheapest\n",
              cells, divided, worst_on_fdr, worst_on_hdr);
  EXPECT_GT(divided, 20);
  EXPECT_LE(worst_on_fdr, 1.2);
  EXPECT_LE(worst_on_hdr, 1.35);
}

// A node sends each byte of the payload 2 (N - 1) / N times, and its ranks share that.
TEST(LaneVariants, large_payloads_leave_a_node_as_often_as_in_a_ring) {
  for (const std::uint32_t node_count : {4u, 16u, 32u})
    for (const std::uint32_t ranks_per_node : {2u, 4u, 8u}) {
      const CollectiveRequest request{
          .element_count = (1 << 20) / 8,
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)};
      const Topology topology = nodes_of(node_count, ranks_per_node);
      const Choice choice = choose(request, topology);
      const double payload = static_cast<double>(request.bytes());
      const double least = 2.0 * (node_count - 1) / node_count * payload / ranks_per_node;
      for (std::uint32_t rank = 0; rank < topology.rank_count; rank += 3) {
        const plan::Plan plan = choice.plan(Rank{rank});
        double sent = 0;
        for (const plan::Step& step : plan.steps)
          if (step.action == plan::Action::put &&
              topology.node_of[index_of(step.peer)] != topology.node_of[rank])
            sent += step.payloads * payload / plan.parts;
        EXPECT_GE(sent, 0.9 * least);
        EXPECT_LE(sent, 1.05 * least) << plan.algorithm << ", rank " << rank << " of " << node_count
                                      << " nodes of " << ranks_per_node;
      }
    }
}

// How far from what the port and the memory of a node take at least: a table, by the model.
TEST(LaneVariants, what_is_chosen_for_large_payloads_beside_the_bound) {
  std::printf(
      "network  nodes  ranks a node  payload     chosen                       us   / bound\n");
  for (const plan::Network* const network : {&fdr, &hdr})
    for (const std::uint32_t node_count : {4u, 16u})
      for (const std::uint32_t ranks_per_node : {1u, 4u, 8u})
        for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{8} << 20}) {
          const CollectiveRequest request{
              .element_count = bytes / 8,
              .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)};
          const Topology topology = nodes_of(node_count, ranks_per_node);
          const Choice choice = choose(request, topology);
          std::vector<plan::Plan> plans;
          for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
            plans.push_back(choice.plan(Rank{rank}));
          const plan::Picoseconds taken = plan::makespan(
              plans, *network, topology.node_of, {.payload_bytes = bytes, .element_bytes = 8});
          const plan::Picoseconds port =
              network->between.per_byte.of(2 * bytes * (node_count - 1) / node_count);
          // A rank gives what it does not combine itself, and gives its part of the result.
          const plan::Picoseconds stores =
              network->inside.per_byte.of(2 * bytes * (ranks_per_node - 1) / ranks_per_node);
          const double ratio =
              static_cast<double>(taken) / static_cast<double>(std::max(port, stores));
          EXPECT_GE(ratio, 1);
          EXPECT_LE(ratio, 1.5);
          std::printf("%-7s  %5u  %12u  %7zu  %-26s %8.1f  %8.2f\n",
                      network == &fdr ? "fdr" : "hdr", node_count, ranks_per_node, bytes,
                      plans[0].algorithm.c_str(), static_cast<double>(taken) / 1e6, ratio);
        }
}

}  // namespace
}  // namespace tutti::tune
