// Promise: the vectors that are called best cost least of all, by the formula of the cost model,
// and are those of the table that the choice of n was made by.
#include "plan/cost/cost_model.hpp"
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "networks.hpp"
#include "one_of_all.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/two_partial.hpp"
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
Picoseconds round_formula(std::int64_t r, std::uint64_t bytes, const LogGP& n,
                          Combining combining) {
  const Picoseconds wire = rounded(bytes, n.per_byte);
  const Picoseconds gap = std::max(n.gap, wire);
  if (combining == Combining::after_all)
    return n.send_overhead + (r - 1) * gap + n.latency + wire + n.receive_overhead +
           r * gamma(bytes, n);
  const Picoseconds taken = n.receive_overhead + gamma(bytes, n);
  return n.send_overhead + n.latency + wire + (r - 1) * std::max(gap, taken) + taken;
}

constexpr std::array<Combining, 2> both = {Combining::after_all, Combining::while_arriving};

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
    for (const Combining combining : both)
      ASSERT_EQ(round_time(messages, bytes, network, combining),
                round_formula(messages, bytes, network, combining));
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
      EXPECT_EQ(round_time(1, bytes, network, Combining::while_arriving), taken)
          << ranks_per_node << " ranks, " << bytes << " bytes";
    }
}

TEST(DisseminationTime, is_the_sum_over_the_rounds_that_are_executed) {
  for (std::uint32_t ranks = 1; ranks <= 200; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      for (const Combining combining : both) {
        Picoseconds sum = 0;
        const Plan plan =
            two_partial_allreduce(Rank{0}, ranks, uniform(ranks, n), Order::commutative);
        for (const std::uint32_t messages : plan.per_round)
          sum += round_formula(messages, 8, fdr(), combining);
        ASSERT_EQ(dissemination_time(ranks, uniform(ranks, n), 8, fdr(), combining), sum);
      }
}

/// The ports of a round are free when it begins.
bool has_free_ports(std::uint64_t bytes, const LogGP& network) {
  return network.travel_time(bytes) + network.receive_overhead >= network.port_time(bytes);
}

PerRound arbitrary_vector(Random& random, std::uint32_t ranks) {
  PerRound vector;
  while (!covers(ranks, vector)) vector.push_back(random.between(1, 9));
  return vector;
}

TEST(DisseminationTime, while_arriving_is_the_recurrence) {
  Random random(2);
  int exact = 0;
  for (int sample = 0; sample < test::samples(5000); ++sample) {
    const std::uint32_t ranks = random.between(1, 500);
    const PerRound vector = arbitrary_vector(random, ranks);
    const LogGP network = arbitrary_network(random);
    const Call call{.payload_bytes = 1 + random.below(5000)};
    if (!has_free_ports(call.payload_bytes, network)) continue;
    const Picoseconds formula =
        dissemination_time(ranks, vector, call.payload_bytes, network, Combining::while_arriving);
    ASSERT_EQ(circulant_makespan(dissemination_allreduce(Rank{0}, ranks, vector), network, call),
              formula);
    const Plan plan = two_partial_allreduce(Rank{0}, ranks, vector, Order::commutative);
    const Picoseconds events = circulant_makespan(plan, network, call);
    ASSERT_GE(events, formula);
    ASSERT_LE(events, formula + static_cast<Picoseconds>(plan.per_round.size()) *
                                    gamma(call.payload_bytes, network));
    if (events == formula) ++exact;
    if (!has_free_ports(0, network)) continue;
    ASSERT_EQ(circulant_makespan(dissemination_barrier(Rank{0}, ranks, vector), network, call),
              dissemination_time(ranks, vector, 0, network, Combining::while_arriving));
  }
  EXPECT_GT(exact, test::samples(500));
}

void expect_best(std::uint32_t ranks, std::uint64_t bytes, const LogGP& network,
                 std::uint32_t largest, Combining combining) {
  Picoseconds least = INT64_MAX;
  test::for_each_minimal_vector(ranks, largest, [&](const PerRound& vector) {
    least = std::min(least, dissemination_time(ranks, vector, bytes, network, combining));
  });
  const PerRound best = best_per_round(ranks, bytes, network, largest, combining);
  ASSERT_TRUE(is_executable(ranks, best));
  ASSERT_EQ(dissemination_time(ranks, best, bytes, network, combining), least)
      << ranks << " ranks, " << bytes << " bytes, " << testing::PrintToString(best);
  ASSERT_TRUE(std::is_sorted(best.rbegin(), best.rend()));
  ASSERT_TRUE(best.empty() || best.front() <= largest);
}

TEST(BestPerRound, costs_what_the_best_of_all_minimal_vectors_does) {
  for (std::uint32_t ranks = 2; ranks <= test::every_rank_count_up_to; ++ranks)
    for (const Picoseconds gap : {0, 15'000, 100'000, 150'000, 1'000'000})
      for (const std::uint64_t bytes : {0u, 8u, 2040u, 100'000u})
        for (const Combining combining : both) expect_best(ranks, bytes, fdr(gap), 7, combining);
  for (std::uint32_t ranks = 2; ranks <= 100; ++ranks)
    expect_best(ranks, 8, fdr(), 31, Combining::after_all);
}

TEST(BestPerRound, costs_what_the_best_does_on_arbitrary_networks) {
  Random random(2);
  for (int sample = 0; sample < test::samples(1500); ++sample) {
    const LogGP network = arbitrary_network(random);
    expect_best(random.between(2, 300), random.below(3000), network, random.between(1, 9),
                both[random.below(2)]);
  }
}

TEST(BestPerRound, prefers_fewer_rounds_then_fewer_messages_where_time_is_equal) {
  const auto best = [](std::uint32_t ranks, const LogGP& network, std::uint32_t largest) {
    return best_per_round(ranks, 8, network, largest, Combining::after_all);
  };
  LogGP free = {.latency = 1};  // a round costs 1, its messages nothing
  EXPECT_EQ(best(96, free, 1024), PerRound{95});
  EXPECT_EQ(best(96, free, 9), (PerRound{9, 9}));
  EXPECT_EQ(best(90, free, 10), (PerRound{9, 8}));
  free = {.latency = 1, .gap = 1};  // 3 messages in one round, or one in each of 3
  EXPECT_EQ(best(4, free, 7), (PerRound{1, 1}));
  free = {.latency = 2, .gap = 1};  // 2 + 2 or 4, for 4 ranks
  EXPECT_EQ(best(4, free, 7), PerRound{3});
}

TEST(BestPerRound, is_found_for_many_ranks) {
  for (const std::uint32_t ranks : {1'000'000u, 1'000'003u, UINT32_MAX})
    for (const std::uint32_t largest : {1u, 7u, 63u}) {
      const PerRound vector = best_per_round(ranks, 8, fdr(), largest, Combining::after_all);
      EXPECT_TRUE(is_executable(ranks, vector));
    }
  // Messages that cost nothing leave the most to choose from.
  const PerRound vector = best_per_round(UINT32_MAX, 8, {.latency = 1}, 255, Combining::after_all);
  EXPECT_TRUE(is_executable(UINT32_MAX, vector));
  EXPECT_EQ(vector.size(), 4u);
}

struct Row {
  std::uint32_t ranks;
  PerRound small, slow_posts, large;
  double small_us, slow_posts_us, large_us;
};

/// FDR-like, 8 bytes with g = 100 and 150 ns, and 2040 bytes: by an independent implementation.
const std::array<Row, 9> table = {{
    {8, {7}, {7}, {3, 1}, 1.58, 1.88, 4.06},
    {16, {3, 3}, {3, 3}, {3, 3}, 2.27, 2.47, 5.19},
    {24, {5, 3}, {5, 3}, {3, 2, 1}, 2.49, 2.79, 6.09},
    {32, {7, 3}, {7, 3}, {3, 3, 1}, 2.71, 3.11, 6.66},
    {48, {7, 5}, {7, 5}, {3, 3, 2}, 2.93, 3.43, 7.22},
    {64, {7, 7}, {3, 3, 3}, {3, 3, 3}, 3.16, 3.70, 7.79},
    {96, {11, 7}, {5, 3, 3}, {3, 3, 2, 1}, 3.60, 4.02, 8.69},
    {1024, {6, 5, 4, 4}, {6, 5, 4, 4}, {3, 3, 3, 3, 3}, 5.31, 6.06, 12.98},
    {4096, {7, 7, 7, 7}, {6, 5, 4, 4, 3}, {3, 3, 3, 3, 3, 3}, 6.31, 7.30, 15.57},
}};

void expect_entry(std::uint32_t ranks, std::uint64_t bytes, const LogGP& network,
                  const PerRound& vector, double us) {
  constexpr std::uint32_t largest = 63;
  const PerRound best = best_per_round(ranks, bytes, network, largest, Combining::after_all);
  const Picoseconds time = dissemination_time(ranks, best, bytes, network, Combining::after_all);
  EXPECT_EQ(best, vector) << ranks << " ranks, " << bytes << " bytes";
  EXPECT_NEAR(static_cast<double>(time) / 1e6, us, 0.005001) << ranks;
}

TEST(Table, of_best_vectors_is_reproduced) {
  for (const Row& row : table) {
    expect_entry(row.ranks, 8, fdr(), row.small, row.small_us);
    expect_entry(row.ranks, 8, fdr(150'000), row.slow_posts, row.slow_posts_us);
    expect_entry(row.ranks, 2040, fdr(), row.large, row.large_us);
  }
}

double recurrence_over_formula(std::uint32_t ranks, const PerRound& vector, std::uint64_t bytes) {
  const Plan plan = two_partial_allreduce(Rank{0}, ranks, vector, Order::commutative);
  return static_cast<double>(circulant_makespan(plan, fdr(), {.payload_bytes = bytes})) /
         static_cast<double>(dissemination_time(ranks, vector, bytes, fdr(), Combining::after_all));
}

/// By what combining between arrivals saves: of all messages of a round but one, 11 ns each at 8
/// bytes (up to 5 % of the whole), 265 ns at 2040 bytes (up to 20 %).
TEST(Table, overestimates_the_recurrence) {
  for (const Row& row : table) {
    const double small = recurrence_over_formula(row.ranks, row.small, 8);
    EXPECT_GT(small, 0.95) << row.ranks;
    EXPECT_LT(small, 0.985) << row.ranks;
    const double large = recurrence_over_formula(row.ranks, row.large, 2040);
    EXPECT_GT(large, 0.80) << row.ranks;
    EXPECT_LT(large, 0.88) << row.ranks;
  }
}

/// By the recurrence, how much longer the chosen vector takes than the best of all: worst of 2 ..
/// 96 ranks.
double worst_excess(std::uint64_t bytes, Combining combining) {
  double worst = 1;
  for (std::uint32_t ranks = 2; ranks <= 96; ++ranks) {
    const auto events = [&](const PerRound& vector) {
      const Plan plan = two_partial_allreduce(Rank{0}, ranks, vector, Order::commutative);
      return circulant_makespan(plan, fdr(), {.payload_bytes = bytes});
    };
    Picoseconds least = INT64_MAX;
    test::for_each_minimal_vector(
        ranks, 11, [&](const PerRound& vector) { least = std::min(least, events(vector)); });
    const Picoseconds chosen = events(best_per_round(ranks, bytes, fdr(), 11, combining));
    worst = std::max(worst, static_cast<double>(chosen) / static_cast<double>(least));
  }
  return worst;
}

TEST(BestPerRound, while_arriving_is_nearly_best_by_the_recurrence_too) {
  EXPECT_LT(worst_excess(8, Combining::while_arriving), 1.001);
  EXPECT_LT(worst_excess(2040, Combining::while_arriving), 1.07);
  EXPECT_LT(worst_excess(8, Combining::after_all), 1.01);
  EXPECT_GT(worst_excess(2040, Combining::after_all), 1.20);
}

}  // namespace
}  // namespace tutti::plan
