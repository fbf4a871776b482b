// Promise: on nodes of many ranks, what is chosen by price alone takes at most 1.1 times as long as
// the fastest of all that is considered, by the model of a machine whose ranks share memory and
// ports.  (Of few ranks, contexts follow the events of the cheapest.)
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../../plan/sizes.hpp"
#include "plan/cost/in_chunks.hpp"
#include "plan/cost/makespan.hpp"
#include "row_plans.hpp"
#include "support/process_memory.hpp"
#include "tune/choose.hpp"
#include "tune/chunks.hpp"
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
/// Fewer with sanitizers, so that the test takes seconds.
const std::uint32_t ranks_max = plan::test::up_to(256);

struct NamedNetwork {
  const char* name;
  plan::Network network;
};
const NamedNetwork networks[] = {{"fdr",
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

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce;
}

/// What a call takes.  The chunks of a payload follow each other, as in the engine.
plan::Picoseconds time_of(const Query& query, const Row& row, const Variant& variant) {
  const std::uint32_t rank_count = query.topology.rank_count;
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(row.build(query, variant, Rank{rank}));
  const Collective collective = query.request.collective;
  if (has_root(collective) || collective == Collective::allreduce) {
    const std::size_t count =
        chunk_count(query.request.element_count, 8, plans[0].parts,
                    chunk_bytes_for(plans[0], query.topology.has_shared_nodes()));
    for (plan::Plan& plan : plans) plan = plan::in_chunks(plan, static_cast<std::uint32_t>(count));
  }
  const bool has_blocks = collective == Collective::allgather || collective == Collective::alltoall;
  return plan::makespan(
      plans, query.network, query.topology.node_of,
      {.payload_bytes = query.request.bytes() * (has_blocks ? rank_count : 1), .element_bytes = 8});
}

/// Bytes that all blocks have together, or one payload.
CollectiveRequest request_of(Collective collective, std::size_t bytes, std::uint32_t rank_count) {
  const bool has_blocks = collective == Collective::allgather || collective == Collective::alltoall;
  return {.collective = collective,
          .element_count =
              collective == Collective::barrier ? 0 : bytes / 8 / (has_blocks ? rank_count : 1),
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
          .root = has_root(collective) ? Rank{0} : no_rank};
}

/// What the least of the candidates takes.  Schedules that read in place, and flows of chunks, have
/// no time by this model.
plan::Picoseconds least_of(const CollectiveRequest& request, const Topology& topology,
                           const plan::Network& network) {
  plan::Picoseconds least = INT64_MAX;
  for (const Row& row : registry()) {
    if (row.collective != request.collective || row.is_flow ||
        row.hierarchy == Hierarchy::domains || row.name == std::string("single_copy"))
      continue;
    if (row.hierarchy != Hierarchy::flat && !topology.has_shared_nodes()) continue;
    const Query query{request, topology, network};
    if (row.why_not_unasked != nullptr && !row.why_not_unasked(query).empty()) continue;
    for (const Variant& variant : variants_of(row, query))
      least = std::min(least, time_of(query, row, variant));
  }
  return least;
}

/// The next size: every second one where ranks are many and each cell takes long; a soak takes all.
std::size_t next_size(std::size_t bytes, std::uint32_t rank_count) {
  static const bool takes_all = std::getenv("TUTTI_TEST_ALL_CELLS") != nullptr;
  return bytes * (rank_count > 64 && !takes_all ? 64u : 8u);
}

TEST(NodeChoices, are_near_the_fastest_candidate) {
  std::printf("network  collective  cells  largest time of what is chosen / least of all\n");
  for (const auto& [name, network] : networks)
    for (const Collective collective :
         {Collective::barrier, Collective::allreduce, Collective::allgather, Collective::alltoall,
          Collective::broadcast, Collective::reduce}) {
      int cells = 0;
      double worst = 1;
      for (const std::uint32_t node_count : {4u, 8u, 16u, 32u})
        for (const std::uint32_t ranks_per_node : {1u, 4u, 8u, 32u})
          for (std::size_t bytes = 8; bytes <= 8 << 20;
               bytes = next_size(bytes, node_count * ranks_per_node)) {
            const std::uint32_t rank_count = node_count * ranks_per_node;
            if (rank_count > ranks_max) continue;
            const CollectiveRequest request = request_of(collective, bytes, rank_count);
            if (collective == Collective::barrier ? bytes > 8 : request.element_count == 0)
              continue;
            const Topology topology = nodes_of(node_count, ranks_per_node);
            const Choice choice = choose(request, topology, network);
            const plan::Picoseconds taken =
                time_of({request, topology, network}, choice.row(), choice.variant());
            const plan::Picoseconds least = least_of(request, topology, network);
            const double ratio = static_cast<double>(taken) / static_cast<double>(least);
            ++cells;
            worst = std::max(worst, ratio);
            EXPECT_LE(ratio, 1.1) << name << ", " << name_of(collective) << ", " << node_count
                                  << " nodes of " << ranks_per_node << ", " << bytes
                                  << " bytes: " << choice.explanation();
          }
      std::printf("%-7s  %-10s  %5d  %.2f\n", name, name_of(collective), cells, worst);
    }
}

/// What was chosen before prices decided: lanes of payloads as a whole from 8 KiB on, else leaders.
/// Broadcasts and reduces went along trees and chains, as they do where ranks share CPUs.
plan::Picoseconds time_by_rule(CollectiveRequest request, Topology topology,
                               const plan::Network& network) {
  if (has_root(request.collective)) {
    topology.shares_cpus = true;
    const Choice choice = choose(request, topology, network);
    return time_of({request, topology, network}, choice.row(), choice.variant());
  }
  request.across = !topology.has_shared_nodes() ? Across::flat
                   : request.bytes() < 8192     ? Across::leader
                                                : Across::lanes;
  if (request.across == Across::flat) {
    const Choice choice = choose(request, topology, network);
    return time_of({request, topology, network}, choice.row(), choice.variant());
  }
  const Query query{request, topology, network};
  const Row& row = *std::find_if(registry().begin(), registry().end(), [&](const Row& one) {
    return one.collective == Collective::allreduce &&
           one.hierarchy ==
               (request.across == Across::lanes ? Hierarchy::lanes : Hierarchy::leader);
  });
  return time_of(query, row, row.variants(query).front());
}

// How far from what the port and the memory of a node take at least, by the model.
void expect_near_the_bound(Collective collective) {
  std::printf(
      "%s\nnetwork  nodes  ranks a node  payload  chosen                     us    / bound  / "
      "rule\n",
      name_of(collective));
  for (const auto& [name, network] : networks)
    for (const std::uint32_t node_count : {4u, 8u, 16u, 32u})
      for (const std::uint32_t ranks_per_node : {1u, 4u, 8u, 32u})
        for (const std::size_t bytes : {8u, 4096u, 65536u, 1u << 20, 2u << 20, 8u << 20}) {
          const std::uint32_t rank_count = node_count * ranks_per_node;
          if (rank_count > ranks_max) continue;
          const CollectiveRequest request = request_of(collective, bytes, rank_count);
          const Topology topology = nodes_of(node_count, ranks_per_node);
          const Choice choice = choose(request, topology, network);
          const plan::Picoseconds taken =
              time_of({request, topology, network}, choice.row(), choice.variant());
          const plan::Picoseconds rule = time_by_rule(request, topology, network);
          // With a root, every byte comes or leaves once.  If not, a node has to hear what the
          // others have combined, too; and a rank gives what it does not combine itself, and gives
          // its part of the result.
          const std::uint64_t times = has_root(collective) ? 1 : 2;
          const plan::Picoseconds port = network.between.per_byte.of(
              has_root(collective) ? bytes : times * bytes * (node_count - 1) / node_count);
          const plan::Picoseconds stores =
              network.inside.per_byte.of(times * bytes * (ranks_per_node - 1) / ranks_per_node);
          const double over_bound =
              static_cast<double>(taken) / static_cast<double>(std::max(port, stores));
          const double over_rule = static_cast<double>(taken) / static_cast<double>(rule);
          EXPECT_GE(over_bound, 1);
          EXPECT_LE(over_rule, 1.02);
          const bool is_small = bytes < 1 << 20;
          const double over_bound_max = collective == Collective::allreduce ? 1.1 : 3;
          EXPECT_TRUE(is_small || over_bound <= over_bound_max)
              << over_bound << ": " << name << ", " << node_count << " nodes of " << ranks_per_node
              << ", " << bytes << " bytes, " << choice.explanation();
          std::printf("%-7s  %5u  %12u  %7zu  %-24s %8.1f  %8s  %.2f\n", name, node_count,
                      ranks_per_node, bytes, choice.plan(Rank{0}).algorithm.c_str(),
                      static_cast<double>(taken) / 1e6,
                      is_small ? "-" : std::to_string(over_bound).substr(0, 4).c_str(), over_rule);
        }
}

TEST(NodeChoices, of_allreduces_beside_the_bound_and_what_was_chosen_by_a_rule) {
  expect_near_the_bound(Collective::allreduce);
}
TEST(NodeChoices, of_broadcasts_beside_the_bound_and_what_was_chosen_by_a_rule) {
  expect_near_the_bound(Collective::broadcast);
}
TEST(NodeChoices, of_reduces_beside_the_bound_and_what_was_chosen_by_a_rule) {
  expect_near_the_bound(Collective::reduce);
}

// A node sends each byte of the payload 2 (N - 1) / N times, and its ranks share that.
TEST(NodeChoices, large_payloads_leave_a_node_as_often_as_in_a_ring) {
  for (const std::uint32_t node_count : {4u, 16u, 32u})
    for (const std::uint32_t ranks_per_node : {2u, 4u, 8u}) {
      const CollectiveRequest request =
          request_of(Collective::allreduce, 1 << 20, node_count * ranks_per_node);
      const Topology topology = nodes_of(node_count, ranks_per_node);
      const Choice choice = choose(request, topology, networks[0].network);
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

/// How many leaders of leaders there are: of groups, then of the nodes, then across.
std::size_t levels_of(const Choice& choice) {
  const auto& across = choice.variant().across;
  return across == nullptr ? 0 : 1 + levels_of(*across);
}

// Each level of groups leaves at most a quarter of the ranks of a node, and none is made of fewer
// than 8.  Of each level several sizes of groups are tried, each with all levels above it.
TEST(NodeChoices, of_nodes_of_thousands_of_ranks_take_bounded_time_and_memory) {
  constexpr std::size_t levels_max = 6;  // 4^6 = 4096
  constexpr auto time_max = std::chrono::seconds(5);
  constexpr std::size_t heap_max = 16 << 20;
  for (const std::uint32_t node_count : {1u, 2u, 5u})
    for (const auto collective : {Collective::barrier, Collective::allreduce}) {
      const Topology topology = nodes_of(node_count, 4096);
      const CollectiveRequest request = request_of(collective, 8, topology.rank_count);
      const std::size_t before = tutti::test::ProcessMemory::now().heap;
      const auto begin = std::chrono::steady_clock::now();
      const Choice choice = choose(request, topology, networks[0].network);
      const plan::Plan plan = choice.plan(Rank{topology.rank_count - 1});
      const auto taken = std::chrono::steady_clock::now() - begin;
      const std::size_t heap = tutti::test::ProcessMemory::now().heap;
      std::printf("%s of %u nodes of 4096: %s, %zu levels, %.3f s, %zu KiB\n", name_of(collective),
                  node_count, plan.algorithm.c_str(), levels_of(choice),
                  std::chrono::duration<double>(taken).count(),
                  (heap > before ? heap - before : 0) >> 10);
      EXPECT_LE(levels_of(choice), levels_max);
      EXPECT_LE(taken, time_max);
      EXPECT_LE(heap, before + heap_max);
    }
}

}  // namespace
}  // namespace tutti::tune
