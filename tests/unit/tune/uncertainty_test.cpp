// Promise: the uncertainty of a quotient of two prices is the root of the sum of the squares of
// what each parameter adds on the way to a corner of the intervals; it is that of choices made anew
// on such machines, and nothing for what depends on the parameters in the same way.
#include "tune/uncertainty.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tutti/reduction.hpp>
#include <utility>
#include <vector>

#include "tune/choose.hpp"
#include "tune/knowledge.hpp"

namespace tutti::tune {
namespace {

CollectiveRequest request_of(Collective collective, std::size_t bytes) {
  CollectiveRequest request{
      .collective = collective,
      .element_count = bytes / 8,
      .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
  };
  request.root = Rank{0};
  return request;
}

Topology nodes_of(std::uint32_t nodes, std::uint32_t ranks_per_node) {
  Topology topology{.rank_count = nodes * ranks_per_node};
  for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
    topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

/// The preset with each parameter known to `percent`.
Machine within(const std::string& preset, std::int64_t percent) {
  Machine machine = machine_preset(preset);
  for (Figure& figure : machine.figures) {
    figure.low = figure.value * (100 - percent) / 100;
    figure.high = figure.value * (100 + percent) / 100;
  }
  return machine;
}

struct Expected {
  double root = 0, sum = 0, inverse_sum = 0;
};

/// Computes the uncertainty in floating point, from choices that are made anew on each machine.
Expected expected(const Choice& one, const Choice& other, const Machine& machine) {
  const auto quotient_on = [&](const Machine& moved) {
    const Query query = one.query();
    const auto price = [&](const Choice& choice) {
      const auto again = choice_named(choice.name(), query.request, query.topology, untuned(moved));
      // A tree whose latency is far from that of the machine has no name there.
      EXPECT_TRUE(again || choice.name().find("latency") != std::string::npos) << choice.name();
      return static_cast<double>(again ? again->cost() : choice.on(moved.network()).cost());
    };
    return price(one) / price(other);
  };
  const double known = quotient_on(machine);
  double inverse = 0;
  Machine moved = machine;
  for (Figure& figure : moved.figures) {
    const Figure alone = figure;
    double lower = 0;
    for (const std::int64_t end : {alone.low, alone.high}) {
      figure.value = end;
      lower = std::max(lower, known / quotient_on(moved) - 1);
    }
    figure = alone;
    inverse += lower;
  }
  // One after the other, and each a second time, goes where the quotient is largest.
  double here = known;
  std::array<double, parameter_count> grown{};
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = 0; i < parameter_count; ++i) {
      Figure& figure = moved.figures[i];
      std::int64_t best = figure.value;
      double highest = here;
      for (const std::int64_t end : {figure.low, figure.high}) {
        figure.value = end;
        const double quotient = quotient_on(moved);
        if (quotient <= highest * (1 + 1e-6)) continue;
        highest = quotient;
        best = end;
      }
      figure.value = best;
      grown[i] += highest / here - 1;
      here = highest;
    }
  double squared = 0, sum = 0;
  for (const double of_one : grown) {
    squared += of_one * of_one;
    sum += of_one;
  }
  return {std::sqrt(squared), sum, inverse};
}

double root_of(const Uncertainty& uncertainty) {
  return std::sqrt(static_cast<double>(uncertainty.squared)) / million;
}

TEST(Uncertainty, is_that_of_choices_made_anew) {
  std::size_t pairs = 0, across = 0, turns = 0;
  for (const Collective collective :
       {Collective::allreduce, Collective::reduce, Collective::allgather, Collective::barrier})
    for (const auto& [nodes, ranks_per_node] : {std::pair{9u, 1u}, {5u, 8u}})
      for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{256} << 10}) {
        if (collective == Collective::barrier && bytes > 1 << 10) continue;
        const Machine machine = within("hdr", 5);
        const std::vector<Choice> all =
            rivals(request_of(collective, collective == Collective::barrier ? 0 : bytes),
                   nodes_of(nodes, ranks_per_node), machine.network());
        // From one schedule to the next that is 5 places behind, so that hierarchies differ.
        for (std::size_t i = 0; i + 5 < all.size() && i < 25; i += 5) {
          const Uncertainty found = uncertainty_of(all[i], all[i + 5], machine);
          const Expected anew = expected(all[i], all[i + 5], machine);
          const std::string of = all[i].name() + " beside " + all[i + 5].name();
          EXPECT_NEAR(root_of(found), anew.root, 2e-5) << of;
          EXPECT_NEAR(static_cast<double>(found.sum) / million, anew.sum, 5e-5) << of;
          EXPECT_NEAR(static_cast<double>(found.inverse_sum) / million, anew.inverse_sum, 5e-5)
              << of;
          ++pairs;
          for (const Choice* const choice : {&all[i], &all[i + 5]}) {
            across += choice->variant().across ? 1 : 0;
            turns += choice->variant().turns > 0 ? 1 : 0;
          }
        }
      }
  EXPECT_GE(pairs, 15u);
  EXPECT_GE(across, 5u);
  EXPECT_GE(turns, 1u);
}

