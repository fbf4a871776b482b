// Promise: on nodes of many ranks, what is chosen by price alone takes at most 1.1 times as long as
// the fastest of all schedules that have a time by the model of a machine whose ranks share memory
// and ports.  Schedules that are refused unasked because of their time count, too.  (With few
// ranks, contexts follow the events of the cheapest besides.)
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../../plan/networks.hpp"
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
constexpr std::uint32_t ranks_max = plan::test::samples_divisor == 1 ? 1024 : 64;
/// A soak takes every cell; otherwise cells of more ranks, which take longer, are sampled.
const bool takes_all_cells = std::getenv("TUTTI_TEST_ALL_CELLS") != nullptr;

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

/// Eight ranks together send as fast as their port.  The price of an allreduce without stages in
/// nodes is too high: few messages of its first rounds leave their node.
constexpr double over_least_max_of_slow_ranks = 1.15;
const NamedNetwork slow_ranks = {"slow",
                                 {.between = {.latency = 600'000,
                                              .send_overhead = 100'000,
                                              .receive_overhead = 50'000,
                                              .gap = 10'000,
                                              .rank_gap = 80'000,
                                              .per_byte = {.time = 10'000, .bytes = 242}},
                                  .inside = memory}};

Topology nodes_of(std::uint32_t node_count, std::uint32_t ranks_per_node) {
  Topology topology{.rank_count = node_count * ranks_per_node};
  for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
    topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

bool has_root(Collective collective) {
  using enum Collective;
  return collective == broadcast || collective == reduce || collective == gather ||
         collective == scatter;
}
bool has_blocks(Collective collective) {
  using enum Collective;
  return collective == allgather || collective == alltoall || collective == gather ||
         collective == scatter;
}
bool goes_in_chunks(Collective collective) {
  using enum Collective;
  return collective == allreduce || collective == broadcast || collective == reduce ||
         collective == scan || collective == exscan;
}

/// What a call takes.  The chunks of a payload follow each other, as in the engine.
plan::Picoseconds time_of(const Query& query, const Row& row, const Variant& variant) {
  const std::uint32_t rank_count = query.topology.rank_count;
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    plans.push_back(row.build(query, variant, Rank{rank}));
  const Collective collective = query.request.collective;
  if (goes_in_chunks(collective)) {
    const std::size_t count =
        chunk_count(query.request.element_count, 8, plans[0].parts,
                    chunk_bytes_for(plans[0], query.topology.has_shared_nodes()));
    for (plan::Plan& plan : plans) plan = plan::in_chunks(plan, static_cast<std::uint32_t>(count));
  }
  return plan::makespan(
      plans, query.network, query.topology.node_of,
      {.payload_bytes = query.request.bytes() * (has_blocks(collective) ? rank_count : 1),
       .element_bytes = 8});
}

/// Bytes that all blocks have together, or one payload.
CollectiveRequest request_of(Collective collective, std::size_t bytes, std::uint32_t rank_count) {
  return {.collective = collective,
          .element_count = collective == Collective::barrier
                               ? 0
                               : bytes / 8 / (has_blocks(collective) ? rank_count : 1),
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
          .root = has_root(collective) ? Rank{0} : no_rank};
}

/// What a rank of an alltoall sends has a block of one size for each rank, of an element at least.
bool has_a_cell(const CollectiveRequest& request, std::size_t bytes, std::uint32_t rank_count) {
  if (request.collective == Collective::barrier) return bytes == 8;
  const std::size_t least = request.collective == Collective::reduce_scatter ? rank_count : 1;
  return request.element_count >= least;
}

/// Whether a schedule is refused for what it needs, and not because it would take longer.
bool is_about_resources(const std::string& why) {
  for (const char* const words : {"connect more ranks", "more partners", "hold so many connections",
                                  "of the arena", "the arena that there is by default"})
    if (why.find(words) != std::string::npos) return true;
  return false;
}

/// The fastest of some candidates.
struct Least {
  plan::Picoseconds time = INT64_MAX;
  std::string name;
  void add(plan::Picoseconds other, const std::string& other_name) {
    if (other >= time) return;
    time = other;
    name = other_name;
  }
};
struct Candidates {
  Least all;        // of those that only a price or a rule decides about
  Least ring;       // of the shared ring, by its price
  Least resources;  // of those that need connections or room which nobody asked for
};

/// Whether a schedule has a time here.  Buffers that are read in place or lie in segments are other
/// calls, and these nodes have no domains.  The shared ring has one only where each rank is a node:
/// there its price is its time within 3 % (process_node_time).
bool has_time(const Row& row, const Topology& topology) {
  const std::string name = row.name;
  if (row.hierarchy == Hierarchy::domains || row.is_in_place || name == "single_copy" ||
      name == "zero_copy_allgather")
    return false;
  return row.hierarchy == Hierarchy::flat || topology.has_shared_nodes();
}

std::vector<Variant> variants_at_all(const Row& row, const Query& query) {
  if (row.variants == nullptr) return {{}};
  try {
    return row.variants(query);
  } catch (const Error&) {  // nothing serves so many ranks
    return {};
  }
}

Candidates candidates_of(const Query& query) {
  Candidates candidates;
  for (const Row& row : registry()) {
    if (row.collective != query.request.collective || !serves(row, query.request) ||
        !has_time(row, query.topology) || (row.why_not != nullptr && !row.why_not(query).empty()))
      continue;
    if (row.is_flow) {
      candidates.ring.add(row.cost(query, {}), row.name);
      continue;
    }
    const std::string why = row.why_not_unasked == nullptr ? "" : row.why_not_unasked(query);
    Least& least = is_about_resources(why) ? candidates.resources : candidates.all;
    for (const Variant& variant : variants_at_all(row, query))
      least.add(time_of(query, row, variant),
                row.name + std::string(why.empty() ? "" : ", refused as ") + why);
  }
  return candidates;
}

struct Cell {
  const NamedNetwork* machine;
  Collective collective;
  std::uint32_t node_count, ranks_per_node;
  std::size_t bytes;

  std::uint32_t rank_count() const { return node_count * ranks_per_node; }
  std::string text() const {
    return std::string(machine->name) + ", " + name_of(collective) + ", " +
           std::to_string(node_count) + " nodes of " + std::to_string(ranks_per_node) + ", " +
           std::to_string(bytes) + " bytes";
  }
};

/// The number of sizes of one shape that are looked at.
std::size_t sizes_of(Collective collective, std::uint32_t rank_count) {
  const bool is_costly = collective == Collective::allreduce;
  if (takes_all_cells || rank_count <= 64) return SIZE_MAX;
  if (rank_count <= 256) return is_costly ? 2 : 3;
  return is_costly ? 0 : 1;
}

std::vector<Cell> cells_of(const NamedNetwork& machine, Collective collective,
                           plan::test::Random& random) {
  std::vector<Cell> cells;
  for (const std::uint32_t node_count : {4u, 8u, 16u, 32u})
    for (const std::uint32_t ranks_per_node : {1u, 4u, 8u, 32u}) {
      std::vector<Cell> of_shape;
      const std::uint32_t rank_count = node_count * ranks_per_node;
      for (std::size_t bytes = 8; bytes <= 8 << 20; bytes *= 8)
        if (has_a_cell(request_of(collective, bytes, rank_count), bytes, rank_count))
          of_shape.push_back({&machine, collective, node_count, ranks_per_node, bytes});
      while (of_shape.size() > sizes_of(collective, rank_count))
        of_shape.erase(of_shape.begin() +
                       random.below(static_cast<std::uint32_t>(of_shape.size())));
      if (rank_count <= ranks_max) cells.insert(cells.end(), of_shape.begin(), of_shape.end());
    }
  return cells;
}

double over(plan::Picoseconds time, plan::Picoseconds other) {
  return static_cast<double>(time) / static_cast<double>(other);
}

/// The largest of some quotients, and the cell that has it.
struct Largest {
  double quotient = 0;
  std::string where = "-";
  void add(double other, const Cell& cell, const std::string& name) {
    if (other <= quotient) return;
    quotient = other;
    where = cell.text() + ": " + name;
  }
};

/// Expects that what is chosen takes at most 1.1 of the least time; where each rank is a node, with
/// room for a shared ring as well as without.
double expect_near_the_least(const Cell& cell, Largest& by_ring, Largest& by_resources) {
  CollectiveRequest request = request_of(cell.collective, cell.bytes, cell.rank_count());
  const Topology topology = nodes_of(cell.node_count, cell.ranks_per_node);
  const plan::Network& network = cell.machine->network;
  Candidates candidates = candidates_of({request, topology, network});
  double worst = 0;
  const auto expect = [&] {
    const Choice choice = choose(request, topology, network);
    const plan::Picoseconds taken = choice.row().is_flow
                                        ? choice.cost()
                                        : time_of(choice.query(), choice.row(), choice.variant());
    const double ratio = over(taken, candidates.all.time);
    EXPECT_LE(ratio, cell.machine == &slow_ranks ? over_least_max_of_slow_ranks : 1.1)
        << cell.text() << ": " << candidates.all.name << " takes less than "
        << choice.explanation();
    worst = std::max(worst, ratio);
    return taken;
  };
  const plan::Picoseconds taken = expect();
  by_resources.add(over(taken, candidates.resources.time), cell, candidates.resources.name);
  if (cell.ranks_per_node == 1) {
    request.ring_room = RingRoom::there;
    candidates.all.add(candidates.ring.time, candidates.ring.name);
    expect();
  } else {
    by_ring.add(over(taken, candidates.ring.time), cell, candidates.ring.name);
  }
  return worst;
}

TEST(NodeChoices, are_near_the_fastest_candidate) {
  using enum Collective;
  plan::test::Random random(20);
  Largest by_ring, by_resources;
  std::printf("network  collective      cells  largest time of what is chosen / least of all\n");
  for (const NamedNetwork* const machine : {&networks[0], &networks[1], &slow_ranks})
    for (const Collective collective : {barrier, allreduce, allgather, alltoall, broadcast, reduce,
                                        gather, scatter, reduce_scatter, scan, exscan}) {
      const std::vector<Cell> cells = cells_of(*machine, collective, random);
      double worst = 1;
      for (const Cell& cell : cells)
        worst = std::max(worst, expect_near_the_least(cell, by_ring, by_resources));
      std::printf("%-7s  %-14s  %5zu  %.2f\n", machine->name, name_of(collective), cells.size(),
                  worst);
    }
  // These are the cells that are left out, with the largest quotient of each kind.
  std::printf("chosen / by connections or room that nobody asked for: %.2f (%s)\n",
              by_resources.quotient, by_resources.where.c_str());
  std::printf("chosen / price of the shared ring, where ranks share nodes: %.2f (%s)\n",
              by_ring.quotient, by_ring.where.c_str());
}

/// What was chosen before prices decided: lanes of payloads as a whole from 8 KiB on, else leaders.
/// Broadcasts and reduces went along trees and chains, and the blocks of an allgather or alltoall
/// whole or node by node, as they do where ranks share CPUs.
plan::Picoseconds time_by_rule(CollectiveRequest request, Topology topology,
                               const plan::Network& network) {
  const bool has_own_rule =
      request.collective == Collective::allreduce || request.collective == Collective::barrier;
  if (!has_own_rule || !topology.has_shared_nodes()) {
    topology.shares_cpus = !has_own_rule;
    if (has_own_rule) request.across = Across::flat;
    const Choice choice = choose(request, topology, network);
    return time_of({request, topology, network}, choice.row(), choice.variant());
  }
  request.across = request.bytes() < 8192 ? Across::leader : Across::lanes;
  const Query query{request, topology, network};
  const Row& row = *std::find_if(registry().begin(), registry().end(), [&](const Row& one) {
    return one.collective == request.collective &&
           one.hierarchy ==
               (request.across == Across::lanes ? Hierarchy::lanes : Hierarchy::leader);
  });
  return time_of(query, row, row.variants(query).front());
}

/// The least time of a node's port and a rank's stores; 0 for collectives without a table.
plan::Picoseconds bound_of(const Cell& cell) {
  const std::uint64_t nodes = cell.node_count, ranks = cell.ranks_per_node, bytes = cell.bytes;
  std::uint64_t port = 0, stored = 0;
  switch (cell.collective) {
    case Collective::broadcast:
    case Collective::reduce:  // every byte comes or leaves once
      port = bytes;
      stored = bytes * (ranks - 1) / ranks;
      break;
    case Collective::allreduce:
      // A node also has to receive what the others have combined.  A rank stores what others
      // combine, and its part of the result.
      port = 2 * bytes * (nodes - 1) / nodes;
      stored = 2 * bytes * (ranks - 1) / ranks;
      break;
    case Collective::allgather:  // and each block is stored once for each other rank of the node
      port = bytes * (nodes - 1) / nodes;
      stored = bytes * (ranks - 1) / ranks;
      break;
    case Collective::alltoall:  // all ranks of a node send as much
      port = ranks * bytes * (nodes - 1) / nodes;
      stored = bytes * (ranks - 1) / (ranks * nodes);
      break;
    case Collective::barrier:
    case Collective::allreduce_ssp:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::scan:
    case Collective::exscan:
      break;
  }
  return std::max(cell.machine->network.between.per_byte.of(port),
                  cell.machine->network.inside.per_byte.of(stored));
}

/// The columns of the table.  Cells of many ranks take seconds, so only one size of them is tested.
std::vector<std::size_t> columns_of(Collective collective, std::uint32_t rank_count) {
  if (collective == Collective::barrier) return {8};
  if (rank_count > 256 && !takes_all_cells)
    return collective == Collective::allreduce ? std::vector<std::size_t>{65536, 1u << 20}
                                               : std::vector<std::size_t>{65536};
  return {8, 4096, 65536, 1u << 20, 2u << 20, 8u << 20};
}

/// An allreduce may take 1.1 of the bound.
double over_bound_max(const Cell& cell) {
  return cell.collective == Collective::allreduce ? 1.1 : 3;
}
/// What was chosen by a rule takes less in one cell, because the price of lanes along a chain is
/// 0.88 of their time there.
double over_rule_max(const Cell& cell) {
  return cell.collective == Collective::reduce && cell.rank_count() == 1024 ? 1.07 : 1.02;
}

// How far from what the port and the memory of a node take at least, by the model.
void expect_near_the_bound(Collective collective) {
  std::printf(
      "%s\nnetwork  nodes  ranks a node  payload  chosen                     us    / bound  / "
      "rule\n",
      name_of(collective));
  for (const NamedNetwork& machine : networks)
    for (const std::uint32_t node_count : {4u, 8u, 16u, 32u})
      for (const std::uint32_t ranks_per_node : {1u, 4u, 8u, 32u})
        for (const std::size_t bytes : columns_of(collective, node_count * ranks_per_node)) {
          const Cell cell{&machine, collective, node_count, ranks_per_node, bytes};
          const std::uint32_t rank_count = cell.rank_count();
          const CollectiveRequest request = request_of(collective, bytes, rank_count);
          if (rank_count > ranks_max || !has_a_cell(request, bytes, rank_count)) continue;
          const Topology topology = nodes_of(node_count, ranks_per_node);
          const Choice choice = choose(request, topology, machine.network);
          const plan::Picoseconds taken =
              time_of({request, topology, machine.network}, choice.row(), choice.variant());
          const double over_rule = over(taken, time_by_rule(request, topology, machine.network));
          EXPECT_LE(over_rule, over_rule_max(cell)) << cell.text() << ", " << choice.explanation();
          const plan::Picoseconds bound = bound_of(cell);
          EXPECT_GE(taken, bound) << cell.text();
          const bool is_small = bytes < 1 << 20;
          const double over_bound = is_small ? 1 : over(taken, bound);
          EXPECT_LE(over_bound, over_bound_max(cell))
              << cell.text() << ", " << choice.explanation();
          std::printf("%-7s  %5u  %12u  %7zu  %-24s %8.1f  %8s  %.2f\n", machine.name, node_count,
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
TEST(NodeChoices, of_allgathers_beside_the_bound_and_what_was_chosen_by_a_rule) {
  expect_near_the_bound(Collective::allgather);
}
TEST(NodeChoices, of_alltoalls_beside_the_bound_and_what_was_chosen_by_a_rule) {
  expect_near_the_bound(Collective::alltoall);
}
TEST(NodeChoices, of_barriers_beside_what_was_chosen_by_a_rule) {
  expect_near_the_bound(Collective::barrier);
}

// 1,024 ranks take 623 us in turns, and 851 us in lanes that cut their parts again.  These go in
// three chunks; the price as a single chunk would be 696 us.
TEST(NodeChoices, of_lanes_in_short_chunks_are_priced_chunk_by_chunk) {
  const CollectiveRequest request = request_of(Collective::allreduce, 2 << 20, 1024);
  const Choice choice = choose(request, nodes_of(32, 32), networks[0].network);
  EXPECT_EQ(choice.first_plan().algorithm, "lanes/turns") << choice.explanation();
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
