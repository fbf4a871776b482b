// What choices take beside the least that is possible, by the recurrence of events
// (plan/cost/makespan.hpp): the judge of prices and of tuning files, without any device.
//
// A cell is one call on one machine.  Its choice is made from what is known of the machine, which
// may be off by a few percent, and takes what it takes on the machine itself; likewise what is
// chosen after a race, and by findings of other cells alone (verify_tuned.hpp).  That is compared
// with the candidates of the registry whose price is at most VerifyOptions::followed_up_to times
// the least: their rows and variants, and where each rank is a node of its own and there are few,
// every vector with entries up to 15.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tutti/reduction.hpp>
#include <vector>

#include "plan/cost/loggp.hpp"
#include "tune/choose.hpp"

namespace tutti::bench {

class TunedFiles;  // verify_tuned.hpp

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

/// Whether a payload is blocks of ranks.
bool has_blocks(tune::Collective collective);

/// Presets x nodes {2 .. 17, 24, 31 .. 33, 48, 63 .. 65, 96} x ranks a node {1, 4, 8} x bytes
/// {0, 8, 64, 256, 1K, 2K, 4K, 64K, 1M} x agreements x collectives, without what has no meaning (a
/// barrier of several bytes), and without repetitions (agreements of what combines nothing).  At
/// most `ranks_max` ranks.
std::vector<ChoiceCell> grid_of_choices(std::uint32_t ranks_max);
/// Cells of the grid, drawn without repetition from a generator of `seed`.
std::vector<ChoiceCell> sample_of_choices(const std::vector<ChoiceCell>& grid, std::size_t count,
                                          std::uint64_t seed);

/// Returns the machine with every parameter `percent` higher or lower, as the generator of `seed`
/// says, and with intervals that contain the values of the given machine.
tune::Machine machine_off_by(const tune::Machine& machine, std::uint32_t percent,
                             std::uint64_t seed);

/// What a choice takes on a network.  The chunks of a broadcast or reduce follow each other, as in
/// the engine.
plan::Picoseconds time_of(const tune::Choice& choice, const ChoiceCell& cell,
                          const plan::Network& network);

/// By what a cell is chosen.
enum class ChosenBy : std::uint8_t {
  model,   // prices on the machine as it is known
  race,    // a race of this cell
  nearby,  // findings of cells with other bytes and other numbers of nodes
};
inline constexpr std::array every_way_of_choosing = {ChosenBy::model, ChosenBy::race,
                                                     ChosenBy::nearby};
const char* name_of(ChosenBy way) noexcept;

struct CellResult {
  struct Taken {
    std::string choice = {};     // its name
    plan::Picoseconds time = 0;  // 0: not looked at
  };
  ChoiceCell cell = {};
  std::array<Taken, every_way_of_choosing.size()> taken = {};
  std::string best = {};  // its name
  plan::Picoseconds least = 0;
  plan::Picoseconds untuned = 0;  // what is chosen without a tuning file, by the prices of "fdr"
  plan::Picoseconds rule = 0;     // by the rule of thumb: n = 1 .. 7, as on FDR InfiniBand
  plan::Picoseconds uniform = 0;  // the best uniform n = 1 .. 7 over all ranks; 0: not possible
  plan::Picoseconds half = 0;     // what is chosen for half the bytes; 0: none are left

  Taken& by(ChosenBy way) { return taken[static_cast<std::size_t>(way)]; }
  const Taken& by(ChosenBy way) const { return taken[static_cast<std::size_t>(way)]; }
  plan::Picoseconds chosen() const { return by(ChosenBy::model).time; }
  double regret(ChosenBy way = ChosenBy::model) const {
    return static_cast<double>(by(way).time) / static_cast<double>(least) - 1;
  }
};

struct VerifyOptions {
  std::uint32_t percent_off = 5;
  std::uint64_t seed = 1;
  /// Candidates whose price is more than this many times that of the cheapest are not followed.
  double followed_up_to = 2;
  /// The ways of choosing that are looked at.
  bool model = true, race = false, nearby = false;
  std::uint32_t ranks_max = 768;  // of a cell nearby
  unsigned threads = 0;           // of verify_choices(); 0: one for each CPU that it may use
};

/// Makes the choice for `cell` in each way that is asked for, and computes what it takes on the
/// machine `truth`, beside the least of all candidates.  ChosenBy::model and ChosenBy::race, which
/// `options` asks for, know the machine as `known`.  ChosenBy::nearby, if `files` is not NULL, uses
/// the parameters and the findings of other cells in these files instead.
CellResult verify_choice(const ChoiceCell& cell, const tune::Machine& known,
                         const tune::Machine& truth, const VerifyOptions& options,
                         TunedFiles* files = nullptr);

/// Calls verify_choice() for each cell, in `options.threads` threads; the known parameters differ
/// from the true ones by `options.percent_off`.  After each cell, `progress` is called with its
/// result, the number of finished cells and the number of all cells, never by two threads at once.
/// If it returns false, cells that have begun are finished, and the others are missing from the
/// results.  The results are in the order of `cells`; if none is missing, they do not depend on the
/// number of threads.  If a cell throws, no further one is begun, and the exception is rethrown.
std::vector<CellResult> verify_choices(
    const std::vector<ChoiceCell>& cells, const VerifyOptions& options,
    const std::function<bool(const CellResult&, std::size_t, std::size_t)>& progress = {});

// The bounds.
struct RegretBound {
  double median, worst;  // over the least of all candidates
};
RegretBound bound_of(ChosenBy way) noexcept;
inline constexpr double quotient_max = 1.02;  // over what is chosen without a file, the rule of
                                              // thumb, and the best uniform n
inline constexpr double robust_max = 1.03;    // half over whole, whole over two halves

struct RegretSummary {
  std::size_t cells = 0;
  double median = 0, high = 0, worst = 0;  // high: that of 99 % of the cells is not above it
  std::size_t over = 0;                    // cells over the bound of the worst
  struct Quotients {
    double worst = 0;
    std::size_t over = 0;  // cells over quotient_max
  };
  Quotients untuned = {}, rule = {}, uniform = {};
};
RegretSummary regrets_of(const std::vector<CellResult>& results, ChosenBy way);

/// How many cells are not robust: a larger payload is faster, or two halves than the whole.
std::size_t not_robust(const std::vector<CellResult>& results);
/// A line for each way of choosing that was looked at: the regret and its bounds, and the times
/// over those of what is chosen without a file, of the rule, and of the best uniform n.
std::string regret_table_of(const std::vector<CellResult>& results);
/// By preset and collective: cells, median and worst regret of what is chosen in this way, beside
/// what is chosen without a file, the rule and the best uniform n.
std::string table_of(const std::vector<CellResult>& results, ChosenBy way);
/// A line for each median that misses its bound, and for each cell that misses one.
std::string misses_of(const std::vector<CellResult>& results);

}  // namespace tutti::bench