TEST(Uncertainty, grows_with_the_intervals) {
  const std::vector<Choice> all = rivals(request_of(Collective::allreduce, 4096), nodes_of(24, 1),
                                         machine_preset("fdr").network());
  ASSERT_GE(all.size(), 2u);
  const auto root_within = [&](const Machine& machine) {
    return root_of(uncertainty_of(all.front(), all.back(), machine));
  };
  EXPECT_EQ(root_within(machine_preset("fdr")), 0);
  EXPECT_EQ(uncertainty_of(all.front(), all.front(), within("fdr", 50)).squared, 0);
  EXPECT_EQ(uncertainty_of(all.front(), all.front(), within("fdr", 50)).inverse_sum, 0);
  const double narrow = root_within(within("fdr", 1)), wide = root_within(within("fdr", 5));
  EXPECT_GT(narrow, 0.001);
  EXPECT_LT(wide, 0.105);  // each price is at most 5 % off
  EXPECT_NEAR(wide, 5 * narrow, wide / 5);
}

// A file may say so of a parameter that it does not know.
TEST(Uncertainty, of_parameters_that_may_be_anything_does_not_overflow) {
  Machine machine = machine_preset("roce10");
  for (std::size_t i = 0; i < parameter_count; ++i) {
    machine.figures[i].low = 0;
    machine.figures[i].high = most_of(static_cast<Parameter>(i));
  }
  const std::vector<Choice> all = rivals(request_of(Collective::allreduce, 8 << 20),
                                         nodes_of(64, 8), machine_preset("roce10").network());
  ASSERT_GE(all.size(), 2u);
  const Uncertainty found = uncertainty_of(all.front(), all.back(), machine);
  // Each parameter counts a million at most, and one at least does.
  EXPECT_GE(found.squared, million * million);
  EXPECT_LE(found.squared, static_cast<std::int64_t>(parameter_count) * million * million);
  EXPECT_GE(found.sum, million);
  EXPECT_LE(found.sum, static_cast<std::int64_t>(parameter_count) * million);
  EXPECT_GT(found.inverse_sum, 0);
  EXPECT_LE(found.inverse_sum, static_cast<std::int64_t>(parameter_count) * million);
}

TEST(Uncertainty, decides_whether_a_gain_is_worth_it) {
  constexpr std::int64_t percent = million / 100;
  const auto known_to = [](std::int64_t root, std::int64_t inverse_sum, std::int64_t sum = 0) {
    return Uncertainty{
        .squared = root * root, .sum = std::max(root, sum), .inverse_sum = inverse_sum};
  };
  struct Case {
    std::int64_t gain;
    Uncertainty uncertainty;
    std::int64_t of_findings;
    bool is_worth_it;
  };
  for (const Case& one : {
           Case{2 * percent, known_to(0, 0), 0, true},
           {2 * percent, known_to(1 * percent, 0), 0, true},
           {2 * percent, known_to(3 * percent, 0), 0, false},
           {2 * percent, known_to(3 * percent, 7 * percent), 0, false},
           {2 * percent, known_to(3 * percent, 9 * percent), 0, false},
           {3 * percent, known_to(4 * percent, 7 * percent), 0, false},
           {3 * percent, known_to(4 * percent, 8 * percent), 0, true},  // 11 % slower at worst
           {2 * percent, known_to(0, 0), 3 * percent, false},
           {2 * percent, known_to(0, 0), -3 * percent, false},
           {5 * percent, known_to(3 * percent, 0), 3 * percent, true},  // root of 18: 4.2 %
           {4 * percent, known_to(3 * percent, 0), 3 * percent, false},
           {5 * percent, known_to(4 * percent, 0, 7 * percent), 0, true},
           {5 * percent, known_to(4 * percent, 0, 8 * percent), 0, false},  // 3 % longer at worst
           {5 * percent, known_to(3 * percent, 0, 6 * percent), 2 * percent, false},
           {5 * percent, known_to(3 * percent, 0, 6 * percent), -2 * percent, false},
           {5 * percent, known_to(4 * percent, 6 * percent, 8 * percent), 0, true},
           {11 * percent, known_to(50 * percent, 0), 50 * percent, true},
       })
    EXPECT_EQ(is_worth_it(one.gain, one.uncertainty, one.of_findings), one.is_worth_it)
        << one.gain << " of " << one.uncertainty.squared << ", " << one.uncertainty.inverse_sum;
}

