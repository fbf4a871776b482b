// Promise: the uncertainty of a quotient of two prices is the root of the sum of the squares of
// what each parameter's interval allows; it is that of choices made anew on such machines, and
// nothing for what depends on the parameters in the same way.
#include "tune/uncertainty.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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
  double root = 0, opposite_at_most = 0;
};

/// The same in floating point, of choices made anew.
Expected expected(const Choice& one, const Choice& other, const Machine& machine) {
  const auto quotient_on = [&](const Machine& moved) {
    const Query query = one.query();
    const auto price = [&](const Choice& choice) {
      const auto again = choice_named(choice.name(), query.request, query.topology, untuned(moved));
      EXPECT_TRUE(again) << choice.name();
      return static_cast<double>(again ? again->cost() : 0);
    };
    return price(one) / price(other);
  };
  const double here = quotient_on(machine);
  double sum = 0, opposite = 0;
  Machine moved = machine;
  for (Figure& figure : moved.figures) {
    const Figure known = figure;
    double higher = 0, lower = 0;
    for (const std::int64_t end : {known.low, known.high}) {
      figure.value = end;
      const double quotient = quotient_on(moved);
      higher = std::max(higher, quotient / here - 1);
      lower = std::max(lower, here / quotient - 1);
    }
    figure = known;
    sum += higher * higher;
    opposite += lower;
  }
  return {std::sqrt(sum), opposite};
}

double root_of(const Uncertainty& uncertainty) {
  return std::sqrt(static_cast<double>(uncertainty.squared)) / million;
}

TEST(Uncertainty, is_that_of_choices_made_anew) {
  std::size_t pairs = 0;
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
          EXPECT_NEAR(static_cast<double>(found.opposite_at_most) / million, anew.opposite_at_most,
                      5e-5)
              << of;
          ++pairs;
        }
      }
  EXPECT_GE(pairs, 15u);
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
  EXPECT_EQ(uncertainty_of(all.front(), all.front(), within("fdr", 50)).opposite_at_most, 0);
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
  constexpr std::int64_t count = std::int64_t{parameter_count};
  EXPECT_GT(found.squared, 0);
  EXPECT_LE(found.squared, count * million * million);
  EXPECT_GT(found.opposite_at_most, 0);
  EXPECT_LE(found.opposite_at_most, count * million);
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
