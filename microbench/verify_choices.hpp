// What choices take beside the least that is possible, by the recurrence of events
// (plan/cost/makespan.hpp): the judge of prices and of tuning files, without any device.
//
// A cell is one call on one machine.  Its choice is made from what is known of the machine, which
// may be off by a few percent, and takes what it takes on the machine itself.  That is compared
// with all candidates of the registry: their rows and variants, and where each rank is a node of
// its own and there are few, every vector with entries up to 15.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tutti/reduction.hpp>
#include <vector>

#include "plan/cost/loggp.hpp"
#include "tune/choose.hpp"

namespace tutti::bench {

struct ChoiceCell {
  std::string preset = "fdr";
  tune::Collective collective = tune::Collective::allreduce;
  std::uint32_t nodes = 2;
  std::uint32_t ranks_per_node = 1;
  std::uint64_t bytes = 8;  // of a contribution; of allgathers and alltoalls, of all blocks
  Agreement agreement = Agreement::identical;

  tune::CollectiveRequest request() const;
  tune::Topology topology() const;
  std::string text() const;  // "fdr allreduce of 8 bytes, identical, 17 nodes of 1"
};

/// Presets x nodes {2 .. 17, 24, 31 .. 33, 48, 63 .. 65, 96} x ranks a node {1, 4, 8} x bytes
/// {0, 8, 64, 256, 1K, 2K, 4K, 64K, 1M} x agreements x collectives, without what has no meaning (a
/// barrier of several bytes), and without repetitions (agreements of what combines nothing).  At
/// most `ranks_max` ranks.
std::vector<ChoiceCell> grid_of_choices(std::uint32_t ranks_max);
/// Cells of the grid, drawn without repetition from a generator of `seed`.
std::vector<ChoiceCell> sample_of_choices(const std::vector<ChoiceCell>& grid, std::size_t count,
                                          std::uint64_t seed);

/// Returns the machine with every parameter `percent` higher or lower, as the generator of `seed`
/// says.
tune::Machine machine_off_by(const tune::Machine& machine, std::uint32_t percent,
                             std::uint64_t seed);

/// What a choice takes on a network.  The chunks of a broadcast or reduce follow each other, as in
/// the engine.
plan::Picoseconds time_of(const tune::Choice& choice, const ChoiceCell& cell,
                          const plan::Network& network);

struct CellResult {
  ChoiceCell cell = {};
  std::string choice = {}, best = {};  // names
  plan::Picoseconds chosen = 0, least = 0;
  plan::Picoseconds untuned = 0;  // by the rule of thumb: n = 1 .. 7, as on FDR InfiniBand
  plan::Picoseconds uniform = 0;  // the best uniform n = 1 .. 7 over all ranks; 0: not possible
  plan::Picoseconds half = 0;     // what is chosen for half the bytes; 0: none are left

  double regret() const { return static_cast<double>(chosen) / static_cast<double>(least) - 1; }
};

struct VerifyOptions {
  std::uint32_t percent_off = 5;
  std::uint64_t seed = 1;
  /// Candidates whose price is more than this many times that of the cheapest are not followed.
  double followed_up_to = 2;
};

/// Looks at a cell whose choice is made from `knowledge` of a machine that is `truth`.
CellResult verify_choice(const ChoiceCell& cell, const tune::Knowledge& knowledge,
                         const tune::Machine& truth, const VerifyOptions& options);

/// Looks at each cell, untuned and with parameters that are off.  `progress` is told each result,
/// and how many there are of how many; it returns whether to go on.
std::vector<CellResult> verify_choices(
    const std::vector<ChoiceCell>& cells, const VerifyOptions& options,
    const std::function<bool(const CellResult&, std::size_t, std::size_t)>& progress = {});

// The bounds.
inline constexpr double regret_max = 0.1;     // over the least of all candidates
inline constexpr double quotient_max = 1.02;  // over the rule of thumb, and the best uniform n
inline constexpr double robust_max = 1.03;    // half over whole, whole over two halves

struct VerifySummary {
  std::size_t cells = 0;
  double median = 0, worst = 0;               // regret
  double of_99_percent = 0;                   // which 99 % of the cells do not exceed
  double over_untuned = 0, over_uniform = 0;  // largest quotients
  double not_monotone = 0, not_split = 0;     // half over whole, whole over two halves
  // Cells that miss a bound.
  std::size_t regretful = 0, slower_than_untuned = 0, slower_than_uniform = 0, not_robust = 0;
};
VerifySummary summary_of(const std::vector<CellResult>& results);
/// By preset and collective: cells, regret, and what is chosen beside the rule and the best uniform
/// n.
std::string table_of(const std::vector<CellResult>& results);
/// Each cell that misses a bound, a line each.
std::string misses_of(const std::vector<CellResult>& results);

}  // namespace tutti::bench