// Two lanes take the time of the port or that of memory, whichever is longer; four lanes take that
// of the port.  On `machine` the port takes a little longer than memory.  So the ratio of the two
// changes by much only if both the port is faster and memory is slower.
TEST(Uncertainty, is_also_of_parameters_that_matter_only_together) {
  const Machine exact = machine_preset("roce25");
  Machine machine = exact;  // off by 5 %, with intervals that reach to the exact machine
  for (std::size_t i = 0; i < parameter_count; ++i) {
    const std::string key = key_of(static_cast<Parameter>(i));
    Figure& figure = machine.figures[i];
    const bool is_of_memory = key.starts_with("inside") || key.starts_with("combine");
    figure.value = figure.value * (is_of_memory ? 95 : 105) / 100;
    figure.low = std::min(figure.value, exact.figures[i].value);
    figure.high = std::max(figure.value, exact.figures[i].value);
  }
  const auto named = [&](const char* name) {
    return choice_named(name, request_of(Collective::reduce, 1 << 20), nodes_of(4, 4),
                        untuned(machine));
  };
  const auto two = named("2 lanes of latency 1 along a chain");
  const auto four = named("4 lanes of latency 1 along a chain");
  ASSERT_TRUE(two && four);
  const auto quotient_on = [&](const Machine& there) {
    return static_cast<double>(two->on(there.network()).cost()) /
           static_cast<double>(four->on(there.network()).cost());
  };
  double of_each_alone = 0;
  for (std::size_t i = 0; i < parameter_count; ++i) {
    Machine moved = machine;
    moved.figures[i].value = exact.figures[i].value;
    of_each_alone += std::max(quotient_on(moved) / quotient_on(machine) - 1, 0.0);
  }
  const double of_all = quotient_on(exact) / quotient_on(machine) - 1;
  EXPECT_GT(of_all, 0.04);
  EXPECT_LT(of_each_alone, of_all / 3);
  // The corner of the intervals at which the quotient is largest, of all 2^14.
  double largest = 0;
  for (std::uint32_t corner = 0; corner < 1u << parameter_count; ++corner) {
    Machine moved = machine;
    for (std::size_t i = 0; i < parameter_count; ++i)
      if ((corner >> i & 1) != 0) moved.figures[i].value = exact.figures[i].value;
    largest = std::max(largest, quotient_on(moved) / quotient_on(machine) - 1);
  }
  // A sum of n steps is at most the root of n times the root of the sum of their squares.
  const Uncertainty uncertainty = uncertainty_of(*two, *four, machine);
  EXPECT_NEAR(static_cast<double>(uncertainty.sum) / million, largest, largest / 20);
  const double root = root_of(uncertainty);
  EXPECT_LE(root, largest);
  EXPECT_GE(root * std::sqrt(parameter_count), largest);
  EXPECT_GT(root, of_all / 2);
}

// The time of `one` has four latencies, and that of `other` has one.
TEST(Uncertainty, is_of_the_end_at_which_the_first_choice_is_slower) {
  const Machine exact = machine_preset("hdr");
  const CollectiveRequest request = request_of(Collective::allreduce, 64);
  const auto named = [&](const char* name) {
    return choice_named(name, request, nodes_of(16, 1), untuned(exact));
  };
  const auto one = named("canonical_dissemination with 1,1,1,1 a round");
  const auto other = named("canonical_dissemination with 15 a round");
  ASSERT_TRUE(one && other);
  Machine higher = exact, lower = exact;
  higher[Parameter::latency].high = exact[Parameter::latency].value * 11 / 10;
  lower[Parameter::latency].low = exact[Parameter::latency].value * 9 / 10;
  EXPECT_GT(uncertainty_of(*one, *other, higher).squared, 0);
  EXPECT_EQ(uncertainty_of(*one, *other, higher).inverse_sum, 0);
  EXPECT_EQ(uncertainty_of(*one, *other, lower).squared, 0);
  EXPECT_GT(uncertainty_of(*one, *other, lower).inverse_sum, 0);
  EXPECT_EQ(uncertainty_of(*other, *one, higher).squared, 0);
}

TEST(RelativeChange, is_exact_to_a_millionth_also_of_large_numbers) {
  EXPECT_EQ(relative_change(100, 105), 50'000);
  EXPECT_EQ(relative_change(100, 95), -50'000);
  EXPECT_EQ(relative_change(0, 3), 2'000'000);  // a price of nothing counts as one
  EXPECT_NEAR(static_cast<double>(relative_change(INT64_MAX / 2, INT64_MAX / 2 + INT64_MAX / 20)),
              100'000, 1);
}

}  // namespace
}  // namespace tutti::tune
