// Promise: what is chosen by price takes about the least that any candidate takes, whatever the
// machine, also where what is known of the machine is a little wrong; and never longer than what
// was chosen by the rule of thumb, nor than the best uniform n.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "microbench/verify_choices.hpp"

namespace tutti::bench {
namespace {

// TUTTI_VERIFY_CELLS=2000 takes more of the grid, with more ranks; 0 means all of it.
TEST(VerifyChoices, of_a_sample_of_the_grid_are_near_the_least) {
  const char* const asked = std::getenv("TUTTI_VERIFY_CELLS");
  const std::size_t count = asked == nullptr ? 300 : std::strtoul(asked, nullptr, 10);
  const std::vector<ChoiceCell> grid = grid_of_choices(768);
  const std::vector<ChoiceCell> cells =
      sample_of_choices(grid, count == 0 ? grid.size() : count, 21);
  const auto results =
      verify_choices(cells, {}, [&](const CellResult& result, std::size_t, std::size_t) {
        const auto quotient = [](plan::Picoseconds above, plan::Picoseconds below) {
          return below == 0 ? 0 : static_cast<double>(above) / static_cast<double>(below);
        };
        const double untuned = quotient(result.chosen, result.untuned);
        const double uniform = quotient(result.chosen, result.uniform);
        const double monotone = quotient(result.half, result.chosen);
        const double split = quotient(result.chosen, 2 * result.half);
        if (result.regret() > 0.1 || untuned > 1.02 || uniform > 1.02 || monotone > 1.03 ||
            split > 1.03)
          std::printf(
              "%s: %s, %.2f us, regret %.3f; least by %s; / rule %.3f, / uniform %.3f, half / "
              "whole "
              "%.3f, whole / halves %.3f\n",
              result.cell.text().c_str(), result.choice.c_str(),
              static_cast<double>(result.chosen) / 1e6, result.regret(), result.best.c_str(),
              untuned, uniform, monotone, split);
        return true;
      });
  std::printf("%s", table_of(results).c_str());
  const VerifySummary summary = summary_of(results);
  EXPECT_LE(summary.median, 0.01);
  EXPECT_LE(summary.worst, 0.10);
  EXPECT_LE(summary.over_untuned, 1.02);
  EXPECT_LE(summary.over_uniform, 1.02);
  EXPECT_LE(summary.not_monotone, 1.03);
  EXPECT_LE(summary.not_split, 1.03);
}

}  // namespace
}  // namespace tutti::bench
