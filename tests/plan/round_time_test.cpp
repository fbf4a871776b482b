// Promise: what a round takes is the formula, and the sum over rounds is what the events give.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "networks.hpp"
#include "one_of_all.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/cost/loggp.hpp"
#include "plan/cost/makespan.hpp"
#include "sizes.hpp"
#include "vectors.hpp"

namespace tutti::plan {
namespace {

using test::arbitrary_network;
using test::circulant_makespan;
using test::fdr;
using test::Random;

// The formulae again, written out.
Picoseconds rounded(std::uint64_t bytes, const Rate& rate) {
  const long double exact = static_cast<long double>(bytes) * static_cast<long double>(rate.time) /
                            static_cast<long double>(rate.bytes);
  return static_cast<Picoseconds>(std::floor(exact + 0.5L));
}
Picoseconds gamma(std::uint64_t bytes, const LogGP& n) {
  return bytes == 0 ? 0 : n.work + rounded(bytes, n.work_per_byte);
}
Picoseconds round_formula(std::int64_t r, std::uint64_t bytes, const LogGP& n) {
  const Picoseconds wire = rounded(bytes, n.per_byte);
  const Picoseconds gap = std::max(n.gap, wire);
  const Picoseconds taken = n.receive_overhead + gamma(bytes, n);
  return std::max(
      n.send_overhead + n.latency + wire + (r - 1) * std::max({gap, n.rank_gap, taken}) + taken,
      r * (n.rank_gap + taken));
}

TEST(Rate, does_not_overflow) {
  EXPECT_EQ((Rate{1, 1000}).of(UINT64_MAX), 18'446'744'073'709'552);
  EXPECT_EQ((Rate{10'000, 10'000}).of(std::uint64_t{1} << 61), std::int64_t{1} << 61);
  EXPECT_EQ((Rate{10'000, 68}).of(std::uint64_t{68} << 40), std::int64_t{10'000} << 40);
  EXPECT_EQ((Rate{100'000'000, 1000}).of(std::uint64_t{1} << 62), Rate::longest);
  EXPECT_EQ((Rate{INT64_MAX, 1}).of(UINT64_MAX), Rate::longest);
  EXPECT_EQ((Rate{0, 1}).of(UINT64_MAX), 0);
}

TEST(Rate, is_exact_for_the_rates_of_networks) {
  // GB/s; the emulated networks round the same quotient, computed in doubles.
  for (const auto& [rate, gigabytes] : {std::pair{Rate{10'000, 40}, 4.0},
                                        {Rate{10'000, 68}, 6.8},
                                        {Rate{10'000, 121}, 12.1},
                                        {Rate{10'000, 242}, 24.2},
                                        {Rate{10'000, 484}, 48.4},
                                        {Rate{10'000, 116}, 11.6},
                                        {Rate{125, 1}, 8.0}})
    for (std::uint64_t bytes = 0; bytes <= (1u << 20); ++bytes)
      ASSERT_EQ(rate.of(bytes), std::llround(static_cast<double>(bytes) * (1000 / gigabytes)))
          << bytes << " bytes at " << gigabytes << " GB/s";
}

TEST(Rate, rounds_halves_up_and_holds_long_messages) {
  EXPECT_EQ((Rate{.time = 1, .bytes = 2}.of(1)), 1);
  EXPECT_EQ((Rate{.time = 1, .bytes = 3}.of(1)), 0);
  EXPECT_EQ((Rate{.time = 10'000, .bytes = 68}.of(68ull << 32)), 10'000ll << 32);
  EXPECT_EQ(Rate{}.of(UINT64_MAX), 0);
}

TEST(RoundTime, is_the_formula) {
  Random random(1);
  for (int sample = 0; sample < 10'000; ++sample) {
    const LogGP network = arbitrary_network(random);
    const std::uint32_t messages = random.between(1, 40);
    const std::uint64_t bytes = sample % 10 == 0 ? 0 : random.below(100'000);
    ASSERT_EQ(network.round_time(messages, bytes), round_formula(messages, bytes, network));
  }
}

// Two nodes, each of whose ranks exchanges a message with one of the other node.  By the events of
// the ranks, whose node has one port, the last rank is done when the round is by the formula.
TEST(RoundTime, of_ranks_at_one_port_is_that_of_the_last_one) {
  for (std::uint32_t ranks_per_node = 1; ranks_per_node <= 9; ++ranks_per_node)
    for (const std::uint64_t bytes : {8u, 256u, 4096u, 100'000u}) {
      std::vector<Plan> plans;
      std::vector<Node> node_of;
      for (std::uint32_t rank = 0; rank < 2 * ranks_per_node; ++rank) {
        const std::uint32_t node = rank / ranks_per_node;
        plans.push_back(two_partial_allreduce(Rank{node}, 2, {1}, Order::commutative));
        for (Step& step : plans.back().steps)
          if (step.peer != no_rank)
            step.peer = Rank{index_of(step.peer) * ranks_per_node + rank % ranks_per_node};
        node_of.push_back(Node{node});
      }
      LogGP network = fdr();
      const Picoseconds taken = makespan(plans, {.between = network, .inside = {.latency = 1}},
                                         node_of, {.payload_bytes = bytes});
      network.ranks_at_port = ranks_per_node;
      EXPECT_EQ(network.round_time(1, bytes), taken)
          << ranks_per_node << " ranks, " << bytes << " bytes";
    }
}

/// The sum over all rounds that are executed.
Picoseconds sum_of_rounds(const Plan& plan, std::uint64_t bytes, const LogGP& network) {
  Picoseconds sum = 0;
  for (const std::uint32_t messages : plan.per_round) sum += network.round_time(messages, bytes);
  return sum;
}

/// The ports of a round are free when it begins.
bool has_free_ports(std::uint64_t bytes, const LogGP& network) {
  return network.travel_time(bytes) + network.receive_overhead >= network.sending_time(bytes);
}

PerRound arbitrary_vector(Random& random, std::uint32_t ranks) {
  PerRound vector;
  while (!covers(ranks, vector)) vector.push_back(random.between(1, 9));
  return vector;
}

TEST(RoundTime, adds_up_to_the_recurrence) {
  Random random(2);
  int exact = 0;
  for (int sample = 0; sample < test::samples(5000); ++sample) {
    const std::uint32_t ranks = random.between(1, 500);
    const PerRound vector = arbitrary_vector(random, ranks);
    const LogGP network = arbitrary_network(random);
    const Call call{.payload_bytes = 1 + random.below(5000)};
    if (!has_free_ports(call.payload_bytes, network)) continue;
    const Plan plan = two_partial_allreduce(Rank{0}, ranks, vector, Order::commutative);
    const Picoseconds formula = sum_of_rounds(plan, call.payload_bytes, network);
    ASSERT_EQ(circulant_makespan(dissemination_allreduce(Rank{0}, ranks, vector), network, call),
              formula);
    const Picoseconds events = circulant_makespan(plan, network, call);
    ASSERT_GE(events, formula);
    ASSERT_LE(events, formula + static_cast<Picoseconds>(plan.per_round.size()) *
                                    gamma(call.payload_bytes, network));
    if (events == formula) ++exact;
    if (!has_free_ports(0, network)) continue;
    ASSERT_EQ(circulant_makespan(dissemination_barrier(Rank{0}, ranks, vector), network, call),
              sum_of_rounds(plan, 0, network));
  }
  EXPECT_GT(exact, test::samples(500));
}

}  // namespace
}  // namespace tutti::plan
