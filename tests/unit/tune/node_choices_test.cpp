// Promise: on nodes of many ranks, what is chosen takes at most a tenth longer than the fastest of
// all that is considered, by the model of a machine whose ranks share memory and ports.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "plan/cost/makespan.hpp"
#include "row_plans.hpp"
#include "tune/choose.hpp"
#include "tune/hierarchy.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {
namespace {

constexpr plan::NodeMemory memory = {.latency = 100'000,
                                     .send_overhead = 20'000,
                                     .per_byte = {.time = 100},
                                     .receive_overhead = 20'000,
                                     .read_overhead = 500'000,
                                     .read_per_byte = {.time = 100}};
struct NamedNetwork {
  const char* name;
  plan::Network network;
};
const NamedNetwork networks[] = {
    {"fdr",
     {.between = {.latency = 700'000,
                  .send_overhead = 150'000,
                  .receive_overhead = 50'000,
                  .gap = 100'000,
                  .per_byte = {.time = 10'000, .bytes = 68}},
      .inside = memory}},
    {"hdr",
     {.between = {.latency = 600'000,
                  .send_overhead = 100'000,
                  .receive_overhead = 50'000,
                  .gap = 25'000,
                  .per_byte = {.time = 10'000, .bytes = 242}},
      .inside = memory}}};

Topology nodes_of(std::uint32_t node_count, std::uint32_t ranks_per_node) {
  Topology topology{.rank_count = node_count * ranks_per_node};
  for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
    topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

plan::Picoseconds time_of(const Query& query, const Row& row, const Variant& variant,
                          const plan::Network& network, std::string& name) {
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < query.topology.rank_count; ++rank)
    plans.push_back(row.build(query, variant, Rank{rank}));
  name = plans[0].algorithm + "/" + std::to_string(variant.lane_count) + "x" + std::to_string(variant.sub_blocks);
  return plan::makespan(plans, network, query.topology.node_of,
                        {.payload_bytes = query.request.bytes() *
                             (query.request.collective == Collective::allgather ||
                                      query.request.collective == Collective::alltoall
                                  ? query.topology.rank_count
                                  : 1),
                         .element_bytes = 8});
}

TEST(NodeChoices, table) {
  const char* only = std::getenv("ONLY");
  const std::uint32_t ranks_max = std::getenv("RANKS") ? atoi(std::getenv("RANKS")) : 256;
  for (const Collective collective :
       {Collective::barrier, Collective::allreduce, Collective::broadcast, Collective::reduce,
        Collective::allgather, Collective::alltoall}) {
    if (only && std::string(only) != name_of(collective)) continue;
    for (const auto& [network_name, network] : networks)
      for (const std::uint32_t node_count : {4u, 8u, 16u, 32u})
        for (const std::uint32_t ranks_per_node : {1u, 4u, 8u, 32u})
          for (std::size_t bytes = 8; bytes <= 8 << 20; bytes *= 8) {
            if (node_count * ranks_per_node > ranks_max) continue;
            const Topology topology = nodes_of(node_count, ranks_per_node);
            const bool blocks = collective == Collective::allgather ||
                                      collective == Collective::alltoall;
            if (blocks && bytes / topology.rank_count < 8) continue;
            if (collective == Collective::barrier && bytes > 8) break;
            CollectiveRequest request{
                .collective = collective,
                .element_count = bytes / 8 / (blocks ? topology.rank_count : 1),
                .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)};
            if (collective == Collective::broadcast || collective == Collective::reduce) request.root = Rank{0};
            if (collective == Collective::barrier) request.element_count = 0;
            const Choice choice = choose(request, topology, network);
            std::string chosen, name, best_name;
            const plan::Picoseconds taken =
                time_of({request, topology, network}, choice.row(), choice.variant(), network, chosen);
            plan::Picoseconds best = taken;
            best_name = chosen;
            std::string all;
            for (const Row& row : registry()) {
              if (row.collective != collective || row.is_flow || row.name == std::string("single_copy")) continue;
              CollectiveRequest one = request;
              if (row.hierarchy == Hierarchy::domains) continue;
              if (row.hierarchy == Hierarchy::leader) one.across = Across::leader;
              if (row.hierarchy == Hierarchy::lanes) one.across = Across::lanes;
              const Query query{one, topology, network};
              if (row.hierarchy != Hierarchy::flat && !topology.has_shared_nodes()) continue;
              if (row.why_not_unasked != nullptr && !row.why_not_unasked(query).empty()) continue;
              for (const Variant& variant : variants_of(row, query)) {
                const plan::Picoseconds other = time_of(query, row, variant, network, name);
                all += "  " + name + " " + std::to_string(other / 1000) + (row.cost ? " (" + std::to_string(row.cost(query, variant) / 1000) + ")" : "");
                if (other < best) {
                  best = other;
                  best_name = name;
                }
              }
            }
            const double ratio = static_cast<double>(taken) / static_cast<double>(best);
            std::printf("%-9s %s %2u x %2u %8zu: %5.2f %-40s %10.2f us, best %-40s %10.2f us |%s\n",
                        name_of(collective), network_name, node_count, ranks_per_node, bytes, ratio,
                        chosen.c_str(), static_cast<double>(taken) / 1e6, best_name.c_str(),
                        static_cast<double>(best) / 1e6, all.c_str());
          }
  }
}

}  // namespace
}  // namespace tutti::tune
