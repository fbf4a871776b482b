// Promise: on nodes of several ranks, what the cost model's events give is what a simulation by
// turns gives, to the picosecond, for every schedule of the registry on arbitrary machines.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "../../plan/networks.hpp"
#include "../../plan/sizes.hpp"
#include "plan/cost/makespan.hpp"
#include "row_plans.hpp"
#include "support/event_simulation.hpp"
#include "support/node_shapes.hpp"
#include "tune/choose.hpp"
#include "tune/hierarchy.hpp"

namespace tutti::tune {
namespace {

using plan::test::Random;

plan::Network arbitrary_machine(Random& random) {
  const plan::LogGP memory = plan::test::arbitrary_network(random);
  const plan::LogGP reading = plan::test::arbitrary_network(random);
  return {.between = plan::test::arbitrary_network(random),
          .inside = {.latency = memory.latency,
                     .send_overhead = memory.send_overhead,
                     .per_byte = memory.per_byte,
                     .receive_overhead = memory.receive_overhead,
                     .read_overhead = reading.send_overhead,
                     .read_per_byte = reading.per_byte}};
}

double quotient(const plan::Rate& rate) {
  return static_cast<double>(rate.time) / static_cast<double>(rate.bytes);
}

tutti::test::Network for_simulation(const plan::Network& network,
                                    const std::vector<Node>& node_of) {
  const auto& [between, inside] = network;
  return {.latency = between.latency,
          .send_overhead = between.send_overhead,
          .receive_overhead = between.receive_overhead,
          .gap = between.gap,
          .rank_gap = between.rank_gap,
          .per_byte = quotient(between.per_byte),
          .work = between.work,
          .work_per_byte = quotient(between.work_per_byte),
          .inside = {.latency = inside.latency,
                     .send_overhead = inside.send_overhead,
                     .per_byte = quotient(inside.per_byte),
                     .receive_overhead = inside.receive_overhead,
                     .read_overhead = inside.read_overhead,
                     .read_per_byte = quotient(inside.read_per_byte)},
          .node_of = node_of};
}

/// Up to 256 ranks, most of them on nodes of the same size that follow each other.
Topology arbitrary_topology(Random& random, bool has_domains) {
  const std::uint32_t node_count = random.between(1, random.below(8) == 0 ? 32 : 6);
  std::uint32_t most = random.between(1, random.below(4) == 0 ? 256 / node_count : 6);
  if (has_domains) most = 2 * ((most + 1) / 2);
  Topology topology;
  const bool has_equal_nodes = has_domains || random.below(2) == 0;
  for (std::uint32_t node = 0; node < node_count; ++node)
    for (std::uint32_t left = has_equal_nodes ? most : random.between(1, most); left > 0; --left)
      topology.node_of.push_back(Node{node});
  topology.rank_count = static_cast<std::uint32_t>(topology.node_of.size());
  if (has_domains)
    for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
      topology.domain_of.push_back(Node{rank / 2});
  else if (random.below(4) == 0)  // each node's ranks anywhere
    for (std::uint32_t rank = topology.rank_count; rank > 1; --rank)
      std::swap(topology.node_of[rank - 1], topology.node_of[random.below(rank)]);
  topology.node_of = tutti::test::renamed(topology.node_of);
  return topology;
}

struct Sample {
  std::string name;
  Topology topology;
  std::vector<plan::Plan> plans;
  std::uint64_t bytes = 0;
};

/// A plan of some row; without plans if what was drawn is not possible.
Sample arbitrary_sample(Random& random) {
  const std::vector<Row>& rows = registry();
  const Row& row = rows[random.below(static_cast<std::uint32_t>(rows.size()))];
  if (row.is_flow) return {};
  Sample sample{.name = std::string(name_of(row.collective)) + " by " + row.name,
                .topology = arbitrary_topology(random, row.hierarchy == Hierarchy::domains),
                .plans = {}};
  const std::uint32_t rank_count = sample.topology.rank_count;
  std::vector<CollectiveRequest> requests = requests_for(row, rank_count);
  CollectiveRequest& request = requests[random.below(static_cast<std::uint32_t>(requests.size()))];
  request.shares_target =
      random.below(3) == 0 && why_not_shared_target(request, sample.topology).empty();
  const plan::Network fdr = machine_preset("fdr").network();
  const Query query{request, sample.topology, fdr};
  const std::vector<Variant> variants = variants_of(row, query);
  if (variants.empty()) return sample;
  const Variant& variant = variants[random.below(static_cast<std::uint32_t>(variants.size()))];
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    sample.plans.push_back(row.build(query, variant, Rank{rank}));
  sample.bytes = request.collective == Collective::barrier ? 0 : 8 * random.below(5'000);
  sample.name += ", " + tutti::test::text_of(sample.topology.node_of) + ", " +
                 std::to_string(sample.bytes) + " bytes";
  return sample;
}

TEST(NodeMakespan, is_that_of_a_simulation_by_turns) {
  Random random(20);
  std::set<std::string> schedules;
  int checked = 0, shared = 0, other_by_lines = 0;
  const int samples = plan::test::samples(500);
  while (checked < samples) {
    Sample sample = arbitrary_sample(random);
    if (sample.plans.empty()) continue;
    const bool lines = random.below(3) == 0;
    if (lines && sample.bytes > 0)  // up to nine elements a part, of which seven fit a line
      sample.bytes = 8 * random.below(9u * sample.plans[0].parts + 1);
    const plan::Network network = arbitrary_machine(random);
    std::vector<plan::Picoseconds> starts;
    const std::uint32_t longest = random.below(2) == 0 ? 1 : 2'000'000;
    for (std::size_t rank = 0; rank < sample.plans.size(); ++rank)
      starts.push_back(random.below(longest));
    const plan::Call call{.payload_bytes = sample.bytes,
                          .element_bytes = 8,
                          .starts = starts,
                          .order = random.below(4) == 0 ? plan::CombineOrder::as_seen
                                                        : plan::CombineOrder::as_planned,
                          .lines = lines};
    const auto times = plan::completion_times(sample.plans, network, sample.topology.node_of, call);
    ASSERT_EQ(times, tutti::test::completion_times(
                         sample.plans, for_simulation(network, sample.topology.node_of),
                         {.payload_bytes = call.payload_bytes,
                          .element_bytes = call.element_bytes,
                          .starts = starts,
                          .any_order = call.order == plan::CombineOrder::as_seen,
                          .lines = lines}))
        << sample.name << (lines ? ", lines" : "");
    plan::Call without_lines = call;
    without_lines.lines = false;
    other_by_lines +=
        lines && times != plan::completion_times(sample.plans, network, sample.topology.node_of,
                                                 without_lines);
    ++checked;
    shared += sample.topology.has_shared_nodes() && sample.topology.node_count() > 1;
    schedules.insert(sample.plans[0].algorithm);
  }
  EXPECT_GT(shared, samples / 2);
  EXPECT_GT(schedules.size(), samples == 500 ? 35u : 20u);
  EXPECT_GT(other_by_lines, samples / 10);
}

/// A machine in which each part of the time shows by itself.
TEST(NodeMakespan, of_a_message_inside_a_node_is_the_formula) {
  const plan::Network network{.between = plan::test::fdr(),
                              .inside = {.latency = 7,
                                         .send_overhead = 100,
                                         .per_byte = {.time = 1, .bytes = 1},
                                         .receive_overhead = 3'000,
                                         .read_overhead = 50'000,
                                         .read_per_byte = {.time = 2, .bytes = 1}}};
  const Topology topology{.rank_count = 2, .node_of = {Node{0}, Node{0}}};
  CollectiveRequest request{.collective = Collective::barrier};
  const auto time = [&](std::uint64_t bytes) {
    std::vector<plan::Plan> plans;
    for (const Rank rank : {Rank{0}, Rank{1}})
      plans.push_back(plan_for(request, topology, rank, network));
    return plan::makespan(plans, network, topology.node_of, {.payload_bytes = bytes});
  };
  EXPECT_EQ(time(0), 100 + 7 + 3'000);
  request = {.collective = Collective::broadcast,
             .element_count = 8,
             .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
             .root = Rank{0}};
  // The credit of two calls ago, the message, and the receiver's credit.
  EXPECT_EQ(time(64), 3'000 + (100 + 64 + 7 + 3'000) + 100);
}

}  // namespace
}  // namespace tutti::tune
