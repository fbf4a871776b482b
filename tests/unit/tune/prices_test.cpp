// Promise: whatever machine a tuning file describes, 64 bits hold the prices of every call, so that
// the cheapest schedule is chosen.  (Under UBSan an overflow ends the test.)
#include "tune/prices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <string>
#include <tuple>
#include <tutti/detail/enumerators.hpp>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

#include "tune/choose.hpp"
#include "tune/lanes_in_turns.hpp"
#include "tune/machine.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {
namespace {

constexpr auto all_parameters = detail::enumerators<Parameter::fan_max>;

/// fdr, but for parameters that are the most that a file may say.
Machine machine_of_most(const std::vector<Parameter>& parameters) {
  Machine machine = machine_preset("fdr");
  for (const Parameter parameter : parameters)
    machine[parameter].value = machine[parameter].high = most_of(parameter);
  return machine;
}

std::vector<Machine> machines_of_most() {
  return {machine_of_most({all_parameters.begin(), all_parameters.end()}),
          machine_of_most({Parameter::gap, Parameter::inside_send_overhead}),
          machine_of_most({Parameter::per_byte, Parameter::inside_per_byte,
                           Parameter::combine_per_byte, Parameter::inside_read_per_byte})};
}

Topology topology_of(std::uint32_t nodes, std::uint32_t ranks_per_node) {
  Topology topology{.rank_count = nodes * ranks_per_node};
  if (ranks_per_node > 1)
    for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
      topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

CollectiveRequest request_of(Collective collective, std::uint64_t bytes) {
  CollectiveRequest request{.collective = collective, .root = Rank{0}};
  if (collective == Collective::allreduce_ssp) request.agreement = Agreement::relaxed;
  if (collective == Collective::barrier) return request;
  request.element_count = bytes / 8;
  request.reduction = built_in_reduction(BuiltIn::sum, ElementType::float64);
  return request;
}

std::string text_of(const CollectiveRequest& request, const Topology& topology) {
  return std::string(name_of(request.collective)) + " of " + std::to_string(request.bytes()) +
         " bytes, " + std::to_string(topology.node_count()) + " nodes of " +
         std::to_string(topology.largest_node());
}

void expect_price(const Choice& choice, const std::string& of) {
  if (choice.row().cost == nullptr) return;
  EXPECT_GE(choice.cost(), 1) << of << ": " << choice.name();
  EXPECT_LT(choice.cost(), std::int64_t{1} << 62) << of << ": " << choice.name();
}

TEST(Prices, of_the_slowest_machines_and_largest_calls_are_numbers) {
  const auto expect_choices = [](const Machine& machine, const Topology& topology) {
    for (const Collective collective : detail::enumerators<Collective::exscan>) {
      const CollectiveRequest request = request_of(collective, std::uint64_t{1} << 62);
      expect_price(choose(request, topology, machine.network()), text_of(request, topology));
    }
  };
  const std::vector<Machine> machines = machines_of_most();
  for (const Topology& topology :
       {topology_of(65536, 1), topology_of(2, 32768), topology_of(1024, 64)})
    expect_choices(machines[0], topology);
  for (const Machine& machine : machines) expect_choices(machine, topology_of(4096, 1));
}

TEST(Prices, scaled_are_exact_or_the_longest) {
  EXPECT_EQ(scaled(10, 7, 3), 23);
  EXPECT_EQ(scaled(0, UINT64_MAX, 1), 0);
  EXPECT_EQ(scaled(plan::Rate::longest, UINT64_MAX, UINT64_MAX), plan::Rate::longest);
  EXPECT_EQ(scaled(plan::Rate::longest, 3 << 20, 1 << 20), plan::Rate::longest);
  EXPECT_EQ(scaled(std::int64_t{1} << 50, 4 << 20, 1 << 12), std::int64_t{1} << 60);
}

TEST(Prices, that_would_overflow_say_so) {
  const Machine machine = machines_of_most().front();
  const auto says = [&](std::uint32_t ranks) {
    return choose(request_of(Collective::alltoall, 1 << 20), topology_of(ranks, 1),
                  untuned(machine))
               .explanation()
               .find("times as fast, as 64 bits") != std::string::npos;
  };
  EXPECT_TRUE(says(65536));
  EXPECT_FALSE(says(2));
}

TEST(Prices, of_machines_of_today_are_their_own) {
  for (const char* name : {"qdr", "fdr", "edr", "hdr", "ndr", "roce100", "roce25", "roce10"}) {
    const plan::Network network = machine_preset(name).network();
    EXPECT_EQ(excess_bits(network, request_of(Collective::allreduce, 8), topology_of(65536, 1)), 0)
        << name;
    for (const Collective collective : {Collective::allreduce, Collective::alltoall}) {
      EXPECT_EQ(excess_bits(network, request_of(collective, 1u << 30), topology_of(1024, 1)), 0)
          << name;
      EXPECT_EQ(
          excess_bits(network, request_of(collective, std::uint64_t{1} << 40), topology_of(8, 1)),
          0)
          << name;
    }
  }
}

TEST(Prices, of_a_faster_machine_choose_alike) {
  const plan::Network network = machine_preset("qdr").network();
  for (const std::uint32_t ranks : {5u, 16u, 96u})
    for (const std::uint64_t bytes : {8u, 4096u, 1u << 20}) {
      const CollectiveRequest request = request_of(Collective::allreduce, bytes);
      const Choice one = choose(request, topology_of(ranks, 1), network);
      const Choice other = choose(request, topology_of(ranks, 1), faster(network, 3));
      EXPECT_EQ(one.name(), other.name()) << ranks << " ranks, " << bytes << " bytes";
      EXPECT_NEAR(static_cast<double>(one.cost()), 8 * static_cast<double>(other.cost()),
                  1e-3 * static_cast<double>(one.cost()));
    }
}

// The price takes into account that ranks that fold for others do not wait for those that do not
// fold.
TEST(Prices, of_cores_before_which_few_ranks_fold_are_what_they_take) {
  for (const char* const preset : {"fdr", "ndr", "roce10"})
    for (const std::uint32_t nodes : {9u, 17u, 26u, 33u})
      for (const std::uint64_t bytes : {64u, 1024u}) {
        const plan::Network network = machine_preset(preset).network();
        const Topology topology = topology_of(nodes, 1);
        CollectiveRequest request = request_of(Collective::allreduce, bytes);
        std::size_t seen = 0;
        for (const char* const core :
             {"1,1,1", "2,2", "3,3", "4,2", "4,4", "1,1,1,1", "5,4", "7"}) {
          request.only = std::string("recursive_multiplying with ") + core + " a round";
          try {
            const Choice choice = choose(request, topology, network);
            const plan::PerRound rounds = choice.first_plan().per_round;
            if (rounds.front() != 1 || rounds.size() == choice.variant().per_round.size()) continue;
            const double quotient =
                static_cast<double>(choice.expected(SIZE_MAX)) / static_cast<double>(choice.cost());
            EXPECT_GE(quotient, 0.84) << preset << ' ' << nodes << ' ' << bytes << ' ' << core;
            EXPECT_LE(quotient, 1.06) << preset << ' ' << nodes << ' ' << bytes << ' ' << core;
            ++seen;
          } catch (const Error&) {  // the core has more ranks than there are
          }
        }
        EXPECT_GT(seen, 0u) << preset << ' ' << nodes << ' ' << bytes;
      }
}

// Rounds of lanes overlap: the price of each is not that of the last lane.
TEST(Prices, of_whole_payloads_in_lanes_are_what_they_take) {
  for (const char* const preset : {"fdr", "hdr", "roce10"})
    for (const std::uint32_t nodes : {9u, 16u, 31u})
      for (const std::uint64_t bytes : {1024u, 4096u}) {
        const plan::Network network = machine_preset(preset).network();
        const Topology topology = topology_of(8 * nodes, 8);
        CollectiveRequest request = request_of(Collective::allreduce, bytes);
        std::size_t seen = 0;
        for (const Choice& rival : rivals(request, topology, network)) {
          const Variant& variant = rival.variant();
          if (variant.lane_count < 4 || variant.turns > 0 || !variant.across ||
              variant.across->first_plan().parts > 1)
            continue;
          const plan::Picoseconds time =
              plan_time({request, topology, network}, [&](Rank self) { return rival.plan(self); });
          const double quotient = static_cast<double>(time) / static_cast<double>(rival.cost());
          EXPECT_GE(quotient, 0.85)
              << preset << ' ' << nodes << ' ' << bytes << ' ' << rival.name();
          EXPECT_LE(quotient, 1.2) << preset << ' ' << nodes << ' ' << bytes << ' ' << rival.name();
          ++seen;
        }
        EXPECT_GT(seen, 0u) << preset << ' ' << nodes << ' ' << bytes;
      }
}

// Estimates decide which shapes are priced by their events: the taken one costs about the least,
// also where latencies are long, or each part that is combined takes time.
TEST(Prices, of_lanes_in_turns_are_near_the_least_of_all_shapes) {
  std::vector<double> over_least;
  std::size_t with_exchanges = 0;
  for (const char* const preset : {"fdr", "hdr", "roce100"})
    for (const auto& [latencies, work] : {std::pair{1, plan::Picoseconds{0}},
                                          {10, plan::Picoseconds{0}},
                                          {1, plan::Picoseconds{100'000}}}) {
      plan::Network network = machine_preset(preset).network();
      network.between.latency *= latencies;
      network.between.work += work;
      for (const auto& [nodes, ranks] :
           {std::pair{4u, 8u}, {12u, 6u}, {16u, 4u}, {32u, 2u}, {32u, 8u}})
        for (const std::size_t bytes : {32u << 10, 64u << 10, 1u << 20}) {
          const Topology topology = topology_of(nodes, ranks).counted();
          const CollectiveRequest request = request_of(Collective::allreduce, bytes);
          const std::vector<Variant> taken = lanes_in_turns({request, topology, network});
          ASSERT_EQ(taken.size(), 1u);
          const Query query{request, topology, network};
          const plan::Picoseconds cost = lane_turns_cost(query, taken[0]);
          with_exchanges += taken[0].turn_exchanges > 0 ? 1 : 0;
          CollectiveRequest of_any_name = request;
          of_any_name.only = "lanes";
          const std::vector<Variant> all = lanes_in_turns({of_any_name, topology, network});
          EXPECT_GT(all.size(), 10u);
          plan::Picoseconds least = cost;
          for (const Variant& variant : all)
            least = std::min(least, lane_turns_cost(query, variant));
          over_least.push_back(static_cast<double>(cost) / static_cast<double>(least));
          EXPECT_LE(over_least.back(), 1.1) << preset << ' ' << latencies << ' ' << work << ' '
                                            << nodes << ' ' << ranks << ' ' << bytes;
        }
    }
  std::sort(over_least.begin(), over_least.end());
  std::printf(
      "lanes in turns: price of what is taken / least of all shapes: median %.3f, 95 %% %.3f, "
      "worst %.3f of %zu\n",
      over_least[over_least.size() / 2], over_least[over_least.size() * 95 / 100],
      over_least.back(), over_least.size());
  EXPECT_GT(with_exchanges, over_least.size() / 4);
}

// Where network and memory take about as long, shorter pieces do not hide one behind the other.
// Halvings among other numbers than powers of two are priced too high rather than too low: ranks
// send in some rounds, and wait in others, as only the events tell.
TEST(Prices, of_parts_in_lanes_are_about_what_they_take) {
  for (const auto& [preset, nodes, ranks, bytes] : {std::tuple{"roce25", 9u, 4u, 64u << 10},
                                                    {"fdr", 8u, 8u, 1u << 20},
                                                    {"qdr", 24u, 8u, 64u << 10},
                                                    {"edr", 14u, 8u, 64u << 10},
                                                    {"fdr", 12u, 4u, 64u << 10}}) {
    const plan::Network network = machine_preset(preset).network();
    const Topology topology = topology_of(nodes, ranks);
    const CollectiveRequest request = request_of(Collective::allreduce, bytes);
    std::size_t seen = 0;
    for (const Choice& rival : rivals(request, topology, network)) {
      const Variant& variant = rival.variant();
      const bool is_in_turns = variant.turns > 0;
      if (variant.across && variant.across->row().algorithm == Algorithm::chunked_fold) continue;
      if (!is_in_turns && (!variant.across || 2 * variant.lane_count < ranks ||
                           variant.across->first_plan().parts == 1 || variant.group_size > 0))
        continue;
      const plan::Picoseconds time =
          plan_time({request, topology, network}, [&](Rank self) { return rival.plan(self); });
      const double quotient = static_cast<double>(time) / static_cast<double>(rival.cost());
      const bool may_be_too_high =
          variant.across && variant.across->row().algorithm == Algorithm::canonical_halving &&
          !std::has_single_bit(nodes);
      EXPECT_GE(quotient, may_be_too_high ? 0.8 : 0.85)
          << preset << ' ' << nodes << ' ' << bytes << ' ' << rival.name();
      EXPECT_LE(quotient, 1.15) << preset << ' ' << nodes << ' ' << bytes << ' ' << rival.name();
      ++seen;
    }
    EXPECT_GT(seen, 1u) << preset << ' ' << nodes << ' ' << bytes;
  }
}

}  // namespace
}  // namespace tutti::tune
