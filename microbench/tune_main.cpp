// tutti-tune: measures the network and the collectives of some ranks, and writes a tuning file.
// This file: from the command line to what it asks for, and what needs no ranks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "microbench/interrupt.hpp"
#include "microbench/launch.hpp"
#include "microbench/progress.hpp"
#include "microbench/run_ranks.hpp"
#include "microbench/tune_check.hpp"
#include "microbench/tune_explain.hpp"
#include "microbench/tune_options.hpp"
#include "microbench/tune_session.hpp"
#include "microbench/tune_show.hpp"
#include "microbench/verify_choices.hpp"
#include "microbench/verify_figures.hpp"

namespace tutti::bench {
namespace {

constexpr const char* program = "tutti-tune";
constexpr std::uint32_t verified_ranks_max = 768;
constexpr int status_missed = 3;  // of --verify, as of tutti-bench --expect

/// How a run that failed ends: 1 of --check says that the fabric has changed.
int failure_status(TuneMode mode) {
  return mode == TuneMode::check ? status_unknown : exit_failure;
}

/// Prints a text to standard output.
int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  print_reason(program, "standard output could not be written");
  return exit_failure;
}

/// Judges choices over the grid, in an order that makes each part of it a sample of the whole.  A
/// signal that has cut it short is returned in `cut_by`.
Verdict verify_grid(const TuneOptions& options, Progress& progress, int& cut_by) {
  const auto is_asked = [&](VerifiedPart part) {
    return std::find(options.verified.begin(), options.verified.end(), part) !=
           options.verified.end();
  };
  const std::vector<ChoiceCell> grid = grid_of_choices(verified_ranks_max);
  const std::vector<ChoiceCell> cells = sample_of_choices(grid, grid.size(), options.seed);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const NotedSignals signals;
  const VerifyOptions how{.percent_off = options.percent_off,
                          .seed = options.seed,
                          .model = is_asked(VerifiedPart::model),
                          .race = is_asked(VerifiedPart::race),
                          .nearby = is_asked(VerifiedPart::nearby),
                          .ranks_max = verified_ranks_max};
  const std::vector<CellResult> results = verify_choices(
      cells, how, [&](const CellResult& result, std::size_t done, std::size_t count) {
        const std::chrono::duration<double> spent = Clock::now() - begin;
        const double left = spent.count() * static_cast<double>(count - done) /
                            static_cast<double>(std::max<std::size_t>(done, 1));
        const double allowed = (options.verify_budget - spent).count();
        progress.show(done, count, std::min(left, allowed), result.cell.text());
        return allowed > 0 && signals.last() == 0;
      });
  if (results.size() < cells.size()) cut_by = signals.last();
  Verdict verdict{.text = regret_table_of(results), .misses = misses_of(results)};
  for (const ChosenBy way : every_way_of_choosing)
    if (regrets_of(results, way).cells > 0)
      verdict.text += fmt::format("\nchosen by {}\n{}", name_of(way), table_of(results, way));
  verdict.text += fmt::format("{} of {} cells{}\n", results.size(), cells.size(),
                              cut_by != 0 ? ", as a signal has come" : "");
  return verdict;
}

Verdict verify_part(VerifiedPart part, const TuneOptions& options, Progress& progress,
                    int& cut_by) {
  switch (part) {
    case VerifiedPart::model:
    case VerifiedPart::race:
    case VerifiedPart::nearby:
      return verify_grid(options, progress, cut_by);
    case VerifiedPart::fit: {
      constexpr std::uint32_t seeds = 200;
      return verify_fit(seeds, [&](const std::string& preset, std::size_t done, std::size_t count) {
        progress.show(done, count, 0, "fit of " + preset);
      });
    }
    case VerifiedPart::noise: {
      constexpr std::uint32_t races = 1000;
      return verify_noise(races);
    }
    case VerifiedPart::time:
      return verify_time();
  }
  return {};
}

/// All parts that are about the grid are judged together, in place of the first one asked for.  A
/// signal during that ends it, and later parts are left out; what was judged by then is printed.
int verify(const TuneOptions& options) {
  Progress progress(stderr, program);
  Verdict all;
  bool has_grid = false;
  int cut_by = 0;
  for (const VerifiedPart part : options.verified) {
    if (is_about_grid(part) && std::exchange(has_grid, true)) continue;
    if (cut_by != 0) break;
    const Verdict verdict = verify_part(part, options, progress, cut_by);
    all.text += (all.text.empty() ? "" : "\n") + verdict.text;
    all.misses += verdict.misses;
  }
  progress.end();
  const int status = print(
      all.text + (all.misses.empty() ? std::string() : "\nWhat misses a bound:\n" + all.misses));
  if (status == 0 && cut_by != 0) return 128 + cut_by;
  return status != 0 || all.misses.empty() ? status : status_missed;
}

/// Writes the page, and says where it is.
int report(const TuneOptions& options) {
  write_report(options.other_file, options.file);
  return print(fmt::format("page: {}\n", options.other_file));
}

/// Whether another rank of the job, whose ranks were started apart or by MPI, prints for all.
bool is_later_rank() {
  const char* const rank = std::getenv("TUTTI_RANK");
  return rank != nullptr ? std::strcmp(rank, "0") != 0 : is_later_rank_of_job();
}

/// Sets `mode` as soon as it is known.
int run_program(std::span<const char* const> arguments, TuneMode& mode) {
  const TuneOptions options = parse_tune_options(arguments);
  mode = options.mode;
  if (!options.help.empty()) return print(options.help);
  switch (options.mode) {
    case TuneMode::tune:
      end_with_words(options.file, options.local.has_value() || !is_later_rank());
      [[fallthrough]];
    case TuneMode::check:
      return run_ranks(program, options, failure_status(options.mode),
                       [&](const Launch& launch) { return run_tune_session(options, launch); });
    case TuneMode::show:
      return print(show_tuning(read_tuning(options.file)));
    case TuneMode::explain:
      return print(explained(options));
    case TuneMode::verify:
      return verify(options);
    case TuneMode::diff:
      return print(compared(options.file, options.other_file));
    case TuneMode::report:
      return report(options);
  }
  return exit_failure;
}

}  // namespace
}  // namespace tutti::bench

int main(int argument_count, char** arguments) {
  using namespace tutti::bench;
  TuneMode mode = TuneMode::tune;
  bool has_failed = true;
  const int status = exit_status_of(program, [&] {
    const int result = run_program({arguments, static_cast<std::size_t>(argument_count)}, mode);
    has_failed = false;
    return result;
  });
  return has_failed && status == exit_failure ? failure_status(mode) : status;
}
